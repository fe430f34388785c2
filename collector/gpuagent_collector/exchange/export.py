"""Export of a store, or of chosen runs, as one folder of Parquet files with a manifest, and its check."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from gpuagent_collector import __version__
from gpuagent_collector.exchange.tables import (
    Belongings,
    Everything,
    ExchangedTable,
    OfRuns,
    RunFilter,
    Slicer,
    exchanged_tables,
    find_places,
    join_windows,
    newest_version,
)
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted

MANIFEST = "manifest.json"
_FORMAT = "gpuagent export"
_LARGEST_BYTES = 1_000_000
_BLOCK_BYTES = 1 << 20


class ExportError(GpuAgentError):
    """An export that this collector cannot import. Nothing was imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """The file of one table. It is always TABLE.parquet: a manifest cannot name another place."""

    rows: int
    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path, rows: int) -> "TableEntry":
        """Describe a file that holds `rows` rows."""
        digest = hashlib.sha256()
        with file.open("rb") as content:
            while block := content.read(_BLOCK_BYTES):
                digest.update(block)
        return cls(rows=rows, size_bytes=file.stat().st_size, sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content and origin of an export."""

    schema_version: int
    gpuagent_version: str
    # ISO 8601, UTC.
    exported_at: str
    # The collector or store, for people.
    source: str
    # The exported part of it, for people.
    chosen: str
    # The earliest time in any table; None where there are no rows.
    first_time: str | None
    last_time: str | None
    tables: Mapping[str, TableEntry]

    def write(self, folder: Path) -> None:
        """Write the manifest into the export's folder."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, ensure_ascii=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of an export. Raises ExportError: there is no manifest, or it is not one of an export."""
        file = folder / MANIFEST
        try:
            if file.stat().st_size > _LARGEST_BYTES:
                raise ExportError(f"{file} is too large for the manifest of an export")
            content = json.loads(file.read_text(encoding="utf-8"))
            if content.pop("format") != _FORMAT:
                raise ValueError("of another program")
            tables = {str(name): TableEntry(**entry) for name, entry in content.pop("tables").items()}
            manifest = cls(tables=tables, **content)
            if type(manifest.schema_version) is not int:
                raise TypeError("the version is not a number")
            for entry in tables.values():
                if (type(entry.rows), type(entry.size_bytes), type(entry.sha256)) != (int, int, str):
                    raise TypeError("an entry has wrong types")
            return manifest
        except OSError as error:
            raise ExportError(f"cannot read {file}: {error.strerror}") from error
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ExportError(
                f"{file} is damaged or not a manifest of `collector export`; copy the export again"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExport:
    """A complete export that fits this collector's schema."""

    tables: Mapping[str, ExchangedTable]
    # By table.
    files: Mapping[str, Path]

    @classmethod
    def open(cls, folder: Path) -> "CheckedExport":
        """Read and check the whole of an export.

        Raises ExportError: the export is damaged, incomplete, or does not fit this collector's schema.
        """
        manifest = Manifest.read(folder)
        if not 1 <= manifest.schema_version <= newest_version():
            raise ExportError(
                f"the export has schema {manifest.schema_version} (gpuagent {manifest.gpuagent_version}), "
                f"and this gpuagent knows up to {newest_version()}; upgrade it"
            )
        tables = exchanged_tables(manifest.schema_version)
        if odd := sorted(manifest.tables.keys() ^ tables.keys()):
            known = "unknown to" if odd[0] in manifest.tables else "missing, but part of"
            raise ExportError(
                f"the export's table {odd[0]!r} is {known} schema {manifest.schema_version}; export again"
            )
        files = {name: folder / f"{name}.parquet" for name in tables}
        for name, file in files.items():
            _check_file(file, manifest.tables[name], tables[name])
        return cls(tables=tables, files=files)

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table; equal rows are in one piece."""
        content = parquet.ParquetFile(self.files[name])
        yield from map(content.read_row_group, range(content.num_row_groups))


def _check_file(file: Path, entry: TableEntry, table: ExchangedTable) -> None:
    if file.is_symlink() or not file.is_file():
        raise ExportError(f"the export lacks the file {file.name}; copy it again")
    if TableEntry.of(file, entry.rows) != entry:
        raise ExportError(f"{file.name} was cut short or changed after the export; copy the export again")
    try:
        content = parquet.ParquetFile(file)
        rows, schema = content.metadata.num_rows, content.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise ExportError(f"{file.name} is not a Parquet file: {error}") from error
    if rows != entry.rows:
        raise ExportError(f"{file.name} has {rows:,} rows, but the manifest says {entry.rows:,}; export again")
    if odd := sorted(set(schema.names) ^ set(table.schema.names)):
        fault = "has an unknown" if odd[0] in schema.names else "lacks the"
        raise ExportError(f"{file.name} {fault} column {odd[0]!r}; export again")
    for column in table.schema:
        kinds = {found.type for found in schema if found.name == column.name}
        if kinds != {column.type}:
            raise ExportError(f"{table.name}.{column.name} has type {kinds.pop()} in the export, not {column.type}")


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
