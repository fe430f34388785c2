"""The interface of the databases in the comparison."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.gpu_series import Rows

# Sends messages from a process of its own, after it has called what waits for the others, and returns when the server
# has confirmed the last. It can be pickled.
Sender = Callable[[Sequence[bytes], Callable[[], object]], None]

Encode = Callable[[Rows], bytes]


class Server(Protocol):
    """A running server with nothing in it."""

    pid: int

    def sender(self, node: int) -> Sender:
        """Return a sender of one node's messages."""

    def settle(self) -> None:
        """Wait until all sent values can be read."""

    def read_back(self, column: str) -> tuple[int, float]:
        """Return the number of stored values of a column, and their sum."""

    def disk_bytes(self) -> int:
        """Return the size of its files."""

    def compact(self) -> int:
        """Let it compact its files as it does over time, and return their size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A database, in one way of filling it.

    Attributes:
        name: with the way in which values come.
        program: what has to be installed; None: nothing more.
        encoding: name of the format of its messages; those of one format are made once.
        encode: makes the message of some rows.
        serve: starts a server in an empty folder, and ends it.
    """

    name: str
    program: str | None
    encoding: str
    encode: Encode
    serve: Callable[[Path], AbstractContextManager[Server]]


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
