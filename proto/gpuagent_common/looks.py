"""The planned looks of an experiment that may stop early, and the rule that its runs have as the label `until`."""

import math

# The label of runs that has the rule by which their experiment may stop.
RULE_LABEL = "until"

# Before that, the exact test has no interval at the level of several looks. Each look waits for half as many more.
FIRST_LOOK, _GROWTH = 8, 1.5


def plan_looks(repeats: int) -> list[int]:
    """Return the repeats after which an experiment of at most so many may stop, the last one included."""
    found = [FIRST_LOOK]
    while found[-1] < repeats:
        found.append(min(math.ceil(_GROWTH * found[-1]), repeats))
    return found


def write_rule(percent: float, looks: list[int]) -> str:
    """Return the rule: the width of the intervals that stop the experiment, and its looks, as `2% at 8,12,18`."""
    return f"{percent:g}% at {','.join(map(str, looks))}"


def read_rule(rule: str | None) -> tuple[str, tuple[int, ...]]:
    """Return the width of a rule as `--until` takes it, and the looks; of no rule both are empty."""
    width, _, looks = (rule or "").partition(" at ")
    return width, tuple(int(look) for look in looks.split(",") if look.isdecimal())
