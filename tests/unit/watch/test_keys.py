import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.watch.keys import KeyReader

TYPED: tuple[tuple[bytes, list[str]], ...] = (
    (b"q", ["q"]),
    (b"\x1b[A", ["up"]),
    (b"\x1bOB", ["down"]),
    (b"\x1b[5~j", ["page up", "j"]),
    (b"\r \t\x7f", ["enter", "space", "tab", "backspace"]),
    ("ä…".encode(), ["ä", "…"]),
    (b"a\x1b[15~b", ["a", "b"]),  # F5 means nothing here
    (b"\x1b[1;5Cx", ["x"]),  # Ctrl-→ neither
    (b"\x1bx", []),  # Alt-x neither
)


@pytest.mark.parametrize(("content", "keys"), TYPED)
def test_keys_are_read_whole_or_byte_by_byte(content: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(content) == keys
    reader = KeyReader()
    assert [key for byte in content for key in reader.feed(bytes([byte]))] == keys


def test_an_escape_that_nothing_follows_is_the_key() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_waiting
    assert reader.flush() == ["escape"]
    assert not reader.is_waiting


def test_a_sequence_that_breaks_off_is_dropped() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b[1;") + reader.flush() + reader.feed(b"q") == ["q"]


@given(st.lists(st.binary(max_size=20)))
def test_whatever_comes_every_key_is_a_name_or_one_printable_character(pieces: list[bytes]) -> None:
    reader = KeyReader()
    keys = [key for piece in pieces for key in reader.feed(piece)] + reader.flush()
    assert all(key.isprintable() and (len(key) == 1 or key.replace(" ", "").isalpha()) for key in keys)
