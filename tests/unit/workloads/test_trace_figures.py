"""What is read from a trace: intervals, figures, operations, stragglers."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.training.trace.figures import (
    LISTED,
    MAX_NAME_CHARACTERS,
    OTHERS,
    Activity,
    Collective,
    Operation,
    collectives,
    compute_figures,
    covered,
    covered_by_first_only,
    device_operations,
    integrate_capped,
    longest,
    merge,
    operators,
    parse_activities,
    read_activities,
    span_nano,
    wait_nano,
)

FIXTURE = Path(__file__).parents[2] / "fixtures" / "traces" / "overlapping_all_reduce.json"

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)
LEVELS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 1e9])))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
EVENTS = st.fixed_dictionaries(
    {"cat": st.sampled_from(["kernel", "gpu_memcpy", "cpu_op"])},
    optional={"ph": JSON, "name": JSON, "ts": JSON, "dur": JSON, "args": JSON},
)


def points(intervals: Sequence[tuple[int, int]]) -> set[int]:
    """The unit steps that the intervals cover."""
    return {point for begin, end in intervals for point in range(begin, end)}


def kernel(begin: int, end: int, name: str = "gemm") -> Activity:
    return Activity(kind="kernel", name=name, begin_nano=begin, end_nano=end)


@given(INTERVALS)
def test_a_union_covers_the_same_and_its_parts_lie_apart_in_order(intervals: list[tuple[int, int]]) -> None:
    union = merge(intervals)
    assert points(union) == points(intervals)
    assert covered(intervals) == len(points(intervals))
    assert all(before[1] < after[0] for before, after in pairwise(union))


@given(INTERVALS, INTERVALS)
def test_what_only_the_first_covers_is_left(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert covered_by_first_only(first, second) == len(points(first) - points(second))


@given(LEVELS)
def test_levels_add_up_at_each_instant_to_no_more_than_one(levels: list[tuple[int, int, float]]) -> None:
    by_hand = sum(
        min(1.0, sum(level for begin, end, level in levels if begin <= instant < end)) for instant in range(40)
    )
    assert integrate_capped(levels) == pytest.approx(by_hand, abs=1e-9)


def test_the_figures_of_a_trace_are_as_by_hand() -> None:
    figures = compute_figures(read_activities(FIXTURE), steps=2)
    # Copy 0-10, set 10-15, nothing, GEMM 20-60, all-reduce 50-110, two additions 60-80 and 110-120; in microseconds.
    assert figures.busy_seconds_per_step == pytest.approx(115e-6 / 2)
    assert figures.kernels_per_step == 2
    assert figures.memcpy_share == pytest.approx(100 * 10 / 115)
    assert figures.memset_share == pytest.approx(100 * 5 / 115)
    # Of 120: the GEMM fills all SMs for 40, then 0.7 of them for 20, 0.2 for 30; the last kernel's are not known.
    assert figures.sm_efficiency_percent == pytest.approx(100 * (40 + 0.7 * 20 + 0.2 * 30) / 120)
    assert figures.occupancy_percent == pytest.approx((40 * 50 + 60 * 5 + 20 * 25) / 120)
    assert figures.communication is not None
    assert figures.communication.share == pytest.approx(100 * 60 / 130)
    assert figures.communication.exposed_share == pytest.approx(100 * 30 / 120)
    assert figures.communication.overlap_share == pytest.approx(50)


def test_what_a_trace_does_not_have_is_absent() -> None:
    figures = compute_figures([kernel(0, 10), kernel(5, 20)], steps=1)
    assert figures.busy_seconds_per_step == pytest.approx(20e-9)
    assert (figures.memcpy_share, figures.memset_share) == (0, 0)
    assert (figures.sm_efficiency_percent, figures.occupancy_percent, figures.communication) == (None, None, None)


@pytest.mark.parametrize(
    "activities", [[], [replace(kernel(0, 10), kind="memcpy")], [kernel(3, 3), replace(kernel(0, 9), kind="memset")]]
)
def test_a_trace_without_kernels_has_no_figures(activities: list[Activity]) -> None:
    with pytest.raises(ValueError, match="no kernels"):
        compute_figures(activities, steps=1)


def test_activities_come_in_the_order_of_their_begin_whether_the_file_is_gzipped_or_not(tmp_path: Path) -> None:
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(FIXTURE.read_bytes()))
    activities = read_activities(FIXTURE)
    assert [activity.kind for activity in activities] == ["memcpy", "memset", "kernel", "kernel", "kernel", "kernel"]
    assert [activity.nano for activity in activities] == [10_000, 5_000, 40_000, 60_000, 20_000, 10_000]
    assert read_activities(zipped) == activities
    assert parse_activities(json.loads(FIXTURE.read_text())) == activities


ENDLESS = '{"traceEvents": [{"cat": "kernel", "name": "k", "ts": 1, "dur": Infinity}]}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": [{"cat": "kernel"}]}', ENDLESS]
)
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(ValueError, match=r"trace|Expecting"):
        read_activities(tmp_path / "trace.json")


@given(JSON | st.fixed_dictionaries({"traceEvents": JSON | st.lists(EVENTS | JSON)}))
def test_hostile_traces_give_activities_or_a_refusal_and_nothing_else(trace: object) -> None:
    try:
        activities = parse_activities(trace)
    except ValueError:
        return
    assert all(isinstance(activity, Activity) for activity in activities)


def test_the_longest_operations_are_listed_and_sums_are_of_all() -> None:
    activities = [kernel(0, 10 + number, f"kernel {number}") for number in range(LISTED + 20)]
    operations = device_operations([*activities, *activities, replace(kernel(0, 7), kind="memset")])
    kernels = [operation for operation in operations if operation.kind == "kernel"]
    assert len(kernels) == LISTED + 1
    assert (kernels[0].name, kernels[0].calls) == (f"kernel {LISTED + 19}", 2)
    assert (kernels[-1].name, kernels[-1].calls) == (OTHERS, 40)
    assert sum(operation.gpu_seconds or 0 for operation in kernels) == pytest.approx(
        2e-9 * sum(activity.nano for activity in activities)
    )
    assert [operation.name for operation in operations if operation.kind == "memset"] == ["gemm"]


@pytest.mark.parametrize(("on_gpu", "gpu"), [(True, (5.0, 4.0)), (False, (None, None))])
def test_times_of_operators_are_in_seconds(on_gpu: bool, gpu: tuple[float | None, float | None]) -> None:
    average = SimpleNamespace(
        key="aten::mm",
        count=2,
        cpu_time_total=3e6,
        self_cpu_time_total=2e6,
        device_time_total=5e6,
        self_device_time_total=4e6,
        device_type=SimpleNamespace(name="CPU"),
    )
    (found,) = operators([average], on_gpu=on_gpu)
    assert (found.cpu_seconds, found.cpu_self_seconds) == (3.0, 2.0)
    assert (found.gpu_seconds, found.gpu_self_seconds) == gpu


def test_operators_beyond_those_listed_have_only_times_that_can_be_added_up() -> None:
    many = [
        Operation(kind="operator", name=str(number), calls=1, cpu_seconds=9.0, cpu_self_seconds=0.5)
        for number in range(LISTED + 4)
    ]
    others = longest(many, lambda operator: operator.cpu_self_seconds or 0)[-1]
    assert (others.name, others.calls, others.cpu_self_seconds) == (OTHERS, 4, 2.0)
    assert (others.cpu_seconds, others.gpu_seconds, others.gpu_self_seconds) == (None, None, None)


def test_names_that_are_very_long_are_cut_and_those_with_the_same_beginning_counted_together() -> None:
    long_names = ["void at::native::" + "x" * 5_000 + end for end in ("", "y")]
    (operation,) = device_operations([kernel(0, 3, name) for name in long_names])
    assert (len(operation.name), operation.calls) == (MAX_NAME_CHARACTERS, 2)


def test_a_rank_waited_for_as_long_as_its_collectives_took_longer_than_those_of_the_last_to_come() -> None:
    ranks = [[("reduce", 100), ("gather", 30)], [("reduce", 70), ("gather", 50)], [("reduce", 80), ("gather", 30)]]
    assert [wait_nano(ranks, rank) for rank in range(3)] == [30, 20, 10]


@pytest.mark.parametrize(
    "ranks",
    [
        [[("reduce", 100)]],
        [[("reduce", 100)], None],
        [[], []],
        [[("reduce", 100)], [("reduce", 100), ("reduce", 5)]],
        [[("reduce", 100)], [("gather", 100)]],
    ],
)
def test_waits_are_absent_where_the_ranks_traces_do_not_match(ranks: Sequence[Sequence[Collective] | None]) -> None:
    assert wait_nano(ranks, 0) is None


def test_only_kernels_of_nccl_are_collectives() -> None:
    activities = read_activities(FIXTURE)
    ((name, nano),) = collectives(activities)
    assert name.startswith("ncclDevKernel_AllReduce")
    assert (nano, span_nano(activities)) == (60_000, 120_000)


def test_a_trace_that_an_h200_made_is_understood() -> None:
    """Three steps of a small network in batches of 64, torch 2.11; operators of the host were traced, too."""
    activities = read_activities(FIXTURE.with_name("h200_small_network.json"))
    figures = compute_figures(activities, steps=3)
    assert figures.kernels_per_step == 20
    assert figures.busy_seconds_per_step == pytest.approx(154.06e-6, abs=0.01e-6)
    assert figures.communication is None
    assert {activity.kind for activity in activities} == {"kernel", "memcpy", "memset"}
    # Hardly anything ran at a time: kernels of a few microseconds, each on a fraction of the 132 multiprocessors.
    assert figures.sm_efficiency_percent == pytest.approx(8.1, abs=0.01)
    assert figures.occupancy_percent == pytest.approx(26.62, abs=0.01)
