"""Podman: no daemon, and no root needed."""

import os
from collections.abc import Sequence

from gpuagent.environments.support.engine import Engine


class Podman(Engine):
    """Runs in a Podman container."""

    name = "podman"
    _install = "install Podman (Debian, Ubuntu: apt-get install podman catatonit)"
    # By the Container Device Interface: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes the GPUs.
    _gpu_options = ("--device", "nvidia.com/gpu=all")

    # Its conmon 2.1.6 says nothing of it with control groups of version 1, tried in a hybrid hierarchy.
    _is_silent_of_memory = True

    def _user_options(self) -> Sequence[str]:
        return [*(["--userns=keep-id"] if os.getuid() else []), *super()._user_options()]
