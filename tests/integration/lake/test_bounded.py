"""What collectors leave in a shared lake's catalog does not grow with their commits, however long they serve."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gpuagent_collector.ingest.ownership import SharedOwnership
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.compact import fold_bookkeeping
from gpuagent_collector.store.transactions import transaction
from gpuagent_collector.times import utc_now
from tests.support.postgres import Postgres

pytestmark = pytest.mark.needs("psql")

SESSION = 7
TABLES = ("commits", "session_owners")
INLINED = (
    "SELECT DISTINCT inlined.table_name FROM ducklake_inlined_data_tables AS inlined JOIN ducklake_table "
    f"USING (table_id) WHERE ducklake_table.table_name IN {TABLES}"
)


def two_days_ago() -> datetime:
    return utc_now() - timedelta(days=2)


def take_turns(store: Store, turns: int) -> None:
    """Have two collectors take a session from each other, and commit, again and again."""
    with closing(store.connect()) as first, closing(store.connect()) as second:
        members = [(each, SharedOwnership(each, two_days_ago)) for each in (first, second)]
        for _ in range(turns):
            for connection, ownership in members:
                ownership.claim([SESSION])
                with transaction(connection):
                    ownership.sign()


def rows(server: Postgres, database: str) -> int:
    tables = server.psql(INLINED, database).splitlines()
    return sum(int(server.psql(f"SELECT count(*) FROM {table}", database)) for table in tables)


def test_ended_rows_leave_the_catalog_with_the_snapshots_that_showed_them(server: Postgres, tmp_path: Path) -> None:
    connection = server.database()
    database = connection.rpartition("=")[2]
    spec = StoreSpec.parse(f"ducklake:postgres:{connection}", str(tmp_path / "files"))
    with Store.open(spec) as store, closing(store.connect()) as reader:
        for _ in range(3):
            take_turns(store, 3)
            fold_bookkeeping(reader)
            server.psql("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - INTERVAL '2 days'", database)
        assert rows(server, database) > 3 * 12
        store.tidy()
        assert rows(server, database) == 2  # the fence, and whose the session is
        assert [len(reader.execute(f"FROM {table}").fetchall()) for table in TABLES] == [1, 1]
        assert SharedOwnership(reader, utc_now).claim([SESSION]) == {SESSION}
