"""Texts cut for a screen or a figure: only when they are printed, and never so that two become alike."""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from gpuagent_common.text import differing_words, shorten_options

CUT = "…"


def shorten(texts: Sequence[str], most: int) -> list[str]:
    """Return texts of at most `most` characters, each with the part in which it differs from the others.

    Where that would make two of them alike, the words that all have in one place are left out; they stay as they are
    where that does not help either.
    """
    different = list(dict.fromkeys(texts))
    # Names of options are told by their beginnings, values are not.
    by_options = dict(zip(different, shorten_options(different, most), strict=True))
    if max(map(len, by_options.values()), default=0) <= most:
        return [by_options[text] for text in texts]
    columns = zip(*different, strict=False) if different[1:] else ()
    before = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    cut = {text: text if len(text) <= most else _cut(text, before, most) for text in different}
    if len(set(cut.values())) < len(different):
        words = _without_common_words(different)
        cut = {text: text if len(text) <= most else words.get(text, text) for text in different}
        if len(set(cut.values())) < len(different) or max(map(len, cut.values())) > most:
            return list(texts)
    return [cut[text] for text in texts]


def _without_common_words(different: Sequence[str]) -> dict[str, str]:
    """Return texts of equally many words, each with a sign for the words that all have in one place."""
    rows = [text.split(" ") for text in different]
    if len({len(row) for row in rows}) > 1:
        return {}
    are_alike = [len(set(column)) == 1 for column in zip(*rows, strict=True)]
    shown = {}
    for text, row in zip(different, rows, strict=True):
        marked = " ".join(CUT if is_alike else word for word, is_alike in zip(row, are_alike, strict=True))
        shown[text] = re.sub(rf"({CUT} )*{CUT}( |$)", CUT, marked)
    return shown


def _cut(text: str, before: int, most: int) -> str:
    """Return the begin of a text, and what follows its first `before` characters; both ends where that is near."""
    head = most // 3
    if before <= head:
        tail = most // 2
        return f"{text[: most - tail - 1]}{CUT}{text[-tail:]}"
    room = most - head - 2
    # A few characters before the difference name what differs.
    start = min(before - room // 2, len(text) - room - 1)
    if start <= head:
        return text[: most - 1] + CUT
    rest = text[start : start + room] + CUT if start + room + 1 < len(text) else text[-(room + 1) :]
    return f"{text[:head]}{CUT}{rest}"


def shortening(sides: Sequence[str], most: int | None = None) -> Callable[[str], str]:
    """Return what shortens names of sides longer than 40 in a text, but not in commands, in backquotes.

    Of long command lines, the words that differ are left; of more than `most` characters a part is cut.
    """
    telling = list(sides)
    if any(len(side) > _LONG for side in sides) and all(" -" in side for side in sides):
        telling = differing_words(sides)  # of command lines
    shortened = dict(zip(sides, shorten(telling, most) if most else telling, strict=True))
    # The longest first: one name may begin another.
    names = sorted((side for side in shortened if shortened[side] != side), key=len, reverse=True)
    pattern = re.compile("|".join([*map(re.escape, names), "`[^`]*`"]))
    return lambda text: pattern.sub(lambda found: shortened.get(found[0], found[0]), text)


# Characters of the name of a side that is written as it is.
_LONG = 40
