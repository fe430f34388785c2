"""A device plugin of the kubelet's real interface (v1beta1) that offers GPUs which do not exist."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc


def _field(number: int, content: str | bytes) -> bytes:
    """Return a text or message of fewer than 128 bytes as protobuf writes it."""
    encoded = content.encode() if isinstance(content, str) else content
    assert len(encoded) < 128
    return bytes([number << 3 | 2, len(encoded)]) + encoded


@contextmanager
def offer_gpus(kubelet: Path, ids: Sequence[str], resource: str = "nvidia.com/gpu") -> Iterator[None]:
    """Offer devices to the kubelet whose folder of device plugins this is, until the end."""
    stopped = Event()

    def list_and_watch(_request: bytes, _context: Any) -> Iterator[bytes]:
        yield b"".join(_field(1, _field(1, each) + _field(2, "Healthy")) for each in ids)
        stopped.wait()

    methods: dict[str, Any] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
        # The kubelet asks for one container at a time, which gets nothing beside the device.
        "Allocate": grpc.unary_unary_rpc_method_handler(lambda _request, _context: _field(1, b"")),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)])
    endpoint = "offered.sock"
    assert server.add_insecure_port(f"unix:{kubelet / endpoint}")
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{kubelet / 'kubelet.sock'}") as channel:
            request = _field(1, "v1beta1") + _field(2, endpoint) + _field(3, resource)
            register: Any = channel.unary_unary("/v1beta1.Registration/Register")
            register(request, timeout=30)
        yield
    finally:
        stopped.set()
        server.stop(None).wait()
