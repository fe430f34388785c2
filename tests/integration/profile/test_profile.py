"""Operations of one run and of two side by side, on stores whose answers are known by hand."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpuagent_collector.answers.profile import Study, answer, answer_profile, find_caveats, study_profile
from gpuagent_collector.answers.profile_data import LaneTimes
from gpuagent_collector.present.answer import Answer
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.synthetic import Node, SyntheticStore
from tests.integration.profile.traced import add_traced, kernel, operator

pytestmark = pytest.mark.slow

SGEMM = "void implicit_convolve_sgemm<float, 1024>(int)"
NHWC = "void cudnn::nchwToNhwcKernel<float>(float*)"


def study(store: SyntheticStore, *values: str, by: str | None = None, workload: str | None = None) -> Study:
    return study_profile(store.ask, values=values, by=by, workload=workload, experiment=None)


def ask_profile(store: SyntheticStore, *values: str) -> Answer:
    asked: dict[str, Any] = {"by": None, "workload": None, "experiment": None, "each": None}
    return answer_profile(store.ask, top=5, values=values, **asked)


def table(found: Study, name: str) -> LaneTimes:
    return next(each for each in found.lanes if each.lane.name == name)


def differences(found: LaneTimes) -> list[tuple[str, float]]:
    """Return name and milliseconds of each row."""
    return [(row.name, round(1e3 * row.seconds, 6)) for row in found.rows]


def codes(found: Study) -> list[str]:
    return [caveat.code for caveat in find_caveats(found)]


@pytest.fixture
def node(store: SyntheticStore) -> Node:
    return store.node("spruce", "lab", gpus=["NVIDIA H200"])


@pytest.fixture
def two(store: SyntheticStore, node: Node) -> SyntheticStore:
    """Two runs: A launches one convolution, B another and one more copy."""
    copy = kernel("Memcpy HtoD", 0.2, kind="memcpy")
    steps = {"gpu_busy_seconds_per_step": 2.1e-3, "gpu_gap_seconds_per_step": 0.9e-3}
    add_traced(store, node, [kernel("add", 1.0), kernel(SGEMM, 0.9, calls=2), copy], results=steps)
    add_traced(store, node, [kernel("add", 1.3), kernel(NHWC, 2.1), copy])
    return store


def test_rows_are_sorted_by_what_they_differ(two: SyntheticStore) -> None:
    kernels = table(study(two, "run-0", "run-1"), "kernels")
    assert differences(kernels) == [(NHWC, 2.1), (SGEMM, -0.9), ("add", 0.3)]
    assert [row.only_on for row in kernels.rows] == [1, 0, None]
    assert list(kernels.totals) == pytest.approx([1.9e-3, 3.4e-3])
    assert kernels.difference == pytest.approx(1.5e-3)
    first, second = kernels.rows[1].amounts
    assert first
    assert second is None
    assert first.calls == 2
    assert first.share_percent == pytest.approx(100 * 0.9 / 1.9)


def test_the_answer_has_the_difference_its_parts_and_the_kernels_of_one_side(two: SyntheticStore) -> None:
    assert answer(study(two, "run-0", "run-1")) == (
        "A step of B takes 1.50 ms longer on the GPU than one of A (3.60 and 2.10 ms): "
        "2.10 ms more in cudnn::nchwToNhwcKernel<…>, which A does not launch; "
        "900 µs less in implicit_convolve_sgemm<…>, which B does not launch; 300 µs more in add. "
        "Kernels: 1 launched by A alone (900 µs per step), 1 launched by B alone (2.10 ms per step). "
        "The GPU was busy for 2.10 and idle for 0.900 ms of a measured step of A."
    )
    assert "1.50 ms less" in answer(study(two, "run-1", "run-0"))


def test_steps_of_equal_length_are_called_equal(store: SyntheticStore, node: Node) -> None:
    for milliseconds in (1.11, 1.12):
        add_traced(store, node, [kernel("add", milliseconds)])
    assert answer(study(store, "run-0", "run-1")) == (
        "A step of B takes as long on the GPU as one of A, to within 1 % (1.12 and 1.11 ms). "
        "Both launch the same kernels."
    )


def test_one_run_alone_lists_what_took_longest(two: SyntheticStore) -> None:
    found = study(two, "run-1")
    assert answer(found) == (
        "A step takes 3.60 ms on the GPU: 2.10 ms (58.3 %) in cudnn::nchwToNhwcKernel<…>; 1.30 ms (36.1 %) in add; "
        "200 µs (5.56 %) in Memcpy HtoD."
    )
    assert differences(table(found, "kernels")) == [(NHWC, 2.1), ("add", 1.3)]
    assert codes(found) == []


def test_operators_of_a_cpu_are_compared_by_their_own_time_on_the_host(store: SyntheticStore) -> None:
    node = store.node("oak", "laptop")
    for milliseconds in (3.21, 5.55):
        add_traced(store, node, [operator("aten::mm", milliseconds), operator("aten::add", 1.11)])
    found = study(store, "run-0", "run-1")
    assert [each.lane.name for each in found.lanes] == ["operators_host"]
    assert answer(found) == (
        "A step of B takes 2.34 ms longer in operators than one of A (6.66 and 4.32 ms): 2.34 ms more in aten::mm."
    )


def test_operators_on_a_gpu_have_a_table_of_what_they_launched_themselves(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [kernel("add", 1.0), operator("aten::add", 0.1, 1.0), operator("aten::view", 0.2, 0.0)])
    found = study(store, "run-0")
    assert [each.lane.name for each in found.lanes] == ["kernels", "operators_gpu", "operators_host"]
    assert differences(table(found, "operators_gpu")) == [("aten::add", 1.0)]
    assert differences(table(found, "operators_host")) == [("aten::view", 0.2), ("aten::add", 0.1)]


def test_ranks_are_averaged(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [kernel("add", 1.0)], ranks=2)
    store.rows["op_times"].append({**store.rows["op_times"][0], "name": "only on rank 0"})
    assert differences(table(study(store, "run-0"), "kernels")) == [("add", 1.0), ("only on rank 0", 0.5)]


def test_an_operation_that_may_be_among_the_others_is_not_called_missing(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [kernel("add", 1.0), kernel("(others)", 0.5)])
    add_traced(store, node, [kernel("add", 1.0), kernel("mul", 0.4)])
    found = study(store, "run-0", "run-1")
    told = answer(found)
    assert "400 µs more in mul" in told
    assert "500 µs less in kernels" in told
    assert "kernels: 1 launched" in told
    assert codes(found) == ["one_run", "not_listed"]


def test_a_trace_of_one_side_only_is_reported(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [operator("aten::mm", 3.0)])
    add_traced(store, node, [kernel("add", 1.0)])
    found = study(store, "run-0", "run-1")
    assert "has no data" in answer(found)
    assert codes(found) == ["one_run", "one_sided"]


def test_in_what_the_runs_differ_is_listed(store: SyntheticStore, node: Node) -> None:
    for environment, version in (("bare", "9.1"), ("docker", "9.2")):
        texts = {"cudnn_version": version, "torch_version": "2.13"}
        add_traced(store, node, [kernel("add", 1.0)], environment=environment, texts=texts)
    differing = {row.title: row.values for row in study(store, "run-0", "run-1").differing}
    assert differing == {"Environment": (("bare",), ("docker",)), "cuDNN version": (("9.1",), ("9.2",))}


def test_other_parameters_are_other_work(store: SyntheticStore, node: Node) -> None:
    for batch in (32, 64):
        add_traced(store, node, [kernel("add", 1.0)], parameters={"batch_size": batch})
    found = study(store, "run-0", "run-1")
    assert found.differing_settings == ("batch_size",)
    assert codes(found) == ["settings_differ", "one_run"]


def test_a_value_of_a_facet_selects_its_median_run_by_throughput(store: SyntheticStore, node: Node) -> None:
    for environment in ("bare", "docker"):
        for throughput in (30.0, 10.0, 20.0):
            add_traced(store, node, [kernel("add", 1.0)], environment=environment, throughput=throughput)
    found = study(store, "bare", "docker", by="environment")
    assert [(side.name, side.run.run_id, side.runs) for side in found.sides] == [
        ("bare", "run-2", 3),
        ("docker", "run-5", 3),
    ]
    alone = study(store, "docker", by="environment")
    assert [side.run.run_id for side in alone.sides] == ["run-5"]


def test_only_runs_that_agree_in_all_else_are_compared(store: SyntheticStore, node: Node) -> None:
    for environment, batch in (("bare", 32), ("bare", 64), ("bare", 64), ("docker", 32), ("docker", 64)):
        add_traced(store, node, [kernel("add", 1.0)], environment=environment, parameters={"batch_size": batch})
    found = study(store, "bare", "docker", by="environment")
    assert [(side.run.run_id, side.runs) for side in found.sides] == [("run-1", 2), ("run-4", 1)]
    assert found.differing_settings == ()
    assert codes(found) == ["one_run", "other_settings"]


def test_runs_without_a_trace_are_passed_over_where_others_have_one(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [kernel("add", 1.0)], throughput=10.0)
    store.run("untraced", node, start_seconds=500, throughput=20.0)
    assert study(store, "lab", by="platform").sides[0].run.run_id == "run-0"


def test_platforms_need_no_facet(store: SyntheticStore, node: Node) -> None:
    add_traced(store, node, [kernel("add", 1.0)])
    assert study(store, "lab").sides[0].name == "lab"


def test_one_of_several_workloads_has_to_be_named(store: SyntheticStore, node: Node) -> None:
    for workload in ("mnist", "gpt"):
        add_traced(store, node, [kernel("add", 1.0)], workload=workload)
    with pytest.raises(MisuseError, match="--workload: gpt, mnist"):
        study(store, "lab", by="platform")


def test_without_a_name_the_newest_run_with_a_trace_is_shown(store: SyntheticStore, node: Node) -> None:
    store.next_run(node)
    with pytest.raises(GpuAgentError, match="no run has a trace"):
        ask_profile(store)
    add_traced(store, node, [kernel("gemm", 4.0)])
    traced = store.rows["op_times"][0]["run_id"]
    store.next_run(node)
    assert ask_profile(store).heading == f"Profile: {traced}"


def test_a_workload_in_place_of_a_run_is_its_newest_run_with_a_trace(store: SyntheticStore, node: Node) -> None:
    store.next_run(node)
    with pytest.raises(GpuAgentError, match=r"no run of mnist has a trace: .*`gpuagent run WORKLOAD --profile`"):
        study(store, "mnist")
    add_traced(store, node, [kernel("gemm", 4.0)])
    traced = store.rows["op_times"][0]["run_id"]
    store.next_run(node)
    assert [side.run.run_id for side in study(store, "mnist").sides] == [traced]
    with pytest.raises(MisuseError, match="two different ones"):  # and not the run beside itself
        study(store, "mnist", traced)


def test_the_newest_of_several_runs_has_its_settings_and_another_beside_it(store: SyntheticStore, node: Node) -> None:
    for precision, batch in (("fp32", 32), ("bf16", 64), ("tf32", 64)):
        add_traced(store, node, [kernel("gemm", 4.0)], parameters={"precision": precision, "batch_size": batch})
    for values in ((), ("mnist",)):
        found = ask_profile(store, *values)
        assert found.heading == "Profile: run-2, the newest of 3 traced runs"
        assert found.text.startswith("A step of mnist with --batch-size 64, --precision tf32 takes")
        assert found.next == "collector profile run-2 run-1"
    named = ask_profile(store, "run-2")
    assert named.heading == "Profile: run-2"
    assert "--precision tf32" in named.text
    assert named.next
    assert named.next.startswith("collector trace run-2")


@pytest.mark.parametrize(
    ("first", "second", "following"),
    [
        ({}, {}, "--by run run-0 run-1"),
        ({"parameters": {"precision": "tf32"}}, {}, "--workload mnist --by parameter:precision,parameter:batch_size"),
        ({"command": '["a.py", "-x"]'}, {"command": '["a.py"]'}, "--workload mnist --by command"),
        ({"workload": "gpt"}, {}, "--by workload gpt mnist"),
    ],
)
def test_what_follows_two_runs_compares_that_in_which_they_differ(
    store: SyntheticStore, node: Node, first: Mapping[str, Any], second: Mapping[str, Any], following: str
) -> None:
    for run in (first, second):
        own: dict[str, Any] = {"parameters": {}} if "command" in run else {}
        add_traced(store, node, [kernel("gemm", 4.0)], **{**own, **run})
    found = ask_profile(store, "run-0", "run-1")
    assert found.heading == "Profile: A run-0 · B run-1"
    assert found.next == f"collector compare {following}"


def test_a_program_of_the_users_own_is_told_that_it_is_not_traced(store: SyntheticStore, node: Node) -> None:
    store.run("own", node, start_seconds=0, workload="gpt.py", parameters={}, command='["python3", "gpt.py"]')
    for name in ("gpt.py", "own"):
        with pytest.raises(GpuAgentError, match="only built-in workloads"):
            study(store, name)


def test_a_run_without_a_trace_says_why_or_how_to_get_one(store: SyntheticStore, node: Node) -> None:
    store.run("untraced", node, start_seconds=0)
    with pytest.raises(GpuAgentError, match=r"run untraced has .*`gpuagent run WORKLOAD --profile`"):
        study(store, "untraced")
    with pytest.raises(GpuAgentError, match="platform lab that"):
        study(store, "lab", by="platform")
    store.run("failed", node, start_seconds=100, texts={"trace_failed": "CUPTI is missing"})
    with pytest.raises(GpuAgentError, match="CUPTI is missing"):
        study(store, "failed")
