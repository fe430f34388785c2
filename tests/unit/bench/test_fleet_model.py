"""The model of a fleet gives back what it was made from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.collector_process import Commits
from benchmarks.fleet.model import COLLECTOR_CORES, fit, predict
from benchmarks.fleet.simulate import Observed

INFINITE = float("inf")


def observed(nodes: int, cpu: float) -> Observed:
    return Observed(
        nodes=nodes,
        sampled_seconds=40,
        seconds=42.0,
        wire_bytes=nodes * 40 * 32_000,
        cpu_seconds=cpu * 42,
        commits=5,
        commit_seconds=1.0,
        files=15,
        catalog_rows=5 * (100 + nodes),
        stored_bytes=nodes * 40 * 3000,
        rss_mib=250.0,
    )


@given(idle=st.floats(0, 0.2), a_node=st.floats(0.0005, 0.01), few=st.integers(1, 50), more=st.integers(1, 500))
def test_costs_that_two_observations_gave_foretell_both(idle: float, a_node: float, few: int, more: int) -> None:
    seen = [observed(nodes, idle + a_node * nodes) for nodes in (few, few + more)]
    cost = fit(*seen, commits_a_second=10, scanned_rows=1e6)
    for each in seen:
        fleet = predict(cost, each.nodes, 1)
        assert fleet.cpu == pytest.approx(each.cpu_seconds / each.seconds)
        assert fleet.wire_bytes == pytest.approx(each.wire_bytes / 40)
        assert fleet.stored_bytes == pytest.approx(each.stored_bytes / 40)


@given(nodes=st.integers(1, 1_000_000))
def test_no_collector_of_a_fleet_takes_more_than_it_is_given(nodes: int) -> None:
    cost = fit(observed(25, 0.08), observed(100, 0.2), commits_a_second=10, scanned_rows=1e6)
    fleet = predict(cost, nodes)
    assert fleet.cpu <= fleet.collectors * COLLECTOR_CORES * (1 + 1e-9)
    assert fleet.commits >= fleet.collectors / 10


def test_the_median_of_commits_lies_within_its_bucket() -> None:
    commits = Commits(upper_seconds=(0.1, 0.5, INFINITE), counts=(1.0, 9.0, 10.0), total_seconds=3.0)
    assert commits.quantile_seconds(0.5) == pytest.approx(0.3)
    assert commits.quantile_seconds(0.99) == 0.5
    assert (commits + commits).count == 20
    assert (commits + commits).quantile_seconds(0.5) == pytest.approx(0.3)
