"""The order in which samples compress best, and the sorting of a file's old samples.

A file's rows lie in the order of their arrival. Sorted by device they take less than half of the disk. Each slice is
replaced in one transaction; a kill at any moment leaves it sorted or as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.store.columns import SAMPLES, Columns, table_columns
from gpuagent_collector.store.retention import KEYS, Slice
from gpuagent_collector.store.transactions import retry_conflicts, transaction

# Larger slices compress better, because DuckDB compresses 122,880 rows together: of an agent's `gpu_samples`, a value
# took 1.78 bytes in slices of 200,000 rows, 1.27 of 500,000 and 1.13 of 1,000,000, which take 1.3 s of one core.
SLICE_ROWS = 8 * 122_880

_DAY = timedelta(days=1)
# Even of a fleet, the samples of a second are fewer than a slice.
_SHORTEST = timedelta(seconds=1)
# Of a slice, where its rows are spread evenly.
_FILLED = 0.98
# Samples that arrive later stay where they are.
_SETTLED = timedelta(hours=1)

# One column of each lane that sends rows of its own. Rows of a lane lie together, because a column that is NULL in nine
# of ten rows compresses badly: 12 to 19 bytes a value instead of 8.
_LANES = {
    "gpu_samples": ("utilization_percent", "sm_active_percent"),
    "host_samples": ("cpu_percent", "memory_used_bytes"),
}

# Always a write: DuckDB frees the blocks of removed rows in a checkpoint after a later transaction.
_KEEP_LAST = (
    "CREATE OR REPLACE TEMP TABLE last_sortings AS "
    "SELECT table_name, max(until) AS until, max(sorted_at) AS sorted_at FROM sortings GROUP BY table_name",
    "DELETE FROM sortings",
    "INSERT INTO sortings FROM last_sortings",
)

_RANGE = "time >= $since AND time < $until"


def sort_order(table: str, columns: Columns) -> str:
    """Return the expressions of ORDER BY for a table of samples: lane, node, other keys, time."""
    lanes = [f"({column} IS NULL)" for column in _LANES.get(table, ())]
    return ", ".join([*lanes, "node_id", *(name for name in columns if name in KEYS and name != "node_id"), "time"])


def sort_old(connection: duckdb.DuckDBPyConnection, now: datetime, *, settled: timedelta = _SETTLED) -> Iterator[Slice]:
    """Sort the samples of a file that are older than `settled`, and yield each slice when it is done.

    A day is one slice where it has few rows; its samples wait until it is over. Memory and time of a slice are bounded
    by its number of rows, and so is the disk that it takes until the next checkpoint frees that of the old rows.

    Args:
        connection: a connection to a file; a lake sorts when it merges its files.
        now: naive UTC.
        settled: age from which samples are sorted; zero sorts an unfinished day too.

    Raises:
        duckdb.Error: the store failed; the open slice is as it was.
    """
    has_sorted = False
    for table, columns in table_columns(connection).items():
        if table.endswith(SAMPLES):
            place = _Table(name=table, order=sort_order(table, columns), until=now - settled, waits=bool(settled))
            for done in place.sort(connection, now):
                has_sorted = True
                yield done
    if has_sorted:
        with transaction(connection):
            for statement in _KEEP_LAST:
                connection.execute(statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table of samples, to be sorted until a time; `waits` leaves a day that is not over and has few rows."""

    name: str
    order: str
    until: datetime
    waits: bool

    def sort(self, connection: duckdb.DuckDBPyConnection, now: datetime) -> Iterator[Slice]:
        while place := self._next(connection):

            def attempt(since: datetime = place[0], until: datetime = place[1]) -> Slice:
                with transaction(connection):
                    return self._replace(connection, since, until, now)

            yield retry_conflicts(attempt)

    def _next(self, connection: duckdb.DuckDBPyConnection) -> tuple[datetime, datetime] | None:
        done = "SELECT coalesce(max(until), ?) FROM sortings WHERE table_name = ?"
        ((sorted_until,),) = connection.execute(done, [datetime.min, self.name]).fetchall()  # noqa: DTZ901 - as the store's
        first_time = f'SELECT min(time) FROM "{self.name}" WHERE {_RANGE}'  # noqa: S608 - names of the schema, as below
        place = {"since": sorted_until, "until": self.until}
        ((first,),) = connection.execute(first_time, place).fetchall()
        if first is None:
            return None
        day = first.replace(hour=0, minute=0, second=0, microsecond=0)
        since, until = max(sorted_until, first), min(day + _DAY, self.until)
        rows = self._count(connection, since, until)
        if self.waits and until < day + _DAY and rows < SLICE_ROWS:
            return None
        while rows > SLICE_ROWS and until - since > _SHORTEST:
            until = since + max((until - since) * (_FILLED * SLICE_ROWS / rows), _SHORTEST)
            rows = self._count(connection, since, until)
        return since, until

    def _count(self, connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> int:
        sql = f'SELECT count(*) FROM "{self.name}" WHERE {_RANGE}'  # noqa: S608
        ((rows,),) = connection.execute(sql, {"since": since, "until": until}).fetchall()
        return int(rows)

    def _replace(self, connection: duckdb.DuckDBPyConnection, since: datetime, until: datetime, now: datetime) -> Slice:
        """Append the rows of a range in order, and remove those that were there before."""
        place = {"since": since, "until": until}
        # Rows that this transaction appends are numbered after all others.
        sql = f'SELECT max(rowid) FROM "{self.name}" WHERE {_RANGE}'  # noqa: S608
        ((last,),) = connection.execute(sql, place).fetchall()
        counts = []
        for statement, parameters in (
            (f'INSERT INTO "{self.name}" FROM "{self.name}" WHERE {_RANGE} ORDER BY {self.order}', place),
            (f'DELETE FROM "{self.name}" WHERE {_RANGE} AND rowid <= $last', {**place, "last": last}),  # noqa: S608
        ):
            ((count,),) = connection.execute(statement, parameters).fetchall()
            counts.append(int(count))
        added, removed = counts
        if added != removed:
            raise duckdb.Error(f"sorting {self.name} would replace {removed} rows by {added}")
        connection.execute("INSERT INTO sortings VALUES (?, ?, ?)", [self.name, until, now])
        return Slice(table=self.name, removed=removed, added=added)
