import numpy as np
import pytest

from gpuagent_collector.recommend.ranking import draw_medians, least_certain, share_best

STEADY = [("a", 1.00 + 0.001 * number) for number in range(7)]
LOOSE = [("b", 1.003 + 0.2 * (number - 3)) for number in range(7)]


def test_a_side_that_is_always_lower_is_certainly_best() -> None:
    medians = draw_medians({"fast": STEADY, "slow": [("b", 2 * value) for _, value in STEADY]})
    assert medians
    assert share_best(medians) == {"fast": 1.0, "slow": 0.0}


def test_equal_sides_share_the_probability_and_the_loose_one_is_least_certain() -> None:
    medians = draw_medians({"steady": STEADY, "loose": LOOSE})
    assert medians
    assert share_best(medians)["steady"] == pytest.approx(0.5, abs=0.15)
    assert sum(share_best(medians).values()) == pytest.approx(1)
    assert least_certain(medians) == "loose"
    alike = draw_medians({"one": [("a", 1.0)] * 3, "other": [("b", 1.0)] * 3})
    assert alike
    assert share_best(alike) == {"one": 0.5, "other": 0.5}


def test_the_spread_between_nodes_counts_where_a_side_has_several() -> None:
    nodes = [(f"node-{number}", 1.0 + 0.1 * number + 0.001 * run) for number in range(4) for run in range(5)]
    one = [("node", value) for _, value in nodes]
    medians = draw_medians({"nodes": nodes, "one": one})
    assert medians
    # Twenty runs on one node are twenty draws; on four nodes of their own level they are little more than four.
    assert np.std(medians["nodes"]) > 1.3 * np.std(medians["one"])


def test_two_runs_show_no_spread() -> None:
    assert draw_medians({"few": STEADY[:2], "many": STEADY}) is None
