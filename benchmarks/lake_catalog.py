"""The size of a shared lake: its catalog in PostgreSQL, and its files."""

from dataclasses import dataclass

from gpuagent_collector.store import Store
from gpuagent_collector.store.compact import LakeFiles
from tests.support.postgres import Postgres

_ROWS = """
SELECT sum((xpath('/row/n/text()', query_to_xml(
    format('SELECT count(*) AS n FROM public.%I', tablename), false, true, '')))[1]::text::bigint)
FROM pg_tables WHERE schemaname = 'public'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The content of a lake's catalog, inlined rows of samples included."""

    rows: int
    size_bytes: int


def catalog(server: Postgres, lake: str) -> Catalog:
    """Return the present content of the catalog of the store `lake`."""
    database = lake.rpartition("=")[2]
    size_bytes = server.psql("SELECT pg_database_size(current_database())", database)
    return Catalog(rows=int(server.psql(_ROWS, database)), size_bytes=int(size_bytes))


def lake_files(lake: str) -> LakeFiles:
    """Return the present files of the store `lake`."""
    with Store.open(lake) as store:
        files = store.files()
    assert files is not None
    return files
