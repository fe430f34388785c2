"""Retention of samples: as read, as one row a second, as one row a minute, or not at all.

The work is done in slices, each in a short transaction of its own that replaces old rows by new ones. A kill at any
moment leaves a slice done or not done; the next retention does the rest. Rollups can be combined again in any grouping:
readings into seconds, seconds into minutes, and a late reading into an existing second or minute.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb

from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, Columns, is_large, table_columns
from gpuagent_collector.store.transactions import retry_conflicts, transaction
from gpuagent_common.errors import MisuseError

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


# Larger slices are made smaller where possible: this many rows of the widest table take 0.7 s of one core.
SLICE_ROWS = 200_000

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
# All whole minutes, because a row of a minute holds everything of that minute.
_SHORTER = (timedelta(minutes=10), _MINUTE)

# The earliest time in Python. No agent sends earlier ones, but an imported file may; such samples are removed only.
EARLIEST = "TIMESTAMP '0001-01-01'"

# The time in which somebody may notice a wrong clock.
_PROBATION = _DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Ages up to which rows are kept; None keeps them for ever."""

    # Samples as read; older ones become one row a second.
    samples: timedelta | None = None
    # Rows of a second; older ones become one a minute.
    seconds: timedelta | None = None
    # Samples in any form, and steps. Runs keep their figures.
    everything: timedelta | None = None

    def __post_init__(self) -> None:
        """Raise MisuseError unless each form of a row is kept for less time than the next form."""
        named = (("--keep-raw", self.samples), ("--keep-seconds", self.seconds), ("--keep", self.everything))
        for (name, age), (longer, longer_age) in pairwise((name, age) for name, age in named if age is not None):
            if age >= longer_age:
                raise MisuseError(f"{name} must be less than {longer}")

    def __bool__(self) -> bool:
        return self != Retention()

    @property
    def rolled(self) -> tuple[tuple[int, timedelta], ...]:
        """Return the seconds of a row and the age at which rows become so, longest first so that none is done twice."""
        ages = {60: self.seconds, 1: self.samples}
        return tuple((seconds, age) for seconds, age in ages.items() if age is not None)


