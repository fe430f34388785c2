"""Exchanged tables, the rows of them that belong to runs or nodes, and their reading in bounded slices."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import duckdb
import pyarrow as pa

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_collector.schema import load_migrations, migrate
from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, table_columns
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError

# A mark says that a collector has all of a session up to a number. That is false for one that imported an excerpt:
# there the mark would hide what the session's agent still sends.
KEPT_HERE = frozenset({"commits", "marks", "schema_migrations", "session_owners", "sortings"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedTable:
    """A table whose rows are exchanged."""

    name: str
    # Column → DuckDB type, in the table's order.
    types: Mapping[str, str]
    # The same columns in Arrow.
    schema: pa.Schema

    @property
    def clock(self) -> str:
        """Return the column with the time of a row."""
        return next(column for column, data_type in self.types.items() if data_type == "TIMESTAMP")

    @property
    def is_of_runs(self) -> bool:
        """Return whether rows can name the run that they belong to."""
        return "run_id" in self.types

    @property
    def is_computed(self) -> bool:
        """Return whether the rows were computed from others."""
        return "computed_at" in self.types

    @property
    def is_samples(self) -> bool:
        """Return whether rows without a run belong to the runs on their node at that time."""
        return self.name.endswith((SAMPLES, ROLLUPS))

    @property
    def is_of_sessions(self) -> bool:
        """Return whether rows describe an agent process and its findings."""
        return not (self.is_of_runs or self.is_samples)


def newest_version() -> int:
    """Return the version of the schema that this collector writes."""
    return load_migrations()[-1].version


@cache
def exchanged_tables(version: int) -> Mapping[str, ExchangedTable]:
    """Return the exchanged tables of a version of the schema, without a store."""
    with duckdb.connect() as connection:
        migrate(connection, [each for each in load_migrations() if each.version <= version], utc_now())
        tables = table_columns(connection)
        return {
            name: ExchangedTable(
                name=name,
                types=tables[name],
                schema=connection.execute(f'FROM "{name}" LIMIT 0').to_arrow_table().schema,
            )
            for name in sorted(tables.keys() - KEPT_HERE)
        }


# Text after WHERE, and the values of its `?`.
Condition = tuple[str, list[str]]

# End, in microseconds, of a run that has not ended: far beyond any clock.
_UNENDED = 2**62

# Lists travel as one JSON text: a collector takes scalars alone, and a run's name may contain any separator.
_TEXTS = "(SELECT unnest(from_json(?::VARCHAR, '[\"VARCHAR\"]')))"
_NUMBERS = "(SELECT unnest(from_json(?::VARCHAR, '[\"BIGINT\"]')))"
_WINDOWS = """(
    SELECT node AS node_id, make_timestamp(since) AS from_time, make_timestamp("until") AS to_time
    FROM (
        SELECT unnest(
            from_json(?::VARCHAR, '[{"node": "BIGINT", "since": "BIGINT", "until": "BIGINT"}]'), recursive := true
        )
    )
)"""

# Windows do not touch, so only the last one that began before a sample can hold it.
_IN_WINDOWS = """rowid IN (
    SELECT sample.rowid
    FROM (SELECT rowid, node_id, "{clock}" FROM "{table}" WHERE {within}) AS sample
    ASOF JOIN {windows} AS life ON sample.node_id = life.node_id AND sample."{clock}" >= life.from_time
    WHERE sample."{clock}" < life.to_time
)"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Window:
    """A stretch of time on one node, in microseconds since the Unix epoch; `end_micros` is exclusive."""

    node_id: int
    start_micros: int
    end_micros: int


def join_windows(windows: Iterable[Window]) -> list[Window]:
    """Return the same time in as few windows as possible: sorted, none touching another."""
    result: list[Window] = []
    for window in sorted(windows):
        last = result[-1] if result else None
        if last and last.node_id == window.node_id and window.start_micros <= last.end_micros:
            end_micros = max(last.end_micros, window.end_micros)
            result[-1] = Window(node_id=last.node_id, start_micros=last.start_micros, end_micros=end_micros)
        else:
            result.append(window)
    return result


def subtract_windows(windows: Iterable[Window], others: Iterable[Window]) -> list[Window]:
    """Return the time of `windows` that is in none of `others`."""
    remaining = join_windows(windows)
    for other in join_windows(others):
        remaining = [piece for window in remaining for piece in _subtract(window, other)]
    return remaining


