"""A shared lake that cannot be used says why and leaves nothing behind; who reads it reads its tables and no more."""

import re
from contextlib import closing
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.ownership import SharedOwnership
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.schema import Migration, load_migrations
from gpuagent_collector.store import Store, StoreSpec, shared
from gpuagent_collector.store.compact import fold_bookkeeping
from gpuagent_collector.store.transactions import transaction
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from tests.support.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.needs("psql")]

NEWEST = load_migrations()[-1].version
NEXT = Migration(version=NEWEST + 1, name="next.sql", sql="ALTER TABLE steps ADD COLUMN joules DOUBLE;")


@pytest.fixture(scope="module")
def store(lake: StoreSpec) -> StoreSpec:
    """A lake that is there, named as its readers do."""
    Store.open(lake).close()
    return StoreSpec.parse(str(lake))


def catalog_tables(server: Postgres, connection: str) -> str:
    return server.psql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", connection.rpartition("=")[2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host=/nowhere dbname=lake", "No such file or directory; is PostgreSQL running there"),
        ("host=127.0.0.1 port=1 dbname=lake", "Connection refused; is PostgreSQL running there"),
        ("host={folder} user=lake dbname=none", 'database "none" does not exist; make it: createdb NAME'),
        ("host={folder} user=nobody dbname=postgres", 'role "nobody" does not exist'),
    ],
)
def test_a_catalog_that_cannot_be_reached_is_told_in_words(server: Postgres, text: str, words: str) -> None:
    with pytest.raises(StoreError, match=re.escape(words)):
        Store.open(f"ducklake:postgres:{text.format(folder=server.folder)}")


@pytest.mark.parametrize("text", ["host=a password=secret", "postgresql://me:secret@a/lake"])
def test_a_password_in_the_store_s_name_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(MisuseError, match="pgpass") as refusal:
        StoreSpec.parse(f"ducklake:postgres:{text}")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("data", ["", "gs://bucket/path"])
def test_files_of_a_lake_are_in_a_folder_or_a_bucket(data: str) -> None:
    with pytest.raises(MisuseError):
        StoreSpec.parse("ducklake:postgres:dbname=lake", data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "--data"),
        ("/sys/files", "cannot write to /sys/files/"),
        ("{folder}/full", "contains files already, such as theirs"),
    ],
)
def test_a_new_lake_without_a_place_is_not_made(server: Postgres, tmp_path: Path, data: str | None, words: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").touch()
    connection = server.database()
    with pytest.raises(StoreError, match=words):
        Store.open(StoreSpec.parse(f"ducklake:postgres:{connection}", data and data.format(folder=tmp_path)))
    assert catalog_tables(server, connection) == "0"


def test_collectors_can_make_a_lake_at_once(store: StoreSpec, lake: StoreSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(lake).close()
    real, looks = shared._attach_existing, [False]

    def miss_the_first(*given: Any) -> bool:
        # The other collector makes it between the two looks.
        return looks.pop() if looks else real(*given)

    monkeypatch.setattr(shared, "_attach_existing", miss_the_first)
    (Path(lake.data or "") / "theirs").touch()
    Store.open(StoreSpec.parse(str(lake), lake.data)).close()
    assert not looks


def test_a_catalog_and_the_files_of_another_lake_are_not_mixed(store: StoreSpec, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"are in .*, not in .*; omit --data"):
        Store.open(StoreSpec.parse(str(store), str(tmp_path)))


def test_files_that_are_not_reached_from_here_are_told_in_words(store: StoreSpec, lake: StoreSpec) -> None:
    assert lake.data
    aside = Path(lake.data).rename(f"{lake.data.rstrip('/')}.aside")
    try:
        with pytest.raises(StoreError, match="mounted on this"):
            Store.open(store, read_only=True)
    finally:
        aside.rename(lake.data)


def test_a_clock_far_from_the_catalog_s_is_refused(store: StoreSpec) -> None:
    with pytest.raises(StoreError, match="synchronise both"):
        Store.open(store, now=lambda: datetime.fromisoformat("2020-01-01"))


def test_a_lake_of_a_newer_collector_is_refused_and_an_older_one_upgraded(server: Postgres, tmp_path: Path) -> None:
    spec = StoreSpec.parse(f"ducklake:postgres:{server.database()}", str(tmp_path / "files"))
    Store.open(spec).close()
    with pytest.raises(StoreError, match="older schema; `collector serve"):
        Store.open(spec, read_only=True, migrations=[*load_migrations(), NEXT])
    Store.open(spec, migrations=[*load_migrations(), NEXT]).close()
    with pytest.raises(StoreError, match="newer collector"):
        Store.open(spec)


@pytest.mark.parametrize("name", ["postgres_scanner", "ducklake"])
def test_an_extension_that_is_missing_names_the_command_that_installs_it(
    store: StoreSpec, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "find_spec", lambda each: None if each.endswith(name) else find_spec(each))
    with pytest.raises(StoreError, match=rf"{name} extension; run in a checkout: pip install '\.\[lake\]'"):
        Store.open(store)


ATTACKS = (
    "FROM postgres_query('__ducklake_metadata_lake', 'SELECT 1')",
    "CALL postgres_execute('__ducklake_metadata_lake', 'CREATE TABLE stolen (a INT)')",
    "FROM postgres_scan('dbname=postgres', 'pg_catalog', 'pg_authid')",
    "FROM __ducklake_metadata_lake.public.ducklake_snapshot",
    "FROM postgres_attach('dbname=postgres')",
    "FROM duckdb_secrets()",
    "FROM which_secret('s3://bucket/x', 's3')",
    "FROM read_parquet('s3://bucket/x.parquet')",
)

BEHIND_THE_GUARD = (
    "ATTACH 'dbname=postgres' AS theirs (TYPE postgres)",
    "FROM read_text('/etc/passwd')",
    "COPY marks TO '/tmp/marks.csv'",
    "INSTALL spatial",
    "SET enable_external_access = true",
)


def test_no_query_gets_past_the_lake_s_tables(store: StoreSpec, server: Postgres) -> None:
    with Store.open(store) as opened, closing(opened.connect()) as connection:
        guard = Guard(store_relations(connection))
        for attack in ATTACKS:
            with pytest.raises(MisuseError):
                guard.check(attack)
        for attack in BEHIND_THE_GUARD:
            with pytest.raises(duckdb.Error, match=r"disabled|locked|Cannot"):
                connection.execute(attack)


def test_a_reader_needs_no_more_than_the_right_to_read(store: StoreSpec, server: Postgres) -> None:
    database = store.place.rpartition("=")[2]
    server.psql("CREATE ROLE viewer LOGIN; GRANT pg_read_all_data TO viewer")
    viewer = StoreSpec.parse(str(store).replace("user=lake", "user=viewer"))
    with closing(FileReader(viewer)) as reader:
        assert reader.sql("SELECT count(*) AS n FROM runs").to_pylist() == [{"n": 0}]
    denied = pytest.raises(duckdb.Error, match="permission denied")
    with Store.open(viewer) as opened, closing(opened.connect()) as connection, denied:
        connection.execute("INSERT INTO steps (step) VALUES (1)")
    assert server.psql("SELECT count(*) FROM pg_tables WHERE tablename = 'stolen'", database) == "0"


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
