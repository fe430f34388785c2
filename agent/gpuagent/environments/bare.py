"""No container: the workload is a process of the node."""

from collections.abc import Sequence
from pathlib import Path

from gpuagent.errors import MisuseError


class Bare:
    """Starts the program as it is."""

    name = "bare"

    def command(self, program: Sequence[str], *, image: str | None, run_directory: Path) -> list[str]:  # noqa: ARG002
        """Return `program` itself.

        Raises:
            MisuseError: an image was named; there is nothing to run it in.
        """
        if image:
            raise MisuseError(f"the environment 'bare' has no images, but {image!r} was given; use --environment bare")
        return list(program)
