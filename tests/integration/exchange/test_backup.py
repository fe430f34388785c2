"""`collector backup` and `collector check`, on running collectors, stopped stores, and damaged ones."""

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange import backup as exchange_backup
from gpuagent_collector.exchange import checks
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.schema import load_migrations
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from tests.support.servers import Node
from tests.support.stores import put_store

pytestmark = pytest.mark.slow

ROWS = 50_000
SESSION = key("one")

# How DuckDB lays out its file.
FIRST_BLOCK, BLOCK_BYTES = 12 * 1024, 256 * 1024


def _add_rows(store: Store) -> None:
    with closing(store.connect()) as connection:
        connection.execute(
            "INSERT INTO core_samples BY NAME SELECT make_timestamp(1900000000000000 + i * 1000) AS time, "
            f"{SESSION} AS session_id, i AS core, hash(i) / 3 AS cpu_percent FROM range({ROWS}) r(i)"
        )
        connection.execute(f"INSERT INTO sessions BY NAME SELECT {SESSION} AS session_id, 'one' AS session_uuid")
        connection.execute(f"INSERT INTO marks VALUES ({SESSION}, 7, now()::TIMESTAMP)")


def fill(store_name: str) -> None:
    put_store(store_name, _add_rows)


def content(store: Path) -> dict[str, object]:
    with duckdb.connect(str(store), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {
            table: connection.execute(f'SELECT count(*), bit_xor(hash(t)) FROM "{table}" AS t').fetchone()
            for table in tables
        }


@pytest.fixture
def filled(node: Node) -> Node:
    fill(str(node.store))
    return node


def test_a_backup_of_a_running_collector_is_its_store_with_marks_and_can_be_served(filled: Node) -> None:
    collector = filled.serve()
    done = filled.collector("backup", "monday.duckdb")
    assert f"monday.duckdb: {ROWS + 3 + len(load_migrations()):,} rows" in done.stdout
    assert "sound: " in filled.collector("check").stdout
    filled.stop(collector)
    assert content(filled.folder / "monday.duckdb") == content(filled.store)
    assert [path.name for path in filled.folder.glob(".monday*")] == []
    filled.store = filled.folder / "monday.duckdb"
    filled.serve()
    (count,) = filled.collector("query", "sql", "SELECT count(*) FROM marks", "--format", "csv").stdout.split()[1:]
    assert count == "1"


def test_a_backup_overwrites_nothing(filled: Node) -> None:
    (filled.folder / "old.duckdb").write_text("precious")
    done = filled.collector("backup", "old.duckdb", "--store", str(filled.store), code=2)
    assert "old.duckdb exists already" in done.stderr
    assert (filled.folder / "old.duckdb").read_text() == "precious"


def test_a_backup_without_space_fails_and_leaves_nothing(filled: Node, small_disk: Path) -> None:
    file = small_disk / "copy.duckdb"
    done = filled.collector("backup", str(file), "--store", str(filled.store), code=1)
    assert done.stderr.splitlines()[-1].startswith(f"collector: cannot write {file}: no space left")
    assert "has rows that" not in done.stderr
    assert list(small_disk.iterdir()) == []


def test_a_backup_that_lacks_rows_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(str(tmp_path / "site"))
    monkeypatch.setattr(exchange_backup, "_fill", lambda *_: 1)
    with (
        closing(FileReader(StoreSpec.parse(str(tmp_path / "site")))) as reader,
        pytest.raises(GpuAgentError, match=r"not complete: \w+ has \d+ of 1 rows"),
    ):
        exchange_backup.backup(reader, tmp_path / "copy", lambda *_: None)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_lake_s_backup_is_a_file(tmp_path: Path, node: Node) -> None:
    fill(f"ducklake:{tmp_path / 'lake'}")
    node.collector("backup", "copy.duckdb", "--store", f"ducklake:{tmp_path / 'lake'}")
    assert content(node.folder / "copy.duckdb")["core_samples"] == content_of_filled(tmp_path)


def content_of_filled(folder: Path) -> object:
    fill(str(folder / "same.duckdb"))
    return content(folder / "same.duckdb")["core_samples"]


def test_a_viewers_token_makes_no_backup(filled: Node) -> None:
    filled.serve()
    made = filled.collector("tokens", "create", "viewer", "--name", "reader")
    token = filled.folder / "viewer-token"
    token.write_text(made.stdout)
    token.chmod(0o600)
    done = filled.collector("backup", "stolen.duckdb", "--token-file", str(token), code=1)
    assert "refused" in done.stderr
    assert not (filled.folder / "stolen.duckdb").exists()


def remarks(store: Path) -> list[tuple[str, bool]]:
    reader = FileReader(StoreSpec.parse(str(store)))
    try:
        verdict = checks.check(reader, lambda _table, _rows: None)
    finally:
        reader.close()
    assert verdict.is_sound == (not any(remark.is_damage for remark in verdict.remarks))
    return [(remark.text, remark.is_damage) for remark in verdict.remarks]


def changed(folder: Path, sql: str) -> Path:
    store = folder / "runs.duckdb"
    fill(str(store))
    with duckdb.connect(str(store)) as connection:
        connection.execute(sql)
    return store


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", []),
        (
            "INSERT INTO core_samples FROM core_samples LIMIT 3;"
            "INSERT INTO results BY NAME FROM (VALUES (1, 'a'), (1, 'a')) t(rank, name);"
            "INSERT INTO sessions BY NAME SELECT session_id, session_uuid, 'other' AS hostname FROM sessions;"
            "INSERT INTO steps BY NAME SELECT 'gone' AS run_id, 1 AS step;"
            "UPDATE marks SET number = 0",
            [
                ("3 duplicate rows in core_samples", True),
                ("1 duplicate row in results, which workloads may report", False),
                ("1 session described more than once", True),
                ("1 mark without session, number or time", True),
                ("1 row of steps name 1 unknown run", False),
            ],
        ),
        (
            f"UPDATE sessions SET session_uuid = 'two' WHERE session_id = {SESSION}",
            [("1 session with a key that does not fit the UUID", True)],
        ),
        (
            f"DELETE FROM sessions WHERE session_id = {SESSION}",
            [("50,000 rows of core_samples name 1 unknown session", False)],
        ),
    ],
    ids=["nothing", "each", "identity", "orphans"],
)
def test_a_check_finds(tmp_path: Path, sql: str, expected: list[tuple[str, bool]]) -> None:
    assert sorted(remarks(changed(tmp_path, sql))) == sorted(expected)


