"""The load run itself: that it comes to its end, and that its check would find what it looks for."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from benchmarks.load.agents import MemorySpool, Tally
from benchmarks.load.messages import DrawnValues
from benchmarks.load.plan import Kind, SimulatedNode, draw_nodes
from benchmarks.load.verify import verify
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.keys import key

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

TICKS = 20


def _acknowledged(store: Path, nodes: list[SimulatedNode]) -> dict[int, Tally]:
    """Store one message of each node, as a collector does, and acknowledge it."""
    tallies, drawn = {node.index: Tally() for node in nodes}, DrawnValues(1)
    with Store.open(str(store)) as opened, opened.connect() as connection:
        committer = Committer(connection, now=utc_now)
        for node in nodes:
            spool = MemorySpool(node, drawn, tallies[node.index])
            spool.append(range(TICKS))
            sent = [
                Message(
                    session_id=each.session_id, node_id=key(node.node_uuid), number=each.number, records=each.records
                )
                for each in spool.messages_after(0, limit=10)
            ]
            committer.commit(sent)
            spool.acknowledge({spool.session.session_id: sent[-1].number})
            assert spool.waiting() == 0
    return tallies


def test_the_check_finds_a_row_that_is_missing_and_one_that_is_there_twice(tmp_path: Path) -> None:
    nodes = list(draw_nodes(3, seed=1, rate_hz=10, start_unix_micros=1_700_000_000_000_000))
    store = tmp_path / "runs.duckdb"
    tallies = _acknowledged(store, nodes)
    verdict = verify(store, nodes, tallies)
    assert verdict.is_good
    assert verdict.rows == sum(TICKS * (1 + node.gpus) for node in nodes)
    with duckdb.connect(str(store)) as connection:
        connection.execute("DELETE FROM gpu_samples WHERE rowid = 7")
        connection.execute("INSERT INTO host_samples FROM host_samples LIMIT 2")
    verdict = verify(store, nodes, tallies)
    assert (verdict.lost, verdict.duplicated, verdict.is_good) == (1, 2, False)


def test_of_a_thousand_nodes_a_twentieth_is_slow_and_a_twentieth_stalled() -> None:
    nodes = draw_nodes(1000, seed=1, rate_hz=1, start_unix_micros=0)
    kinds = [node.kind for node in nodes]
    assert (kinds.count(Kind.SLOW), kinds.count(Kind.STALLED)) == (50, 50)
    assert {node.gpus for node in nodes} == set(range(1, 9))
    assert list(nodes) == list(draw_nodes(1000, seed=1, rate_hz=1, start_unix_micros=0))


def test_a_short_load_with_a_collector_killed_in_mid_run_loses_nothing(tmp_path: Path) -> None:
    arguments = ["--agents", "20", "--minutes", "0.05", "--rate", "10", "--processes", "1", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "load", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 duplicated, 0 gaps, 0 rejected" in done.stdout
    assert list(tmp_path.iterdir()) == []
