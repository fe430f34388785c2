"""How a user names a store."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpuagent_collector.errors import MisuseError

DEFAULT_STORE = "runs.duckdb"
_LAKE_PREFIX = "ducklake:"


class Kind(Enum):
    """What holds the tables."""

    FILE = "duckdb"
    """One DuckDB file."""
    LAKE = "ducklake"
    """A DuckLake: a catalog in a DuckDB file, the rows in Parquet files beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """Which store: its kind, and the absolute path of its DuckDB file (a lake's catalog)."""

    kind: Kind
    path: Path

    @classmethod
    def parse(cls, text: str) -> "StoreSpec":
        """Read `PATH` or `ducklake:PATH`.

        Raises:
            MisuseError: it names no path.
        """
        kind = Kind.LAKE if text.startswith(_LAKE_PREFIX) else Kind.FILE
        path = text.removeprefix(_LAKE_PREFIX)
        if not path:
            raise MisuseError("the store needs a path: --store FILE or --store ducklake:FILE")
        return cls(kind=kind, path=Path(path).expanduser().absolute())

    @property
    def data_directory(self) -> Path:
        """Where a lake keeps its Parquet files."""
        return self.path.with_name(self.path.name + ".files")

    @property
    def scratch_directory(self) -> Path:
        """Where DuckDB puts what does not fit into memory."""
        return self.path.with_name(self.path.name + ".tmp")

    def __str__(self) -> str:
        return f"{_LAKE_PREFIX if self.kind is Kind.LAKE else ''}{self.path}"
