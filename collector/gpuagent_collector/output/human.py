"""Sizes and times as people say them."""

from datetime import datetime, timedelta

_GIB = 2**30
_STEPS = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
    (timedelta(seconds=1), "s"),
)


def gibibytes(size_bytes: int) -> str:
    """Return a size in GiB: 15.6 GiB, 503 GiB."""
    gib = size_bytes / _GIB
    return f"{gib:.0f} GiB" if gib >= 100 else f"{gib:.1f} GiB"


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago `then` was, in its largest unit: 3 min ago; a clock that runs ahead is now."""
    passed = now - then
    for step, name in _STEPS:
        if passed >= step:
            return f"{passed // step} {name} ago"
    return "now"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 840 ms, 12.3 s, 4 min 05 s, 2 h 07 min."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
