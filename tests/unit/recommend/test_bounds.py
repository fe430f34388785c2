"""What bounds a workload: which figures show it, and which do not."""

import pytest

from gpuagent_collector.metrics.bounds import Limit, Surroundings, find_bounds, find_traced
from gpuagent_collector.recommend.bottlenecks import Reasons, why
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.facets import find_facet

NOWHERE = Surroundings()
PLATFORMS = Layout(facet=find_facet("platform"), sides=tuple("abcdef"), blocks=(), left_out=())


def shown(metrics: dict[str, float], surroundings: Surroundings = NOWHERE) -> set[Limit]:
    return {bound.limit for bound in find_bounds(metrics, surroundings) if bound.is_shown}


def percent(limit: Limit, metrics: dict[str, float], surroundings: Surroundings = NOWHERE) -> float | None:
    (bound,) = (bound for bound in find_bounds(metrics, surroundings) if bound.limit is limit)
    return bound.percent


def test_every_limit_is_listed_once_and_without_figures_none_is_shown() -> None:
    bounds = find_bounds({}, NOWHERE)
    assert [bound.limit for bound in bounds] == list(Limit)
    assert {(bound.percent, bound.is_shown) for bound in bounds} == {(None, False)}


@pytest.mark.parametrize(
    ("metrics", "limit"),
    [
        ({"gpus": 1, "gpu_busy_percent": 20}, Limit.LAUNCH),
        ({"gpus": 1, "gpu_busy_percent": 20, "data_wait_percent": 10}, Limit.LAUNCH),
        ({"gpus": 1, "gpu_busy_percent": 20, "data_wait_percent": 75}, Limit.DATA),
        ({"gpus": 1, "gpu_utilization_percent": 20, "data_wait_percent": 75}, Limit.DATA),
        ({"gpus": 1, "tensor_active_percent": 65, "fp32_active_percent": 5}, Limit.COMPUTE),
        ({"gpus": 1, "tensor_active_percent": 5, "fp32_active_percent": 65}, Limit.COMPUTE),
        ({"gpus": 1, "mfu_percent": 61}, Limit.COMPUTE),
        ({"gpus": 1, "dram_active_percent": 60}, Limit.MEMORY),
        ({"gpus": 2, "exposed_communication_percent": 34}, Limit.COMMUNICATION),
    ],
)
def test_a_figure_above_its_threshold_shows_its_limit_and_no_other(metrics: dict[str, float], limit: Limit) -> None:
    assert shown(metrics) == {limit}


@pytest.mark.parametrize(
    "metrics",
    [
        {"gpus": 1, "gpu_busy_percent": 70},
        # Waiting explains the gap, but a third of the time is not reached by either.
        {"gpus": 1, "gpu_busy_percent": 60, "data_wait_percent": 20},
        # The host waits while the GPU still has work.
        {"gpus": 1, "gpu_busy_percent": 99, "data_wait_percent": 90},
        {"gpus": 1, "data_wait_percent": 90},
        {"gpus": 1, "gpu_busy_percent": 99, "cpu_percent": 100},
        {"gpus": 1, "cpu_percent": 100},
        # Others may use the node's CPU.
        {"gpus": 1, "gpu_utilization_percent": 20, "cpu_percent": 95},
        {"cpu_percent": 95},
        # Idle by what is polled does not tell what the GPU waited for.
        {"gpus": 1, "gpu_utilization_percent": 10},
        {"gpus": 1, "tensor_active_percent": 59, "fp32_active_percent": 40, "mfu_percent": 30},
        {"gpus": 1, "dram_active_percent": 59},
        {"gpus": 2, "exposed_communication_percent": 33},
    ],
    ids=str,
)
def test_nothing_else_shows_a_limit(metrics: dict[str, float]) -> None:
    assert shown(metrics) == set()


def test_launches_are_what_waits_for_data_leave_of_the_idle_time() -> None:
    assert percent(Limit.LAUNCH, {"gpu_busy_percent": 20, "data_wait_percent": 30}) == 50
    for metrics in ({"gpu_busy_percent": 20.0}, {"gpu_busy_percent": 20.0, "data_wait_percent": 30.0}):
        (bound,) = (bound for bound in find_bounds(metrics, NOWHERE) if bound.limit is Limit.LAUNCH)
        assert ("waits" in bound.sign) == ("data_wait_percent" in metrics)
    assert percent(Limit.LAUNCH, {"gpu_busy_percent": 90, "data_wait_percent": 30}) == 0


