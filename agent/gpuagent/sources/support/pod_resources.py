"""The devices that the node's kubelet has given to pods, read from its interface for monitoring."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

    from gpuagent_proto.v1.pod_resources_service_pb2 import ContainerResources

_TIMEOUT_SECONDS = 5.0
# Device plugins of NVIDIA and of GKE, and NVIDIA's driver for claims.
_VENDOR, _CLAIMS = "nvidia.com/", "gpu.nvidia.com"
# Several pods may have one GPU: as GPU-…::0, or on GKE as nvidia0/vgpu0.
_UUID = re.compile(r"((?:GPU|MIG)-[0-9A-Za-z/-]+)(?:::\d+)?")
_NUMBER = re.compile(r"(?:gpu-|nvidia)(\d{1,4})(?:/vgpu\d+)?")
_INDEX = re.compile(r"(\d{1,4})(?:::\d+)?")

# Namespace and name.
PodName = tuple[str, str]


class KubeletError(Exception):
    """The kubelet does not answer."""


class Kubelet:
    """The kubelet's list of devices.

    Attributes:
        uuids: the node's GPUs by their index.
        minors: the same by the number of their device file.
    """

    def __init__(self, socket: Path, uuids: tuple[str, ...], minors: Mapping[int, str]) -> None:
        self.socket = socket
        self._uuids = uuids
        self._minors = minors
        self._channel: grpc.Channel | None = None

    def list_gpus(self) -> dict[PodName, tuple[str, ...] | None]:
        """Return the GPUs of each pod of the node; None for a pod with one that cannot be named here.

        Raises KubeletError: it does not answer.
        """
        import grpc

        from gpuagent_proto.v1.pod_resources_service_pb2 import ListPodResourcesRequest
        from gpuagent_proto.v1.pod_resources_service_pb2_grpc import PodResourcesListerStub

        if self._channel is None:
            # With a pool of its own a new channel tries at once, whatever an earlier one met.
            options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
            self._channel = grpc.insecure_channel(f"unix:{self.socket}", options=options)
        try:
            answer = PodResourcesListerStub(self._channel).List(ListPodResourcesRequest(), timeout=_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            # A kubelet that restarts makes another socket.
            self.close()
            # An error of a call has these words, which gRPC's types do not say.
            details = getattr(error, "details", lambda: None)()
            raise KubeletError(str(details or error)) from error
        pods: dict[PodName, tuple[str, ...] | None] = {}
        for pod in answer.pod_resources:
            found = [uuid for container in pod.containers for uuid in self._gpus_of(container)]
            known = [uuid for uuid in found if uuid is not None]
            pods[pod.namespace, pod.name] = tuple(dict.fromkeys(known)) if len(known) == len(found) else None
        return pods

    def _gpus_of(self, container: "ContainerResources") -> Iterator[str | None]:
        for devices in container.devices:
            for name in devices.device_ids:
                if devices.resource_name.startswith(_VENDOR) or _UUID.fullmatch(name):
                    yield self._uuid_of(name)
        for claim in container.dynamic_resources:
            for device in claim.claim_resources:
                if device.driver_name == _CLAIMS:
                    yield self._uuid_of(device.device_name)

    def _uuid_of(self, name: str) -> str | None:
        if uuid := _UUID.fullmatch(name):
            return uuid[1]
        if number := _NUMBER.fullmatch(name):
            return self._minors.get(int(number[1]))
        index = _INDEX.fullmatch(name)
        return self._uuids[int(index[1])] if index and int(index[1]) < len(self._uuids) else None

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
