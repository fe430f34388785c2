"""Rollups of samples: one row for all samples of a second or minute.

Rollups can be combined again in any grouping: readings into seconds, seconds into minutes, and a late reading into an
existing second or minute.
"""

import re
from collections.abc import Mapping

from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, Columns

# Columns that identify the source of a row's readings.
KEYS = frozenset(
    (
        *("session_id", "node_id", "device_id", "core", "path", "run_id", "pid", "pod_uid", "container_id", "source"),
        "owner_id",
    )
)

# Columns that count events since the previous row.
_SUMS = frozenset(("reads", "failures", "late_ticks", "missed_ticks", "busy_seconds"))

_BITS = frozenset(("throttle_reasons",))

_GAUGE = re.compile(r"STRUCT\(mean FLOAT, min (\w+),")

# A number that does not fit the rollup's type is dropped, so that it does not block all others.
_READING = "TRY_CAST({0} AS {1})"

_OF_READINGS = (
    f"CASE WHEN count({_READING}) > 0 THEN {{{{'mean': avg({_READING}), 'min': min({_READING}), "
    f"'max': max({_READING}), 'count': count({_READING})}}}} END"
)
_OF_ROLLUPS = (
    "CASE WHEN count({0}) > 0 THEN {{'mean': sum({0}.mean * {0}.count) / sum({0}.count), 'min': min({0}.min), "
    "'max': max({0}.max), 'count': CAST(sum({0}.count) AS BIGINT)}} END"
)

_GROUPED = """
SELECT {keys}, time_bucket(INTERVAL {seconds} SECONDS, time) AS time, {seconds} AS seconds, {figures}
FROM {rows}
GROUP BY {keys}, time_bucket(INTERVAL {seconds} SECONDS, time)"""

_ROLLED = """
WITH partly AS ({of_readings}
)
{of_both}
ORDER BY {keys}, time"""


def sampled_tables(tables: Mapping[str, Columns]) -> dict[str, str]:
    """Return table of samples → table of its rollups."""
    rolled = (name for name in tables if name.endswith(ROLLUPS))
    return {name.removesuffix(ROLLUPS) + SAMPLES: name for name in sorted(rolled)}


def rolled_up(columns: Columns, *, seconds: int, samples: str, rollups: str) -> str:
    """Return a SELECT that makes rollups of `seconds` from samples and shorter rollups.

    Args:
        columns: columns of the table of rollups.
        seconds: duration of a resulting row.
        samples: a relation of samples.
        rollups: a relation of rollups of at most `seconds`.
    """
    keys = ", ".join(name for name in columns if name in KEYS)
    figures = [name for name in columns if name not in (*KEYS, "time", "seconds")]
    of_readings, of_both = (
        _GROUPED.format(
            keys=keys,
            seconds=seconds,
            rows=rows,
            figures=", ".join(f"{_aggregate(name, columns[name], gauge)} AS {name}" for name in figures),
        )
        for rows, gauge in ((samples, _OF_READINGS), (f"(FROM partly UNION ALL BY NAME FROM {rollups})", _OF_ROLLUPS))
    )
    return _ROLLED.format(of_readings=of_readings, of_both=of_both, keys=keys)


def _aggregate(name: str, data_type: str, gauge: str) -> str:
    if of := _GAUGE.match(data_type):
        return gauge.format(name, of[1])
    if name in _SUMS:
        return f"TRY_CAST(sum({name}) AS {data_type})"
    return f"{'bit_or' if name in _BITS else 'max'}({name})"
