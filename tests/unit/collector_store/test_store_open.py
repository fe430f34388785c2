import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.decode import Decoder
from gpuagent_collector.schema import Migration, load_migrations
from gpuagent_collector.store import Kind, Store, StoreSpec, shared
from gpuagent_collector.store.columns import LongestTexts, agent_tables, measure_texts, table_columns
from gpuagent_collector.store.compact import filled_tables
from gpuagent_common.connection import TokenError, read_token
from gpuagent_common.errors import MisuseError
from tests.support.stores import open_store, put_store
from tests.unit.collector_store.conftest import ON_BOTH_KINDS

pytestmark = pytest.mark.slow

NEWEST = load_migrations()[-1].version
BROKEN = Migration(version=NEWEST + 1, name="broken.sql", sql="CREATE TABLE half (a BIGINT); SELECT no_such_thing;")
WIDER = Migration(version=NEWEST + 1, name="wider.sql", sql="ALTER TABLE steps ADD COLUMN joules DOUBLE;")


def applied(store: Store) -> list[int]:
    with store.connect() as connection:
        rows = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
    return [version for (version,) in rows]


@ON_BOTH_KINDS
def test_a_new_store_gets_every_migration_once(store_name: str) -> None:
    for _ in range(2):
        with Store.open(store_name) as store:
            assert applied(store) == list(range(1, NEWEST + 1))


def test_migrations_are_recorded_with_their_time(store_name: str) -> None:
    moment = datetime.fromisoformat("2026-02-03 04:05:06")
    with Store.open(store_name, now=lambda: moment) as store:
        assert store.connect().execute("SELECT DISTINCT applied_at FROM schema_migrations").fetchall() == [(moment,)]


@ON_BOTH_KINDS
def test_a_migration_that_fails_leaves_no_trace(store_name: str) -> None:
    put_store(store_name)
    with pytest.raises(StoreError, match="no_such_thing"):
        Store.open(store_name, migrations=[*load_migrations(), BROKEN])
    with Store.open(store_name) as store:
        assert applied(store) == list(range(1, NEWEST + 1))
        assert "half" not in table_columns(store.connect())


@ON_BOTH_KINDS
def test_a_new_migration_upgrades_a_store_that_has_rows(store_name: str) -> None:
    with open_store(store_name) as store:
        store.connect().execute("INSERT INTO steps (run_id, step) VALUES ('r', 1)")
    with Store.open(store_name, migrations=[*load_migrations(), WIDER]) as store:
        assert store.connect().execute("SELECT run_id, step, joules FROM steps").fetchall() == [("r", 1, None)]


@ON_BOTH_KINDS
def test_an_older_store_loses_second_descriptions(store_name: str) -> None:
    older = [migration for migration in load_migrations() if migration.version < 12]
    with Store.open(store_name, migrations=older) as store, store.connect() as connection:
        for platform, workload in (("a", "mnist"), ("b", "gan")):
            connection.execute("INSERT INTO sessions (session_id, platform) VALUES (1, ?), (2, 'c')", [platform])
            connection.execute(
                "INSERT INTO run_requests (session_id, node_id, run_id, workload) VALUES (1, 1, 'r', ?)", [workload]
            )
    with Store.open(store_name) as store, store.connect() as connection:
        assert connection.execute("SELECT platform, workload FROM runs").fetchall() == [("a", "mnist")]
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (2,)


@pytest.mark.parametrize("read_only", [False, True])
@ON_BOTH_KINDS
def test_a_store_from_a_newer_collector_is_refused_in_words(store_name: str, read_only: bool) -> None:
    put_store(store_name)
    Store.open(store_name, migrations=[*load_migrations(), WIDER]).close()
    with pytest.raises(StoreError, match=rf"newer collector \(schema {NEWEST + 1}; this one knows {NEWEST}\); upgrade"):
        Store.open(store_name, read_only=read_only)


def test_reading_a_store_with_an_older_schema_says_how_to_upgrade_it(store_name: str) -> None:
    put_store(store_name)
    with pytest.raises(StoreError, match="older schema; `collector serve --store"):
        Store.open(store_name, read_only=True, migrations=[*load_migrations(), WIDER])


@ON_BOTH_KINDS
def test_nothing_can_be_written_into_a_store_opened_for_reading(store_name: str) -> None:
    put_store(store_name)
    with Store.open(store_name, read_only=True) as store:
        connection = store.connect()
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            connection.execute("INSERT INTO marks VALUES (1, 1, now())")


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(str(path)) as theirs:
        theirs.execute("CREATE TABLE customers (name VARCHAR)")
    with pytest.raises(StoreError, match="another program"):
        Store.open(str(path))


