"""The fuzz targets: a module each, listed here.

A module's `opened(folder)` is a context manager that gives an Attempt; the folder is its own, empty, and in memory
where the machine allows that. TOKENS are words of its inputs' language. Its first inputs are tests/fuzz/corpus/NAME.
"""

import importlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, cast

from tests.fuzz.tally import HANG_SECONDS, Attempt

CORPUS = Path(__file__).parents[1] / "corpus"

TARGETS = (
    *("wire", "commit", "events", "spool", "export", "experiment", "prices", "where", "sql", "datasets"),
    *("kernel", "node", "nvml", "tools", "http", "screen", "hostile"),
)

# Targets of which an input may take longer than usual.
_HANG_SECONDS = {"hostile": 120.0}


class Target(Protocol):
    """A module of this package."""

    TOKENS: Sequence[bytes]

    def opened(self, folder: Path) -> AbstractContextManager[Attempt]:
        """Make the target ready."""
        ...


def load(name: str) -> Target:
    """Import a target, and with it what it fuzzes."""
    return cast("Target", importlib.import_module(f"{__name__}.{name}"))


@contextmanager
def opened(name: str) -> Iterator[Attempt]:
    """Make a target ready, in a folder that goes with it."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="gpuagent-fuzz-", dir=memory if memory.is_dir() else None) as folder,
        load(name).opened(Path(folder)) as attempt,
    ):
        yield attempt


def hang_seconds(name: str) -> float:
    """Return the time after which an input of a target counts as hanging."""
    return _HANG_SECONDS.get(name, HANG_SECONDS)


def corpus(name: str) -> list[bytes]:
    """Return a target's first inputs."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
