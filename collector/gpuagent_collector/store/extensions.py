"""DuckDB's extensions, from installed packages: opening a store downloads nothing."""

from importlib.util import find_spec
from pathlib import Path

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store.columns import quoted

NO_DOWNLOADS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from the installed package `duckdb-extension-NAME`.

    Raises:
        StoreError: the package is missing, or does not fit this version of DuckDB.
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
