"""Stores of other machines that are merged as files."""

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.schema import load_migrations
from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.exchange.conftest import BOTH_KINDS, NameStore, Run, two_nodes
from tests.integration.exchange.sites import content, execute, union, write_site
from tests.support.servers import Node

pytestmark = pytest.mark.slow


def another_node(store: SyntheticStore) -> None:
    store.keys += 1000  # keys of agents' sessions and nodes are no other site's
    node = store.node("gke-1", "gke", gpus=["L4"])
    store.run("gke-first", node, start_seconds=0, experiment="gan")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return Path(write_site(str(tmp_path / "other.duckdb"), two_nodes))


@BOTH_KINDS
def test_another_store_is_merged_once(other: Path, name_store: NameStore, run: Run) -> None:
    mine = write_site(name_store("mine"), another_node)
    both = union(content(mine), content(str(other)))
    code, said = run("import", str(other), "--store", mine)
    assert (code, "added from other.duckdb" in said) == (0, True), said
    code, said = run("import", str(other), "--store", mine)
    assert (code, ": 0 rows added" in said) == (0, True), said
    assert content(mine) == both


def test_what_both_stores_describe_keeps_the_first_description(other: Path, name_store: NameStore, run: Run) -> None:
    mine = write_site(name_store("mine"), two_nodes)
    execute(str(other), "UPDATE sessions SET platform = 'elsewhere'")
    execute(str(other), "UPDATE run_requests SET workload = 'another'")
    before = content(mine)
    code, said = run("import", str(other), "--store", mine)
    assert (code, ": 0 rows added" in said) == (0, True), said
    assert content(mine) == before


def test_the_catalog_of_a_lake_is_a_store_too(tmp_path: Path, run: Run) -> None:
    write_site(f"ducklake:{tmp_path / 'lake'}", another_node)
    mine = str(tmp_path / "mine")
    code, said = run("import", str(tmp_path / "lake"), "--store", mine)
    assert code == 0, said
    assert content(mine) == content(f"ducklake:{tmp_path / 'lake'}")


def test_another_store_is_not_changed_and_need_not_be_writable(other: Path, name_store: NameStore, run: Run) -> None:
    before = other.read_bytes()
    other.chmod(0o400)
    assert run("import", str(other), "--store", name_store("mine"))[0] == 0
    assert other.read_bytes() == before
    assert content(name_store("mine")) == content(str(other))


def test_a_folder_of_stores_is_merged_without_the_store_itself(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "machines"
    folder.mkdir()
    write_site(str(folder / "a.duckdb"), two_nodes)
    write_site(str(folder / "b.store"), another_node)
    (folder / "notes.txt").write_text("two machines\n")
    all_of_them = union(content(str(folder / "a.duckdb")), content(str(folder / "b.store")))
    both = str(folder / "both.duckdb")
    for _ in range(2):
        code, said = run("import", str(folder), "--store", both)
        assert (code, "from a.duckdb" in said, "from b.store" in said) == (0, True, True), said
    assert content(both) == all_of_them
    assert run("import", both, "--store", both)[0] == 2


def test_stores_of_older_schemas_are_merged_as_they_are(tmp_path: Path, name_store: NameStore, run: Run) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    versions = range(1, load_migrations()[-1].version)
    for version in versions:
        with Store.open(f"{folder}/{version}", migrations=load_migrations()[:version]) as store:
            connection = store.connect()
            steps = f"({version}, 'r', 1), ({version}, 'r', 1), ({version}, 'r', 2)"
            connection.execute(f"INSERT INTO steps (session_id, run_id, step) VALUES {steps}")
            connection.execute("INSERT INTO sessions (session_id, hostname) VALUES (?, 'n')", [version])
            connection.close()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, said = run("import", str(folder), "--store", name_store("mine"))
    assert code == 0, said
    steps_of = "SELECT session_id, list(step ORDER BY step) FROM steps GROUP BY session_id ORDER BY session_id"
    assert execute(name_store("mine"), steps_of) == [(version, [1, 1, 2]) for version in versions]
    sessions = execute(name_store("mine"), "SELECT session_id, hostname FROM sessions ORDER BY session_id")
    assert sessions == [(version, "n") for version in versions]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def make_empty(path: Path) -> None:
    duckdb.connect(str(path)).close()


def make_foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")


def make_newer(path: Path) -> None:
    Store.open(str(path)).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (1000, 'later.sql', now()::TIMESTAMP)")


def make_short(path: Path) -> None:
    write_site(str(path), two_nodes)
    path.write_bytes(path.read_bytes()[:100_000])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_empty, "is no store of gpuagent"),
        (make_foreign, "is no store of gpuagent"),
        (make_newer, "newer collector"),
        (make_short, "cannot open the store"),
    ],
)
def test_an_unsound_store_stores_nothing_of_its_folder(make: object, words: str, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "machines"
    folder.mkdir()
    write_site(str(folder / "a.duckdb"), two_nodes)
    assert callable(make)
    make(folder / "b.duckdb")
    code, said = run("import", str(folder), "--store", str(tmp_path / "mine"))
    assert (code, words in said, said.count("\n")) == (1, True, 1), said
    assert not (tmp_path / "mine").exists()


def test_a_damaged_store_is_merged_whole_or_not_at_all(other: Path, tmp_path: Path, run: Run) -> None:
    mine = tmp_path / "mine.duckdb"
    write_site(str(mine), another_node)
    before, mine_whole, whole = content(str(mine)), mine.read_bytes(), other.read_bytes()
    both = union(before, content(str(other)))
    failed = 0
    for at in range(20_000, len(whole), 5 * 256 * 1024):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        other.write_bytes(damaged)
        code, said = run("import", str(other), "--store", str(mine))
        assert content(str(mine)) == (before if code else both)
        if code:
            assert said.splitlines()[-1].startswith("collector: cannot "), said
            failed += 1
        mine.write_bytes(mine_whole)
    assert failed


def test_a_store_that_its_collector_writes_is_refused_with_the_way_to_do_it(node: Node, tmp_path: Path) -> None:
    node.serve()
    said = node.collector("import", str(node.store), "--store", str(tmp_path / "mine"), code=1).stderr
    assert "collector export --parquet" in said
    assert not (tmp_path / "mine").exists()


def test_an_import_that_is_killed_leaves_the_store_as_it_was(other: Path, tmp_path: Path, run: Run) -> None:
    mine = tmp_path / "mine.duckdb"
    write_site(str(mine), another_node)
    before = content(str(mine))
    # The last table but one has been merged then, and nothing is committed.
    script = (
        "import os, signal, sys\n"
        "from gpuagent_collector.exchange import merge\n"
        "merge._Merging.summarise = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from gpuagent_collector.cli import main\n"
        "main()\n"
    )
    arguments = [sys.executable, "-c", script, "import", str(other), "--store", str(mine)]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert content(str(mine)) == before
    assert run("import", str(other), "--store", str(mine))[0] == 0
    assert content(str(mine)) == union(before, content(str(other)))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine.duckdb", "other.duckdb"]
