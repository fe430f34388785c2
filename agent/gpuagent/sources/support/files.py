"""Readers of the small files in which the kernel describes itself."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import SourceContext

T = TypeVar("T")

_CHUNK_BYTES = 64 * 1024

# A shorter answer is the whole file: the kernel answers with a page of whole lines, and no line is this long.
_PART_BYTES = 2048

# More than the first line of a file below /proc that is read for that alone.
_LINE_BYTES = 512

# The errors of psutil where a file below /proc is missing, forbidden or malformed.
PSUTIL_ERRORS = (psutil.Error, OSError, LookupError, RuntimeError, TypeError, ValueError)


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
        content = part = os.pread(self._descriptor, _CHUNK_BYTES, 0)
        while len(part) >= _PART_BYTES:
            part = os.pread(self._descriptor, _CHUNK_BYTES, len(content))
            content += part
        return content.decode(errors="replace")

    def read_begin(self) -> bytes:
        """Return more than its first line, as it is now. Raises OSError."""
        return os.pread(self._descriptor, _LINE_BYTES, 0)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


class OptionalFile:
    """A file that stays open, but may be missing or vanish."""

    __slots__ = ("_file",)

    def __init__(self, path: Path | None) -> None:
        self._file: OpenFile | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                self._file = OpenFile(path)

    def read(self) -> str | None:
        """Return all of it, or None where it cannot be read."""
        try:
            return None if self._file is None else self._file.read()
        except OSError:
            return None

    def close(self) -> None:
        """Close it where it is open."""
        if self._file is not None:
            self._file.close()


def open_needed(path: Path, remedy: str | None = None) -> OpenFile:
    """Open a file that a source needs. Raises SourceUnavailableError if it cannot be opened."""
    try:
        return OpenFile(path)
    except OSError as error:
        raise SourceUnavailableError(f"cannot open {path}: {error.strerror}", remedy) from error


def read_parsed(file: OpenFile, parse: Callable[[str], T]) -> T:
    """Return the result of `parse` on the file. Raises SourceError: it cannot be read, or `parse` raised ValueError."""
    try:
        return parse(file.read())
    except OSError as error:
        raise SourceError(f"cannot read {file.path}: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"cannot parse {file.path}: {error}") from error


class FileSource:
    """A source of one file below /proc, which stays open. Raises SourceUnavailableError: it cannot be opened."""

    file: str

    def __init__(self, context: SourceContext) -> None:
        self._file = open_needed(context.proc / self.file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_psutil(read: Callable[[], T], file: str) -> T:
    """Return a reading of psutil from `file` below /proc. Raises SourceError if psutil cannot read or parse it."""
    try:
        return read()
    except PSUTIL_ERRORS as error:
        raise SourceError(f"cannot read {psutil.PROCFS_PATH}/{file}: {error!r}") from error


def read_text(path: Path) -> str | None:
    """Return the text of a file that is read once, or None where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Return whether `path` exists; False where this user may not look, or it cannot be a path."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_number(text: str | None) -> int | None:
    """Return the number of a file that holds nothing else; None for `max`, -1 and any other text."""
    number = (text or "").strip()
    return int(number) if number.isascii() and number.isdigit() else None


def parse_flat(text: str | None) -> dict[str, int]:
    """Return the numbers of lines such as `usage_usec 4711`; other lines are left out."""
    fields = (line.partition(" ") for line in (text or "").splitlines())
    return {name: int(number) for name, _, number in fields if number.isascii() and number.isdigit()}
