"""Runs of `collectives`: judged by operation and size, of nodes and GPUs, shown as tables, and drawn."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.answers.outliers import Request as OutlierRequest
from gpuagent_collector.answers.outliers import find_outliers
from gpuagent_collector.answers.peers import Request, answer, find_peers
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.runs.reported import size_text
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.fleet.scenes import GPU, add_links
from tests.support.commands import Collector, made_up, synthetic

NODES = 9
# The node whose large all-reduces are slow, and the one with a GPU whose links are.
SLOW, WITH_BAD_LINKS, BAD_GPU = 4, 6, 2
BAD_RUN = f"run-{WITH_BAD_LINKS}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet of nodes with four GPUs each, every one with a run of collectives."""
    path = tmp_path_factory.mktemp("links") / "runs.duckdb"
    with made_up(path) as store:
        for number in range(NODES):
            node = store.node(f"node-{number}", "fleet", gpus=[GPU] * 4)
            rates = {("all_reduce", 1 << 20): 0.7} if number == SLOW else None
            add_links(store, node, rates=rates, slow_gpu=BAD_GPU if number == WITH_BAD_LINKS else None)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SyntheticStore]:
    """The store of that fleet, opened."""
    with synthetic(path) as store:
        yield store


def test_a_slow_size_of_an_operation_and_a_slow_link_are_found_and_nothing_else(store: SyntheticStore) -> None:
    outliers = find_outliers(store.ask, OutlierRequest(workload="collectives"))
    (gpu,) = store.ask("SELECT device_id FROM run_devices WHERE run_id = ? AND rank = ?", [BAD_RUN, BAD_GPU])
    assert {(one.unit.name, one.unit.device_id, one.metric.title) for one in outliers.findings} == {
        (f"node-{SLOW}", None, "All-reduce, 1 MiB"),
        (f"node-{WITH_BAD_LINKS} GPU {gpu['device_id']}", gpu["device_id"], "Pairs, 1 MiB"),
    }
    changes = {one.metric.title: one.change for one in outliers.findings}
    assert changes["All-reduce, 1 MiB"] == pytest.approx(-0.3, abs=0.03)


def test_peers_place_each_operation_by_size_in_order(store: SyntheticStore) -> None:
    peers = find_peers(store.ask, Request(name=f"node-{SLOW}", workload="collectives"))
    rates = [place for place in peers.places if place.metric.unit == "bytes/s" and place.metric.group == "Result"]
    titles = ["All-reduce, 1 KiB", "All-reduce, 1 MiB", "Broadcast, 1 KiB", "Broadcast, 1 MiB", "Pairs, 1 MiB"]
    assert [place.metric.title for place in rates] == titles
    assert [place.is_outside for place in rates] == [False, True, False, False, False]
    assert [len(place.peers) for place in rates] == [NODES - 1] * 5
    assert "All-reduce, 1 MiB" in answer(peers)


def test_show_has_a_table_of_operations_and_one_of_pairs(call: Collector, path: Path) -> None:
    code, out, _ = call("show", BAD_RUN, store=path)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    cells = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    (row,) = (row for row in cells if row[:3] == ["all-reduce", "4", "1 MiB"])
    assert row[4].endswith("GB/s")
    assert float(row[5].split()[0]) / float(row[4].split()[0]) == pytest.approx(1.5, rel=0.01)
    assert "ranks, 1 MiB" in out
    assert ["2", "100", "100", ABSENT, "100"] in cells
    # They are in tables of their own.
    assert "all_reduce_1024_bytes_seconds" not in out


@pytest.mark.parametrize(
    ("size", "text"), [(4, "4 B"), (1000, "1,000 B"), (1 << 10, "1 KiB"), (3 << 19, "1,536 KiB"), (1 << 30, "1 GiB")]
)
def test_sizes_are_written_as_they_were_asked_for(size: int, text: str) -> None:
    assert size_text(size) == text
