"""A lake that several collectors share: its catalog in PostgreSQL, its files in a folder or bucket."""

import os
import re
import tempfile
import time
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store.columns import quoted
from gpuagent_collector.store.spec import S3_PREFIX, StoreSpec

# From installed packages alone: opening a store downloads nothing.
NO_DOWNLOADS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from the installed package `duckdb-extension-NAME`.

    Raises StoreError: the package is missing, or does not fit this version of DuckDB.
    """
    package = find_spec(f"duckdb_extension_{name}")
    if package is None or package.origin is None:
        raise StoreError(f"a ducklake store needs DuckDB's {name} extension; run in a checkout: pip install '.[lake]'")
    file = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.is_file():
        raise StoreError(
            f"the {name} extension does not fit DuckDB {duckdb.__version__}; "
            f"run: pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
        )
    connection.execute(f"LOAD {quoted(file)}")


_ATTEMPTS = 10
# Collectors that make the same new catalog at the same moment conflict; one of them succeeds.
_PAUSE_SECONDS = 0.3

# These detect a catalog behind a dead network within half a minute; the kernel's own limit is a quarter of an hour
# without commits. A user's own value of any of these wins.
_TIMEOUTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# A run is lost after two minutes without a commit, by the clock of the collector that looks.
_CLOCKS_APART = timedelta(seconds=30)

# Option of a secret → environment variables of AWS's own tools; the first that is set counts.
_S3_OPTIONS = {
    "KEY_ID": ("AWS_ACCESS_KEY_ID",),
    "SECRET": ("AWS_SECRET_ACCESS_KEY",),
    "SESSION_TOKEN": ("AWS_SESSION_TOKEN",),
    "REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}

_S3_SETTINGS = "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, outside Amazon, AWS_ENDPOINT_URL"
# Part of DuckDB's message → remedy; _S3_SETTINGS for any other.
_S3_ADVICE = {
    "(HTTP 403": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are refused there, or may not read and write that bucket",
    "(HTTP 404": "make that bucket, or name another with --data",
}

_DATA_PATH = "SELECT value FROM ducklake_options(?) WHERE option_name = 'data_path'"

_CLOCK = (
    "SELECT t FROM postgres_query('__ducklake_metadata_{}', 'SELECT extract(epoch FROM clock_timestamp())::float8 t')"
)


def attach_shared(
    connection: duckdb.DuckDBPyConnection, spec: StoreSpec, *, name: str, options: str, create: bool
) -> str:
    """Attach the lake as `name`, and return the place of its files; `create` makes a missing lake.

    Raises:
        StoreError: the lake is missing, has its files elsewhere, or they cannot be reached.
        duckdb.Error: the catalog cannot be reached.
    """
    for extension in ("postgres_scanner", "ducklake"):
        load_extension(connection, extension)
    if not _attach_existing(connection, spec, name, options):
        if not create:
            raise StoreError(f"there is no store {spec}; `collector serve` with --data makes one")
        _make(connection, spec, name, options)
    row = connection.execute(_DATA_PATH, [name]).fetchone()
    data = str(row[0]) if row else ""
    if spec.data not in (None, data):
        raise StoreError(f"the files of the store {spec} are in {data}, not in {spec.data}; omit --data")
    if data.startswith(S3_PREFIX):
        _open_bucket(connection)
        try:
            connection.execute("SELECT file FROM glob(?) LIMIT 1", [f"{data}*"]).fetchone()
        except duckdb.Error as error:
            raise _unreachable(data, error) from error
    elif not Path(data).is_dir():
        raise StoreError(f"the store's files are in {data}, which is missing; is it mounted on this machine?")
    return data


def check_clock(connection: duckdb.DuckDBPyConnection, name: str, now: datetime) -> None:
    """Compare `now`, in UTC, with the clock of the catalog's machine, the reference of all collectors.

    Raises StoreError: the clocks differ by more than 30 s.
    """
    row = connection.execute(_CLOCK.format(name)).fetchone()
    theirs = datetime.fromtimestamp(float(row[0]), timezone.utc).replace(tzinfo=None) if row else now
    if abs(now - theirs) > _CLOCKS_APART:
        raise StoreError(
            f"the clock here is at {now:%Y-%m-%d %H:%M:%S} UTC and that of the catalog's machine at "
            f"{theirs:%Y-%m-%d %H:%M:%S}; synchronise both, for example by chrony"
        )


def explain(spec: StoreSpec, message: str) -> str:
    """Return the cause and the remedy for DuckDB's message about a catalog."""
    found = re.search(r'Unable to connect to Postgres at ".*?": (.*)', message)
    reason = found[1] if found else message.splitlines()[0]
    if "password" in reason:
        advice = "put the password into ~/.pgpass, a file that PGPASSFILE names, or PGPASSWORD"
    elif re.search(r'database ".*" does not exist', reason):
        advice = "make it: createdb NAME"
    elif "ermission denied" in reason:
        advice = "the catalog's user needs rights on its tables: docs/scale.md"
    else:
        advice = "is PostgreSQL running there?" if found else ""
    return f"cannot open the store {spec}: {reason}{f'; {advice}' if advice else ''}"


