"""The output of a run's program in pieces without secrets, to be stored and sent."""

import codecs
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gpuagent.redaction import redact_text

# The files of a run directory with the output of the program.
STREAMS = ("stdout", "stderr")

# Size of the end of a stream that is stored with the run; the file has all of it.
TAIL_BYTES = 8 * 1024

# Limit of one read.
PIECE_BYTES = 64 * 1024

# Bytes before a piece that are searched with it: a secret may begin there and end in the piece.
_BEFORE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one stream's file.

    Attributes:
        text: whole lines, except for a line over PIECE_BYTES, or one that the run did not complete.
        next_offset_bytes: start of the next piece in the file.
        at_end: whether the run has ended and nothing follows.
    """

    text: str
    next_offset_bytes: int
    at_end: bool


def read_piece(path: Path, offset_bytes: int | None, *, has_ended: bool) -> Piece:
    """Return the piece at `offset_bytes` of the file `path`; None: its last TAIL_BYTES.

    An incomplete line waits for its end, unless the run `has_ended`. A missing file is empty.
    """
    before, piece = b"", b""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            # The program may have put a pipe or a device there, which could block or never end.
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            start = max(0, size - TAIL_BYTES) if offset_bytes is None else min(offset_bytes, size)
            if start < size:
                file.seek(max(0, start - _BEFORE_BYTES))
                before, piece = file.read(min(start, _BEFORE_BYTES)), file.read(PIECE_BYTES)
    except OSError:
        return Piece(text="", next_offset_bytes=offset_bytes or 0, at_end=has_ended)
    if not has_ended or start + len(piece) < size:
        piece = piece[: _complete_bytes(piece)]
    end = start + len(piece)
    known, whole = (
        redact_text(content.decode("utf-8", "replace").replace("\0", "�")) for content in (before, before + piece)
    )
    if whole.startswith(known):
        text = whole[len(known) :]
    else:
        text = whole[next(at for at, (one, other) in enumerate(zip(known, whole, strict=False)) if one != other) :]
    return Piece(text=text, next_offset_bytes=end, at_end=has_ended and end >= size)


def _complete_bytes(piece: bytes) -> int:
    """Return the size of the complete lines; of the complete characters if all of a full piece is one line."""
    lines = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
    if lines or len(piece) < PIECE_BYTES:
        return lines
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(piece)
    begun, _ = decoder.getstate()
    return len(piece) - len(begun)
