"""How steady a run was, and what each GPU brought, on both kinds of store."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.synthetic import EPOCH, SETUP_SECONDS, WARMUP_SECONDS, SyntheticStore

MEASURE_BEGIN = EPOCH + timedelta(seconds=SETUP_SECONDS + WARMUP_SECONDS)


def metrics(store: SyntheticStore) -> dict[str, float]:
    store.write()
    return {row["metric"]: row["value"] for row in store.ask("SELECT metric, value FROM metrics")}


def put_steps(store: SyntheticStore, rank: int, wall_seconds: Sequence[float], gpu_seconds: float | None) -> None:
    """Put in the measured steps of a rank."""
    for number, seconds in enumerate(wall_seconds):
        time = MEASURE_BEGIN + timedelta(seconds=number / 100)
        step = {"step": number, "phase": "measure", "wall_seconds": seconds, "gpu_seconds": gpu_seconds, "items": 1.0}
        store.rows["steps"].append({"run_id": "run-1", "rank": rank, "time": time, **step})


def test_a_step_in_ten_that_takes_three_times_as_long_shows_in_the_least_steady_rank(any_store: SyntheticStore) -> None:
    any_store.run("run-1", any_store.node("spruce", "laptop"), start_seconds=0)
    any_store.rows["steps"].clear()
    put_steps(any_store, 0, [0.1] * 100, None)
    put_steps(any_store, 1, [0.1] * 90 + [0.3] * 10, None)
    assert metrics(any_store)["step_p95_over_p50"] == pytest.approx(3, rel=0.01)


def test_handing_steps_over_in_bursts_is_not_unsteady_where_the_gpus_own_times_are_known(store: SyntheticStore) -> None:
    store.run("run-1", store.node("spruce", "laptop"), start_seconds=0)
    store.rows["steps"].clear()
    put_steps(store, 0, [0.001] * 90 + [0.9] * 10, 0.1)
    assert metrics(store)["step_p95_over_p50"] == pytest.approx(1)


def test_utilisation_that_swings_has_a_spread_and_steady_one_has_none(any_store: SyntheticStore) -> None:
    node = any_store.node("spruce", "laptop", gpus=["NVIDIA L4"])
    any_store.run("run-1", node, start_seconds=0)
    for sample, percent in zip(any_store.rows["gpu_samples"], _swinging(), strict=False):
        sample["utilization_percent"] = percent
    assert metrics(any_store)["gpu_utilization_spread_percent"] == pytest.approx(60, abs=1)


def _swinging() -> Iterator[float]:
    while True:
        yield from (20.0, 80.0)


def test_throughput_of_all_ranks_is_divided_among_the_gpus(any_store: SyntheticStore) -> None:
    node = any_store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 4)
    add_ranked(any_store, node, 4, 1000.0)
    assert metrics(any_store)["items_per_gpu_second"] == pytest.approx(250)


def test_a_run_without_gpu_has_no_figure_by_gpu(store: SyntheticStore) -> None:
    store.run("run-1", store.node("spruce", "laptop"), start_seconds=0)
    assert not {"items_per_gpu_second", "gpu_utilization_spread_percent"} & metrics(store).keys()
