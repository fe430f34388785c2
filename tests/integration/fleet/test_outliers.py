"""Seeded faults that are found, with their evidence, and sound fleets in which nothing is."""

from collections.abc import Iterator

import pytest

from gpuagent_collector.outliers.export import answer
from gpuagent_collector.outliers.study import Outliers, Request, find_outliers
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.fleet.scenes import add_fleet, add_link, add_ranks, write_fleet
from tests.support.stores import open_store

CAPPED, SLOW, NARROW, OLD, FAULTY = 3, 5, 7, 9, 11
SLOW_RANK = 6
NODES = 14


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SyntheticStore]]:
    """A sound fleet, and one with a fault of each kind."""
    folder = tmp_path_factory.mktemp("fleet")
    with open_store(str(folder / "sound")) as sound, open_store(str(folder / "faulty")) as faulty:
        stores = {"sound": SyntheticStore(sound.connect()), "faulty": SyntheticStore(faulty.connect())}
        add_fleet(stores["sound"], NODES)
        add_fleet(stores["sound"], 1, rates={0: 0.5}, parameters={"batch_size": 128})
        write_fleet(stores["sound"])
        _add_faults(stores["faulty"])
        yield stores
        for store in stores.values():
            store.connection.close()


def _add_faults(store: SyntheticStore) -> None:
    drivers = {number: {"driver_version": "550" if number == OLD else "580"} for number in range(NODES)}
    fleet = add_fleet(store, NODES, rates={CAPPED: 0.8, SLOW: 0.55}, sessions=drivers)
    store.rows["session_devices"][CAPPED]["power_limit_watts"] = 200.0
    for number, node in enumerate(fleet):
        add_link(store, node, 0, 8 if number == NARROW else 16)
    for second, errors in ((10, 0), (12, 3)):
        node = fleet[FAULTY]
        turn = 2 * FAULTY * 17
        row = {**node.at(turn + second), "utilization_percent": 90.0, "ecc_errors_uncorrected": errors}
        store.gpu_sample(row, node.gpus[0])
    add_ranks(store, gpus=8, slow=SLOW_RANK)
    readings = {fleet[CAPPED].gpus[0]: {"power_watts": 400.0}, fleet[SLOW].gpus[0]: {"sm_clock_mhz": 960.0}}
    write_fleet(store, lambda row: row.update(readings.get(row["device_id"], {})))


def figures_of(outliers: Outliers, unit: str) -> set[str]:
    return {finding.metric.name for finding in outliers.findings if finding.unit.name == unit}


def test_a_sound_fleet_has_no_outliers_and_other_parameters_are_another_kind(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["sound"].ask, Request())
    assert (outliers.findings, outliers.oddities) == ((), ())
    assert (outliers.units, outliers.lone) == (NODES, 1)
    assert answer(outliers).startswith("No node or GPU is shown to differ from its kind. Tested: ")


def test_every_seeded_fault_is_found_by_its_own_figures_and_nothing_else(stores: dict[str, SyntheticStore]) -> None:
    outliers = find_outliers(stores["faulty"].ask, Request())
    gpus = {finding.unit.name: finding.unit for finding in outliers.findings}
    capped, slow, waiting = sorted(gpus, key=lambda name: gpus[name].node_id)
    assert figures_of(outliers, capped) == {"throughput", "step_seconds", "gpu_power_watts"}
    assert figures_of(outliers, slow) == {"throughput", "step_seconds", "sm_clock_mhz"}
    # The others wait for a slow rank; it waits for nobody.
    assert figures_of(outliers, waiting) == {"exposed_communication_percent"}
    assert [name.split()[0] for name in (capped, slow, waiting)] == [f"node-{CAPPED}", f"node-{SLOW}", "dgx"]


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
