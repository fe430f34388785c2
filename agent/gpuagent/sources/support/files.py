"""Reading the small files in which the kernel tells about itself."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpuagent.errors import SourceError, SourceUnavailableError

T = TypeVar("T")

_CHUNK_BYTES = 64 * 1024


class OpenFile:
    """A file below /proc or /sys that is read again and again.

    It stays open, since opening costs more than reading: 5 µs against 1.3 µs for /proc/loadavg.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> str:
        """Return all of it, as it is now. Raises OSError."""
        chunks: list[bytes] = []
        offset = 0
        # The kernel hands out long files a page at a time, so a short read does not mean the end.
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, offset):
            chunks.append(chunk)
            offset += len(chunk)
        return b"".join(chunks).decode(errors="replace")

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


class OptionalFile:
    """A kept-open file that need not be there, or may vanish."""

    __slots__ = ("_file",)

    def __init__(self, path: Path | None) -> None:
        self._file: OpenFile | None = None
        if path is not None:
            try:
                self._file = OpenFile(path)
            except OSError:
                self._file = None

    def read(self) -> str | None:
        """Return all of it, or None where it cannot be read."""
        if self._file is None:
            return None
        try:
            return self._file.read()
        except OSError:
            return None

    def close(self) -> None:
        """Close it where it is open."""
        if self._file is not None:
            self._file.close()


def open_needed(path: Path, remedy: str | None = None) -> OpenFile:
    """Open what a source cannot do without.

    Raises:
        SourceUnavailableError: it cannot be opened.
    """
    try:
        return OpenFile(path)
    except OSError as error:
        raise SourceUnavailableError(f"cannot open {path}: {error.strerror}", remedy) from error


def read_parsed(file: OpenFile, parse: Callable[[str], T]) -> T:
    """Return what `parse` makes of the file.

    Raises:
        SourceError: it cannot be read, or `parse` raised ValueError.
    """
    try:
        return parse(file.read())
    except OSError as error:
        raise SourceError(f"cannot read {file.path}: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"cannot make sense of {file.path}: {error}") from error


def read_text(path: Path) -> str | None:
    """Return the text of a file that is read once, or None where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Tell whether something lies at `path`; what may not be looked at, or cannot be a path, is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_flat(text: str) -> dict[str, int]:
    """Return the numbers of lines such as `usage_usec 4711`; other lines are left out."""
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdigit():
            numbers[name] = int(number)
    return numbers
