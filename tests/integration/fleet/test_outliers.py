"""Seeded faults that are found, with their evidence, and sound fleets in which nothing is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.answers.outliers import Outliers, Request, answer, find_outliers, render
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.fleet.scenes import (
    CAPPED,
    FAULTY,
    NARROW,
    NODES,
    OLD,
    SLOW,
    add_faulty_fleet,
    add_fleet,
    scatter,
)
from tests.support.commands import synthetic


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SyntheticStore]]:
    """A sound fleet, and one with a fault of each kind."""

    def add_sound_fleets(store: SyntheticStore) -> None:
        add_fleet(store, NODES)
        add_fleet(store, 1, rates={0: 0.5}, parameters={"batch_size": 128})
        scatter(store)

    folder = tmp_path_factory.mktemp("fleet")
    with synthetic(folder / "a", add_sound_fleets) as sound, synthetic(folder / "b", add_faulty_fleet) as faulty:
        yield {"sound": sound, "faulty": faulty}


def figures_of(outliers: Outliers, unit: str) -> set[str]:
    return {finding.metric.name for finding in outliers.findings if finding.unit.name == unit}


def test_a_sound_fleet_has_no_outliers_and_other_parameters_are_another_kind(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["sound"].ask, Request())
    assert (outliers.findings, outliers.oddities) == ((), ())
    assert (outliers.units, outliers.lone) == (NODES, 1)
    assert answer(outliers).startswith("No node or")
    assert [one.q_value for one in outliers.nearest] == sorted(one.q_value for one in outliers.nearest)
    assert outliers.nearest[0].q_value > Request().rate
    assert "found at 0.05 or less" in answer(outliers)
    # A distance that is certain, and too small to be found.
    near = find_outliers(stores["sound"].ask, Request(rate=0.999, delta=0.9))
    assert (near.findings, near.nearest[0].q_value < 0.999) == ((), True)
    assert "90 % or less does not count" in answer(near)
    assert render(outliers).next == "collector history"


@pytest.mark.parametrize(
    ("workload", "following"),
    [("gcn", "gpuagent experiment run fleet-check"), ("mnist", "collector compare --by node --workload mnist")],
)
def test_without_enough_nodes_of_a_kind_nothing_is_said_of_them(tmp_path: Path, workload: str, following: str) -> None:
    with synthetic(tmp_path / "small") as store:
        store.run("one", store.node("alder-node", "alder"), start_seconds=0, workload="mnist")
        store.run("other", store.node("birch-node", "birch"), start_seconds=0, workload=workload)
        outliers = find_outliers(store.ask, Request())
    assert outliers.tests == 0
    assert answer(outliers).startswith("It takes 5 nodes or GPUs")
    assert render(outliers).next == following


def test_every_seeded_fault_is_found_by_its_own_figures_and_nothing_else(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["faulty"].ask, Request())
    gpus = {finding.unit.name: finding.unit for finding in outliers.findings}
    capped, slow, waiting = sorted(gpus, key=lambda name: gpus[name].node_id)
    assert figures_of(outliers, capped) == {"throughput", "step_seconds", "gpu_power_watts"}
    assert figures_of(outliers, slow) == {"throughput", "step_seconds", "sm_clock_mhz"}
    # The others wait for a slow rank; it waits for nobody.
    assert figures_of(outliers, waiting) == {"exposed_communication_percent"}
    assert [name.split()[0] for name in (capped, slow, waiting)] == [f"node-{CAPPED}", f"node-{SLOW}", "dgx"]


def test_the_peers_that_follow_are_of_the_same_runs(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["faulty"].ask, Request(workload="mnist"))
    assert render(outliers).next == "collector peers node-5 --workload mnist"


def test_facts_that_differ_and_errors_are_listed_without_a_test(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["faulty"].ask, Request())
    facts = {(one.unit.name.split()[0], one.what): (one.value, one.usual, one.share) for one in outliers.oddities}
    assert facts == {
        (f"node-{CAPPED}", "power limit"): ("200 W", "300 W", "21 of 22"),
        (f"node-{NARROW}", "PCIe lanes in use"): ("8", "16", "13 of 14"),
        (f"node-{OLD}", "GPU driver"): ("550", "580", "13 of 14"),
        ("dgx", "GPUs"): ("8", "1", "14 of 15"),
        (f"node-{FAULTY}", "Uncorrected memory errors"): ("3", None, ""),
    }


def test_only_the_newest_runs_of_a_unit_count(stores: dict[str, SyntheticStore]) -> None:
    of_first = "run_id IN (SELECT run_id FROM runs WHERE repeat = 1)"
    outliers = find_outliers(stores["faulty"].ask, Request(last=1, where=of_first))
    assert {finding.runs for finding in outliers.findings} == {1}


def test_runs_in_another_unit_of_throughput_are_another_kind(tmp_path: Path) -> None:
    def add_units(store: SyntheticStore) -> None:
        first, *_ = add_fleet(store, NODES)
        store.next_run(first, throughput=10.0)
        (row,) = (row for row in store.rows["results"] if (row["name"], row["value"]) == ("throughput", 10.0))
        row["unit"] = "steps/s"
        scatter(store)

    with synthetic(tmp_path / "units", add_units) as store:
        found = find_outliers(store.ask, Request(last=1)).findings
    assert "throughput" not in {finding.metric.name for finding in found}
