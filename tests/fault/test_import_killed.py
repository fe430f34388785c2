"""An import that is killed leaves the store as it was, at whatever moment before its commit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuagent_collector.exchange import tables
from tests.integration.exchange.sites import content, export_store, import_folder, union
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

ROWS = 8_000

# Imports, and is killed after so many inserts, or when it has committed.
KILLED = """
import os, signal, sys
from pathlib import Path
from gpuagent_collector.exchange import merge
from gpuagent_collector.exchange.export import CheckedExport
from gpuagent_collector.store import Store

folder, store_name, inserts = sys.argv[1:]
left = int(inserts)
insert = merge._Merging._insert

def insert_and_die(self, table, news):
    global left
    changed = insert(self, table, news)
    left -= bool(changed)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return changed

merge._Merging._insert = insert_and_die
with Store.open(store_name, exact=True) as store:
    merge.merge(CheckedExport.open(Path(folder)), store)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(store_name: str, first: int) -> None:
    with open_store(store_name, exact=True) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO core_samples BY NAME SELECT make_timestamp(1900000000000000 + i) AS time, 1 AS session_id, "
            f"i AS core, i * 0.1 AS cpu_percent FROM range({first}, {first + ROWS}) r(i)"
        )


@pytest.mark.parametrize("kind", ["", "ducklake:"], ids=["file", "lake"])
def test_a_killed_import_leaves_all_or_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SLICE_ROWS", 2_000)
    site, other, export = str(tmp_path / "site.duckdb"), f"{kind}{tmp_path}/other", tmp_path / "export"
    fill(site, 0)
    fill(other, -ROWS // 2)
    export_store(site, export)
    before, both = content(other), union(content(site), content(other))
    for inserts, expected in ((3, before), (10**6, both)):
        command = [sys.executable, "-c", KILLED, str(export), other, str(inserts)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert content(other) == expected
    import_folder(export, other)
    assert content(other) == both
