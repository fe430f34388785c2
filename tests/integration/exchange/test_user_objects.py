"""Tables, views and other objects that users make in a store: kept, or named before anything is lost."""

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.exchange.backup import backup
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.schema import load_migrations, migrate, schema_relations
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.user_objects import user_objects
from gpuagent_collector.times import utc_now
from tests.integration.exchange.conftest import BOTH_KINDS, Run
from tests.support.servers import Node
from tests.support.stores import open_store, put_store

pytestmark = pytest.mark.slow

# What a lake has too.
PLAIN = """
CREATE SCHEMA mine;
CREATE TABLE mine.gpu_samples (a INTEGER);
INSERT INTO mine.gpu_samples VALUES (7);
CREATE TABLE notes (run_id VARCHAR, note VARCHAR);
INSERT INTO notes VALUES ('r', 'fan was "loud"');
CREATE VIEW failed AS SELECT run_id FROM runs WHERE status = 'failed';
CREATE VIEW of_failed AS SELECT count(*) AS n FROM failed;
CREATE OR REPLACE VIEW failed AS SELECT run_id, notes.note FROM runs LEFT JOIN notes USING (run_id);
COMMENT ON TABLE notes IS 'the lab''s';
COMMENT ON COLUMN mine.gpu_samples.a IS 'in V';
COMMENT ON COLUMN steps.step IS 'ours';
"""
OF_FILES = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE SEQUENCE numbers;
SELECT nextval('numbers');
CREATE TABLE rated (id INTEGER PRIMARY KEY DEFAULT nextval('numbers'), mood mood);
INSERT INTO rated (mood) VALUES ('bad');
CREATE TABLE linked (id INTEGER REFERENCES rated (id));
INSERT INTO linked VALUES (2);
COMMENT ON SEQUENCE numbers IS 'ids';
COMMENT ON VIEW failed IS 'to repeat';
CREATE INDEX of_steps ON steps (run_id);
"""
MACRO = "CREATE MACRO doubled(a, b := 2) AS a * b;"

KEPT = ["schema mine", "table mine.gpu_samples", "table notes", "view of_failed", "view failed"]
KEPT += ["comment on table notes", "comment on column mine.gpu_samples.a", "comment on column steps.step"]
KEPT_OF_FILES = ["type mood", "sequence numbers", "table rated", "table linked", "index of_steps"]
KEPT_OF_FILES += ["comment on sequence numbers", "comment on view failed"]


def add(store_name: str, sql: str) -> None:
    with open_store(store_name) as store, store.connect() as connection:
        for statement in connection.extract_statements(sql):
            connection.execute(statement)


def objects(store_name: str) -> list[str]:
    with Store.open(store_name, read_only=True) as store, store.connect() as connection:
        return [str(each) for each in user_objects(connection)]


def free_half(store: Store) -> None:
    """Fill the file, and remove most of it, so that it is worth a copy."""
    with closing(store.connect()) as connection:
        connection.execute(
            "INSERT INTO core_samples (session_id, core, time, cpu_percent) SELECT 5, i % 4, "
            "TIMESTAMP '2026-01-01' + to_seconds(i // 4), hash(i) % 1000 / 10 FROM range(300_000) r(i)"
        )
        store.checkpoint()
        connection.execute("DELETE FROM core_samples WHERE time > TIMESTAMP '2026-01-01 01:00'")


def test_the_names_of_the_schema_are_those_that_it_makes() -> None:
    with duckdb.connect() as connection:
        migrate(connection, load_migrations(), utc_now())
        made = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
        assert schema_relations() == {name for (name,) in made}
        assert user_objects(connection) == []


def test_a_compacted_file_has_the_objects_of_users(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "runs.duckdb"
    put_store(str(path), free_half)
    add(str(path), PLAIN + OF_FILES)
    before = path.stat().st_size
    code, said = run("compact", "--store", str(path))
    assert code == 0, said
    assert path.stat().st_size < before, "it was replaced by a copy"
    assert sorted(objects(str(path))) == sorted(KEPT + KEPT_OF_FILES)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM mine.gpu_samples").fetchall() == [(7,)]
        assert connection.execute("FROM notes").fetchall() == [("r", 'fan was "loud"')]
        assert connection.execute("FROM of_failed").fetchall() == [(0,)]
        assert connection.execute("SELECT id, mood FROM rated").fetchall() == [(2, "bad")]
        assert connection.execute("SELECT nextval('numbers')").fetchall() == [(3,)]
        comments = "SELECT comment FROM duckdb_tables() UNION SELECT comment FROM duckdb_columns() ORDER BY ALL"
        assert connection.execute(comments).fetchall() == [("in V",), ("ours",), ("the lab's",), (None,)]


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        (MACRO, "macro doubled"),
        ("ALTER TABLE steps ADD COLUMN mine INTEGER", "column steps.mine"),
        ("CREATE TABLE sums (a INTEGER, b INTEGER AS (a + 1)); INSERT INTO sums VALUES (1)", "table sums"),
        ("CREATE TABLE gone (a INTEGER); CREATE VIEW of_gone AS FROM gone; DROP TABLE gone", "view of_gone"),
    ],
)
def test_a_file_with_what_no_copy_can_have_stays_and_is_told_of(sql: str, name: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "runs.duckdb"
    put_store(str(path), free_half)
    add(str(path), sql)
    code, said = run("compact", "--store", str(path))
    assert (code, name in said) == (0, True), said
    assert objects(str(path)) == [name]
    assert [each.name for each in tmp_path.iterdir()] == ["runs.duckdb"]


@BOTH_KINDS
def test_exports_and_checks_pass_over_what_users_made_and_backups_name_it(site: str, tmp_path: Path, run: Run) -> None:
    is_file = ":" not in site
    add(site, PLAIN + MACRO + (OF_FILES if is_file else ""))
    for command in (["check"], ["export", "--parquet", str(tmp_path / "export")], ["runs"], ["query", "FROM notes"]):
        code, said = run(*command, "--store", site)
        assert code == 0, said
    copy = tmp_path / "copy.duckdb"
    code, said = run("backup", str(copy), "--store", site)
    assert (code, "macro doubled;" in said) == (0, True), said
    assert sorted(objects(str(copy))) == sorted(KEPT + (KEPT_OF_FILES if is_file else []))
    assert run("compact", "--store", site, "--keep", "90d")[0] == 0
    assert "macro doubled" in objects(site)


def test_a_backup_of_a_running_collector_has_what_users_made(node: Node, tmp_path: Path) -> None:
    add(str(node.store), PLAIN + MACRO)
    node.serve()
    said = node.collector("backup", "monday.duckdb").stderr
    assert "macro doubled" in said
    copy = str(node.folder / "monday.duckdb")
    assert sorted(objects(copy)) == sorted(KEPT)
    with duckdb.connect(copy, read_only=True) as connection:
        assert connection.execute("FROM mine.gpu_samples").fetchall() == [(7,)]


def test_rows_of_an_own_table_that_cannot_be_copied_do_not_end_the_backup(tmp_path: Path) -> None:
    store = str(tmp_path / "site.duckdb")
    add(store, "CREATE TABLE sums (a INTEGER, b INTEGER AS (a + 1)); INSERT INTO sums VALUES (1)")
    with closing(FileReader(StoreSpec.parse(store))) as reader:
        copied = backup(reader, tmp_path / "copy.duckdb", lambda *_: None)
    assert copied.left_out == ["table sums"]
    assert objects(str(tmp_path / "copy.duckdb")) == []
