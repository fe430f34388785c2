"""Merge of an export or of another store into a store: only rows that the store lacks are added."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import StoreError, StoreIsHeldError
from gpuagent_collector.exchange.export import CheckedExport
from gpuagent_collector.exchange.tables import Everything, ExchangedTable, Slicer, exchanged_tables
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.columns import insert_from
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.statuses import FINAL_STATUSES
from gpuagent_common.text import counted
from gpuagent_common.waiting import waiting_for

# The rest is for the store that receives the rows.
_MEMORY_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherStore:
    """A store in a file, of this collector's schema or an older one; it is not changed."""

    file: Path
    tables: Mapping[str, ExchangedTable]
    reader: FileReader

    @classmethod
    @contextmanager
    def open(cls, file: Path) -> Iterator["OtherStore"]:
        """Open the file read-only, which keeps any collector from writing it.

        Raises StoreError: it is damaged, in use, newer than this collector, or no store of gpuagent.
        """
        spec = StoreSpec.parse(f"ducklake:{file}")
        if not spec.data_directory.is_dir():
            spec = StoreSpec.parse(str(file))
        try:
            reader = FileReader(spec, older=True, memory_bytes=_MEMORY_BYTES)
        except StoreIsHeldError as error:
            raise StoreError(
                f"{file} is in use; stop its collector, or import what `collector export --parquet DIR` writes"
            ) from error
        try:
            yield cls(file=file, tables=exchanged_tables(_version(reader, file)), reader=reader)
        finally:
            reader.close()

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table; equal rows are in one piece. Raises StoreError."""
        table = self.tables[name]
        try:
            for piece in Slicer(reader=self.reader, table=table, belongings=Everything()).slices():
                yield piece.cast(table.schema)
        except (GpuAgentError, duckdb.Error, pa.ArrowException) as error:
            why = str(error).splitlines()[0]
            raise StoreError(f"cannot read the table {name} of {self.file}, and nothing is imported: {why}") from error


def _version(reader: FileReader, file: Path) -> int:
    try:
        ((version,),) = reader.sql("SELECT max(version) FROM schema_migrations").to_pydict().values()
    except MisuseError as error:
        raise StoreError(f"{file} is no store of gpuagent: it has no tables") from error
    return int(version)


# A row is new if the export has it more often than the store. Rows have no keys: equality of all values counts.
_NEWS = """
SELECT {columns} FROM incoming
EXCEPT ALL
SELECT {columns} FROM "{table}" WHERE {candidates}
"""

_MICROS: pa.DataType = pa.timestamp("us")

_NO_SUMMARIES = pa.schema([("run_id", pa.string()), ("computed_at", _MICROS)]).empty_table()

_SAME_SESSIONS = "coalesce(session_id, 0) IN (SELECT coalesce(session_id, 0) FROM incoming)"

_OUTDATED = """
SELECT run_id, latest.computed_at
FROM runs
LEFT JOIN (SELECT run_id, max(computed_at) AS computed_at FROM run_metrics GROUP BY run_id) AS latest USING (run_id)
ANTI JOIN summaries ON summaries.run_id = runs.run_id AND summaries.computed_at = latest.computed_at
WHERE run_id = ANY($gained) AND status = ANY($final)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Numbers of rows of one table that were added, and that the store had."""

    table: str
    added: int
    known: int


def merge(source: CheckedExport | OtherStore, store: Store) -> Sequence[Merged]:
    """Add the rows that the store lacks in one transaction; return the numbers by table.

    A run that gained rows after its summary is summarised again. The store must be opened with `exact`, because rows
    are compared by their values. Raises StoreError: the merge failed; the store is unchanged.
    """
    with store.transaction() as writing, closing(store.connect()) as before:
        merging = _Merging(before=before, writing=writing)
        merged = [merging.merge_table(table, source.pieces(name)) for name, table in source.tables.items()]
        merging.summarise()
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merging:
    """A merge in progress. Every method raises duckdb.Error."""

    # Reads the store before the merge, so that rows of the open transaction are not searched repeatedly.
    before: duckdb.DuckDBPyConnection
    writing: duckdb.DuckDBPyConnection
    # Runs that received new rows.
    gained: set[str] = field(default_factory=set)
    # Run and time of each figure in the source.
    summaries: list[pa.Table] = field(default_factory=list)

    def merge_table(self, table: ExchangedTable, pieces: Iterator[pa.Table]) -> Merged:
        added = rows = 0
        for piece in pieces:
            news = self._find_news(table, piece)
            added, rows = added + self._insert(table, news), rows + piece.num_rows
            if table.name == "run_metrics":
                self.summaries.append(piece.select(["run_id", "computed_at"]))
        return Merged(table=table.name, added=added, known=rows - added)

    def _find_news(self, table: ExchangedTable, piece: pa.Table) -> pa.Table:
        # A condition that all stored rows meet which can equal one of `piece`, so that DuckDB skips the rest.
        clock = piece[table.clock]
        first, last = (pc.cast(pc.cast(bound, _MICROS), pa.int64()) for bound in pc.min_max(clock).values())
        between = f'"{table.clock}" BETWEEN make_timestamp({first}) AND make_timestamp({last})'
        times = [between] if first.is_valid else []
        times += [f'"{table.clock}" IS NULL'] if clock.null_count else []
        sessions = f" AND {_SAME_SESSIONS}" if "session_id" in table.types else ""
        candidates = f"({' OR '.join(times)}){sessions}"
        columns = ", ".join(f'"{name}"' for name in piece.column_names)
        with _register(self.before, "incoming", piece):
            any_candidate = f'SELECT 1 FROM "{table.name}" WHERE {candidates} LIMIT 1'  # noqa: S608 - names of the schema
            if not self.before.execute(any_candidate).fetchone():
                return piece
            sql = _NEWS.format(columns=columns, table=table.name, candidates=candidates)
            return self.before.execute(sql).to_arrow_table()

    def _insert(self, table: ExchangedTable, news: pa.Table) -> int:
        """Insert new rows; return the number of rows that changed."""
        if not news.num_rows:
            return 0
        with _register(self.writing, "news", news):
            ((added,),) = self.writing.execute(insert_from("news", table.name)).fetchall()
        if added and table.is_of_runs and not table.is_computed:
            self.gained.update(run_id for run_id in pc.unique(news["run_id"]).to_pylist() if run_id is not None)
        return int(added)

    def summarise(self) -> None:
        """Compute the figures of runs that gained rows, except where the source holds their latest figures."""
        summaries = pa.concat_tables([_NO_SUMMARIES, *self.summaries])
        values = {"gained": list(self.gained), "final": FINAL_STATUSES}
        with _register(self.writing, "summaries", summaries):
            outdated = dict(self.writing.execute(_OUTDATED, values).fetchall())
        # The newest figures count, so these must be later even if another collector's clock was ahead.
        latest = max((time for time in outdated.values() if time), default=datetime.min)  # noqa: DTZ901 - as the store's
        summarize_runs(self.writing, list(outdated), max(utc_now(), latest + timedelta(microseconds=1)))


@contextmanager
def _register(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> Iterator[None]:
    """Make `rows` readable under this name for statements on this connection."""
    connection.register(name, rows)
    try:
        yield
    finally:
        connection.unregister(name)


# Of the runs of a file, where platforms do not tell the files apart.
_LABEL = "file"

_RUNS = "SELECT DISTINCT run_id, platform FROM run_requests LEFT JOIN sessions USING (session_id)"

_MARK = """
INSERT INTO run_edits BY NAME
SELECT run_id, ? AS time, json_merge_patch(coalesce(labels, '{}')::JSON, ?::JSON) AS labels
FROM runs WHERE run_id = ANY(?)"""


class JoinedReader(FileReader):
    """A reader of several stores as one: `by` is the facet by which they are sides, `sides` has its values."""

    by: str
    sides: Sequence[str]


@contextmanager
def join_stores(files: Sequence[Path]) -> Iterator[JoinedReader]:
    """Copy the stores in these files, which are only read, into one that lasts as long as the block.

    A single file has no sides, and is copied because its schema is older.

    Yields:
        Its reader.

    Raises:
        MisuseError: files have runs in common, which would be on both sides.
        StoreError: a file cannot be read, or a collector has it open.
    """
    names = [file.name if Counter(each.name for each in files)[file.name] == 1 else str(file) for file in files]
    with TemporaryDirectory(prefix="gpuagent-") as folder:
        spec = StoreSpec.parse(f"{folder}/joined.duckdb")
        runs: list[set[str]] = []
        platforms: list[set[str]] = []
        with Store.open(spec, exact=True) as store, waiting_for("collector", "the rows of the stores"):
            for file in files:
                with OtherStore.open(file) as other:
                    rows = other.reader.sql(_RUNS).to_pylist()
                    merge(other, store)
                runs.append({row["run_id"] for row in rows})
                platforms.append({row["platform"] for row in rows})
            for at, (name, own) in enumerate(zip(names, runs, strict=True)):
                if not own and len(files) > 1:
                    raise MisuseError(f"{name} has no runs")
                if common := own & set().union(*runs[:at]):
                    shared = f"{name} and {', '.join(names[:at])} have {counted(len(common), 'run')} in common"
                    raise MisuseError(f"{shared}; a run has one side, so name files of different runs")
            every = [name for of_file in platforms for name in of_file]
            are_platforms = None not in every and len(every) == len(set(every)) == len(files)
            if not are_platforms and len(files) > 1:
                with store.transaction() as connection:
                    for name, of_file in zip(names, runs, strict=True):
                        connection.execute(_MARK, [utc_now(), json.dumps({_LABEL: name}), sorted(of_file)])
        reader = JoinedReader(spec)
        reader.source = f"the store{'s' if len(names) > 1 else ''} {' and '.join(names)}"
        reader.by, reader.sides = ("platform", every) if are_platforms else (f"label:{_LABEL}", names)
        if len(files) > 1:
            of_name = {name: file for file, own in zip(files, platforms, strict=True) for name in own}
            reader.files = {name: file for name, file in of_name.items() if every.count(name) == 1}
        try:
            yield reader
        finally:
            reader.close()
