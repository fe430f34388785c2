"""Text from others, made harmless: agents and users send any text, and it ends on a terminal."""

import unicodedata

# Unicode categories that move the cursor, change colours or reorder the text beside them.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def harmless(text: str) -> str:
    r"""Return `text` on one line, with every control and formatting character written as an escape (`\x1b`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii") if is_dangerous(character) else character
        for character in text
    )


def is_dangerous(character: str) -> bool:
    """Return whether a character does more to a terminal than appear on it."""
    return unicodedata.category(character) in _DANGEROUS
