"""Export of a store, or of chosen runs, as one folder of Parquet files with a manifest."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from gpuagent_collector import __version__
from gpuagent_collector.exchange.belongings import Belongings, Everything, OfRuns, RunFilter, find_places, join_windows
from gpuagent_collector.exchange.manifest import Manifest, TableEntry
from gpuagent_collector.exchange.slices import Slicer
from gpuagent_collector.exchange.tables import ExchangedTable, exchanged_tables, newest_version
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted

# Samples from this long before and after a run go with it, because the clocks of its nodes may differ.
MARGIN_SECONDS = 60

# Called with each table when its file is written.
Progress = Callable[[str, TableEntry], None]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """Sessions and times in the rows written so far."""

    session_ids: set[int] = field(default_factory=set)
    times: set[str] = field(default_factory=set)

    def add(self, table: ExchangedTable, rows: pa.Table) -> None:
        if "session_id" in table.types:
            self.session_ids |= {each for each in pc.unique(rows["session_id"]).to_pylist() if each is not None}
        times = [pc.min(rows[table.clock]).as_py(), pc.max(rows[table.clock]).as_py()]
        self.times |= {time.isoformat(timespec="microseconds") + "Z" for time in times if time is not None}


def export(reader: StreamingReader, folder: Path, chosen: RunFilter | None, progress: Progress) -> Manifest:
    """Write the rows of `reader` into a new `folder`; with `chosen` only these runs and their belongings.

    The folder appears under its name when it is complete. Of open runs it holds what had arrived; a later export has
    that and the rest. A run that has ended in the export is complete as far as the collector had it then.

    Raises:
        MisuseError: the folder exists already, or no run is chosen.
        GpuAgentError: the store cannot be read, has another schema, or the folder cannot be written.
    """
    ((stored,),) = reader.sql("SELECT max(version) FROM schema_migrations").to_pydict().values()
    if stored != newest_version():
        raise GpuAgentError(
            f"{reader.source} has schema {stored}, and this command knows {newest_version()}; "
            "use the gpuagent version of that collector"
        )
    runs = None if chosen is None else _find_runs(reader, chosen)
    what = "everything" if runs is None else counted(len(runs.run_ids), "run")
    with _new_folder(folder) as unfinished:
        seen, entries = _Seen(), dict[str, TableEntry]()
        # States come first, so that everything of a run which they call ended was in what is read later; descriptions
        # of sessions come last, so that no row lacks its session.
        tables = exchanged_tables(newest_version()).values()
        for table in sorted(tables, key=lambda each: (each.is_of_sessions, each.name != "run_states", each.name)):
            of_sessions = runs and table.is_of_sessions and replace(runs, session_ids=sorted(seen.session_ids))
            meant: Belongings = of_sessions or runs or Everything()
            entries[table.name] = _write(reader, table, meant, unfinished, seen)
            progress(table.name, entries[table.name])
        manifest = Manifest(
            schema_version=newest_version(),
            gpuagent_version=__version__,
            exported_at=utc_now().isoformat(timespec="seconds") + "Z",
            source=reader.source,
            chosen=what if reader.part is None else f"{what} of {reader.part}",
            first_time=min(seen.times, default=None),
            last_time=max(seen.times, default=None),
            tables=entries,
        )
        manifest.write(unfinished)
    return manifest


def _find_runs(reader: StreamingReader, chosen: RunFilter) -> OfRuns:
    found = find_places(
        lambda sql, parameters=(): reader.sql(sql, parameters).to_pylist(),
        chosen,
        margin_micros=MARGIN_SECONDS * 1_000_000,
    )
    if not found:
        raise MisuseError("no run matches; `collector runs` lists them")
    return OfRuns(
        run_ids=sorted({place.run_id for place in found}),
        windows=join_windows(place.window for place in found if place.window),
    )


def _write(reader: StreamingReader, table: ExchangedTable, meant: Belongings, folder: Path, seen: _Seen) -> TableEntry:
    """Write one table; each slice becomes one row group, which therefore holds all equal rows."""
    file = folder / f"{table.name}.parquet"
    rows = 0
    with parquet.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for piece in Slicer(reader=reader, table=table, belongings=meant).slices():
            writer.write_table(piece.cast(table.schema), row_group_size=piece.num_rows)
            seen.add(table, piece)
            rows += piece.num_rows
    return TableEntry.of(file, rows)


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` on success, and removed on failure."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MisuseError(f"{folder} exists already; name a new folder")
    unfinished = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        yield unfinished
        unfinished.replace(folder)
    except OSError as error:
        raise GpuAgentError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)
