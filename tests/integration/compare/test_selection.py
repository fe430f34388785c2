"""Which runs a comparison takes, by what they are told apart, and which statistic of each run counts."""

from datetime import timedelta

import pytest

from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.metrics import Stat
from gpuagent_common.errors import MisuseError
from tests.integration.compare.comparing import alternate, codes
from tests.integration.compare.synthetic import EPOCH, SETUP_SECONDS, WARMUP_SECONDS, SyntheticStore, quiet_and_burning

BEFORE_MEASURE = SETUP_SECONDS + WARMUP_SECONDS

# Second of the measured phase, utilisation and memory of a GPU; the first lies before it.
READINGS = (
    (-1, 5.0, 20_000_000_000),
    (1, 90.0, 4_000_000_000),
    (2, 90.0, 4_000_000_000),
    (3, 66.0, 4_000_000_000),
    (4, 90.0, 4_000_000_000),
    (5, 98.0, 9_000_000_000),
)


def add_places(store: SyntheticStore) -> None:
    """Add five runs, taking turns, of each of two environments on each of two platforms."""
    nodes = {name: store.node(f"{name}-node", name) for name in ("alder", "birch")}
    places = [(name, environment) for name in nodes for environment in ("bare", "docker")]
    for repeat in range(5):
        for turn, (name, environment) in enumerate(places):
            store.run(
                f"{name}-{environment}-{repeat}",
                nodes[name],
                start_seconds=20 * (4 * repeat + turn),
                environment=environment,
                repeat=repeat + 1,
                throughput=1000.0 + 100 * turn + repeat,
            )
    store.write()


def test_the_sides_of_two_facets_are_the_combinations_of_their_values(store: SyntheticStore) -> None:
    add_places(store)
    comparison = compare(store.ask, Request(by="platform,environment"))
    assert comparison.layout.sides == ("alder · bare", "alder · docker", "birch · bare", "birch · docker")
    assert [test.other.side for test in comparison.figures.tests] == [
        "alder · docker",
        "birch · bare",
        "birch · docker",
    ]
    assert len(comparison.layout.blocks) == 1
    assert codes(comparison) == {"one_node"}


def test_combinations_are_named_with_commas_or_as_they_are_shown(store: SyntheticStore) -> None:
    add_places(store)
    request = Request(by="platform,environment", values=("alder,docker", "birch · docker"), baseline="birch,docker")
    comparison = compare(store.ask, request)
    assert comparison.layout.sides == ("birch · docker", "alder · docker")
    with pytest.raises(MisuseError, match="no run has the platform and environment alder,podman; there are: alder · b"):
        compare(store.ask, Request(by="platform,environment", values=("alder,podman",)))


def test_facets_that_have_usual_values_have_a_usual_combination(store: SyntheticStore) -> None:
    alternate(store, first={"environment": "apptainer", "interference": "cpu-burn"})
    assert compare(store.ask, Request(by="environment,interference")).layout.sides[0] == "bare · none"


def test_a_facet_named_twice_is_refused(store: SyntheticStore) -> None:
    with pytest.raises(MisuseError, match="--by names a facet twice: node, node"):
        compare(store.ask, Request(by="node, node"))


def test_a_condition_chooses_runs_by_parameters_times_and_other_tables(any_store: SyntheticStore) -> None:
    quiet_and_burning(any_store, repeats=6)
    any_store.write()
    for where, repeats in (
        ("repeat > 1", {2, 3, 4, 5, 6}),
        ("parameters->>'batch_size' = '64' AND repeat <= 4 OR false -- a comment", {1, 2, 3, 4}),
        (f"started_at < TIMESTAMP '{EPOCH + timedelta(seconds=165)}'", {1, 2, 3, 4}),
        ("repeat <> 3 AND run_id IN (SELECT run_id FROM metrics WHERE metric = 'throughput')", {1, 2, 4, 5, 6}),
        ("workload <> 'why?' AND repeat <> 6", {1, 2, 3, 4, 5}),
    ):
        (block,) = compare(any_store.ask, Request(by="interference", where=where)).layout.blocks
        assert {run.repeat for cell in block.cells for run in cell.runs} == repeats, where


def test_conditions_that_no_run_satisfies_or_that_are_none_are_explained(store: SyntheticStore) -> None:
    alternate(store)
    with pytest.raises(MisuseError, match="no run satisfies --where repeat > 99"):
        compare(store.ask, Request(where="repeat > 99"))
    with pytest.raises(MisuseError, match="--where: that is more than one condition"):
        compare(store.ask, Request(where="true; DROP TABLE runs"))


@pytest.mark.parametrize(
    ("stat", "utilisation", "memory"),
    [(None, 86.8, 9e9), (Stat.MEAN, 86.8, 5e9), (Stat.MEDIAN, 90.0, 4e9), (Stat.P95, 98.0, 9e9), (Stat.MAX, 98.0, 9e9)],
)
def test_a_statistic_is_of_each_run_s_samples_in_its_measured_phase(
    any_store: SyntheticStore, stat: Stat | None, utilisation: float, memory: float
) -> None:
    alternate(any_store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]}, write=False)
    any_store.rows["gpu_samples"].clear()
    for run in any_store.rows["run_devices"]:
        at = {"session_id": run["session_id"], "node_id": run["node_id"]}
        for second, value, used in READINGS:
            at["time"] = run["time"] + timedelta(seconds=BEFORE_MEASURE + second)
            any_store.gpu_sample(at, run["device_id"], utilization_percent=value, memory_used_bytes=used)
    any_store.write()
    (block,) = compare(any_store.ask, Request(stat=stat)).figures.blocks
    rows = {row.metric.name: row.figures["alder"].median for row in block.rows}
    assert rows["gpu_utilization_percent"] == pytest.approx(utilisation)
    assert rows["gpu_memory_used_bytes"] == pytest.approx(memory)
    assert rows["throughput"] == 1000.0
    assert rows["gpu_idle_percent"] == 0.0
