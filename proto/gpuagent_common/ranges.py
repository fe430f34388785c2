"""Physical limits of what is measured, by the unit that ends a column's name. Beyond them a reading is impossible.

Drivers, kernels and programs report absent figures as the largest number that fits, and counters wrap around. One such
reading would move a mean by orders of magnitude. The agent applies the limits to all that it reads, and the collector
to all that agents send. The limits are far above any hardware: they find nonsense, not outliers.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from gpuagent_common.quantities import QUANTITIES

T = TypeVar("T")


class Range(NamedTuple):
    """The lowest and the highest possible value of a column, in its own unit."""

    lowest: float
    highest: float


class Impossible(NamedTuple):
    """A column of a reading with an impossible value."""

    column: str
    value: float


# The largest 32-bit numbers stand for absent figures.
_COUNT = Range(0, 2**31 - 2)
_COUNTS = (
    *("_calls", "_count", "_cuda_cores", "_errors_uncorrected", "_failures", "_kills", "_layers", "_messages"),
    *("_multiprocessors", "_nodes", "_nvlinks", "_nvlinks_to_gpus", "_nvlinks_to_switches", "_pages", "_processes"),
    *("_readings", "_reads", "_repeat", "_rows_correctable", "_rows_uncorrectable", "_slices", "_sockets", "_steps"),
    *("_threads", "_ticks"),
)

# By the end of a column's name, where an underscore precedes the first word; the longest that fits counts.
_BY_ENDING: Mapping[str, Range] = {
    **dict.fromkeys(_COUNTS, _COUNT),
    **dict.fromkeys(("_mode", "_pending", "_failed", "_is_held"), Range(0, 1)),
    **dict.fromkeys(("_generation", "_generation_max"), Range(0, 100)),
    **dict.fromkeys(("_width", "_width_max"), Range(0, 1000)),
    # Rounding, and counters that are not read at the same instant, take a share slightly above 100.
    "_percent": Range(0, 101),
    # All processors of a node; a GPU has a limit of its own.
    "_watts": Range(0, 20_000),
    "_joules": Range(0, 1e13),
    "_celsius": Range(-100, 200),
    "_mhz": Range(0, 100_000),
    "_hz": Range(0, 1e6),
    "_bytes": Range(0, 2**53),
    "_per_second": Range(0, 1e14),
    "_seconds": Range(0, 1e9),
    "_cores": Range(0, 10_000),
    "_load_1m": Range(0, 1e7),
    "_throttle_reasons": Range(0, 2**31 - 1),
    "_items": Range(0, 1e18),
}

# By table and column, where the name does not tell all.
_BY_COLUMN: Mapping[tuple[str, str], Range] = {
    ("gpu_samples", "power_watts"): Range(0, 10_000),
    ("power_samples", "power_watts"): Range(0, 10_000),
    ("session_devices", "power_limit_watts"): Range(0, 10_000),
    ("owner_steps", "gpus_used"): Range(0, 1000),
    ("clock_offsets", "offset_seconds"): Range(-1e10, 1e10),
}

# Column → the column of the same row that it is a part of, and so cannot exceed.
_PARTS: Mapping[str, Mapping[str, str]] = {
    table: parts
    for table, quantities in QUANTITIES.items()
    if (parts := {each.column: each.part_of for each in quantities if each.part_of})
}


@cache
def find_range(table: str, column: str) -> Range | None:
    """Return the limits of a column; None: it is no physical quantity, such as an identity, or may have any value."""
    found = _BY_COLUMN.get((table, column))
    if found is None:
        endings = [ending for ending in _BY_ENDING if f"_{column}".endswith(ending)]
        found = _BY_ENDING[max(endings, key=len)] if endings else None
    return found


def find_parts(table: str) -> Mapping[str, str]:
    """Return the columns of a table that are parts of another column, with that column."""
    return _PARTS.get(table, {})


class _Bounds(dict[str, tuple[float, float] | None]):
    """The limits of a table's columns, each looked for once; plain tuples of floats are compared fastest."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __missing__(self, column: str) -> tuple[float, float] | None:
        limits = find_range(self._table, column)
        bounds = self[column] = None if limits is None else (float(limits.lowest), float(limits.highest))
        return bounds


@cache
def _bounds_of(table: str) -> _Bounds:
    return _Bounds(table)


def find_impossible(table: str, values: Mapping[str, Any]) -> list[Impossible]:
    """Return the columns of a row of `table` whose values are beyond their limits, or above what they are a part of.

    An agent calls it for every reading, so it takes some 0.15 µs for each value. Raises TypeError: a text is in the
    place of a number.
    """
    found: list[Impossible] = []
    bounds = _bounds_of(table)
    for column, value in values.items():
        limits = bounds[column]
        if limits is not None and value is not None:
            lowest, highest = limits
            if not lowest <= value <= highest:
                found.append(Impossible(column, value))
    if table in _PARTS:
        for column, whole in _PARTS[table].items():
            part, total = values.get(column), values.get(whole)
            if part is not None and total is not None and part > total:
                found.append(Impossible(column, part))
    return found


def are_possible(table: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if surely no row of `table` has an impossible value: a fraction of a look at each row.

    Raises TypeError: a text is in the place of a number.
    """
    bounds = _bounds_of(table)
    for column in {column for row in rows for column in row}:
        limits = bounds[column]
        if limits is not None:
            lowest, highest = limits
            present = [value for row in rows if (value := row.get(column)) is not None]
            if not all(lowest <= value <= highest for value in present):
                return False
    return not any(
        (part := row.get(column)) is not None and (total := row.get(whole)) is not None and part > total
        for column, whole in find_parts(table).items()
        for row in rows
    )


def drop_impossible(table: str, values: Mapping[str, T]) -> Mapping[str, T | None]:
    """Return the values of a row of `table` with None in the place of impossible ones."""
    found = find_impossible(table, values)
    return {**values, **dict.fromkeys(each.column for each in found)} if found else values
