"""Text for a terminal: counts of things, and text from others made harmless, since agents and users send any text."""

import re
import unicodedata
from collections.abc import Sequence

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


def counted(count: int, noun: str) -> str:
    """Return a count of things: 1 run, 1,234 runs."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def write_duration(seconds: float) -> str:
    """Return a duration in its two largest units: 1.23 ms, 840 ms, 12.3 s, 4 min 05 s, 2 h 07 min."""
    if seconds < 0.9995:  # from there on three digits make it a second
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


# The name of an option.
_OPTION = re.compile(r"(?<!\S)(-{1,2})([A-Za-z][\w-]*)(?!\S)")
_LEAST_NAME = 3


def shorten_options(texts: Sequence[str], most: int) -> list[str]:
    """Return words of command lines, with names of options cut until the longest text has `most` characters.

    All names are cut at one length, of 3 characters or more, and never so that two become alike.
    """
    names = {found[2] for text in texts for found in _OPTION.finditer(text)}
    shown = {name: name for name in names}
    shortened = list(texts)
    for length in range(max(map(len, names), default=0) - 2, _LEAST_NAME - 1, -1):
        if max(map(len, shortened)) <= most:
            break
        shown = {name: name if len(name) <= length + 1 else f"{name[:length].rstrip('-')}…" for name in names}
        if len(set(shown.values())) < len(names):
            break
        shortened = [_OPTION.sub(lambda found: found[1] + shown[found[2]], text) for text in texts]  # noqa: B023
    return shortened


_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")


def differing_words(lines: Sequence[str]) -> list[str]:
    """Return of command lines of equally many words those that differ, each value with its option.

    They stay as they are where that would make two alike, or leaves nothing of one.
    """
    rows = [line.split(" ") for line in lines]
    if len({len(row) for row in rows}) != 1 or len(rows) < 2:
        return list(lines)
    columns = [set(column) for column in zip(*rows, strict=True)]
    kept: list[int] = []
    for at, words in enumerate(columns):
        if len(words) == 1:
            continue
        # A value says little without its option, or the program that gets it.
        is_value = any(map(_NUMBER.fullmatch, words)) or any(word.startswith("-") for word in columns[max(0, at - 1)])
        kept += [at - 1, at] if at and is_value and len(columns[at - 1]) == 1 else [at]
    shown = [" ".join(row[at] for at in kept) for row in rows]
    return shown if len(set(shown)) == len(set(lines)) and all(shown) else list(lines)
