"""Figures of runs in words: metrics, shifts and their intervals."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuagent_collector.choices import Stat
from gpuagent_collector.metrics import Metric
from gpuagent_collector.present.human import Notation, change, ratio, significant
from gpuagent_collector.present.statuses import STATUSES
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_common.text import harmless


def reasons(statuses: Iterable[str] = (), experiment: str | None = None) -> str:
    """Return the command that prints why runs did not succeed, of an experiment or of all.

    `statuses` are theirs, the first one is listed.
    """
    known = next((status for status in statuses if status in STATUSES), None)
    return f"`{write_command('runs', {'--status': known, '--experiment': experiment})}`"


class Condition(str):
    """An SQL condition, and the options that state it in a command."""

    words: tuple[str, ...]

    def __new__(cls, sql: str, words: Sequence[str]) -> "Condition":
        """Return the condition; `words` are the options with their values."""
        made = super().__new__(cls, sql)
        made.words = tuple(words)
        return made


# A comment, which would go on to the end of a command's line; no `--` within quotes is one.
_COMMENT, _QUOTED = re.compile(r"""('[^']*'|"[^"]*")|--[^\n]*"""), r"\1"


def narrow(where: str | None, parameters: Mapping[str, object], conditions: Sequence[str]) -> Condition | None:
    """Return a condition on runs with further values of parameters and SQL conditions; None: there is none at all."""
    words = list(where.words) if isinstance(where, Condition) else ["--where", where] if where else []
    given = words[words.index("--where") + 1 :] if "--where" in words else []
    words = words[: len(words) - 2 * len(given)]
    for name, value in parameters.items():
        words += ["--param", f"{name}={write_value(value)}"]
    texts = [f"({_COMMENT.sub(_QUOTED, text).strip()})" for text in given] if conditions else given
    if texts or conditions:
        words += ["--where", " AND ".join([*conditions, *texts])]
    return Condition("", words) if words else None


def write_value(value: object) -> str:
    """Return a parameter's value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


class UsualSides(tuple[str, ...]):
    """The sides of several files, where none was named: their commands have the files, and need no sides."""

    __slots__ = ()


def write_command(name: str, options: Mapping[str, str | None], *words: str, sides: Sequence[str] = ()) -> str:
    """Return a command of `collector` with those options that have a value; '' is a switch. The sides are last."""
    given: list[str] = []
    for option, value in options.items():
        if isinstance(value, Condition):
            given += value.words
        elif value is not None:
            given += [option, value] if value else [option]
    if isinstance(sides, UsualSides):
        sides = ()
    named = ["--", *sides] if any(side.startswith("-") for side in sides) else sides
    return harmless(" ".join(map(quote, ["collector", name, *words, *given, *named])))


def quote(word: str) -> str:
    """Return a word for a shell; double quotes enclose single ones, as conditions have them, where they can."""
    return f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word)


def name_file(name: str) -> str:
    """Return the name of a file that a next command writes: the usual one, or with a number if that exists."""
    usual = free = Path(name)
    number = 1
    while free.exists():
        number += 1
        free = usual.with_stem(f"{usual.stem}-{number}")
    return str(free)


def read_from(text: str, place: Sequence[str]) -> str:
    """Return a text whose commands read, or go on in, the store or collector that words such as `--store FILE` name.

    `collector schema` reads no store, and `collector launch` needs a collector.
    """
    words = " ".join(map(shlex.quote, place))
    commands = r"collector (?!schema\b)\w+"
    if place[:1] in (("--store",), ["--store"]):
        commands = r"collector (?!schema\b|launch\b)\w+|gpuagent bench|gpuagent experiment run"
    return re.sub(rf"(^|`|&& )({commands})", lambda found: f"{found[0]} {words}", text) if words else text


_OF_SAMPLES = {Stat.MEAN: "mean ", Stat.MEDIAN: "median ", Stat.P95: "95th percentile of ", Stat.MAX: "highest "}


def spoken(metric: Metric, stat: Stat | None) -> str:
    """Return the metric's title within a sentence; acronyms keep their capitals."""
    before, title = "", metric.title
    if stat and metric.quantity:
        before, title = _OF_SAMPLES[stat], metric.quantity
    return before + (title if title[:2].isupper() else title[0].lower() + title[1:])


def percent(share: float) -> str:
    """Return a share in percent: 5 %."""
    return f"{significant(100 * share)} %"


def join_words(texts: Sequence[str], word: str = "and") -> str:
    """Return texts as a sentence lists them: a, b and c."""
    return " ".join([*([", ".join(texts[:-1]), word] if len(texts) > 1 else []), *texts[-1:]])


def interval(shift: Shift) -> str:
    """Return the shift's interval in words, with its confidence."""
    if shift.low is None or shift.high is None:
        return "no interval from so few runs"
    confidence = percent(1 - shift.alpha)
    write = ratio if shift.scale is Scale.RATIO else significant
    return f"{confidence} interval {write(shift.low)} to {write(shift.high)}"


def could_hide(shifts: Sequence[Shift]) -> str:
    """Return how large a difference these intervals allow: `; one of 6 % could hide`; '' where they are no ratios."""
    largest = 1.0
    for shift in shifts:
        if not shift.low or not shift.high or shift.scale is not Scale.RATIO:
            return ""
        largest = max(largest, shift.high, 1 / shift.low)
    return f"; one of {change(largest).lstrip('+')} could hide"


def write_shift(shift: Shift, scale: Notation) -> str:
    """Return the estimate and its interval: `0.659 [0.612, 0.708]`, `Δ +1.2 [+0.9, +1.5]`, or `0.659 [–]`."""
    write = ratio if shift.scale is Scale.RATIO else scale.write_difference
    if is_same(shift):
        return "the same"
    estimate = f"{'' if shift.scale is Scale.RATIO else 'Δ '}{write(shift.estimate)}"
    if shift.low is None or shift.high is None:
        return f"{estimate} [{ABSENT}]"
    return f"{estimate} [{write(shift.low)}, {write(shift.high)}]"


def is_same(shift: Shift) -> bool:
    """Return whether the figures of both sides are the same to the last digit, in enough runs for an interval."""
    return shift.estimate == shift.low == shift.high == shift.neutral


def distinguishing(own: Mapping[str, object], others: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Return those of the own settings in which some other differs."""
    others = list(others)
    return {name: value for name, value in own.items() if any(other.get(name) != value for other in others)}


def telling(own: Mapping[str, object], others: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Return the distinguishing settings, without those that distinguish from no further one than those before."""
    left, found = list(others), dict[str, object]()
    for name, value in own.items():
        if apart := [other for other in left if other.get(name) != value]:
            found[name] = value
            left = [other for other in left if other not in apart]
    return found


def statuses(counts: Mapping[str, int]) -> str:
    """Return numbers of runs by status: 2 failed, 1 timed out."""
    return ", ".join(f"{number:,} {status.replace('_', ' ')}" for status, number in counts.items())
