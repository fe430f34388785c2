"""How long samples are kept, and as what: as they were read, as one row a second, one a minute, or not at all.

Everything is done in slices, each in a transaction of its own that is short and that takes the old rows out as it puts
the new ones in. Killed at any moment, it has done a slice or has not; what is left over is done by whoever comes next.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb

from gpuagent_collector.store.columns import Columns, table_columns
from gpuagent_collector.store.layout import is_large
from gpuagent_collector.store.rollups import rolled_up, sampled_tables
from gpuagent_collector.store.sampled import EARLIEST
from gpuagent_collector.store.transactions import transaction, until_first
from gpuagent_common.errors import MisuseError

# A slice with more rows is made smaller, where it can be: so many of the widest table take 0.7 s of one core.
SLICE_ROWS = 200_000

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
# Whole minutes all: a row of a minute has all that is left of it.
_SHORTER = (timedelta(minutes=10), _MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how long; None: for ever."""

    # Samples as they were read; older ones become one row a second.
    samples: timedelta | None = None
    # Rows of a second; older ones become one a minute.
    seconds: timedelta | None = None
    # Samples in any form, and steps. Runs keep their figures.
    everything: timedelta | None = None

    def __post_init__(self) -> None:
        """Raise MisuseError where something is to be kept for longer than what it would become."""
        named = {"--keep-raw": self.samples, "--keep-seconds": self.seconds, "--keep": self.everything}
        given = [(name, age) for name, age in named.items() if age is not None]
        for (name, age), (longer, longer_age) in pairwise(given):
            if age >= longer_age:
                raise MisuseError(f"{name} must be less than {longer}")

    def __bool__(self) -> bool:
        return self != Retention()

    @property
    def rolled(self) -> tuple[tuple[int, timedelta], ...]:
        """Seconds of a row → from what age on there are no shorter ones; the longest first: nothing is done twice."""
        ages = {60: self.seconds, 1: self.samples}
        return tuple((seconds, age) for seconds, age in ages.items() if age is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What one transaction did: how many rows it took out of a table, and what it put in their place."""

    table: str
    removed: int
    added: int = 0


def retain(
    connection: duckdb.DuckDBPyConnection, retention: Retention, now: datetime, *, sorted_by_node: bool
) -> Iterator[Slice]:
    """Thin out and remove what is old enough, a slice at a time, and say after each what it was.

    Samples of runs that have no figures yet are not thinned out until they have. Of a table of which nothing could be
    taken out, as where others were first, the rest is left to the next time. What is too much for a slice is cut by
    nodes: at once in a store that is sorted by node, else where a minute is too much. `now` is naive, UTC, and right:
    `believed` tells.

    Raises:
        duckdb.Error: the store failed, or others have come first for seconds; the slice under way was not done.
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
    """Remove rows of a table, a day at a time."""
    first_time = f'SELECT min(greatest(time, {EARLIEST})) FROM "{table}" WHERE time < ?'  # noqa: S608
    while first := _value(connection, first_time, before):
        end = min(before, _floor(first, _DAY) + _DAY)

        def attempt(end: datetime = end) -> int:
            with transaction(connection):
                return _delete(connection, f'FROM "{table}" WHERE time < ?', end)

        removed = until_first(attempt)
        yield Slice(table=table, removed=removed)
        if not removed:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Rows of `start` to before `end`, on all nodes or on those of the first to the last."""

    start: datetime
    end: datetime
    nodes: tuple[int, int] | None = None

    @classmethod
    def after(cls, time: datetime, width: timedelta) -> "_Range":
        """Return from the minute of a time to the end of its hour, or whatever `width` is; what is before is done."""
        return cls(start=_floor(time, _MINUTE), end=_floor(time, width) + width)

    def __str__(self) -> str:
        nodes = f" AND node_id BETWEEN {self.nodes[0]} AND {self.nodes[1]}" if self.nodes else ""
        return f"time >= TIMESTAMP '{self.start}' AND time < TIMESTAMP '{self.end}'{nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A table of samples and that of their rollups, which are to be of so many seconds."""

    samples: str
    rollups: str
    columns: Columns
    seconds: int

    def thin_out(
        self, connection: duckdb.DuckDBPyConnection, before: datetime, *, sorted_by_node: bool
    ) -> Iterator[Slice]:
        while place := self._next(connection, before, sorted_by_node):

            def attempt(place: _Range = place) -> Slice:
                with transaction(connection):
                    return self._replace(connection, place)

            done = until_first(attempt)
            yield done
            if not done.removed:
                return

    def _next(self, connection: duckdb.DuckDBPyConnection, before: datetime, sorted_by_node: bool) -> _Range | None:
        """Return where the oldest rows are that are to be replaced; None: there are none."""
        todo = self._todo(f"time >= {EARLIEST} AND time < TIMESTAMP '{before}'")
        first = _value(connection, f"SELECT min(time) FROM ({todo})")  # noqa: S608 - of ours, as all below
        if first is None:
            return None
        place = _Range.after(first, _HOUR)
        for width in () if sorted_by_node else _SHORTER:  # what came together lies together
            if _value(connection, f"SELECT count(*) FROM ({self._todo(place)})") > SLICE_ROWS:  # noqa: S608
                place = _Range.after(first, width)
        nodes = _value(connection, _FIRST_NODES.format(todo=self._todo(place), rows=SLICE_ROWS))
        return replace(place, nodes=nodes)

    def _replace(self, connection: duckdb.DuckDBPyConnection, place: _Range) -> Slice:
        """Take the rows of a place out and put in what they become; late ones join what others became before."""
        connection.execute(_HELD)  # in this transaction, since runs and samples arrive together
        samples, rollups = self._free(place), f'"{self.rollups}" WHERE {place} AND seconds <= {self.seconds}'
        select = rolled_up(self.columns, seconds=self.seconds, samples=samples, rollups=f"(FROM {rollups})")
        connection.execute(f"CREATE OR REPLACE TEMP TABLE rolled AS {select}")
        removed = _delete(connection, f"FROM {samples}") + _delete(connection, f"FROM {rollups}")
        added = _value(connection, f'INSERT INTO "{self.rollups}" BY NAME FROM rolled')
        connection.execute("DROP TABLE rolled")
        return Slice(table=self.samples, removed=removed, added=added)

    def _todo(self, within: "_Range | str") -> str:
        """Return the time and node of what is to be replaced."""
        rollups = f'"{self.rollups}" WHERE {within} AND seconds < {self.seconds}'
        return f"SELECT time, node_id FROM {self._free(within)} UNION ALL SELECT time, node_id FROM {rollups}"  # noqa: S608

    def _free(self, within: "_Range | str") -> str:
        return f'"{self.samples}" AS sample WHERE {within} AND NOT {_IS_HELD}'


# When runs without figures were on which nodes. Most stores have a few.
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


def _floor(time: datetime, width: timedelta) -> datetime:
    return time - (time - datetime.min) % width  # noqa: DTZ901 - as the store's


def _value(connection: duckdb.DuckDBPyConnection, sql: str, *parameters: object) -> Any:
    row = connection.execute(sql, parameters).fetchone()
    return row[0] if row else None


def _delete(connection: duckdb.DuckDBPyConnection, rows: str, *parameters: object) -> int:
    return int(_value(connection, f"DELETE {rows}", *parameters))
