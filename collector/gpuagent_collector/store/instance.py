"""Start and lockdown of the DuckDB instance that holds a store."""

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError, StoreIsHeldError, StoreIsReadError
from gpuagent_collector.present.new_files import follow_user
from gpuagent_collector.store import shared
from gpuagent_collector.store.columns import quoted
from gpuagent_collector.store.shared import NO_DOWNLOADS, load_extension
from gpuagent_collector.store.spec import Kind, StoreSpec

# The format of new files packs bitmaps of absent values and texts, which takes a tenth less disk. Older files keep
# theirs. DuckDB before 1.5 cannot read it. Merging the log less often compresses fewer rows twice; after a kill
# a log of 99 MB takes 0.4 s of CPU.
_FILE_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "storage_compatibility_version": "v1.5.0",
    "checkpoint_threshold": "128MB",
}

# The name under which a lake is attached.
LAKE = "lake"

# Inserts of a lake up to this many rows stay in its catalog until it is tidied, so small commits make no small files.
# DuckLake 1.5.5 writes those as decimal literals, which can change the last bit of a DOUBLE.
_INLINED_ROWS = 1000

# DuckDB's share of the machine's or the container's memory, less what the process takes without a store. Its default of
# 80 % leaves too little for what it does not count: texts that functions make, and answers on their way to readers.
_MEMORY_SHARE, _DEFAULT_MEMORY_SHARE = 0.5, 0.8
_PROCESS_BYTES = 512 * 2**20

# Each of DuckDB's threads has 2,048 rows of a query in memory, which DuckDB does not count.
_MEMORY_A_THREAD_BYTES = 2**30

_SCRATCH_LIMIT_BYTES = 16 * 2**30
# Queries that do not fit into memory may fill this share of the free disk, because the store needs it too.
_SCRATCH_SHARE = 0.25

# Folders that end with this process.
_scratch: set[Path] = set()

