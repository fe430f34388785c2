"""Writes rows to files: as they come, and under the file's name only when all of them are in it."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from gpuagent_collector.output.as_csv import write_csv
from gpuagent_collector.output.as_json import write_json, write_json_lines
from gpuagent_collector.output.as_markdown import write_markdown
from gpuagent_collector.output.formats import ENDINGS, FileFormat
from gpuagent_collector.output.printing import Writer
from gpuagent_collector.output.values import unique_names
from gpuagent_common.errors import GpuAgentError, MisuseError

_GROUP_ROWS = 2**17
# Rows are held until there are so many, or so much of them: readers want few large pieces.
_GROUP_BYTES = 2**26

_TEXT: Mapping[FileFormat, Writer] = {
    FileFormat.CSV: write_csv,
    FileFormat.JSON_LINES: write_json_lines,
    FileFormat.JSON: write_json,
    FileFormat.MARKDOWN: write_markdown,
}


def format_of(path: Path) -> FileFormat:
    """Return the format that a file's name asks for.

    Raises:
        MisuseError: it asks for none.
    """
    if path.suffix.lower() not in ENDINGS:
        raise MisuseError(f"the name of {path} tells no format; end it with {', '.join(ENDINGS)}, or give --format")
    return ENDINGS[path.suffix.lower()]


def check_writable(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there.

    Raises:
        MisuseError: what is in the way.
    """
    if path.exists() and not path.is_file():
        raise MisuseError(f"{path} is no file that could be written")
    if path.exists() and not force:
        raise MisuseError(f"{path} is there already; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise MisuseError(f"there is no folder {path.parent}; run: mkdir -p {path.parent}")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a file beside `path` to write, which takes its place at the end; what fails leaves nothing behind.

    Raises:
        GpuAgentError: it cannot be written.
    """
    unfinished = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent)
        os.close(handle)
        unfinished = Path(name)
        yield unfinished
        unfinished.chmod(0o666 & ~_umask())
        _synchronise(unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise GpuAgentError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if unfinished:
            unfinished.unlink(missing_ok=True)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file_format: FileFormat) -> None:
    """Write rows into a file as they come.

    Raises:
        MisuseError: the format has no room for one of the types.
        OSError: it cannot be written.
    """
    if file_format in _TEXT:
        with path.open("w", encoding="utf-8", newline="") as out:
            _TEXT[file_format](schema, batches, out)
        return
    try:
        _write_columns(path, schema, batches, file_format)
    except pa.ArrowException as error:
        raise MisuseError(
            f"{file_format.value} cannot hold this: {error}; CAST it, or choose another format"
        ) from error


def _write_columns(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file_format: FileFormat) -> None:
    names = unique_names(schema.names)
    renamed = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    open_writer = _COLUMNS[file_format]
    with open_writer(str(path), renamed) as writer:
        for group in _grouped(batches):
            writer.write_table(pa.Table.from_batches(group).rename_columns(names).combine_chunks())


def _parquet_writer(path: str, schema: pa.Schema) -> Any:
    return parquet.ParquetWriter(path, schema, compression="zstd")


_COLUMNS: Mapping[FileFormat, Callable[[str, pa.Schema], Any]] = {
    FileFormat.ARROW: pa.ipc.new_file,
    FileFormat.PARQUET: _parquet_writer,
}


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        group.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _synchronise(path: Path) -> None:
    with path.open("rb") as file, suppress(OSError):  # not every file system can
        os.fsync(file.fileno())
