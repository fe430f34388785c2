"""No container: the workload is a process of the node."""

import shutil

from gpuagent.environments.environment import Ending, Image, Job, Launch
from gpuagent.errors import MisuseError


class Bare:
    """Starts the program as it is."""

    name = "bare"
    python: str | None = None
    has_image_paths = False

    def check(self) -> None:
        """Every node has processes."""

    def find_image(self, name: str | None) -> Image | None:
        """Return None.

        Raises:
            MisuseError: an image was named, and there is nothing to run it in.
        """
        if name:
            raise MisuseError(f"the environment 'bare' has no images, but {name!r} was given; use --environment bare")
        return None

    def launch(self, job: Job) -> Launch:
        """Return the program itself.

        Raises:
            MisuseError: there is no such program.
        """
        if not shutil.which(job.program[0]):
            raise MisuseError(f"there is no program {job.program[0]!r} on this node")
        return Launch(command=job.program)

    def exit_code(self, code: int) -> int:
        """Return `code`."""
        return code

    def explain(self, ending: Ending) -> str | None:  # noqa: ARG002
        """Return None: the exit code says all."""
        return None
