"""The manifest of an export, and the check of a whole export against it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from gpuagent_collector.exchange.tables import ExchangedTable, exchanged_tables, newest_version
from gpuagent_common.errors import GpuAgentError

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
        """Read the manifest of an export.

        Raises:
            ExportError: there is no manifest, or it is not one of an export.
        """
        file = folder / MANIFEST
        try:
            if file.stat().st_size > _LARGEST_BYTES:
                raise ExportError(f"{file} is too large for the manifest of an export")
            return _parse(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise ExportError(f"cannot read {file}: {error.strerror}") from error
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ExportError(
                f"{file} is damaged or not a manifest of `collector export`; copy the export again"
            ) from error


def _parse(content: Any) -> Manifest:
    """Raise AttributeError, KeyError, TypeError or ValueError where `content` is no manifest."""
    if content.pop("format") != _FORMAT:
        raise ValueError("of another program")
    tables = {str(name): TableEntry(**entry) for name, entry in content.pop("tables").items()}
    manifest = Manifest(tables=tables, **content)
    if type(manifest.schema_version) is not int:
        raise TypeError("the version is not a number")
    for entry in tables.values():
        if (type(entry.rows), type(entry.size_bytes), type(entry.sha256)) != (int, int, str):
            raise TypeError("an entry has wrong types")
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExport:
    """A complete export that fits this collector's schema."""

    tables: Mapping[str, ExchangedTable]
    # By table.
    files: Mapping[str, Path]

    @classmethod
    def open(cls, folder: Path) -> "CheckedExport":
        """Read and check the whole of an export.

        Raises:
            ExportError: the export is damaged, incomplete, or does not fit this collector's schema.
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
