import os
from pathlib import Path

import pytest

from gpuagent.runs.catalogue import Catalogue, parse_list
from gpuagent.runs.planning import Planner
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import Limits
from gpuagent_proto.v1.run_pb2 import CpuChange as ProtoChange
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.parts import FixedCatalogue

LIST = [
    {
        "name": "train",
        "kind": "training",
        "summary": "Trains.",
        "parameters": [
            {"name": "batch-size", "type": "int", "default": 64, "help": "Samples a step.", "minimum": 1},
            {"name": "load", "type": "float", "default": 1.5, "help": "Load.", "minimum": 0.5, "maximum": 2},
            {"name": "device", "type": "choice", "default": "auto", "help": "Where.", "choices": ["auto", "cpu"]},
            {"name": "compile", "type": "bool", "default": False, "help": "Compile."},
            {"name": "data", "type": "path", "default": "synthetic", "help": "Where the data is."},
        ],
    },
    {"name": "burn", "kind": "interference", "summary": "Burns.", "parameters": []},
]


def planner(*, allow_commands: bool = False) -> Planner:
    return Planner(FixedCatalogue(LIST), allow_commands=allow_commands)


def test_each_repeat_is_a_run_of_its_own_with_all_parameters() -> None:
    plans = planner().plan(RunSpec(workload="train", parameters={"batch_size": "8"}, repeats=2, first_repeat=3))
    assert [plan.repeat for plan in plans] == [3, 4]
    assert len({plan.run_id for plan in plans}) == 2
    assert len({plan.experiment for plan in plans}) == 1
    assert plans[0].parameters == {
        "batch-size": 8,
        "load": 1.5,
        "device": "auto",
        "compile": False,
        "data": "synthetic",
    }
    assert plans[0].program == ("python3", "-m", "gpuagent_workloads", "run", "train", "--param", "batch_size=8")
    assert plans[0].required_results == ("throughput",)


def test_any_command_is_a_workload_named_after_its_program() -> None:
    (plan,) = planner().plan(RunSpec(command=["/usr/bin/python3.11", "train.py"]))
    assert (plan.workload, plan.program, plan.required_results) == (
        "python3.11",
        ("/usr/bin/python3.11", "train.py"),
        (),
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RunSpec(), "either a workload or a command"),
        (RunSpec(workload="train", command=["x"]), "either a workload or a command"),
        (RunSpec(workload="trian"), "did you mean 'train'"),
        (RunSpec(workload="train", parameters={"batchsize": "1"}), "did you mean 'batch-size'"),
        (RunSpec(workload="train", parameters={"batch-size": "many"}), "of type int"),
        (RunSpec(workload="train", parameters={"batch-size": "-5"}), "'batch-size' must be at least 1, not '-5'"),
        (RunSpec(workload="train", parameters={"load": "3"}), "'load' must be at least 0.5 and at most 2, not '3'"),
        (RunSpec(workload="train", parameters={"load": "nan"}), "'load' must be at least 0.5"),
        (RunSpec(workload="train", parameters={"device": "tpu"}), "one of auto, cpu"),
        (RunSpec(workload="train", parameters={"compile": "perhaps"}), "of type bool"),
        (RunSpec(workload="train", interference=["train"]), "--with takes: burn"),
        (RunSpec(workload="train", environment="dokcer"), "unknown environment"),
        (RunSpec(workload="train", image="x"), "no images"),
        (RunSpec(command=["x"], parameters={"a": "1"}), "--param"),
        (RunSpec(command=[""]), "empty"),
        (RunSpec(command=["x", "\0"]), "NUL"),
        (RunSpec(workload="train", repeats=1_000_000), "at most"),
        (RunSpec(workload="train", timeout_seconds=-1), "timeout"),
        (RunSpec(workload="train", timeout_seconds=float("nan")), "timeout"),
        (RunSpec(workload="train", timeout_seconds=1e300), "timeout"),
        (RunSpec(workload="train", interference=["burn", "burn"]), "only once"),
        (RunSpec(workload="train", cpus=-1), "cpus must be"),
        (RunSpec(workload="train", cpus=float("nan")), "cpus must be"),
        (RunSpec(workload="train", cpus=1e6), "too many"),
        (RunSpec(workload="train", cpus=0.5), "bare gives whole CPUs only"),
        (RunSpec(workload="train", memory_bytes=1), "bare cannot limit memory"),
        (RunSpec(workload="train", cpu_changes=[ProtoChange(cpus=1, after_seconds=1)]), "bare cannot change the CPUs"),
        (RunSpec(workload="train", cpu_changes=[ProtoChange(cpus=1, after_seconds=-1)]), "must have increasing times"),
    ],
)
def test_an_invalid_request_is_refused_with_a_reason(spec: RunSpec, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        planner().plan(spec)


@pytest.mark.parametrize(
    "spec", [RunSpec(command=["bare"]), RunSpec(workload="train", environment="charliecloud", image="/image")]
)
def test_only_the_owner_may_run_commands_unless_allowed(spec: RunSpec) -> None:
    with pytest.raises(GpuAgentError, match="--allow-commands"):
        planner().plan(spec, from_owner=False)


def test_others_may_run_commands_if_the_owner_allows_it() -> None:
    (plan,) = planner(allow_commands=True).plan(RunSpec(command=["true"]), from_owner=False)
    assert plan.variables is os.environ


def test_a_run_has_its_limits_and_its_interference_has_none(tmp_path: Path) -> None:
    (plan,) = planner().plan(RunSpec(workload="train", cpus=1, interference=["burn"]))
    assert plan.job(tmp_path).limits == Limits(cpus=1)
    beside = plan.job_beside(plan.interference[0], tmp_path)
    assert (beside.run_id, beside.limits) == (f"{plan.run_id}-with-burn", Limits())


def test_a_run_has_the_data_that_its_parameters_name(tmp_path: Path) -> None:
    (plan,) = planner().plan(RunSpec(workload="train", parameters={"data": str(tmp_path)}))
    assert plan.data == (tmp_path,)
    (plan,) = planner().plan(RunSpec(workload="train"))
    assert plan.data == ()


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[{"name": "x"}]', "null"])
def test_an_unreadable_list_of_workloads_is_an_error(text: str) -> None:
    with pytest.raises(GpuAgentError, match="cannot be read"):
        parse_list(text)


def test_a_python_without_workloads_is_an_error_with_a_remedy(tmp_path: object) -> None:
    with pytest.raises(GpuAgentError, match="--python"):
        Catalogue("/missing/python").workloads()
