"""Names of kernels, short enough for a screen; C++ spells out all template arguments, thousands of characters."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count

from gpuagent_common.text import harmless

# Characters: two lines of a table's column on a narrow terminal.
LONGEST_NAME = 56

_CUT = "…"
# The most levels of template arguments that are kept to distinguish kernels.
_DEEPEST = 3

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::|\bstd::|\bc10::")


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each, harmless to a terminal and different for different ones.

    Template arguments and parameters are cut, except those that distinguish the names.
    """
    names = list(dict.fromkeys(names))
    short = {name: _short(name, 0) for name in names}
    for depth in range(1, _DEEPEST + 1):
        taken = Counter(short.values())
        short = {name: _short(name, depth) if taken[given] > 1 else given for name, given in short.items()}
    return _number_equal_names(short)


def _short(name: str, depth: int) -> str:
    return _clip(harmless(_without_arguments(_NOISE.sub("", name), depth)))


def _without_arguments(name: str, depth: int) -> str:
    """Return a C++ name with its template arguments down to a depth, and without the parameters of the function."""
    kept: list[str] = []
    level, before = 0, ""
    for character in name:
        # After a blank, as in "Memcpy HtoD (Pinned -> Device)", there are no parameters, and an arrow closes nothing.
        opens = character in "<(" and (level > 0 or before.isalnum() or before in {"_", ">"})
        if opens and character == "(" and level == 0:
            break
        if character in ">)" and level > 0 and before != "-":
            level -= 1
        if level <= depth:
            kept.append(character)
        if opens:
            level += 1
            if level == depth + 1:
                kept.append(_CUT)
        before = character
    return "".join(kept).strip()


def _clip(name: str) -> str:
    """Return both ends of a name that is too long: the difference between two is often at the end."""
    if len(name) <= LONGEST_NAME:
        return name
    head = LONGEST_NAME * 2 // 3
    return f"{name[:head]}{_CUT}{name[head + 1 - LONGEST_NAME :]}"


def _number_equal_names(short: Mapping[str, str]) -> dict[str, str]:
    """Return the names with numbers after those that are still equal."""
    alike = {given for given, number in Counter(short.values()).items() if number > 1}
    taken = set(short.values()) - alike
    numbered: dict[str, str] = {}
    for name, given in short.items():
        candidates = (f"{given} #{number}" for number in count(1))
        numbered[name] = next(each for each in candidates if each not in taken) if given in alike else given
        taken.add(numbered[name])
    return numbered
