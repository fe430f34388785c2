"""An export from elsewhere, checked before anything of it is taken."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from gpuagent_collector.exchange.manifest import ExportError, Manifest, TableEntry
from gpuagent_collector.exchange.tables import ExchangedTable, exchanged_tables, newest_version


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExport:
    """An export that is whole, and for all of which this collector's schema has room."""

    tables: Mapping[str, ExchangedTable]
    # By table.
    files: Mapping[str, Path]

    @classmethod
    def open(cls, folder: Path) -> "CheckedExport":
        """Read and check the whole of an export.

        Raises:
            ExportError: why it cannot be taken.
        """
        manifest = Manifest.read(folder)
        _check_version(manifest)
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


def _check_version(manifest: Manifest) -> None:
    if not 1 <= manifest.schema_version <= newest_version():
        raise ExportError(
            f"the export has schema {manifest.schema_version} (gpuagent {manifest.gpuagent_version}), "
            f"and this gpuagent knows none above {newest_version()}; upgrade it"
        )


def _check_file(file: Path, entry: TableEntry, table: ExchangedTable) -> None:
    if file.is_symlink() or not file.is_file():
        raise ExportError(f"the export lacks the file {file.name}; copy it again")
    if TableEntry.of(file, entry.rows) != entry:
        raise ExportError(f"{file.name} is not as it was exported, cut short or changed; copy the export again")
    try:
        content = parquet.ParquetFile(file)
        rows, schema = content.metadata.num_rows, content.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise ExportError(f"{file.name} is no Parquet file: {error}") from error
    if rows != entry.rows:
        raise ExportError(f"{file.name} has {rows:,} rows, and the manifest says {entry.rows:,}")
    _check_columns(table, schema)


def _check_columns(table: ExchangedTable, schema: pa.Schema) -> None:
    if odd := sorted(set(schema.names) ^ set(table.schema.names)):
        is_more = odd[0] in schema.names
        raise ExportError(f"{table.name}.parquet {'has an unknown' if is_more else 'lacks the'} column {odd[0]!r}")
    for column in table.schema:
        kinds = {found.type for found in schema if found.name == column.name}
        if kinds != {column.type}:
            raise ExportError(f"{table.name}.{column.name} holds {kinds.pop()} in the export, not {column.type}")
