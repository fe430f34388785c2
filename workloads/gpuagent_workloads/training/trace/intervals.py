"""Lengths of sets of intervals. Times are whole nanoseconds, so that sums are exact."""

from collections.abc import Iterable

# Begin and end; it is empty when the end does not lie after the begin.
Interval = tuple[int, int]


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union as intervals that lie apart, in order."""
    union: list[Interval] = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif begin < end:
            union.append((begin, end))
    return union


def covered(intervals: Iterable[Interval]) -> int:
    """Return the length of the union."""
    return sum(end - begin for begin, end in merge(intervals))


def covered_by_first_only(first: Iterable[Interval], second: Iterable[Interval]) -> int:
    """Return the length of what the union of `first` covers and that of `second` does not."""
    second = list(second)
    return covered([*first, *second]) - covered(second)


def integrate_capped(levels: Iterable[tuple[int, int, float]]) -> float:
    """Return the integral over time of the sum of all levels (begin, end, level), where that is more than 1 as 1."""
    # What is more than 1 by itself counts as 1 before it is added: the same, and infinity is no trouble.
    capped = [(begin, end, min(level, 1.0)) for begin, end, level in levels if begin < end]
    changes = sorted(change for begin, end, level in capped for change in ((begin, level), (end, -level)))
    integral, height, since = 0.0, 0.0, 0
    for time, change in changes:
        integral += min(height, 1.0) * (time - since)
        height, since = height + change, time
    return integral
