"""A kubelet's list of devices, and an API server with objects, both real servers of this process."""

import json
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import grpc

from gpuagent.sources.source import Account
from gpuagent_collector.trust.authority import Authority
from gpuagent_proto.v1.pod_resources_service_pb2 import (
    ClaimResource,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)
from gpuagent_proto.v1.pod_resources_service_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)

TOKEN = "the pod's own"


class KubeletList(PodResourcesListerServicer):
    """The pods of a node: `devices` has those of each by resource, `claims` its claimed ones by driver."""

    def __init__(self) -> None:
        self.devices: dict[tuple[str, str], Mapping[str, list[str]]] = {}
        self.claims: dict[tuple[str, str], Mapping[str, list[str]]] = {}

    def List(self, request: ListPodResourcesRequest, context: Any) -> ListPodResourcesResponse:  # noqa: N802
        return ListPodResourcesResponse(pod_resources=map(self._pod, self.devices))

    def _pod(self, pod: tuple[str, str]) -> PodResources:
        given, claimed = self.devices[pod], self.claims.get(pod, {})
        container = ContainerResources(
            name="main",
            devices=[ContainerDevices(resource_name=name, device_ids=ids) for name, ids in given.items()],
            dynamic_resources=[
                DynamicResource(
                    claim_name="claim",
                    claim_resources=[ClaimResource(driver_name=driver, device_name=name) for name in names],
                )
                for driver, names in claimed.items()
            ],
        )
        return PodResources(namespace=pod[0], name=pod[1], containers=[container])


@contextmanager
def serve_kubelet(socket: Path, pods: KubeletList) -> Iterator[None]:
    """Serve the list at a socket."""
    server = grpc.server(ThreadPoolExecutor(2))
    add_PodResourcesListerServicer_to_server(pods, server)
    socket.parent.mkdir(exist_ok=True)
    assert server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()
        socket.unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class ApiObjects:
    """The objects of an API server by their path; `forbidden` are words in paths that it refuses."""

    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def add(self, path: str, uid: str, owner: tuple[str, str, str, str] | None = None, **more: Any) -> None:
        """Add an object; its owner is version, kind, name and UID."""
        names = ("apiVersion", "kind", "name", "uid")
        # Other owners than the one that controls it do not count.
        others = [{"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "0"}]
        owners = [*others, {**dict(zip(names, owner, strict=True)), "controller": True}] if owner else []
        self.metadata[path] = {"uid": uid, "ownerReferences": owners, **more}


@contextmanager
def serve_api(folder: Path, objects: ApiObjects) -> Iterator[Account]:
    """Serve the objects over TLS; yield the account that may read them, which a pod would have in `folder`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            objects.asked.append(self.path)
            metadata = objects.metadata.get(self.path)
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status = 401
            elif any(word in self.path for word in objects.forbidden):
                status = 403
            else:
                status = 200 if metadata else 404
            content = json.dumps({"kind": "Status"} if status != 200 else {"metadata": metadata}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    authority = Authority.create()
    pair = authority.issue_server(["127.0.0.1"])
    folder.mkdir()
    files = {
        "token": TOKEN.encode(),
        "ca.crt": authority.pair.certificate,
        "s.crt": pair.certificate,
        "s.key": pair.key,
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "s.crt", folder / "s.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Account(folder=folder, host="127.0.0.1", port=server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
