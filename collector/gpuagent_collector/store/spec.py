"""Names of stores, as users write them."""

import re
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpuagent_common.errors import MisuseError
from gpuagent_common.folders import expand_user

DEFAULT_STORE = "runs.duckdb"
_LAKE_PREFIX = "ducklake:"
_SHARED_PREFIX = "ducklake:postgres:"

S3_PREFIX = "s3://"

# In both forms of libpq: `host=… password=…` and `postgresql://user:password@host/…`.
_PASSWORD = re.compile(r"password\s*=|//[^/@]*:[^/@]*@", re.IGNORECASE)


class Kind(Enum):
    """The kind of database that holds the tables."""

    # One DuckDB file.
    FILE = "duckdb"
    # A DuckLake: a catalog in a DuckDB file, the rows in Parquet files beside it.
    LAKE = "ducklake"
    # A DuckLake for any number of collectors: a catalog in PostgreSQL, the rows in a shared folder or bucket.
    SHARED = "ducklake:postgres"


# Where a DuckDB file has its name.
_MAGIC_AT, _MAGIC = 8, b"DUCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """The name of a store."""

    kind: Kind
    # The absolute path of the DuckDB file (a lake's catalog); for a shared lake, libpq's name of the catalog.
    place: str
    # The place of a shared lake's files, ending in a slash; None takes it from the catalog.
    data: str | None = None

    @classmethod
    def parse(cls, text: str, data: str | None = None) -> "StoreSpec":
        """Read `PATH`, `ducklake:PATH` or `ducklake:postgres:CONNECTION`; only the last takes `data`.

        Raises MisuseError: the text has no path, or contains a password; or `data` does not fit.
        """
        if text.startswith(_SHARED_PREFIX):
            if _PASSWORD.search(text):
                raise MisuseError(
                    "--store must not contain a password, which every process list would show; "
                    "put it into ~/.pgpass, a file that PGPASSFILE names, or PGPASSWORD"
                )
            if data is not None and data.startswith(S3_PREFIX):
                data = f"{data.rstrip('/')}/"
            elif data is not None:
                if "://" in data or not data:
                    raise MisuseError(f"--data takes a folder or s3://bucket/path, not {data!r}")
                data = f"{expand_user(data).absolute()}/"
            return cls(kind=Kind.SHARED, place=text.removeprefix(_SHARED_PREFIX), data=data)
        if data is not None:
            raise MisuseError("--data is for a store in PostgreSQL: --store 'ducklake:postgres:host=… dbname=…'")
        kind = Kind.LAKE if text.startswith(_LAKE_PREFIX) else Kind.FILE
        path = text.removeprefix(_LAKE_PREFIX)
        if not path:
            raise MisuseError("the store needs a path: --store FILE or --store ducklake:FILE")
        return cls(kind=kind, place=str(expand_user(path).absolute()))

    @property
    def path(self) -> Path:
        """Return the DuckDB file of a store that is not shared."""
        return Path(self.place)

    @property
    def is_lake(self) -> bool:
        """Return whether the store is a DuckLake of either kind."""
        return self.kind is not Kind.FILE

    @property
    def data_directory(self) -> Path:
        """Return the folder of Parquet files of a lake that is not shared."""
        return self.path.with_name(self.path.name + ".files")

    @property
    def scratch_directory(self) -> Path:
        """Return the folder for data of queries that do not fit into memory."""
        if self.kind is Kind.SHARED:
            import secrets  # only here: it imports hashes, and most stores are files

            return Path(tempfile.gettempdir()) / f"gpuagent-{secrets.token_hex(8)}.tmp"
        return self.path.with_name(self.path.name + ".tmp")

    def __str__(self) -> str:
        prefix = {Kind.FILE: "", Kind.LAKE: _LAKE_PREFIX, Kind.SHARED: _SHARED_PREFIX}[self.kind]
        return f"{prefix}{self.place}"


def find_stores(place: Path) -> list[Path]:
    """Return a file that is one of DuckDB, or those in a folder, by name; no others. Raises OSError."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and _is_duckdb(file)]


def _is_duckdb(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC
