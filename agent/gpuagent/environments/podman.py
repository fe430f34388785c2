"""Podman: no daemon, and no root needed."""

import os
from collections.abc import Sequence

from gpuagent.environments.support.engine import Engine


class Podman(Engine):
    """Runs in a Podman container."""

    name = "podman"
    _install = "install Podman (Debian, Ubuntu: apt-get install podman catatonit)"
    _gpu_options = ("--device", "nvidia.com/gpu=all")
    """By the Container Device Interface: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes the GPUs."""

    def _user_options(self) -> Sequence[str]:
        return [*(["--userns=keep-id"] if os.getuid() else []), *super()._user_options()]
