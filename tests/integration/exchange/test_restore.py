"""The way back to a backup."""

from pathlib import Path

import duckdb
import pytest

from tests.integration.exchange.conftest import Run
from tests.support.servers import Node

pytestmark = pytest.mark.slow


def test_a_backup_of_a_running_collector_is_restored(node: Node, site: str) -> None:
    Path(site).replace(node.store)
    collector = node.serve()
    copy = node.folder / "monday.duckdb"
    node.collector("backup", str(copy))
    node.collector("delete", "--experiment", "gan", "--yes")
    said = node.collector("restore", str(copy), "--store", str(node.store), code=1).stderr
    assert "in use by" in said
    assert "rows" not in said
    node.stop(collector)
    done = node.collector("restore", str(copy), "--store", str(node.store))
    assert done.stdout == f"{node.store}: restored from {copy}\n"
    assert "was there is" in done.stderr
    assert node.store.stat().st_mode & 0o777 == 0o600
    (kept,) = node.folder.glob("runs.duckdb.before-*")
    for file, runs in ((node.store, 3), (kept, 1)):
        with duckdb.connect(str(file), read_only=True) as opened:
            assert opened.execute("SELECT count(*) FROM runs").fetchone() == (runs,)


def test_a_damaged_backup_is_not_restored(site: str, run: Run, tmp_path: Path) -> None:
    before = Path(site).read_bytes()
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(before[: 13 * 1024] + bytes(1024) + before[14 * 1024 :])
    assert run("restore", str(damaged), "--store", site)[0] == 1
    assert Path(site).read_bytes() == before
    assert run("restore", site, "--store", site)[0] == 2


def test_a_file_that_is_no_backup_is_named_and_not_the_option_of_the_store(site: str, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no backup of anything\n" * 1000)
    code, printed = run("restore", str(other), "--store", site)
    assert (code, str(other) in printed, "--store" in printed) == (1, True, False)
    assert "collector backup" in printed


def test_a_killed_restore_leaves_a_store(site: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that found none would make an empty one."""
    copy, store = tmp_path / "copy.duckdb", Path(site)
    assert run("backup", str(copy), "--store", site)[0] == 0
    assert run("delete", "--experiment", "gan", "--yes", "--store", site)[0] == 0
    there: list[bool] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        there.append(store.exists())
        replaced = replace(self, target)
        there.append(store.exists())
        return replaced

    monkeypatch.setattr(Path, "replace", watched)
    assert run("restore", str(copy), "--store", site)[0] == 0
    assert there == [True, True]
    (kept,) = tmp_path.glob("*.before-*")
    for file, runs in ((store, 3), (kept, 1)):
        with duckdb.connect(str(file), read_only=True) as opened:
            assert opened.execute("SELECT count(*) FROM runs").fetchone() == (runs,)