def test_a_large_table_is_gone_through_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PART_ROWS", 7_000)
    store = changed(tmp_path, "INSERT INTO core_samples FROM core_samples LIMIT 3")
    assert remarks(store) == [("3 duplicate rows in core_samples", True)]


def test_a_flipped_bit_is_told_of_wherever_it_changes_what_is_read(tmp_path: Path) -> None:
    store, copy = changed(tmp_path, "SELECT 1"), tmp_path / "copy.duckdb"
    whole, rows, told = store.read_bytes(), content(store), 0
    for block in range(FIRST_BLOCK, len(whole), BLOCK_BYTES):
        damaged = bytearray(whole)
        damaged[block + BLOCK_BYTES // 16] ^= 4
        copy.write_bytes(damaged)
        if is_told(copy):
            told += 1
        else:
            assert content(copy) == rows, "damage in a block that is read"
    assert told


def is_told(store: Path) -> bool:
    try:
        return any(is_damage for _, is_damage in remarks(store))
    except StoreError as error:
        return "damaged" in str(error)


def test_a_check_of_a_damaged_file_says_so_in_one_line_and_exits_with_1(filled: Node) -> None:
    filled.store.write_bytes(filled.store.read_bytes()[:100_000])
    done = filled.collector("check", "--store", str(filled.store), code=1)
    assert "cannot open the" in done.stderr
    assert "Traceback" not in done.stderr
