"""No container: the workload is a process of the node."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from gpuagent.errors import MisuseError


class Bare:
    """Starts the program as it is."""

    name = "bare"

    def command(self, program: Sequence[str], *, image: str | None, run_directory: Path) -> list[str]:  # noqa: ARG002
        """Return `program` itself.

        Raises:
            MisuseError: an image was named, and there is nothing to run it in; or there is no such program.
        """
        if image:
            raise MisuseError(f"the environment 'bare' has no images, but {image!r} was given; use --environment bare")
        if not shutil.which(program[0]):
            raise MisuseError(f"there is no program {program[0]!r} on this node")
        return list(program)
