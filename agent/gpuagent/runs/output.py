"""What a run's program wrote, in pieces that may be stored and sent: without what looks like a secret."""

import codecs
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpuagent.runs.redaction import redact_text

# The files of a run's directory that hold what its program wrote.
STREAMS = ("stdout", "stderr")

# How much of the end of a stream is stored with the run; the file holds all.
TAIL_BYTES = 8 * 1024

# The most that is read of a file at once.
PIECE_BYTES = 64 * 1024

# How much before a piece is looked at with it: a secret may begin there and end in the piece.
_BEFORE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one stream's file.

    Attributes:
        text: whole lines, except where one is longer than PIECE_BYTES or the run ended within it.
        next_offset_bytes: where the next piece begins in the file.
        at_end: whether the run has ended and nothing follows.
    """

    text: str
    next_offset_bytes: int
    at_end: bool


def read_piece(path: Path, offset_bytes: int | None, *, has_ended: bool) -> Piece:
    """Return what stands at `offset_bytes` of the file `path`, or in its last TAIL_BYTES where that is None.

    A line that is not complete waits for its end, unless the run `has_ended`. A file that is not there is empty.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            size = _size_bytes(file)
            start = max(0, size - TAIL_BYTES) if offset_bytes is None else min(offset_bytes, size)
            before, piece = _read(file, start) if start < size else (b"", b"")
    except OSError:
        return Piece(text="", next_offset_bytes=offset_bytes or 0, at_end=has_ended)
    if not has_ended or start + len(piece) < size:
        piece = piece[: _complete_bytes(piece)]
    end = start + len(piece)
    return Piece(text=_without_secrets(before, piece), next_offset_bytes=end, at_end=has_ended and end >= size)


def _size_bytes(file: BinaryIO) -> int:
    """Return a file's size; 0 of what the program put in its place, which must not block or be without end."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _read(file: BinaryIO, start: int) -> tuple[bytes, bytes]:
    """Return what stands before `start`, as far as it matters, and a piece from there."""
    before_start = max(0, start - _BEFORE_BYTES)
    file.seek(before_start)
    return file.read(start - before_start), file.read(PIECE_BYTES)


def _complete_bytes(piece: bytes) -> int:
    """Return the size of the lines that have ended; of a piece that is all one line, of its complete characters."""
    lines = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
    if lines or len(piece) < PIECE_BYTES:
        return lines
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(piece)
    begun, _ = decoder.getstate()
    return len(piece) - len(begun)


def _without_secrets(before: bytes, piece: bytes) -> str:
    """Return the text of `piece` as it is where it follows `before`: without secrets that began there."""
    known, whole = redact_text(_text(before)), redact_text(_text(before + piece))
    if whole.startswith(known):
        return whole[len(known) :]
    return whole[next(at for at, (one, other) in enumerate(zip(known, whole, strict=False)) if one != other) :]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").replace("\0", "�")
