"""Names of kernels as a screen has room for them; C++ spells out all template arguments, thousands of characters."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from itertools import count

from gpuagent_collector.output.text import harmless

# Characters: two lines of a table's column on a narrow terminal.
LONGEST_NAME = 56

_CUT = "…"
# So many levels of template arguments are let in to tell kernels apart that are alike without them.
_DEEPEST = 3

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::|\bstd::|\bc10::")


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each, harmless to a terminal and different for different ones.

    Template arguments and parameters are cut, as much of them as is not needed to tell the names apart.
    """
    names = list(dict.fromkeys(names))
    short = {name: _short(name, 0) for name in names}
    for depth in range(1, _DEEPEST + 1):
        taken = Counter(short.values())
        short = {name: _short(name, depth) if taken[given] > 1 else given for name, given in short.items()}
    return _numbered(short)


def _short(name: str, depth: int) -> str:
    return _clipped(harmless(_without_arguments(_NOISE.sub("", name), depth)))


def _without_arguments(name: str, depth: int) -> str:
    """Return a C++ name with its template arguments down to a depth, and without the parameters of the function."""
    kept: list[str] = []
    level, before = 0, ""
    for character in name:
        # What stands apart, as in "Memcpy HtoD (Pinned -> Device)", are no parameters, and an arrow closes nothing.
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


def _clipped(name: str) -> str:
    """Return both ends of a name that is too long: what tells two apart is often at the end."""
    if len(name) <= LONGEST_NAME:
        return name
    head = LONGEST_NAME * 2 // 3
    return f"{name[:head]}{_CUT}{name[head + 1 - LONGEST_NAME :]}"


def _numbered(short: Mapping[str, str]) -> dict[str, str]:
    """Return the names with numbers behind those that are still alike."""
    alike = {given for given, number in Counter(short.values()).items() if number > 1}
    taken = set(short.values()) - alike
    numbered: dict[str, str] = {}
    for name, given in short.items():
        numbered[name] = _unused(given, taken) if given in alike else given
        taken.add(numbered[name])
    return numbered


def _unused(name: str, taken: Set[str]) -> str:
    return next(candidate for number in count(1) if (candidate := f"{name} #{number}") not in taken)
