"""What an environment is: one way to contain a workload."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Environment(Protocol):
    """One way to start a workload."""

    name: str

    def command(self, program: Sequence[str], *, image: str | None, run_directory: Path) -> list[str]:
        """Return the command that runs `program` contained.

        Raises:
            MisuseError: the environment cannot do what is asked, such as an image where it has none.
        """
        ...
