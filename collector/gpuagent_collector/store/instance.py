"""Starting the DuckDB instance that holds a store, and locking it down."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store.spec import Kind, StoreSpec

LAKE = "lake"
"""Name under which a lake is attached."""

_INLINED_ROWS = 1000
"""Inserts of a lake up to this many rows stay in its catalog until it is tidied: small commits make no small files.

DuckLake 1.5.5 writes those as decimal literals, which DuckDB can read with another last bit of a DOUBLE."""

_MEMORY_SHARE = 0.5
"""How much of what the machine or the container has DuckDB may take. Its default, 80 %, leaves too little for what it
does not count: texts that functions make, and answers on their way to readers."""

_SCRATCH_LIMIT_BYTES = 16 * 2**30
_SCRATCH_SHARE = 0.25
"""Queries that do not fit into memory may fill so much of the free disk, never more: the store needs it too."""

_DEFAULT_MEMORY_SHARE = 0.8

_MISSING_EXTENSION = "a ducklake store needs DuckDB's ducklake extension; run: pip install 'gpuagent[lake]'"


def start_instance(spec: StoreSpec, *, read_only: bool, exact: bool = False) -> duckdb.DuckDBPyConnection:
    """Open the file or attach the lake, and make it the connection's default database.

    With `exact` every DOUBLE that is written is kept to its last bit, at the price of a file for each insert of a lake.

    Raises:
        StoreError: it cannot be opened: why, and what to do.
    """
    _check_place(spec, read_only=read_only)
    try:
        return _start_lake(spec, read_only, exact) if spec.kind is Kind.LAKE else _start_file(spec, read_only)
    except duckdb.Error as error:
        raise StoreError(_in_words(spec, str(error), read_only=read_only)) from error


def use_store(connection: duckdb.DuckDBPyConnection, spec: StoreSpec) -> None:
    """Make the store the default database of another connection to its instance."""
    if spec.kind is Kind.LAKE:
        connection.execute(f"USE {LAKE}")


def harden(connection: duckdb.DuckDBPyConnection, spec: StoreSpec) -> None:
    """Leave the instance nothing but the store: no other files, no extensions, no change of settings.

    What is forbidden here is forbidden to every statement, whoever wrote it. Times without a zone are UTC everywhere,
    so that comparing them with now() does not depend on the machine's zone; names of Python variables are no tables.
    The limits of memory and scratch space become final with the rest.
    """
    settings = {
        "memory_limit": _quoted(f"{_memory_limit_mib(connection)}MiB"),
        "max_temp_directory_size": _quoted(f"{_scratch_limit_mib(spec)}MiB"),
        "temp_directory": _quoted(spec.scratch_directory),
        "TimeZone": "'UTC'",
        "python_enable_replacements": "false",
    }
    if spec.kind is Kind.LAKE:
        settings["allowed_directories"] = f"[{_quoted(spec.data_directory)}]"
        # DuckLake 1.5.5 forgets values in a table's statistics when one transaction writes several files and a column
        # is all NULL in the first; rows beyond what is left would never be found. Statistics of files are right.
        settings["disabled_optimizers"] = "'statistics_propagation'"
        settings["allowed_paths"] = f"[{_quoted(spec.path)}, {_quoted(Path(f'{spec.path}.wal'))}]"
    settings |= {"enable_external_access": "false", "lock_configuration": "true"}
    for name, value in settings.items():
        connection.execute(f"SET GLOBAL {name} = {value}")


def _memory_limit_mib(connection: duckdb.DuckDBPyConnection) -> int:
    """Return our share of the machine's or the container's memory, of which DuckDB has set itself its own share."""
    available_bytes = memory_limit_bytes(connection) / _DEFAULT_MEMORY_SHARE
    return max(1, int(available_bytes * _MEMORY_SHARE / 2**20))


def memory_limit_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """Return how much memory DuckDB may take."""
    row = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert row is not None  # noqa: S101 - a setting has a value
    number, unit = row[0].split()
    return int(float(number) * _MEBIBYTES[unit] * 2**20)


def _scratch_limit_mib(spec: StoreSpec) -> int:
    free_bytes = shutil.disk_usage(spec.path.parent).free
    return min(_SCRATCH_LIMIT_BYTES, int(free_bytes * _SCRATCH_SHARE)) // 2**20


def _check_place(spec: StoreSpec, *, read_only: bool) -> None:
    folder = spec.path.parent
    if read_only and not spec.path.exists():
        raise StoreError(f"there is no store {spec.path}; `collector serve` makes one, or name another with --store")
    if not folder.is_dir():
        raise StoreError(f"cannot make the store {spec.path}: there is no folder {folder}; run: mkdir -p {folder}")
    if spec.path.is_dir():
        raise StoreError(f"the store {spec.path} is a folder; name a file in it")


def _start_file(spec: StoreSpec, read_only: bool) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(spec.path), read_only=read_only, config=_NO_DOWNLOADS)


def _start_lake(spec: StoreSpec, read_only: bool, exact: bool) -> duckdb.DuckDBPyConnection:
    extension = _lake_extension()
    connection = duckdb.connect(":memory:", config=_NO_DOWNLOADS)
    try:
        if not read_only:
            _make_data_directory(spec)
        connection.execute(f"LOAD {_quoted(extension)}")
        options = "READ_ONLY" if read_only else f"DATA_INLINING_ROW_LIMIT {0 if exact else _INLINED_ROWS}"
        connection.execute(
            f"ATTACH {_quoted(f'ducklake:{spec.path}')} AS {LAKE} (DATA_PATH {_quoted(spec.data_directory)}, {options})"
        )
        use_store(connection, spec)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_data_directory(spec: StoreSpec) -> None:
    try:
        spec.data_directory.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the store's folder {spec.data_directory}: {error.strerror}") from error


_MEBIBYTES = {"KiB": 2**-10, "MiB": 1.0, "GiB": 2.0**10, "TiB": 2.0**20}

_NO_DOWNLOADS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def _lake_extension() -> Path:
    """Return the extension's file in the installed package duckdb-extension-ducklake.

    Raises:
        StoreError: it is not installed, or does not fit this version of DuckDB.
    """
    package = find_spec("duckdb_extension_ducklake")
    if package is None or package.origin is None:
        raise StoreError(_MISSING_EXTENSION)
    file = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}" / "ducklake.duckdb_extension"
    if not file.is_file():
        raise StoreError(
            f"the ducklake extension does not fit DuckDB {duckdb.__version__}; "
            f"run: pip install duckdb-extension-ducklake=={duckdb.__version__}"
        )
    return file


def _quoted(value: Path | str) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _in_words(spec: StoreSpec, message: str, *, read_only: bool) -> str:
    holder = re.search(r"Conflicting lock is held in (.*?) ?\(PID (\d+)\)", message)
    if holder:
        instead = "ask that collector with --collector HOST:PORT, or stop it" if read_only else "stop that first"
        return f"the store {spec.path} is in use by process {holder[2]} ({holder[1]}); {instead}"
    if "not a valid DuckDB database file" in message:
        return f"{spec.path} is not a DuckDB file; name another with --store"
    if "Permission denied" in message or "Read-only file system" in message:
        return f"cannot write the store {spec.path}: permission denied; name another place with --store"
    return f"cannot open the store {spec.path}: {message.splitlines()[0]}"