def _subtract(window: Window, other: Window) -> Iterable[Window]:
    if window.node_id != other.node_id:
        yield window
        return
    for start, end in (
        (window.start_micros, min(window.end_micros, other.start_micros)),
        (max(window.start_micros, other.end_micros), window.end_micros),
    ):
        if start < end:
            yield Window(node_id=window.node_id, start_micros=start, end_micros=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """All rows of all tables."""

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:  # noqa: ARG002 - same for every table
        """Return `within`."""
        return within, []


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRuns:
    """Rows of runs, samples of their nodes in their time, and descriptions of agent processes.

    A row that names another run never belongs here, even if it was sampled at the same time.
    """

    run_ids: Collection[str]
    # No window touches another.
    windows: Sequence[Window]
    session_ids: Collection[int] = ()

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return the condition that selects these rows of `table` where `within` is true."""
        if table.is_of_sessions:
            return f"{within} AND session_id IN {_NUMBERS}", [json.dumps(list(self.session_ids))]
        run_ids = json.dumps(list(self.run_ids))
        if not table.is_samples:
            return f"{within} AND run_id IN {_TEXTS}", [run_ids]
        windows = json.dumps(
            [
                {"node": window.node_id, "since": window.start_micros, "until": window.end_micros}
                for window in self.windows
            ]
        )
        sampled = _IN_WINDOWS.format(table=table.name, clock=table.clock, within=within, windows=_WINDOWS)
        if not table.is_of_runs:
            return f"{within} AND {sampled}", [windows]
        return f"{within} AND (run_id IN {_TEXTS} OR run_id IS NULL AND {sampled})", [run_ids, windows]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNodes:
    """All rows that came from nodes, and every row of the runs that started on them."""

    node_ids: Collection[int]
    run_ids: Collection[str]

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return the condition that selects these rows of `table` where `within` is true."""
        parts = {
            f"{column} IN {values}": json.dumps(list(keys))
            for column, values, keys in (("node_id", _NUMBERS, self.node_ids), ("run_id", _TEXTS, self.run_ids))
            if column in table.types
        }
        return f"{within} AND ({' OR '.join(parts) or 'false'})", list(parts.values())


Belongings = Everything | OfRuns | OfNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A choice of runs: those that pass every given filter. An empty or missing filter passes all."""

    run_ids: Sequence[str] = ()
    experiments: Sequence[str] = ()
    platforms: Sequence[str] = ()
    # Queued at this moment (UTC) or later.
    since: datetime | None = None

    def condition(self) -> Condition:
        """Return the condition that selects these rows of the view `runs`."""
        among = {"run_id": self.run_ids, "experiment": self.experiments, "platform": self.platforms}
        parts = {f"{column} IN {_TEXTS}": json.dumps(list(values)) for column, values in among.items() if values}
        if self.since:
            parts["queued_at >= ?::TIMESTAMP"] = self.since.isoformat()
        return " AND ".join(parts) or "true", list(parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """A run on one of its nodes, and its window there; None where the store lacks node or time."""

    run_id: str
    window: Window | None


_PLACES = """
WITH chosen AS (
    SELECT run_id, node_id, epoch_us(coalesce(started_at, queued_at)) AS start_micros, epoch_us(ended_at) AS end_micros
    FROM runs WHERE {condition}
), places AS (
    SELECT run_id, node_id FROM chosen
    UNION
    SELECT run_id, run_requests.node_id FROM run_requests SEMI JOIN chosen USING (run_id)
    UNION
    SELECT run_id, run_devices.node_id FROM run_devices SEMI JOIN chosen USING (run_id)
)
SELECT DISTINCT run_id, places.node_id, start_micros, end_micros FROM places JOIN chosen USING (run_id)
"""


def find_places(ask: Ask, chosen: RunFilter, *, margin_micros: int = 0) -> list[RunPlace]:
    """Return where and when these runs ran, with `margin_micros` added at both ends."""
    condition, values = chosen.condition()
    places = []
    for row in ask(_PLACES.format(condition=condition), values):
        node_id, start_micros, end_micros = row["node_id"], row["start_micros"], row["end_micros"]
        window = None
        if node_id is not None and start_micros is not None:
            last = _UNENDED if end_micros is None else max(start_micros, end_micros)
            start_micros, end_micros = start_micros - margin_micros, last + margin_micros + 1
            window = Window(node_id=node_id, start_micros=start_micros, end_micros=end_micros)
        places.append(RunPlace(run_id=row["run_id"], window=window))
    return places


# Stretches of time with more rows are divided: some 100 MB of the widest table. A collector's limit is a million rows.
SLICE_ROWS = 400_000

# Parts of one stretch of time in one query.
_MOST_PARTS = 1000

# Hexadecimal digits of a row's hash; equal rows have equal hashes, so no number of digits divides them.
_LEVELS = 16

_EXTENT = """
SELECT count(*) AS rows, count(*) - count("{clock}") AS timeless,
       epoch_us(min("{clock}")) AS first, epoch_us(max("{clock}")) AS last
FROM "{table}" WHERE {condition}
"""

_PARTS = """
SELECT (epoch_us("{clock}") - {start}) // {width} AS part, count(*) AS rows
FROM "{table}" WHERE {condition} GROUP BY part ORDER BY part
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicer:
    """Reads the selected rows of one table, each once. Equal rows are always in the same slice.

    Raises (every method):
        GpuAgentError: the store cannot be read, or has more equal rows than a query may return.
    """

    reader: StreamingReader
    table: ExchangedTable
    belongings: Belongings

    def slices(self) -> Iterator[pa.Table]:
        """Yield non-empty slices by stretches of time, rows without a time first."""
        extent = self._ask(_EXTENT)[0]
        if extent["timeless"]:
            yield from self._shares(f'"{self.table.clock}" IS NULL')
        if timed := extent["rows"] - extent["timeless"]:
            yield from self._stretch(extent["first"], extent["last"] + 1, timed)

    def _stretch(self, start: int, end: int, rows: int) -> Iterator[pa.Table]:
        """Yield the rows from `start` to before `end`, in microseconds since the Unix epoch."""
        if rows > SLICE_ROWS and end - start > 1:
            yield from self._divide(start, end, parts=min(_MOST_PARTS, 1 + 4 * rows // SLICE_ROWS))
        elif end - start == 1:
            yield from self._shares(self._between(start, end))
        elif (answer := self._fetch(self._between(start, end))) is not None:
            yield answer
        else:
            yield from self._divide(start, end, parts=2)

    def _divide(self, start: int, end: int, *, parts: int) -> Iterator[pa.Table]:
        width = -(-(end - start) // parts)
        for part in self._ask(_PARTS, within=self._between(start, end), start=start, width=width):
            first = start + part["part"] * width
            yield from self._stretch(first, min(end, first + width), part["rows"])

    def _between(self, start: int, end: int) -> str:
        clock = self.table.clock
        return f'"{clock}" >= make_timestamp({start}) AND "{clock}" < make_timestamp({end})'

    def _shares(self, within: str, level: int = 0) -> Iterator[pa.Table]:
        """Yield slices of rows with one time, such as figures of runs that were computed together."""
        answer = self._fetch(within)
        if answer is not None:
            yield from [answer] if answer.num_rows else []
        elif level == _LEVELS:
            raise GpuAgentError(
                f"{self.table.name} has more equal rows than the collector returns at once; "
                "stop the collector and read its --store FILE"
            )
        else:
            for share in range(16):
                digit = f"(hash({self._columns}) >> {4 * level}) & 15"
                yield from self._shares(f"{within} AND {digit} = {share}", level + 1)

    @property
    def _columns(self) -> str:
        return ", ".join(f'"{column}"' for column in self.table.types)

    def _fetch(self, within: str) -> pa.Table | None:
        """Return the rows within; None if the collector truncated the answer."""
        condition, values = self.belongings.condition(self.table, within)
        with self.reader.stream(f'SELECT {self._columns} FROM "{self.table.name}" WHERE {condition}', values) as answer:  # noqa: S608 - names of the schema
            batches = list(answer)
            return None if answer.truncated else pa.Table.from_batches(batches, answer.schema)

    def _ask(self, sql: str, *, within: str = "true", **numbers: int) -> list[dict[str, int]]:
        condition, values = self.belongings.condition(self.table, within)
        names = {"table": self.table.name, "clock": self.table.clock}
        return self.reader.sql(sql.format(condition=condition, **names, **numbers), values).to_pylist()
