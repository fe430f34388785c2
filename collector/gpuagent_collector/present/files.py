"""Writers of rows to files, which appear under their name only when they are complete."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpuagent_collector.present.data import Writer, write_csv, write_json, write_json_lines, write_markdown
from gpuagent_collector.present.formats import ENDINGS, FileFormat
from gpuagent_collector.present.new_files import for_others
from gpuagent_collector.present.values import unique_names
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
    """Return the format for the ending of a file's name. Raises MisuseError: there is no format for it."""
    if path.suffix.lower() not in ENDINGS:
        raise MisuseError(f"{path} has no known ending; end it with {', '.join(ENDINGS)}, or give --format")
    return ENDINGS[path.suffix.lower()]


def check_writable(path: Path, *, force: bool) -> None:
    """Raise MisuseError where a file cannot be written, or would be replaced without `force`."""
    if path.exists() and not path.is_file():
        raise MisuseError(f"{path} is not a regular file; choose another name")
    if path.exists() and not force:
        raise MisuseError(f"{path} already exists; replace it with --force")
    if not path.absolute().parent.is_dir():
        raise MisuseError(f"the directory {path.parent} does not exist; run: mkdir -p {path.parent}")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Yield a new file beside `path` that replaces it on success; on failure nothing is left behind.

    It is a user's, to be shared as the user's umask says. Raises GpuAgentError: it cannot be written.
    """
    unfinished = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent)
        os.close(handle)
        unfinished = Path(name)
        yield unfinished
        unfinished.chmod(for_others(0o666))
        with unfinished.open("rb") as file, suppress(OSError):  # not every file system can
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise GpuAgentError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if unfinished:
            unfinished.unlink(missing_ok=True)


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], file_format: FileFormat) -> None:
    """Write rows into a file, batch by batch.

    Raises:
        MisuseError: the format cannot hold one of the types.
        OSError: it cannot be written.
    """
    if file_format in _TEXT:
        with path.open("w", encoding="utf-8", newline="") as out:
            _TEXT[file_format](schema, batches, out)
        return
    try:
        names = unique_names(schema.names)
        renamed = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        opened: Any
        if file_format is FileFormat.ARROW:
            opened = pa.ipc.new_file(str(path), renamed)
        else:
            from pyarrow import parquet  # only here: most answers are no such file

            opened = parquet.ParquetWriter(str(path), renamed, compression="zstd")
        with opened as writer:
            for group in _group_batches(batches):
                writer.write_table(pa.Table.from_batches(group).rename_columns(names).combine_chunks())
    except pa.ArrowException as error:
        raise MisuseError(
            f"{file_format.value} cannot hold this: {error}; CAST it, or choose another format"
        ) from error


def _group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
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
