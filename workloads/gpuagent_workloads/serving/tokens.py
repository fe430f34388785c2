"""A tokenizer without a vocabulary: a byte of text is a token."""

from collections.abc import Sequence

# Tokens without a printable character of their own are shown as one of these.
_FIRST, _PRINTABLE = 32, 95


def encode(text: str) -> list[int]:
    """Return the bytes of a text, each a token."""
    return list(text.encode())


def decode(tokens: Sequence[int]) -> str:
    """Return a text with one printable character for each token, such as random weights choose."""
    return "".join(chr(_FIRST + (token - _FIRST) % _PRINTABLE) for token in tokens)
