"""The difference between two clocks, in one sign everywhere: the collector's less the node's."""

# A clock that differs by more is reported: its time stamps do not match those of other nodes.
CLOCK_TOLERANCE_SECONDS = 2.0

# Each unit is used from about twice its length on.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def is_clock_wrong(offset_seconds: float | None) -> bool:
    """Return whether a clock differs by more than the tolerance; None: the difference is unknown."""
    return offset_seconds is not None and abs(offset_seconds) > CLOCK_TOLERANCE_SECONDS


def describe_offset(offset_seconds: float) -> str:
    """Return the state of the node's clock in words, such as `75 s behind` for 75 and `2 d ahead` for -172,800."""
    distance = abs(offset_seconds)
    size, unit = next(((size, unit) for size, unit in _UNITS if distance >= 1.95 * size), _UNITS[-1])
    return f"{distance / size:.0f} {unit} {'behind' if offset_seconds > 0 else 'ahead'}"
