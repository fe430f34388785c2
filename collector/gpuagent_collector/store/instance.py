"""Starting the DuckDB instance that holds a store, and locking it down."""

import re
from importlib.util import find_spec
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store.spec import Kind, StoreSpec

LAKE = "lake"
"""Name under which a lake is attached."""

_INLINED_ROWS = 1000
"""Inserts of a lake up to this many rows stay in its catalog until it is tidied: small commits make no small files."""

_MISSING_EXTENSION = "a ducklake store needs DuckDB's ducklake extension; run: pip install 'gpuagent[lake]'"


def start_instance(spec: StoreSpec, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the file or attach the lake, and make it the connection's default database.

    Raises:
        StoreError: it cannot be opened: why, and what to do.
    """
    _check_place(spec, read_only=read_only)
    try:
        return _start_lake(spec, read_only) if spec.kind is Kind.LAKE else _start_file(spec, read_only)
    except duckdb.Error as error:
        raise StoreError(_in_words(spec, str(error))) from error


def use_store(connection: duckdb.DuckDBPyConnection, spec: StoreSpec) -> None:
    """Make the store the default database of another connection to its instance."""
    if spec.kind is Kind.LAKE:
        connection.execute(f"USE {LAKE}")


def harden(connection: duckdb.DuckDBPyConnection, spec: StoreSpec) -> None:
    """Leave the instance nothing but the store: no other files, no extensions, no change of settings.

    What is forbidden here is forbidden to every statement, whoever wrote it. Times without a zone are UTC everywhere,
    so that comparing them with now() does not depend on the machine's zone; names of Python variables are no tables.
    DuckDB's memory limit, 80 % of what the machine or the container has, becomes final with the rest.
    """
    settings = {
        "temp_directory": _quoted(spec.scratch_directory),
        "TimeZone": "'UTC'",
        "python_enable_replacements": "false",
    }
    if spec.kind is Kind.LAKE:
        settings["allowed_directories"] = f"[{_quoted(spec.data_directory)}]"
        settings["allowed_paths"] = f"[{_quoted(spec.path)}, {_quoted(Path(f'{spec.path}.wal'))}]"
    settings |= {"enable_external_access": "false", "lock_configuration": "true"}
    for name, value in settings.items():
        connection.execute(f"SET GLOBAL {name} = {value}")


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


def _start_lake(spec: StoreSpec, read_only: bool) -> duckdb.DuckDBPyConnection:
    extension = _lake_extension()
    connection = duckdb.connect(":memory:", config=_NO_DOWNLOADS)
    try:
        if not read_only:
            _make_data_directory(spec)
        connection.execute(f"LOAD {_quoted(extension)}")
        options = "READ_ONLY" if read_only else f"DATA_INLINING_ROW_LIMIT {_INLINED_ROWS}"
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


def _in_words(spec: StoreSpec, message: str) -> str:
    holder = re.search(r"Conflicting lock is held in (.*?) ?\(PID (\d+)\)", message)
    if holder:
        return (
            f"the store {spec.path} is in use by process {holder[2]} ({holder[1]}); "
            "stop it, or ask that collector instead of the file"
        )
    if "not a valid DuckDB database file" in message:
        return f"{spec.path} is not a DuckDB file; name another with --store"
    if "Permission denied" in message or "Read-only file system" in message:
        return f"cannot write the store {spec.path}: permission denied; name another place with --store"
    return f"cannot open the store {spec.path}: {message.splitlines()[0]}"
