"""Keys as terminals send them."""

import codecs

ESCAPE = "escape"

# What xterm, and whoever follows it, sends; the second form is that of application mode.
_SEQUENCES: dict[bytes, str] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b"\x1b[Z": "back tab",
}

_NAMES = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", " ": "space"}


class KeyReader:
    """Makes keys of the bytes that come, of which one key's may come in several pieces."""

    def __init__(self) -> None:
        self._pending = b""
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode

    @property
    def is_waiting(self) -> bool:
        """Whether more bytes would tell what the last ones mean: an Esc may be a key, or the beginning of one."""
        return bool(self._pending)

    def feed(self, content: bytes) -> list[str]:
        """Return the keys that are complete: names of special ones, other characters as they are."""
        self._pending += content
        keys: list[str] = []
        while self._pending:
            if self._pending[:1] != b"\x1b":
                keys += self._characters()
            elif length := _sequence_length(self._pending):
                sequence, self._pending = self._pending[:length], self._pending[length:]
                keys += [_SEQUENCES[sequence]] if sequence in _SEQUENCES else []
            else:
                break
        return keys

    def flush(self) -> list[str]:
        """Return what the waiting bytes mean when no more come: Esc."""
        alone, self._pending = self._pending == b"\x1b", b""
        return [ESCAPE] if alone else []

    def _characters(self) -> list[str]:
        plain, escape, rest = self._pending.partition(b"\x1b")
        self._pending = escape + rest
        return [_NAMES.get(each, each) for each in self._decode(plain) if each in _NAMES or each.isprintable()]


def _sequence_length(content: bytes) -> int:
    """Return the length of the escape sequence at the beginning; 0: it is not complete."""
    if content[1:2] == b"O":
        return 3 if len(content) >= 3 else 0
    if content[1:2] != b"[":
        return min(2, len(content)) if len(content) > 1 else 0
    return next((index + 1 for index in range(2, len(content)) if 0x40 <= content[index] <= 0x7E), 0)