def test_a_damaged_store_names_the_command_that_restores_it(tmp_path: Path) -> None:
    path = tmp_path / "damaged.duckdb"
    put_store(str(path))
    content = bytearray(path.read_bytes())
    # Three blocks of DuckDB's headers come first.
    content[3 * 4096 :] = bytes(byte ^ 255 for byte in content[3 * 4096 :])
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged.*collector restore"), Store.open(str(path)):
        pass
    path.write_bytes(content[:30_000])
    with pytest.raises(StoreError, match=r"cut short.*collector restore"), Store.open(str(path)):
        pass


@ON_BOTH_KINDS
def test_a_file_that_is_no_database_is_named(tmp_path: Path, store_name: str) -> None:
    (tmp_path / "runs.duckdb").write_text("a shopping list\n" * 500)
    with pytest.raises(StoreError, match="not a DuckDB"):
        Store.open(store_name)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{folder}/a/runs.duckdb", "run: mkdir -p {folder}/a"),
        ("{folder}", "is a folder; name a file in it"),
        ("/sys/runs.duckdb", "cannot write the store /sys/runs.duckdb: permission denied"),
    ],
)
def test_a_place_without_room_for_a_store_is_an_error(tmp_path: Path, place: str, words: str) -> None:
    with pytest.raises(StoreError, match=re.escape(words.format(folder=tmp_path))):
        Store.open(place.format(folder=tmp_path))


@ON_BOTH_KINDS
def test_reading_a_store_that_is_not_there_makes_none(tmp_path: Path, store_name: str) -> None:
    with pytest.raises(StoreError, match="is no store"):
        Store.open(store_name, read_only=True)
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_cut_short_is_named_once_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    put_store(str(path))
    # DuckDB's headers alone.
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    with pytest.raises(StoreError, match=r"cut short: .*collector restore") as error:
        Store.open(str(path))
    assert str(error.value).count(str(path)) == 1


@pytest.mark.parametrize("name", ["", "ducklake:"])
def test_a_store_needs_a_path(name: str) -> None:
    with pytest.raises(MisuseError, match="needs a path"):
        StoreSpec.parse(name)


def test_a_spec_prints_as_it_is_written(tmp_path: Path) -> None:
    for text, kind in ((f"{tmp_path}/a", Kind.FILE), (f"ducklake:{tmp_path}/a", Kind.LAKE)):
        assert StoreSpec.parse(text).kind is kind
        assert str(StoreSpec.parse(text)) == text


@ON_BOTH_KINDS
def test_a_store_in_use_names_the_process_that_holds_it(store_name: str) -> None:
    put_store(store_name)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, store_name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout and holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"use by process {holder.pid};"):
            Store.open(store_name)
        holder.communicate("done\n")


_HOLD = """
import sys
from gpuagent_collector.store import Store
with Store.open(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.readline()
"""


def test_a_lake_without_its_extension_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "find_spec", lambda _name: None)
    with pytest.raises(StoreError, match=r"pip install '\.\[lake\]'"):
        Store.open(f"ducklake:{tmp_path}/lake")


@ON_BOTH_KINDS
def test_an_open_store_lets_no_statement_out(connection: duckdb.DuckDBPyConnection) -> None:
    for statement in (
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY marks TO '/tmp/marks.csv'",
        "ATTACH '/tmp/other.duckdb'",
        "INSTALL httpfs",
        "SET memory_limit = '1 TB'",
        "SET enable_external_access = true",
    ):
        with pytest.raises(duckdb.Error, match=r"disabled|locked|Cannot"):
            connection.execute(statement)


def test_a_store_takes_no_more_memory_than_it_was_given(store_name: str) -> None:
    with Store.open(store_name, memory_bytes=300 * 2**20) as store, store.connect() as connection:
        assert connection.execute("SELECT current_setting('memory_limit')").fetchall() == [("300.0 MiB",)]


@ON_BOTH_KINDS
def test_a_locked_down_store_still_writes_checkpoints_and_tidies(store_name: str) -> None:
    for _ in range(2):
        with open_store(store_name) as store:
            connection = store.connect()
            connection.execute("INSERT INTO core_samples (core) SELECT range FROM range(200_000)")
            connection.execute("INSERT INTO core_samples (core) VALUES (1)")
            store.tidy()
    with Store.open(store_name, read_only=True) as store:
        assert store.connect().execute("SELECT count(*) FROM core_samples").fetchall() == [(400_002,)]


@ON_BOTH_KINDS
def test_the_longest_texts_of_a_store_are_known_when_it_is_opened(store_name: str) -> None:
    with open_store(store_name) as store, store.transaction() as connection:
        connection.execute(
            "INSERT INTO run_events (session_id, node_id, time, run_id, detail)"
            """ SELECT 1, 1, now(), 'r', '"' || repeat('é', range) || '"' FROM range(400, 402)"""
        )
        connection.execute(
            "INSERT INTO run_states (session_id, node_id, time, run_id, reason) VALUES"
            " (1, 1, now(), 'r', repeat('x', 99999)), (1, 1, now(), 's', 'short')"
        )
        connection.execute("INSERT INTO core_samples (core) VALUES (1)")
    with open_store(store_name) as store, store.transaction() as connection:
        measure_texts(connection, store.longest_texts, filled_tables(connection) if store.spec.is_lake else None)
        assert store.longest_texts.all() == {"detail": 804, "reason": 99_999}
        connection.execute("DELETE FROM run_states WHERE run_id = 'r'")
        remaining = LongestTexts()
        measure_texts(connection, remaining, filled_tables(connection) if store.spec.is_lake else None)
        assert remaining.all() == {"detail": 804}


