import json

import pytest

from gpuagent_collector.store import Store
from tests.support.recent import HOSTILE, fill
from tests.unit.cli_collector.conftest import Collector


@pytest.fixture
def recent(store: str) -> str:
    """The path of a store with samples of the last seconds beside old ones."""
    with Store.open(store) as opened:
        fill(opened)
    return store


def test_json_is_one_object_with_nodes_their_gpus_and_runs(collector: Collector, recent: str) -> None:
    document = json.loads(collector("watch", "--store", recent, "--json").out)
    nodes = {node["hostname"]: node for node in document["nodes"]}
    assert set(nodes) == {"alder", "birch", HOSTILE}
    assert [gpu["utilization_percent"] for gpu in nodes["alder"]["gpus"]] == [98.0, 0.0]
    assert nodes["birch"]["sample_age_seconds"] is None
    assert [run["run_id"] for run in document["runs"] if run["ended_age_seconds"] is None][:1] == ["mnist-open"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_shown_sql_can_be_asked_by_anybody(collector: Collector, recent: str, number: int) -> None:
    shown = collector("watch", "--store", recent, "--show-sql")
    statements = shown.err.partition("\n")[2].split(";\n\n")
    assert collector("query", "sql", statements[number], "--store", recent, "--json").code == 0
    assert "3 nodes" in shown.out


def test_an_empty_store_is_said_to_be_empty(collector: Collector, store: str) -> None:
    out = collector("watch", "--store", store, "--once").out
    assert "no node has delivered in the last hour" in out


@pytest.mark.parametrize("interval", ["0", "-1", "soon"])
def test_an_interval_that_makes_no_sense_is_misuse(collector: Collector, store: str, interval: str) -> None:
    assert collector("watch", "--store", store, "--interval", interval).code == 2
