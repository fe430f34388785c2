"""Text from the store, made harmless: agents and users control it, and it is printed on other people's terminals."""

import unicodedata

# Unicode categories that move the cursor, change colours or reorder the text beside them.
_DANGEROUS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def harmless(text: str) -> str:
    r"""Return `text` on one line, with every control and formatting character written out as an escape (`\x1b`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each.encode("unicode_escape").decode() if is_dangerous(each) else each for each in text)


def is_dangerous(character: str) -> bool:
    """Return whether a terminal would act on a character instead of showing it."""
    return unicodedata.category(character) in _DANGEROUS