def test_tidying_keeps_the_highest_mark_of_every_session(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("INSERT INTO marks SELECT range % 3, range, TIMESTAMP '2026-01-01' FROM range(30)")
    store.tidy()
    marks = connection.execute("SELECT session_id, number FROM marks ORDER BY 1").fetchall()
    assert marks == [(0, 27), (1, 28), (2, 29)]


def test_tidying_keeps_of_an_ended_job_what_it_counted_last(
    store: Store, connection: duckdb.DuckDBPyConnection
) -> None:
    for agent, device, second, has_ended in (
        *((1, None, second, second == 9) for second in (0, 3, 9)),
        *((1, 7, second, second == 9) for second in (0, 9)),
        # It went on after a pause, and another agent saw no end.
        (1, None, 12, False),
        *((2, None, second, False) for second in (0, 3)),
    ):
        connection.execute(
            "INSERT INTO owners (session_id, owner_id, device_id, time, observed_seconds, ended_at) "
            "VALUES ($1, 1, $2, make_timestamp($3 * 1000000), $3, if($4, make_timestamp($3 * 1000000), NULL))",
            [agent, device, second, has_ended],
        )
    store.tidy()
    states = "SELECT session_id, device_id, observed_seconds FROM owners ORDER BY ALL NULLS FIRST"
    kept = [(1, None, 9), (1, None, 12), (1, 7, 9), (2, None, 0), (2, None, 3)]
    assert connection.execute(states).fetchall() == kept


def test_agents_write_only_tables_that_say_whose_rows_they_are(connection: duckdb.DuckDBPyConnection) -> None:
    writable = agent_tables(connection)
    assert {"sessions", "gpu_samples", "run_states"} <= writable.keys()
    assert not {"marks", "run_metrics", "schema_migrations", "runs", "nodes"} & writable.keys()
    assert not any({"session_id", "node_id"} & columns.keys() for columns in writable.values())
    assert Decoder(writable)


@ON_BOTH_KINDS
def test_a_row_is_found_though_its_column_was_empty_in_the_first_file_of_a_transaction(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Large inserts become files of their own; in a lake these are each a file of the same transaction."""
    for batches in (("NULL", "100 + i"), ("i // 2000",)):
        connection.begin()
        for core in batches:
            connection.execute(f"INSERT INTO core_samples BY NAME SELECT {core} AS core FROM range(2000) r(i)")
        connection.commit()
    found = connection.execute("SELECT count(*) FROM core_samples WHERE core >= 100").fetchone()
    assert found == (2000,)
    assert connection.execute("SELECT max(core) FROM core_samples").fetchone() == (2099,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("ending", [".wal", ".tmp", ".files"])
def test_what_another_user_left_beside_a_store_is_not_used(tmp_path: Path, ending: str) -> None:
    path, other_user = tmp_path / "runs.duckdb", 65_533
    left = path.with_name(path.name + ending)
    left.mkdir()
    os.chown(left, other_user, other_user)
    with pytest.raises(StoreError, match=f"{ending} belongs to another user"):
        Store.open(str(path))
    assert not path.exists()
    left.rmdir()
    Store.open(str(path)).close()
    # The administrator may open the store of a user, with all that belongs to it.
    os.chown(path, other_user, other_user)
    left.mkdir()
    os.chown(left, other_user, other_user)
    if ending != ".wal":
        Store.open(str(path)).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_store_that_another_user_left_where_all_can_write_is_read_alone(tmp_path: Path) -> None:
    """Such as /tmp/runs.duckdb, which bench and serve would fill for them."""
    path = tmp_path / "runs.duckdb"
    Store.open(str(path)).close()
    os.chown(path, 65_533, 65_533)
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="belongs to another user"):
        Store.open(str(path))
    Store.open(str(path), read_only=True).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_store_is_not_made_at_the_end_of_another_user_s_link(tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs.duckdb", tmp_path / "runs.duckdb"
    path.symlink_to(theirs)
    os.chown(path, 65_533, 65_533, follow_symlinks=False)
    tmp_path.chmod(0o1777)
    with pytest.raises(StoreError, match="another user's link"):
        Store.open(str(path))
    assert not theirs.exists()


def test_a_pipe_in_the_place_of_a_store_or_a_token_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe"):
        Store.open(str(tmp_path / "pipe"))
    (tmp_path / "pipe").chmod(0o666)
    with pytest.raises(TokenError, match="by others"):
        read_token(tmp_path / "pipe")
