"""What was thinned out travels, and can be asked for, like everything else."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.store.retention import Retention
from tests.integration.compare.synthetic import EPOCH
from tests.integration.exchange.conftest import NameStore, Run
from tests.integration.exchange.sites import added, export_store, import_folder
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
_OLD = """
INSERT INTO gpu_samples (session_id, node_id, device_id, time, power_watts)
SELECT 1, 2, 3, date_trunc('hour', now()::TIMESTAMP) - to_days({days}) + to_milliseconds(100 * i), 100 + i
FROM range(20) r(i)
"""
_THINNED = "SELECT seconds, power_watts.mean, power_watts.max, power_watts.count FROM gpu_rollups ORDER BY time"


def rollups(name: str) -> list[Any]:
    with open_store(name) as store, store.connect() as connection:
        tables = ("gpu_rollups", "host_rollups", "process_rollups")
        return [connection.execute(f"FROM {table} ORDER BY ALL").fetchall() for table in tables]


def test_compact_thins_out_in_steps_and_says_so(name_store: NameStore, run: Run) -> None:
    name = name_store("site")
    with open_store(name) as store, store.connect() as connection:
        for days in (3, 40, 100):
            connection.execute(_OLD.format(days=days))
    kept = ("--keep-raw", "2d", "--keep-seconds", "30d", "--keep", "8w")
    code, said = run("compact", "--store", name, *kept, "--trust-clock")
    assert code == 0
    assert f"{name}: 40 rows thinned out to 3\n{name}: 20 rows removed\n{name}: compacted" in said
    code, said = run("query", "sql", "--store", name, "--format", "csv", _THINNED)
    assert said.splitlines()[1:4] == ["60,109.5,119,20", "1,104.5,109,10", "1,114.5,119,10"]


def test_compact_believes_the_clock_only_as_far_as_samples_agree(name_store: NameStore, run: Run) -> None:
    name = name_store("site")
    with open_store(name) as store, store.connect() as connection:
        for days in (3, 40):
            connection.execute(_OLD.format(days=days))
    code, said = run("compact", "--store", name, "--keep-raw", "2d")
    assert code == 0
    assert "samples disagree with" in said
    assert f"{name}: 20 rows thinned out to 2\n" in said
    code, said = run("compact", "--store", name, "--keep-raw", "2d", "--trust-clock")
    assert "agree" not in said
    assert f"{name}: 20 rows thinned out to 2\n" in said


def test_compact_and_serve_refuse_what_cannot_be_meant(name_store: NameStore, run: Run) -> None:
    name = name_store("site")
    for wrong, words in (
        (("--keep-raw", "7"), "--keep-raw takes a whole number above 0 and h, d or w, such as 90d; not '7'"),
        (("--keep", "0d"), "--keep takes a whole number above 0 and h, d or w, such as 90d; not '0d'"),
        (("--keep-raw", "9w", "--keep", "60d"), "--keep-raw must be less than --keep"),
    ):
        for command in ("compact", "serve"):
            code, said = run(command, "--store", name, *wrong)
            assert (code, words in said) == (2, True)
    code, said = run("serve", "--listen", "127.0.0.1:0", "--store", "ducklake:postgres:dbname=lake", "--keep", "90d")
    assert (code, "collector compact --keep" in said) == (2, True)
    assert not Path(name).exists()


def test_rollups_travel_with_the_rest(site: str, name_store: NameStore, tmp_path: Path) -> None:
    with open_store(site) as store:
        thinned = sum(done.removed for done in store.retain(Retention(samples=DAY), EPOCH + 3 * DAY))
    assert thinned > 200
    export_store(site, tmp_path / "export")
    import_folder(tmp_path / "export", name_store("other"))
    assert rollups(name_store("other")) == rollups(site)
    assert added(import_folder(tmp_path / "export", name_store("other"))) == 0


def test_a_run_that_is_deleted_takes_its_rollups_along(site: str, run: Run) -> None:
    with open_store(site) as store:
        list(store.retain(Retention(samples=DAY), EPOCH + 3 * DAY))
    before = rollups(site)
    assert run("delete", "--store", site, "--run", "satori-first", "--yes")[0] == 0
    after = rollups(site)
    assert [len(rows) for rows in after] == [len(rows) - gone for rows, gone in zip(before, (32, 16, 16), strict=True)]


def test_compact_sorts_a_file_and_gives_free_space_back(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "runs.duckdb"
    with open_store(str(path)) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples (session_id, node_id, core, time, cpu_percent) "
            "SELECT 5, 1, i % 4, TIMESTAMP '2026-01-01' + to_seconds(i // 4), hash(i) % 1000 / 10 "
            "FROM range(800_000) r(i)"
        )
    path.chmod(0o640)
    before = path.stat()
    rows = "SELECT count(*), sum(hash(COLUMNS(*)))::HUGEINT FROM core_samples"
    _, read = run("query", "sql", "--store", str(path), rows)
    assert run("compact", "--store", str(path))[0] == 0
    assert path.stat().st_size < 0.7 * before.st_size
    assert path.stat().st_mode == before.st_mode
    assert run("query", "sql", "--store", str(path), rows)[1] == read
    assert [each.name for each in tmp_path.iterdir()] == ["runs.duckdb"]
