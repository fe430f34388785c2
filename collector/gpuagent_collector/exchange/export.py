"""Writes a store, or chosen runs of it, as one folder of Parquet files with a manifest."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from gpuagent_collector import __version__
from gpuagent_collector.exchange.belongings import Belongings, Everything, OfRuns, RunFilter, places
from gpuagent_collector.exchange.manifest import Manifest, TableEntry
from gpuagent_collector.exchange.slices import Slicer
from gpuagent_collector.exchange.tables import ExchangedTable, exchanged_tables, newest_version
from gpuagent_collector.exchange.windows import joined
from gpuagent_collector.output.human import counted
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError

# Samples from so long before and after a run go with it: the clocks of its nodes may lie apart.
MARGIN_SECONDS = 60

_STATES = "run_states"

# Told of each table when its file is written.
Progress = Callable[[str, TableEntry], None]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What the rows written so far have in them."""

    session_ids: set[int] = field(default_factory=set)
    times: set[str] = field(default_factory=set)

    def add(self, table: ExchangedTable, rows: pa.Table) -> None:
        if "session_id" in table.types:
            self.session_ids |= {each for each in pc.unique(rows["session_id"]).to_pylist() if each is not None}
        times = [pc.min(rows[table.clock]).as_py(), pc.max(rows[table.clock]).as_py()]
        self.times |= {time.isoformat(timespec="microseconds") + "Z" for time in times if time is not None}


def export(reader: StreamingReader, folder: Path, chosen: RunFilter | None, progress: Progress) -> Manifest:
    """Write what `reader` reads into a new `folder`; with `chosen` only these runs and what belongs to them.

    The folder appears under its name when everything is in it. Of what still goes on, it holds what had arrived; a
    later export has that and the rest. A run that has ended in the export is in it as far as the collector had it then.

    Raises:
        MisuseError: the folder is there already, or no run is chosen.
        GpuAgentError: the store cannot be read, has another schema, or the folder cannot be written.
    """
    _check_version(reader)
    tables = exchanged_tables(newest_version()).values()
    runs = None if chosen is None else _of_runs(reader, chosen)
    with _appearing(folder) as unfinished:
        seen = _Seen()
        entries = {}
        for table in sorted(tables, key=_turn):
            meant = runs if runs is None or not table.is_of_sessions else _with_sessions(runs, seen)
            entries[table.name] = _write(reader, table, meant or Everything(), unfinished, seen)
            progress(table.name, entries[table.name])
        manifest = Manifest(
            schema_version=newest_version(),
            gpuagent_version=__version__,
            exported_at=utc_now().isoformat(timespec="seconds") + "Z",
            source=reader.source,
            chosen=_in_words(runs, reader.part),
            first_time=min(seen.times, default=None),
            last_time=max(seen.times, default=None),
            tables=entries,
        )
        manifest.write(unfinished)
    return manifest


def _check_version(reader: StreamingReader) -> None:
    ((stored,),) = reader.sql("SELECT max(version) FROM schema_migrations").to_pydict().values()
    if stored != newest_version():
        raise GpuAgentError(
            f"{reader.source} has schema {stored}, and this command knows {newest_version()}; "
            "use the gpuagent version of that collector"
        )


def _of_runs(reader: StreamingReader, chosen: RunFilter) -> OfRuns:
    found = places(
        lambda sql, parameters=(): reader.sql(sql, parameters).to_pylist(),
        chosen,
        margin_micros=MARGIN_SECONDS * 1_000_000,
    )
    if not found:
        raise MisuseError("there is no such run; `collector runs` lists them")
    return OfRuns(
        run_ids=sorted({place.run_id for place in found}),
        windows=joined(place.window for place in found if place.window),
    )


def _in_words(runs: OfRuns | None, part: str | None) -> str:
    what = "everything" if runs is None else counted(len(runs.run_ids), "run")
    return what if part is None else f"{what} of {part}"


def _turn(table: ExchangedTable) -> tuple[bool, bool, str]:
    """Return when a table has its turn.

    States come first, so that a run which they say has ended is whole in what is read after them; what describes
    sessions last, so that no row is without its session.
    """
    return table.is_of_sessions, table.name != _STATES, table.name


def _with_sessions(runs: OfRuns, seen: _Seen) -> OfRuns:
    return OfRuns(run_ids=runs.run_ids, windows=runs.windows, session_ids=sorted(seen.session_ids))


def _write(reader: StreamingReader, table: ExchangedTable, meant: Belongings, folder: Path, seen: _Seen) -> TableEntry:
    """Write one table; each slice becomes a row group, so that equal rows lie in one."""
    file = folder / f"{table.name}.parquet"
    rows = 0
    with parquet.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for piece in Slicer(reader=reader, table=table, belongings=meant).slices():
            writer.write_table(piece.cast(table.schema), row_group_size=piece.num_rows)
            seen.add(table, piece)
            rows += piece.num_rows
    return TableEntry.of(file, rows)


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Give a folder beside `folder` to fill, which takes its place at the end; what fails leaves nothing behind."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MisuseError(f"{folder} is there already; name a folder that is not")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    except OSError as error:
        raise GpuAgentError(f"cannot write {folder}: {error.strerror}") from error
    try:
        yield unfinished
        unfinished.chmod(0o755)
        unfinished.replace(folder)
    except OSError as error:
        raise GpuAgentError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
