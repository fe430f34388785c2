"""Flow control: agents are slowed before anything has to wait for long."""

LONGEST_FLUSH_MILLIS = 10_000
"""Beyond this a live view of the node would be worth little."""

_STEPS = ((0.75, 10), (0.5, 5), (0.25, 2))
"""Share of the queue that is full, and by how much longer agents are to collect before they send."""

_EASING = 1.5
"""Agents are hurried again only when so much more in the queue would not slow them anew: a queue that swings about a
step would have them all told twice a second."""


def flush_interval_millis(queued_bytes: int, limit_bytes: int, base_millis: int, told_millis: int) -> int:
    """Return how often agents are to flush while so much waits for the writer, when they were told `told_millis` last.

    Fewer and longer messages cost the collector less for the same rows.
    """
    fullness = queued_bytes / limit_bytes
    slowed, eased = _interval_millis(fullness, base_millis), _interval_millis(fullness * _EASING, base_millis)
    return max(slowed, min(told_millis, eased))


def _interval_millis(fullness: float, base_millis: int) -> int:
    factor = next((factor for share, factor in _STEPS if fullness >= share), 1)
    return max(base_millis, min(base_millis * factor, LONGEST_FLUSH_MILLIS))