# What a collector keeps unless it is told otherwise. It removes nothing: a minute's rows of a node of eight H200 are
# 16 MB a month.
DEFAULT_RETENTION = Retention(samples=timedelta(days=7), seconds=timedelta(days=30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Numbers of rows of a table that one transaction removed, and that it added in their place."""

    table: str
    removed: int
    added: int = 0


def retain(
    connection: duckdb.DuckDBPyConnection, retention: Retention, now: datetime, *, sorted_by_node: bool
) -> Iterator[Slice]:
    """Thin out and remove old rows, and yield each slice when it is done.

    Samples of runs without figures are kept until the figures exist. A table whose slice removed nothing, such as after
    a conflict, is left to the next time. Slices that are too large are divided by nodes: at once in a store that is
    sorted by node, else where a minute is too large. `now` is naive UTC and must be right: see `trusted_now`. Raises
    duckdb.Error: the store failed, or conflicts have gone on for seconds; the open slice was not done.
    """
    tables = table_columns(connection)
    if retention.everything is not None:
        for table in sorted(filter(is_large, tables)):
            yield from _remove(connection, table, now - retention.everything)
    connection.execute(_HELD)
    for seconds, age in retention.rolled:
        for samples, rollups in sampled_tables(tables).items():
            pair = _Pair(samples=samples, rollups=rollups, columns=tables[rollups], seconds=seconds)
            yield from pair.thin_out(connection, _floor(now - age, _HOUR), sorted_by_node=sorted_by_node)


def _remove(connection: duckdb.DuckDBPyConnection, table: str, before: datetime) -> Iterator[Slice]:
    first_time = f'SELECT min(greatest(time, {EARLIEST})) FROM "{table}" WHERE time < ?'  # noqa: S608
    while first := _value(connection, first_time, before):
        end = min(before, _floor(first, _DAY) + _DAY)

        def attempt(end: datetime = end) -> int:
            with transaction(connection):
                return _delete(connection, f'FROM "{table}" WHERE time < ?', end)

        removed = retry_conflicts(attempt)
        yield Slice(table=table, removed=removed)
        if not removed:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Rows from `start` to before `end`, on all nodes or on an inclusive range of node keys."""

    start: datetime
    end: datetime
    nodes: tuple[int, int] | None = None

    @classmethod
    def after(cls, time: datetime, width: timedelta) -> "_Range":
        """Return the range from the minute of `time` to the end of its `width`, such as its hour."""
        return cls(start=_floor(time, _MINUTE), end=_floor(time, width) + width)

    def __str__(self) -> str:
        nodes = f" AND node_id BETWEEN {self.nodes[0]} AND {self.nodes[1]}" if self.nodes else ""
        return f"time >= TIMESTAMP '{self.start}' AND time < TIMESTAMP '{self.end}'{nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A table of samples, and the table of their rollups of this many seconds."""

    samples: str
    rollups: str
    columns: Columns
    seconds: int

    def thin_out(
        self, connection: duckdb.DuckDBPyConnection, before: datetime, *, sorted_by_node: bool
    ) -> Iterator[Slice]:
        while place := self._next(connection, before, sorted_by_node):

            def attempt(place: _Range = place) -> Slice:
                """Replace the rows of a range by their rollups; late samples are merged into existing rollups."""
                samples, rollups = self._unheld(place), f'"{self.rollups}" WHERE {place} AND seconds <= {self.seconds}'
                select = rolled_up(self.columns, seconds=self.seconds, samples=samples, rollups=f"(FROM {rollups})")
                with transaction(connection):
                    connection.execute(_HELD)  # in this transaction, since runs and samples arrive together
                    connection.execute(f"CREATE OR REPLACE TEMP TABLE rolled AS {select}")
                    removed = _delete(connection, f"FROM {samples}") + _delete(connection, f"FROM {rollups}")
                    added = _value(connection, f'INSERT INTO "{self.rollups}" BY NAME FROM rolled')
                    connection.execute("DROP TABLE rolled")
                return Slice(table=self.samples, removed=removed, added=added)

            done = retry_conflicts(attempt)
            yield done
            if not done.removed:
                return

    def _next(self, connection: duckdb.DuckDBPyConnection, before: datetime, sorted_by_node: bool) -> _Range | None:
        todo = self._todo(f"time >= {EARLIEST} AND time < TIMESTAMP '{before}'")
        first = _value(connection, f"SELECT min(time) FROM ({todo})")  # noqa: S608 - constant names, as below
        if first is None:
            return None
        place = _Range.after(first, _HOUR)
        for width in () if sorted_by_node else _SHORTER:  # rows that arrived together are stored together
            if _value(connection, f"SELECT count(*) FROM ({self._todo(place)})") > SLICE_ROWS:  # noqa: S608
                place = _Range.after(first, width)
        nodes = _value(connection, _FIRST_NODES.format(todo=self._todo(place), rows=SLICE_ROWS))
        return replace(place, nodes=nodes)

    def _todo(self, within: "_Range | str") -> str:
        """Return a SELECT of time and node of the rows to be replaced."""
        rollups = f'"{self.rollups}" WHERE {within} AND seconds < {self.seconds}'
        return f"SELECT time, node_id FROM {self._unheld(within)} UNION ALL SELECT time, node_id FROM {rollups}"  # noqa: S608

    def _unheld(self, within: "_Range | str") -> str:
        return f'"{self.samples}" AS sample WHERE {within} AND NOT {_IS_HELD}'


# Times and nodes of runs without figures. Most stores have a few.
_HELD = """
CREATE OR REPLACE TEMP TABLE held AS
SELECT DISTINCT states.node_id, started_at - INTERVAL 1 MINUTE AS since,
       coalesce(ended_at + INTERVAL 1 MINUTE, TIMESTAMP 'infinity') AS until
FROM runs JOIN run_states AS states USING (run_id)
WHERE started_at IS NOT NULL AND run_id NOT IN (SELECT run_id FROM run_metrics WHERE run_id IS NOT NULL)
"""

_IS_HELD = """EXISTS (
    FROM held WHERE held.node_id = sample.node_id AND sample.time BETWEEN held.since AND held.until
)"""

_FIRST_NODES = """
SELECT (min(node_id), coalesce(max(node_id) FILTER (rows_so_far <= {rows}), min(node_id))) FROM (
    SELECT node_id, sum(count(*)) OVER (ORDER BY node_id) AS rows_so_far FROM ({todo}) GROUP BY node_id
) WHERE node_id IS NOT NULL HAVING count(*) > 0
"""


def trusted_now(connection: duckdb.DuckDBPyConnection, now: datetime) -> datetime:
    """Return `now` if samples confirm it, else the time of the newest samples before the hour without any.

    Retention is final, so a clock alone does not decide. Samples or steps confirm `now` if some are of the last hour,
    and some of the same hour a day ago unless none are that old. A collector's clock that runs ahead is never
    confirmed, because its last hour is empty. Where a sampled node's clock runs ahead as well by more than a day, it is
    confirmed only after a day, however often the collector restarts. Raises duckdb.Error: the store failed.
    """
    tables = filter(is_large, table_columns(connection))
    times = " UNION ALL ".join(f'SELECT time FROM "{table}"' for table in tables)  # noqa: S608 - names of the schema
    for moment in (now, now - _PROBATION):
        any_then = f"SELECT 1 FROM ({times}) WHERE time > ? AND time <= ? LIMIT 1"  # noqa: S608
        if connection.execute(any_then, [moment - _HOUR, moment]).fetchone() is None:
            newest = f"SELECT max(time) FROM ({times}) WHERE time >= {EARLIEST} AND time <= ?"  # noqa: S608
            return _value(connection, newest, moment) or now
    return now


def _floor(time: datetime, width: timedelta) -> datetime:
    return time - (time - datetime.min) % width  # noqa: DTZ901 - as the store's


def _value(connection: duckdb.DuckDBPyConnection, sql: str, *parameters: object) -> Any:
    row = connection.execute(sql, parameters).fetchone()
    return row[0] if row else None


def _delete(connection: duckdb.DuckDBPyConnection, rows: str, *parameters: object) -> int:
    return int(_value(connection, f"DELETE {rows}", *parameters))
