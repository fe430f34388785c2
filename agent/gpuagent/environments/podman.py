"""Podman: no daemon, and no root needed."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpuagent.environments.environment import EnvironmentUnavailableError
from gpuagent.environments.support.common import site_words
from gpuagent.environments.support.container_engine import Engine
from gpuagent_common.folders import expand_user

# Where Podman looks for its helpers besides PATH: `helper_binaries_dir` in containers.conf(5).
_HELPERS = "/usr/local/libexec/podman:/usr/local/lib/podman:/usr/libexec/podman:/usr/lib/podman:/usr/libexec/catatonit"
_CONFIGURATIONS = ("/usr/share/containers", "/etc/containers", "~/.config/containers")
# A site that sets one of these names its own init, or runs Podman on another machine.
_OWN_INIT = re.compile(r"^\s*(?:init_path|helper_binaries_dir)\s*=", re.MULTILINE)
_REMOTE = ("--remote", "--url", "--connection")


class Podman(Engine):
    """Runs in a Podman container."""

    name = "podman"
    _install = "install Podman (Debian, Ubuntu: apt-get install podman catatonit)"
    # By the Container Device Interface: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` describes the GPUs.
    _gpu_options = ("--device", "nvidia.com/gpu=all")

    def check(self) -> None:
        """Check that Podman answers and has an init for its containers: `podman info` does not report that."""
        super().check()
        if not self._has_init():
            remedy = (
                "install it (Debian, Ubuntu: apt-get install catatonit), or add --init-path to GPUAGENT_PODMAN_ARGS"
            )
            raise EnvironmentUnavailableError("podman lacks catatonit, the init of its containers", remedy)

    def _has_init(self) -> bool:
        if shutil.which("catatonit", path=f"{os.environ.get('PATH', '')}:{_HELPERS}"):
            return True
        words = [*self._client(), *site_words("GPUAGENT_PODMAN_ARGS")]
        if "CONTAINER_HOST" in os.environ or any(word.startswith(("--init-path", *_REMOTE)) for word in words):
            return True
        folders = [expand_user(folder) / "containers.conf" for folder in _CONFIGURATIONS]
        named = os.environ.get("CONTAINERS_CONF")
        files = [Path(named)] if named else folders
        return any(_OWN_INIT.search(file.read_text(errors="replace")) for file in files if file.is_file())

    def _user_options(self) -> Sequence[str]:
        return [*(["--userns=keep-id"] if os.getuid() else []), *super()._user_options()]
