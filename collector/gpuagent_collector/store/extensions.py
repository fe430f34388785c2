"""DuckDB's extensions, from the packages that bring them: nothing is downloaded when a store is opened."""

from importlib.util import find_spec
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError

NO_DOWNLOADS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_MISSING = "a ducklake store needs DuckDB's {name} extension; run: pip install 'gpuagent[lake]'"


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from the installed package `duckdb-extension-NAME`.

    Raises:
        StoreError: it is not installed, or does not fit this version of DuckDB.
    """
    file = str(_extension_file(name)).replace("'", "''")
    connection.execute(f"LOAD '{file}'")


def _extension_file(name: str) -> Path:
    package = find_spec(f"duckdb_extension_{name}")
    if package is None or package.origin is None:
        raise StoreError(_MISSING.format(name=name))
    file = Path(package.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.is_file():
        raise StoreError(
            f"the {name} extension does not fit DuckDB {duckdb.__version__}; "
            f"run: pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
        )
    return file