def test_a_container_that_uses_up_its_cores_is_bound_by_them_though_its_node_is_idle() -> None:
    metrics = {"gpus": 1, "gpu_busy_percent": 30, "data_wait_percent": 0, "cpu_percent": 5, "process_cpu_cores": 3.8}
    assert Limit.HOST not in shown(metrics)
    assert Limit.HOST in shown(metrics, Surroundings(cpu_limit_cores=4))
    assert percent(Limit.HOST, metrics, Surroundings(cpu_limit_cores=4)) == pytest.approx(95)
    assert shown({"process_cpu_cores": 3.8}, Surroundings(cpu_limit_cores=4)) == {Limit.HOST}


def test_a_run_that_uses_little_of_a_busy_node_is_not_bound_by_it() -> None:
    metrics = {"process_cpu_cores": 0.44, "cpu_percent": 100}
    assert shown(metrics, Surroundings(cpu_limit_cores=2)) == set()
    assert percent(Limit.HOST, metrics, Surroundings(cpu_limit_cores=2)) == pytest.approx(22)


def test_the_roofs_that_were_measured_count_as_the_pipes_do() -> None:
    near = Surroundings(compute_roof_percent=80, memory_roof_percent=70)
    assert shown({"gpus": 1, "mfu_percent": 40, "dram_active_percent": 50}, near) == {Limit.COMPUTE, Limit.MEMORY}
    (compute,) = (bound for bound in find_bounds({"mfu_percent": 40}, near) if bound.limit is Limit.COMPUTE)
    assert (compute.sign, compute.percent) == ("FLOPs, of the measured peak", 80)


@pytest.mark.parametrize(
    ("metrics", "idle"),
    [
        ({"gpus": 1, "gpu_utilization_percent": 20, "data_wait_percent": 30}, 50),
        ({"gpus": 1, "gpu_utilization_percent": 90, "data_wait_percent": 30}, 0),
        ({"gpus": 1, "gpu_utilization_percent": 20}, 80),
        ({"gpus": 1, "gpu_utilization_percent": 20, "gpu_busy_percent": 40}, None),
        # The node's GPU is not the run's.
        ({"gpu_utilization_percent": 0}, None),
    ],
)
def test_idle_samples_without_a_trace_are_known_but_show_no_launches(
    metrics: dict[str, float], idle: float | None
) -> None:
    (bound,) = (bound for bound in find_bounds(metrics, NOWHERE) if bound.limit is Limit.LAUNCH)
    assert (bound.idle_percent, bound.percent is None) == (idle, "gpu_busy_percent" not in metrics)
    assert bound.is_shown == ("gpu_busy_percent" in metrics)


def test_what_the_gpu_does_is_named_where_no_bottleneck_is_shown() -> None:
    waits = {"a": 75.0, "b": 10.0, "c": 65.0}
    sides = {
        side: {"gpus": 1, "gpu_utilization_percent": 20, "data_wait_percent": wait} for side, wait in waits.items()
    }
    units = {"mfu_percent": 30, "dram_active_percent": 20, "kernel_seconds_per_step": 0.1}
    sides["d"] = {"gpus": 1, "gpu_utilization_percent": 70, "data_wait_percent": 0}
    sides["e"] = {**sides["d"], **units, "data_wait_percent": 20}
    reasons = [
        Reasons(side=side, bounds=find_bounds(metrics, NOWHERE), traced=find_traced({f"run-{side}": metrics}))
        for side, metrics in sides.items()
    ]
    bottleneck, waiting, busy, profile, unknown = why(reasons, PLATFORMS)
    assert "data (75 %) on a and data (65 %) on c" in bottleneck
    assert "(70 % on b)" in waiting
    assert "(70 % on e)" in busy
    assert "`collector profile run-e`" in profile
    assert "on d" in unknown
    brief = Reasons(side="f", bounds=find_bounds({}, NOWHERE), short_seconds=2.0)
    (*_, unknown, brevity) = why([*reasons, brief], PLATFORMS)
    assert "of f is unknown, measured for 2 s: run for 10 s" in brevity
    assert "on d" in unknown
    (profile,) = [said for said in why(reasons[:4], PLATFORMS) if "kernels" in said]
    assert "docs/your-program.md" in profile