def _attach(connection: duckdb.DuckDBPyConnection, spec: StoreSpec, name: str, options: str) -> None:
    place = spec.place
    missing = [f"{option}={value}" for option, value in _TIMEOUTS.items() if option not in place]
    if "://" in place:
        place = f"{place}{'&' if '?' in place else '?'}{'&'.join(missing)}"
    else:
        place = " ".join((place, *missing)).strip()
    connection.execute(f"ATTACH {quoted(f'ducklake:postgres:{place}')} AS {name} ({options})")


def _attach_existing(connection: duckdb.DuckDBPyConnection, spec: StoreSpec, name: str, options: str) -> bool:
    existing = f"CREATE_IF_NOT_EXISTS false, {options}"
    try:
        _attach(connection, spec, name, existing)
    except duckdb.Error as error:
        if "creating a new DuckLake is explicitly disabled" in str(error):
            return False
        if "requires the extension httpfs" not in str(error):
            raise
        _open_bucket(connection)
        _attach(connection, spec, name, existing)
    return True


def _make(connection: duckdb.DuckDBPyConnection, spec: StoreSpec, name: str, options: str) -> None:
    if spec.data is None:
        raise StoreError(f"there is no store {spec} yet; name the place of its files: --data DIR|s3://bucket/path")
    data = spec.data
    # Another lake's files would be removed as leftovers.
    if held := _first_object(connection, data) if data.startswith(S3_PREFIX) else _first_file(Path(data)):
        if _attach_existing(connection, spec, name, options):
            return None  # another collector has made it since the first look
        raise StoreError(f"{data} contains files already, such as {held}; a new store needs an empty place: --data")
    for _ in range(_ATTEMPTS):
        try:
            return _attach(connection, spec, name, f"DATA_PATH {quoted(data)}, {options}")
        except duckdb.Error as error:
            failure = error
        time.sleep(_PAUSE_SECONDS)
        if _attach_existing(connection, spec, name, options):
            return None
    raise failure


def _first_file(folder: Path) -> str | None:
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        return next((path.name for path in folder.iterdir()), None)
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}/: {error.strerror}; make that folder, or name another with --data"
        ) from error


def _first_object(connection: duckdb.DuckDBPyConnection, data: str) -> str | None:
    _open_bucket(connection)
    # The first `collector compact` after a day removes it. It may be that of another collector, which makes the lake.
    probe = f"{data}written.parquet"
    try:
        row = connection.execute("SELECT file FROM glob(?) WHERE file <> ? LIMIT 1", [f"{data}**", probe]).fetchone()
        if row is None:
            connection.execute(f"COPY (SELECT 1 AS written) TO {quoted(probe)} (FORMAT parquet)")
    except duckdb.Error as error:
        raise _unreachable(data, error) from error
    return str(row[0]) if row else None


def _unreachable(data: str, error: duckdb.Error) -> StoreError:
    reason = str(error).splitlines()[0]
    advice = next((advice for status, advice in _S3_ADVICE.items() if status in reason), _S3_SETTINGS)
    return StoreError(f"cannot use {data}: {reason}; {advice}")


def _open_bucket(connection: duckdb.DuckDBPyConnection) -> None:
    """Give DuckDB the environment's credentials. No query can read them, because none may change settings."""
    load_extension(connection, "httpfs")
    options = {
        option: value
        for option, names in _S3_OPTIONS.items()
        if (value := next((os.environ[name] for name in names if os.environ.get(name)), None))
    }
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options |= {"ENDPOINT": host.rstrip("/"), "URL_STYLE": "path", "USE_SSL": str(scheme != "http").lower()}
    settings = "".join(f", {option} {quoted(value)}" for option, value in options.items())
    connection.execute(f"CREATE OR REPLACE SECRET bucket (TYPE s3{settings})")
