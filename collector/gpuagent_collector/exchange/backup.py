"""Copies of a store that can take its place, and the return to one."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import StoreError, StoreIsHeldError
from gpuagent_collector.exchange.checks import check
from gpuagent_collector.query.reader import FileReader, StreamingReader
from gpuagent_collector.query.snapshot import USER_OBJECTS, read_objects
from gpuagent_collector.schema import load_migrations, schema_relations
from gpuagent_collector.store import Kind, Store, StoreSpec
from gpuagent_collector.store.transactions import transaction
from gpuagent_collector.store.user_objects import make_objects
from gpuagent_common.errors import GpuAgentError, MisuseError

# Some 200,000 rows: an insert of few costs as much as one of many.
_BATCHES_AT_ONCE = 100

# Share of a file's blocks that are free.
_WORTH_COPYING = 0.25

# Objects of users that an error names.
_NAMED = 3

# Called with each table and its number of rows when it is copied.
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The number of rows that were copied, and the objects of users that could not be, such as macros."""

    rows: int
    left_out: Sequence[str]

    @property
    def lacking(self) -> str:
        """Return the first objects that are left out, and the number of the others."""
        rest = len(self.left_out) - _NAMED
        return ", ".join([*self.left_out[:_NAMED], *([f"{rest} more"] if rest > 0 else [])])


def backup(reader: StreamingReader, file: Path, progress: Progress) -> Copied:
    """Copy everything that `reader` reads, as of one moment, into a new DuckDB file.

    Marks are copied too, so that a restored store recognises messages that agents send again. Objects of users, such
    as tables, views and indexes, are copied where they can be made again; macros cannot. The file appears under its
    name only when it is complete: closed, opened again, and counted.

    Raises:
        MisuseError: the file exists already.
        GpuAgentError: the store cannot be read, the file cannot be written, or the schema is unknown.
    """
    if file.exists():
        raise MisuseError(f"{file} exists already; name a new file")
    ((version,),) = reader.sql("SELECT max(version) FROM schema_migrations").to_pydict().values()
    if version > load_migrations()[-1].version:
        raise GpuAgentError(f"{reader.source} has schema {version}, newer than this command knows; upgrade gpuagent")
    unfinished = file.with_name(f".{file.name}.part")
    log = unfinished.with_name(f"{unfinished.name}.wal")
    try:
        for leftover in (unfinished, log):
            leftover.unlink(missing_ok=True)
        rows, left_out = _copy(reader, unfinished, version, progress)
        _verify(unfinished, log, rows)
        unfinished.replace(file)
    except (duckdb.Error, OSError, StoreError) as error:
        if "No space left" in str(error):
            raise GpuAgentError(
                f"cannot write {file}: no space left on the disk; free some, or name another place"
            ) from error
        if isinstance(error, StoreError):
            raise
        raise GpuAgentError(f"cannot write {file}: {str(error).splitlines()[0]}") from error
    finally:
        for leftover in (unfinished, log):
            leftover.unlink(missing_ok=True)
    return Copied(rows=sum(rows.values()), left_out=left_out)


def shrink(spec: StoreSpec) -> str:
    """Replace a file by a copy of it, if a quarter of it is free and the copy lacks nothing.

    DuckDB keeps the blocks of removed rows for later ones. Both files need room until the copy is complete.

    Returns:
        The objects of users that cannot be copied, for people; the file is then as it was. Empty: there are none.

    Raises:
        GpuAgentError: as `backup`; the store is as it was.
    """
    path = spec.path.resolve()
    copy = path.with_name(f"{path.name}.compacted")
    with closing(FileReader(spec)) as reader:
        log = path.with_name(f"{path.name}.wal")  # of this file alone
        if log.exists() or reader.free_share() < _WORTH_COPYING:
            return ""
        was = path.stat()
        try:
            copy.unlink(missing_ok=True)
            if lacking := backup(reader, copy, lambda _table, _rows: None).lacking:
                return lacking
            os.chown(copy, was.st_uid, was.st_gid)
            copy.chmod(was.st_mode)
            copy.replace(path)
        except PermissionError:  # another user's store, who could not open a copy of ours
            return ""
        finally:
            copy.unlink(missing_ok=True)
    return ""


