"""The places from which a node of Kubernetes knows of its pods."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account that Kubernetes mounts into a pod, and the API server's host and port; None: it is unknown."""

    folder: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    host: str | None = None
    port: int = 443

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ) -> "Account":
        """Return the account of this pod, with the address that its variables name."""
        port = environment.get("KUBERNETES_SERVICE_PORT", "")
        return cls(host=environment.get("KUBERNETES_SERVICE_HOST"), port=int(port) if port.isdecimal() else 443)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The kubelet's socket and its folder of logs, and the way to the API server."""

    socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    logs: Path = Path("/var/log/pods")
    account: Account = field(default_factory=Account.of_this_pod)
