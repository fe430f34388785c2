"""The energy of a run's GPUs: power over the measured phase, on both kinds of store."""

import math
from datetime import timedelta

import pytest

from tests.integration.compare.synthetic import EPOCH, MEASURE_SECONDS, SETUP_SECONDS, WARMUP_SECONDS, SyntheticStore

BEGIN_SECONDS = SETUP_SECONDS + WARMUP_SECONDS
"""Of the measured phase, after the begin of the run."""

POLLED_JOULES = 150 * MEASURE_SECONDS


def energy(store: SyntheticStore) -> float | None:
    store.write()
    rows = store.ask("SELECT value FROM metrics WHERE metric = 'gpu_energy_joules'")
    return rows[0]["value"] if rows else None


def run_with_power(store: SyntheticStore, readings: dict[float, float]) -> None:
    """Add a run whose GPU's driver kept these readings: seconds after the begin of the run → watts."""
    node = store.node("spruce", "laptop", gpus=["NVIDIA L4"])
    store.run("run-1", node, start_seconds=0)
    at = {"session_id": node.session_id, "node_id": node.node_id, "device_id": node.gpus[0]}
    store.rows["power_samples"] += [
        {**at, "time": EPOCH + timedelta(seconds=seconds), "power_watts": watts} for seconds, watts in readings.items()
    ]


def test_polled_power_is_integrated_and_added_up_over_gpus(any_store: SyntheticStore) -> None:
    node = any_store.node("spruce", "laptop", gpus=["NVIDIA L4"] * 2)
    any_store.run("run-1", node, start_seconds=0)
    assert energy(any_store) == pytest.approx(2 * POLLED_JOULES)


def test_the_drivers_own_readings_are_preferred_and_cut_at_the_ends_of_the_phase(any_store: SyntheticStore) -> None:
    # Rises by 10 W a second: 100 W when the phase begins. The readings lie across both of its ends.
    readings = {BEGIN_SECONDS - 0.5 + step: 95.0 + 10 * step for step in range(MEASURE_SECONDS + 2)}
    run_with_power(any_store, readings)
    mean_watts = 100 + 10 * MEASURE_SECONDS / 2
    assert energy(any_store) == pytest.approx(mean_watts * MEASURE_SECONDS)


def test_a_sine_that_the_driver_saw_every_20_ms_has_the_energy_of_its_mean(store: SyntheticStore) -> None:
    seconds = [BEGIN_SECONDS - 1 + 0.02 * tick for tick in range(50 * (MEASURE_SECONDS + 2))]
    run_with_power(store, {at: 300 + 100 * math.sin(2 * math.pi * (at - BEGIN_SECONDS)) for at in seconds})
    assert energy(store) == pytest.approx(300 * MEASURE_SECONDS, rel=1e-4)


def test_where_the_drivers_readings_have_a_hole_the_polled_ones_stand_in(store: SyntheticStore) -> None:
    readings = {BEGIN_SECONDS - 1.0: 400.0, BEGIN_SECONDS + 1.0: 400.0, BEGIN_SECONDS + MEASURE_SECONDS + 1.0: 400.0}
    run_with_power(store, readings)
    assert energy(store) == pytest.approx(POLLED_JOULES)


def test_without_power_there_is_no_energy(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop", gpus=["NVIDIA L4"])
    store.run("run-1", node, start_seconds=0)
    for row in store.rows["gpu_samples"]:
        row["power_watts"] = None
    assert energy(store) is None