def _copy(
    reader: StreamingReader, unfinished: Path, version: int, progress: Progress
) -> tuple[dict[str, int], list[str]]:
    """Copy every table into a new store; return the rows by table, and the objects of users that it lacks."""
    known = [migration for migration in load_migrations() if migration.version <= version]
    rows, left_out = dict[str, int](), list[str]()
    with Store.open(StoreSpec.parse(str(unfinished)), migrations=known) as store:
        with closing(store.connect()) as connection, closing(reader.snapshot()) as tables:
            for table, table_rows in tables:
                if table == USER_OBJECTS:
                    left_out += map(str, make_objects(connection, read_objects(table_rows)))
                elif (copied := _fill(connection, table, table_rows)) is not None:
                    rows[table] = copied
                    progress(table.replace('"', ""), copied)
                else:
                    left_out.append(f"table {table.replace(chr(34), '')}")
        store.checkpoint()
    return rows, list(dict.fromkeys(left_out))


def _verify(unfinished: Path, log: Path, rows: Mapping[str, int]) -> None:
    """Check that the closed file alone has all rows. Raises GpuAgentError, or duckdb.Error where it cannot be read."""
    if log.exists():
        raise GpuAgentError(f"the copy is not complete: {log} was left over; try again")
    with duckdb.connect(str(unfinished), read_only=True) as connection:
        for table, expected in rows.items():
            ((found,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - a name of the schema, or quoted
            if found != expected:
                raise GpuAgentError(f"the copy is not complete: {table} has {found:,} of {expected:,} rows; try again")


def _fill(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.RecordBatchReader) -> int | None:
    """Copy the rows of a table and return their number; None: a user's table takes none, such as a computed column."""
    copied = 0
    try:
        with transaction(connection):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - rows that a migration inserted
            for piece in _read_pieces(rows):
                connection.register("incoming", piece)
                connection.execute(f"INSERT INTO {table} BY NAME FROM incoming")
                connection.unregister("incoming")
                copied += piece.num_rows
    except duckdb.Error as error:
        if table in schema_relations() or "No space left" in str(error):
            raise
        with suppress(duckdb.Error):
            connection.execute(f"DROP TABLE {table}")
        return None
    return copied


def _read_pieces(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield many rows at once, read here because DuckDB would replace the text of a reader's error with its own."""
    try:
        while batches := list(islice(rows, _BATCHES_AT_ONCE)):
            yield pa.Table.from_batches(batches)
    except OSError as error:
        raise StoreError(f"the copy broke off: {str(error).splitlines()[0]}") from error


def restore(file: Path, spec: StoreSpec, now: datetime, progress: Progress) -> Path | None:
    """Put a checked copy of `file` in the place of a store; return the new name of the store that was there.

    Raises:
        MisuseError: the store is a lake, or is `file` itself.
        StoreError: `file` cannot be read, or a collector holds the store.
        GpuAgentError: `file` is damaged, or the disk is full. The store is unchanged.
    """
    if spec.kind is not Kind.FILE:
        raise MisuseError(f"{spec} is a lake; serve the copy itself: collector serve --store {file}")
    target = spec.path
    if target.exists() and target.samefile(file):
        raise MisuseError(f"{file} is the store itself; name a backup")
    if target.exists():
        _check_free(spec)
    try:
        reader = FileReader(StoreSpec.parse(str(file)))
    except StoreIsHeldError:
        raise
    except StoreError as error:
        raise StoreError(error.problem, "name a file that `collector backup` made") from error
    try:
        verdict = check(reader, progress)
    finally:
        reader.close()
    if not verdict.is_sound:
        raise GpuAgentError(f"{file} is damaged: `collector check --store {file}` says where; the store is unchanged")
    unfinished = target.with_name(f".{target.name}.part")
    try:
        unfinished.unlink(missing_ok=True)
        unfinished.touch(mode=0o600, exist_ok=False)  # a link that another user makes would be followed
        shutil.copyfile(file, unfinished)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        replaced = _set_aside(spec, now) if target.exists() else None
        unfinished.replace(target)
    except OSError as error:
        raise GpuAgentError(f"cannot restore {target}: {error.strerror}; the store is unchanged") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return replaced


def _set_aside(spec: StoreSpec, now: datetime) -> Path:
    """Give the store a second name, with its write-ahead log; raise StoreError if a collector holds it by now.

    It keeps the first until the copy takes it: a collector that found no store there would make an empty one.
    """
    aside = spec.path.with_name(f"{spec.path.name}.before-{now:%Y%m%dT%H%M%SZ}")
    _check_free(spec)
    log = spec.path.with_name(f"{spec.path.name}.wal")
    if log.exists():
        log.replace(aside.with_name(f"{aside.name}.wal"))
    try:
        aside.hardlink_to(spec.path)
    except OSError:  # a file system without links
        spec.path.replace(aside)
    return aside


def _check_free(spec: StoreSpec) -> None:
    """Raise StoreError where a collector holds the store."""
    try:
        Store.open(spec, create=False).close()
    except StoreIsHeldError:
        raise
    except StoreError:
        pass  # A damaged store is a reason to restore.
