"""Decisions taken from the bytes of an input, so that a coverage-guided fuzzer can shape what has a structure."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Bytes that are used up by what is decided. When there are none left, every decision is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of unused bytes."""
        return max(0, len(self._data) - self._at)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, with zeros behind the last one."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken.ljust(size, b"\0")

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(self.left)

    def below(self, limit: int) -> int:
        """Return a number from 0 to before `limit`, at most 256."""
        return self.take(1)[0] % limit

    def integer(self) -> int:
        """Return a signed 64-bit number."""
        return int.from_bytes(self.take(8), "little", signed=True)

    def one_of(self, options: Sequence[T]) -> T:
        """Return one of at most 256 things."""
        return options[self.below(len(options))]

    def piece(self) -> bytes:
        """Return a short stretch of bytes; its length comes first."""
        return self.take(min(self.below(64), self.left))

    def damage(self, content: bytearray, *, changes: int) -> None:
        """Replace pieces of `content`, each at a position of two bytes: its first pages count most."""
        for _ in range(changes):
            at = int.from_bytes(self.take(2), "little") % (len(content) or 1)
            piece = self.piece()
            content[at : at + len(piece)] = piece

    def text(self) -> str:
        """Return a short text; what is no UTF-8 is replaced."""
        return self.piece().decode(errors="replace")
