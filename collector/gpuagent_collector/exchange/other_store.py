"""Another store in a file, a lake's catalog included, whose rows are merged without an export between them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import StoreError, StoreIsHeldError
from gpuagent_collector.exchange.belongings import Everything
from gpuagent_collector.exchange.slices import Slicer
from gpuagent_collector.exchange.tables import ExchangedTable, exchanged_tables
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.store import StoreSpec
from gpuagent_common.errors import GpuAgentError, MisuseError

# Where a DuckDB file has its name.
_MAGIC_AT, _MAGIC = 8, b"DUCK"

# The rest is for the store that receives the rows.
_MEMORY_BYTES = 512 * 2**20


def find_stores(place: Path) -> list[Path]:
    """Return a file that is one of DuckDB, or those in a folder, by name; no others. Raises OSError."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and _is_duckdb(file)]


def _is_duckdb(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


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

        Raises:
            StoreError: it is damaged, in use, newer than this collector, or no store of gpuagent.
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
