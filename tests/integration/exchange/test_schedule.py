"""Backups at intervals, and the way back."""

from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.exchange.schedule import BackupPlan, BackupSchedule
from gpuagent_collector.store import Store
from tests.integration.exchange.conftest import BOTH_KINDS, Run
from tests.support.servers import Node, until

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


@BOTH_KINDS
def test_copies_are_made_when_due_and_the_oldest_go(site: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "other.duckdb").write_text("not ours")
    now = datetime(2030, 1, 1)  # noqa: DTZ001 - as the store's
    plan = BackupPlan(folder=folder, every=DAY, copies=2)
    with Store.open(site) as store:
        for _ in range(3):
            schedule = BackupSchedule(store, plan, lambda: now)  # noqa: B023 - called within the loop
            assert schedule.seconds_until_due() == 0
            schedule.attempt()
            assert schedule.seconds_until_due() == DAY.total_seconds()
            now += DAY
    assert sorted(path.name for path in folder.iterdir()) == [
        "other.duckdb",
        "site-20300102T000000Z.duckdb",
        "site-20300103T000000Z.duckdb",
    ]
    with duckdb.connect(str(folder / "site-20300103T000000Z.duckdb"), read_only=True) as copy:
        assert copy.execute("SELECT count(*) FROM runs").fetchone() == (3,)


def test_a_copy_that_fails_is_logged_and_removes_nothing(
    site: str, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = small_disk / "site-20300101T000000Z.duckdb"
    old.write_bytes(bytes(2 * 2**20))
    with Store.open(site) as store:
        schedule = BackupSchedule(store, BackupPlan(folder=small_disk, every=DAY, copies=1))
        schedule.attempt()
        assert "backup failed, retrying in at most 10 min: cannot write" in caplog.text
        assert schedule.seconds_until_due() > 0
    assert list(small_disk.iterdir()) == [old]


def test_a_collector_makes_backups_and_one_is_restored(node: Node, site: str) -> None:
    Path(site).replace(node.store)
    collector = node.serve(options=("--backup", "backups", "--backup-every", "1h"))
    copy = until(lambda: next(iter((node.folder / "backups").glob("runs-*.duckdb")), None), "a backup")
    node.collector("delete", "--experiment", "gan", "--yes")
    said = node.collector("restore", str(copy), "--store", str(node.store), code=1).stderr
    assert "is in use by process" in said
    assert "rows" not in said
    node.stop(collector)
    done = node.collector("restore", str(copy), "--store", str(node.store))
    assert done.stdout == f"{node.store}: restored from {copy}\n"
    assert "the store that was there is now " in done.stderr
    assert node.store.stat().st_mode & 0o777 == 0o600
    (kept,) = node.folder.glob("runs.duckdb.before-*")
    for file, runs in ((node.store, 3), (kept, 1)):
        with duckdb.connect(str(file), read_only=True) as opened:
            assert opened.execute("SELECT count(*) FROM runs").fetchone() == (runs,)


def test_options_of_backups_without_a_folder_are_misuse(run: Run) -> None:
    assert run("serve", "--backup-every", "1h")[0] == 2


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


def test_a_restore_that_is_killed_leaves_a_store_in_its_place(
    site: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
