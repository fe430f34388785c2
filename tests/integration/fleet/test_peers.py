"""The place of a run among runs of other nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.answers.peers import Peers, Request, answer, find_peers, render
from gpuagent_collector.choices import PartKind
from gpuagent_collector.present.table import Table
from gpuagent_collector.statistics.tolerance import Method, tolerance_interval
from gpuagent_common.errors import MisuseError
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.fleet.scenes import BAD, GPU, add_peers, scatter
from tests.support.commands import made_up, synthetic


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyntheticStore]:
    """The runs of ten nodes, one of them slow."""
    with synthetic(tmp_path_factory.mktemp("peers") / "runs.duckdb", add_peers) as store:
        yield store


def of_node(store: SyntheticStore, name: str | None, **request: object) -> Peers:
    return find_peers(store.ask, Request(name=name, **request))  # type: ignore[arg-type]


def test_each_other_node_counts_once_and_the_own_one_apart(store: SyntheticStore) -> None:
    peers = of_node(store, f"node-{BAD}")
    first = peers.places[0]
    assert (first.metric.name, len(first.peers), len(first.own)) == ("throughput", 9, 1)
    assert (peers.nodes, peers.runs) == (9, 18)
    assert (first.percentile, first.is_outside) == (0, True)
    assert first.tolerance
    assert first.tolerance.method is Method.LOG_NORMAL
    assert "lower than all 9 peers, outside the range of most of them" in answer(peers)


@pytest.mark.parametrize(("node", "command"), [(f"node-{BAD}", "show"), ("node-3", "outliers")])
def test_the_next_command_is_of_the_run_where_it_is_unusual_else_of_all_nodes(
    store: SyntheticStore, node: str, command: str
) -> None:
    assert (render(of_node(store, node)).next or "").startswith(f"collector {command} ")


@pytest.mark.parametrize(("gpus", "command"), [(1, "compare --by node --workload mnist"), (3, "outliers")])
def test_of_fewer_units_than_outliers_takes_the_next_command_compares_the_nodes(
    tmp_path: Path, gpus: int, command: str
) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        for name in ("one", "other"):
            store.next_run(store.node(name, "fleet", gpus=[GPU] * gpus))
        assert (render(of_node(store, "one")).next or "").startswith(f"collector {command}")


def test_peers_are_shown_by_the_properties_in_which_they_differ(store: SyntheticStore) -> None:
    (driver,) = of_node(store, f"node-{BAD}").differences
    assert (driver.title, driver.own) == ("GPU driver", "550")
    assert [(value, count) for value, count, _ in driver.values] == [("550", 4), ("580", 5)]


def test_the_parts_of_a_run_have_places_of_their_own(store: SyntheticStore) -> None:
    peers = of_node(store, "node-1", each=PartKind.GPU)
    assert {place.part for place in peers.places} == {"GPU 0"}
    assert peers.places[0].metric.name == "gpu_power_watts"
    assert len(peers.places[0].peers) == 9


def test_a_node_has_the_figures_that_are_measured_of_nodes(store: SyntheticStore) -> None:
    peers = of_node(store, "node-1", each=PartKind.NODE)
    assert {"run_seconds", "cpu_percent"} <= {place.metric.name for place in peers.places}
    # Its name is in the sentence: the rows of the only one need it no more.
    assert "of node-1" not in answer(peers)


@pytest.mark.parametrize(("nodes", "has_range"), [(4, False), (10, True)])
def test_a_range_counts_one_gpu_of_each_node_because_those_of_a_node_are_alike(
    tmp_path: Path, nodes: int, has_range: bool
) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        for number in range(nodes):
            store.next_run(store.node(f"wide-{number}", "fleet", gpus=[GPU] * 3), throughput=1000.0)
        scatter(store)
        (third,) = (
            place
            for place in of_node(store, "wide-0", each=PartKind.GPU).places
            if (place.metric.name, place.part) == ("gpu_power_watts", "GPU 2")
        )
        assert len(third.peers) == 3 * (nodes - 1)
        # The parts of each node follow one another.
        assert third.tolerance == tolerance_interval(third.peers[2::3])
        assert (third.tolerance is not None) is has_range


def test_a_percentile_among_one_peer_is_not_shown(tmp_path: Path) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        for name in ("one", "other"):
            store.next_run(store.node(name, "fleet"), throughput=1000.0)
        (table, *_) = render(of_node(store, "one")).parts
    assert isinstance(table, Table)
    assert "percentile" not in table.grid(wide=False, whole=False).header
    assert table.records()[0]["percentile"] is not None


def test_the_only_peer_is_named_and_the_runs_of_the_own_node_are_beside_it(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        ash, oak = store.node("ash", "lab"), store.node("oak", "cloud")
        for node, rate in ((oak, 900.0), (oak, 800.0), (ash, 700.0), (ash, 680.0), (ash, 679.9999)):
            store.next_run(node, throughput=rate)
        fast, rounded = (answer(find_peers(store.ask, Request(name=name))) for name in ("run-2", "run-4"))
    assert "700 items/s is lower than its only peer, oak on cloud (the newest of 2 runs), too few for a range." in fast
    assert "2 other such runs, whose throughput is 680 to 680 items/s; here it is 700 items/s." in fast
    assert "680 to 700 items/s; here it is 680 items/s" in rounded


def test_peers_on_another_platform_are_counted_and_have_a_median_of_their_own(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        places = [("ash", "lab"), ("oak", "lab"), ("fir", "cloud"), ("elm", "cloud")]
        for (name, platform), rate in zip(places, (500.0, 510.0, 300.0, 310.0), strict=True):
            store.next_run(store.node(name, platform), throughput=rate)
        near, far = (find_peers(store.ask, Request(name=name)) for name in ("run-0", "run-3"))
    assert "higher than 67 % of 3 peers (2 of 3 nodes on cloud), which are too few" in answer(near)
    assert "(2 of 3 nodes on lab)" in answer(far)
    (differing,) = near.differences
    assert (differing.title, differing.own, differing.values) == (
        "Platform",
        "lab",
        (("cloud", 2, 305), ("lab", 1, 510)),
    )


def test_runs_whose_throughput_has_another_unit_are_no_peers(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        ash, oak = store.node("ash", "lab"), store.node("oak", "lab")
        for node, rate in ((ash, 20.0), (oak, 25.0), (oak, 1600.0), (ash, 1300.0)):
            store.next_run(node, throughput=rate)
        for row in store.rows["results"]:
            if row["name"] == "throughput" and row["value"] < 100:
                row["unit"] = "steps/s"
        steps = find_peers(store.ask, Request(name="run-0"))
    assert (steps.unit, steps.places[0].peers, steps.own_runs) == ("steps/s", (25.0,), 0)


def test_without_a_name_the_newest_run_that_has_peers_is_chosen(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        for number, node in enumerate(store.node(name, "lab") for name in ("ash", "oak")):
            store.run(f"like-{number}", node, start_seconds=20 * number)
        store.run("alone", node, start_seconds=100, workload="gcn")
        peers = find_peers(store.ask, Request())
    assert (peers.run.run_id, peers.nodes) == ("like-1", 1)


def test_a_run_of_other_parameters_has_no_peers(store: SyntheticStore) -> None:
    peers = find_peers(store.ask, Request(where="parameters->>'batch_size' = '128'"))
    assert (peers.nodes, peers.places[0].percentile) == (0, None)
    assert "has no peers" in answer(peers)
    assert GPU in answer(peers)


def test_without_other_nodes_a_run_is_placed_among_those_of_its_own(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        node = store.node("ash", "lab")
        for rate in (1000.0, 1200.0, 1100.0):
            store.next_run(node, throughput=rate)
        within, beyond = find_peers(store.ask, Request()), find_peers(store.ask, Request(name="run-1"))
    assert "2 other such runs, whose throughput is 1,000 to 1,200 items/s; here it is 1,100 items/s" in answer(within)
    assert "1,000 to 1,100 items/s; here it is 1,200 items/s" in answer(beyond)


def test_rates_that_a_workload_reports_are_figures_but_not_those_of_each_size(store: SyntheticStore) -> None:
    peers = find_peers(store.ask, Request(workload="ceilings"))
    rates = [place.metric for place in peers.places if place.metric.unit == "FLOP/s"]
    assert [(rate.name, rate.title) for rate in rates] == [("gemm_bf16_flops_per_second", "GEMM BF16")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("nobody", "no run that succeeded, and no node, is nobody"), ("run-", "22 runs begin with run-")],
)
def test_an_unknown_or_ambiguous_name_is_misuse(store: SyntheticStore, name: str, problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        of_node(store, name)
