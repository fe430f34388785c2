"""Docker Engine: its daemon starts the container, not this user's process."""

from collections.abc import Sequence

from gpuagent.environments.support.common import ClientError, ask_client
from gpuagent.environments.support.container_engine import Engine


class Docker(Engine):
    """Runs in a Docker container."""

    name = "docker"
    _install = "install Docker Engine (Debian, Ubuntu: apt-get install docker.io), or use podman or apptainer"
    _gpu_options = ("--gpus", "all")

    def _user_options(self) -> Sequence[str]:
        try:
            security = ask_client([*self._client(), "info", "--format", "{{.SecurityOptions}}"])
        except ClientError:
            return super()._user_options()
        # The user of a rootless daemon is the container's root.
        return [] if "name=rootless" in security else super()._user_options()

    def _remedy(self, error: str) -> str:
        if "permission denied" in error:
            return "let the administrator add you to the group docker, or use podman or apptainer"
        return "start the daemon (systemctl start docker), or name its socket in DOCKER_HOST"
