"""Text from the store, made harmless: agents and users put in what they like, and it ends on somebody's terminal."""

import unicodedata

# Unicode categories that move the cursor, change colours or reorder what stands beside them.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def harmless(text: str) -> str:
    r"""Return `text` on one line, with every control and formatting character written out as an escape (`\x1b`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if is_dangerous(character) else character for character in text)


def is_dangerous(character: str) -> bool:
    """Return whether a character does something to a terminal beside being shown."""
    return unicodedata.category(character) in _DANGEROUS


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