_MEBIBYTES = {"KiB": 2**-10, "MiB": 1.0, "GiB": 2.0**10, "TiB": 2.0**20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A DuckDB instance whose default database is a store."""

    connection: duckdb.DuckDBPyConnection
    # The place of a lake's files.
    data: str | None = None


def start_instance(spec: StoreSpec, *, read_only: bool, create: bool = True, exact: bool = False) -> Instance:
    """Open the file or attach the lake, and make it the connection's default database.

    `create` makes a missing store, unless `read_only`. `exact` keeps every DOUBLE to its last bit, at the price of a
    file for each insert of a lake.

    Raises:
        StoreIsReadError: nothing but reading of its file keeps the store from being opened.
        StoreError: the store cannot be opened.
    """
    if spec.kind is not Kind.SHARED:
        path, folder = spec.path, spec.path.parent
        if (read_only or not create) and not path.exists():
            raise StoreError(f"there is no store {path}", "`collector serve` makes one, or name another with --store")
        if path.is_fifo():  # DuckDB would wait for who writes into it
            raise StoreError(f"{path} is a pipe, not a file", "name another with --store")
        if not folder.is_dir():
            raise StoreError(f"cannot make the store {path}: there is no folder {folder}; run: mkdir -p {folder}")
        if path.is_dir():
            raise StoreError(f"the store {path} is a folder; name a file in it")
        _check_owners(spec, read_only=read_only)
    try:
        if spec.kind is Kind.FILE:
            return Instance(
                connection=duckdb.connect(spec.place, read_only=read_only, config=NO_DOWNLOADS | _FILE_SETTINGS)
            )
        return _start_lake(spec, read_only=read_only, create=create and not read_only, exact=exact)
    except duckdb.Error as error:
        kind = StoreError
        if spec.kind is not Kind.SHARED and _LOCKED in str(error):
            kind = StoreIsReadError if not read_only and _is_only_read(spec) else StoreIsHeldError
        told = kind(*explain(spec, str(error), read_only=read_only))
        if isinstance(told, StoreIsHeldError) and (pid := _HOLDER.search(str(error))):
            told.holder = int(pid[1])
        raise told from error


def _check_owners(spec: StoreSpec, *, read_only: bool) -> None:
    """Raise StoreError where another user has left the store, or one of the places that DuckDB would use beside it.

    In a folder such as /tmp such a user could read and change what it writes there.
    """
    path, ours = spec.path, {os.geteuid(), 0}
    if path.is_symlink() and path.lstat().st_uid not in ours and path.parent.stat().st_mode & stat.S_IWOTH:
        raise StoreError(f"{path} is another user's link; name a store in a folder of your own with --store")
    if path.exists():
        owner, is_for_all = path.stat().st_uid, path.parent.stat().st_mode & stat.S_IWOTH
        if is_for_all and owner not in ours and not read_only:
            raise StoreError(f"{path} belongs to another user; name a store in a folder of your own with --store")
        ours.add(owner)
    for place in (path.with_name(f"{path.name}.wal"), spec.scratch_directory, spec.data_directory):
        with contextlib.suppress(FileNotFoundError):
            if place.lstat().st_uid not in ours:
                raise StoreError(f"{place} belongs to another user; name a store in a folder of your own")


def use_store(connection: duckdb.DuckDBPyConnection, spec: StoreSpec) -> None:
    """Make the store the default database of another connection to its instance."""
    if spec.is_lake:
        connection.execute(f"USE {LAKE}")


@atexit.register
def remove_scratch() -> None:
    """Remove the folders for data of queries that this process made among those of all users."""
    for folder in _scratch:
        shutil.rmtree(folder, ignore_errors=True)


def harden(instance: Instance, spec: StoreSpec, memory_bytes: int | None = None) -> None:
    """Restrict the instance to the store: no other files, no extensions, no change of settings.

    The restrictions hold for every statement, whoever wrote it. Times without a zone are UTC everywhere, so that
    comparisons with now() do not depend on the machine's zone. Names of Python variables are no tables. The limits of
    memory (None: a share of the machine's) and scratch space become final too. Only the catalog of a shared lake stays
    reachable, through functions of its extension; the query guard allows no function that is not on its list.
    """
    connection, scratch = instance.connection, spec.scratch_directory
    # A store that this process has open already: DuckDB shares its instance, with all settings.
    if connection.execute("SELECT current_setting('lock_configuration')").fetchall() == [(True,)]:
        return
    if spec.kind is Kind.SHARED:
        scratch.mkdir(mode=0o700)  # in a folder of all users
        _scratch.add(scratch)
    total_bytes = memory_limit_bytes(connection) / _DEFAULT_MEMORY_SHARE
    share_bytes = max(total_bytes / 4, (total_bytes - _PROCESS_BYTES) * _MEMORY_SHARE)
    memory_mib = max(1, int((memory_bytes or share_bytes) / 2**20))
    free_bytes = shutil.disk_usage(scratch.parent).free
    scratch_mib = min(_SCRATCH_LIMIT_BYTES, int(free_bytes * _SCRATCH_SHARE)) // 2**20
    ((cores,),) = connection.execute("SELECT current_setting('threads')").fetchall()
    settings = {
        "threads": str(max(1, min(cores, round(total_bytes / _MEMORY_A_THREAD_BYTES)))),
        "memory_limit": quoted(f"{memory_mib}MiB"),
        # What threads have freed returns to the system at once, not when each of them next allocates.
        "allocator_flush_threshold": "'16MiB'",
        "allocator_bulk_deallocation_flush_threshold": "'16MiB'",
        "allocator_background_threads": "true",
        "max_temp_directory_size": quoted(f"{scratch_mib}MiB"),
        "temp_directory": quoted(scratch),
        "TimeZone": "'UTC'",
        "python_enable_replacements": "false",
    }
    if instance.data is not None:
        settings["allowed_directories"] = f"[{quoted(instance.data)}]"
        # DuckLake 1.5.5 loses values in a table's statistics when one transaction writes several files and a column is
        # all NULL in the first; rows beyond the rest would never be found. Statistics of files are right.
        settings["disabled_optimizers"] = "'statistics_propagation'"
    if spec.kind is Kind.LAKE:
        settings["allowed_paths"] = f"[{quoted(spec.path)}, {quoted(Path(f'{spec.path}.wal'))}]"
    # Of a connection alone, which cannot be set before.
    settings["allowed_configs"] = "['streaming_buffer_size']"
    settings |= {"enable_external_access": "false", "lock_configuration": "true"}
    for name, value in settings.items():
        connection.execute(f"SET GLOBAL {name} = {value}")


def total_memory_bytes() -> int:
    """Return the memory of the machine or the container, as DuckDB finds it."""
    with duckdb.connect(config=NO_DOWNLOADS) as bare:
        return int(memory_limit_bytes(bare) / _DEFAULT_MEMORY_SHARE)


def memory_limit_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the memory that DuckDB may use."""
    ((limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    return int(float(number) * _MEBIBYTES[unit] * 2**20)


def _start_lake(spec: StoreSpec, *, read_only: bool, create: bool, exact: bool) -> Instance:
    connection = duckdb.connect(":memory:", config=NO_DOWNLOADS)
    options = "READ_ONLY" if read_only else f"DATA_INLINING_ROW_LIMIT {0 if exact else _INLINED_ROWS}"
    try:
        if spec.kind is Kind.SHARED:
            if not read_only:
                follow_user()
            data = shared.attach_shared(connection, spec, name=LAKE, options=options, create=create)
        else:
            data = str(spec.data_directory)
            if not read_only:
                spec.data_directory.mkdir(exist_ok=True)
            load_extension(connection, "ducklake")
            place = quoted(f"ducklake:{spec.path}")
            connection.execute(f"ATTACH {place} AS {LAKE} (DATA_PATH {quoted(data)}, {options})")
        use_store(connection, spec)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise StoreError(f"cannot make the store's folder {spec.data_directory}: {error.strerror}") from error
        raise
    return Instance(connection=connection, data=data)


# Of DuckDB's message about a file that another process has open.
_LOCKED = "Conflicting lock is held"
_HOLDER = re.compile(rf"{_LOCKED} in .*?\(PID (\d+)\)")


def _is_only_read(spec: StoreSpec) -> bool:
    """Return whether others may share the lock on a store's file."""
    with spec.path.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def explain(spec: StoreSpec, message: str, *, read_only: bool) -> tuple[str, str]:
    """Return the problem of a store of which DuckDB says this, and the remedy, if there is one."""
    if spec.kind is Kind.SHARED:
        return shared.explain(spec, message), ""
    if holder := _HOLDER.search(message):
        instead = "stop that first"
        if read_only:
            instead = "query that collector with --collector HOST:PORT, or wait until it, or its bench, has ended"
        return f"the store {spec.path} is in use by process {holder[1]}", instead
    if "not a valid DuckDB database file" in message:
        return f"{spec.path} is not a DuckDB file", "name another with --store"
    if "No such file or directory" in message and not spec.path.exists():
        return f"cannot make the store {spec.path}: its folder takes no file", "name another place with --store"
    if str(spec.path) in message and ("Permission denied" in message or "Read-only file system" in message):
        use = "read" if read_only else "write"
        return f"cannot {use} the store {spec.path}: permission denied", "name another place with --store"
    reason = message.splitlines()[0]
    if "Corrupt database file" in message or "Could not read enough bytes" in message:
        # The file is named already.
        detail = re.sub(' from file "[^"]*"', "", reason.partition(": ")[2])
        reason = f"it is damaged or cut short: {detail}"
        return f"cannot open the store {spec.path}: {reason}", "restore a backup: `collector restore FILE`"
    return f"cannot open the store {spec.path}: {reason}", ""
