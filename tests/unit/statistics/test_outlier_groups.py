"""Groups of figures in which a far value matters, and those in which it does not."""

import pytest

from gpuagent_collector.answers.outliers import Group, Unit, _is_material, _test, is_either, is_worse
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.runs.arguments import identify_command
from gpuagent_collector.runs.like import LikeKey

KIND = LikeKey(
    workload="mnist",
    parameters="{}",
    platform=None,
    device=None,
    node_count=None,
    environment="bare",
    image=None,
    interference=None,
    limits=None,
    identity=identify_command(()),
    command=(),
)


def group(metric: str, *values: float) -> Group:
    units = [Unit(f"node-{number}", number) for number in range(len(values))]
    chosen = dict(zip(units, values, strict=True))
    return Group(kind=KIND, metric=BY_NAME[metric], values=chosen, runs=dict.fromkeys(units, 1))


def test_a_share_of_nothing_is_not_tested() -> None:
    assert list(_test(group("data_wait_percent", 0, 0, 0, 0, 0, 0, 0.05))) == []
    assert list(_test(group("throughput", 1, 1, 1, 1))) == []


@pytest.mark.parametrize(("far", "matters"), [(0.9, False), (9.0, True)])
def test_percentages_matter_by_points(far: float, matters: bool) -> None:
    *_, last = _test(group("data_wait_percent", 0.3, 0.31, 0.29, 0.3, 0.32, 0.28, far))
    assert last.change == pytest.approx(far / 0.3 - 1, rel=0.01)
    assert _is_material(last, 0.02) is matters


def test_only_the_worse_direction_of_a_metric_can_be_found() -> None:
    fast, slow = (list(_test(group("throughput", 100, 101, 99, 100, 102, 98, far)))[-1] for far in (200.0, 50.0))
    assert fast.q_value == 1.0
    assert slow.q_value < 1e-3
    assert not is_either(BY_NAME["throughput"])
    assert is_worse(BY_NAME["step_seconds"], above=True)
    assert is_either(BY_NAME["gpu_power_watts"])
    assert is_either(BY_NAME["sm_clock_mhz"])


def test_figures_that_may_be_zero_or_negative_are_compared_by_difference() -> None:
    *_, last = _test(group("data_wait_percent", 0, 10, 11, 9, 10.5, 9.5, 60))
    assert last.change == pytest.approx(5)
