import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuagent.cli.spec import first_host, join_nodes
from gpuagent.environments.environment import Elsewhere, Home
from gpuagent.runs.catalogue import Catalogue, parse_list
from gpuagent.runs.planning import PlannedRun, Planner, make_job, read_plan
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import is_invited
from gpuagent_common.limits import Limits
from gpuagent_common.own_module import module_command, shown_command
from gpuagent_proto.v1.run_pb2 import CpuChange as ProtoChange
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.parts import FixedCatalogue

LIST: list[dict[str, object]] = [
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
    assert [plan.asked.first_repeat for plan in plans] == [3, 4]
    assert len({plan.run_id for plan in plans}) == 2
    assert len({plan.asked.experiment for plan in plans}) == 1
    defaults = {"load": 1.5, "device": "auto", "compile": False, "data": "synthetic"}
    assert plans[0].parameters == {"batch-size": 8, **defaults}
    start = module_command("python3", "gpuagent_workloads")
    assert plans[0].job.program == [*start, "run", "train", "--param", "batch_size=8"]
    assert shown_command(plans[0].job.program)[:3] == ["python3", "-m", "gpuagent_workloads"]
    assert plans[0].required_results == ["throughput"]


def test_a_run_that_is_made_in_a_pod_is_the_same_there_but_for_what_its_asker_sees_to(tmp_path: Path) -> None:
    spec = RunSpec(command=["train"], labels={"rack": "7"}, interference=["burn"], nodes=2, job="secret", cpus=1)
    spec.MergeFrom(RunSpec(pattern="step {step} loss {loss}", items_per_step=4, observe=True, timeout_seconds=9.5))
    (plan,) = planner().plan(spec)
    home = Home(collector="c:1", token_file=tmp_path, tls=None, platform="p", rate_hz=1)
    away = replace(plan, job=replace(plan.job, elsewhere=Elsewhere(reason="", user=None, home=home)))
    sent = away.job_in(tmp_path).elsewhere
    assert sent
    there = read_plan(json.loads(json.dumps(sent.plan)), plan.environment)
    assert not there.asked.job
    there.asked.job = "secret"
    assert replace(there, job=replace(there.job, image=None, variables=plan.job.variables)) == plan


@pytest.mark.parametrize(("name", "workload"), [("", "train.py"), ("nanogpt", "nanogpt")])
def test_any_command_is_a_workload_named_by_the_user_or_after_its_script(name: str, workload: str) -> None:
    (plan,) = planner().plan(RunSpec(command=["/usr/bin/python3.11", "train.py"], name=name))
    assert (plan.workload, plan.job.program) == (workload, ["/usr/bin/python3.11", "train.py"])
    assert not plan.required_results
    assert plan.run_id.startswith(f"{workload}-")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RunSpec(), "either a workload or a command"),
        (RunSpec(workload="train", command=["x"]), "either a workload or a command"),
        (RunSpec(workload="trian"), "did you mean 'train'"),
        (RunSpec(workload="train", parameters={"batchsize": "1"}), "did you mean 'batch-size'"),
        (RunSpec(workload="train", parameters={"zzz": "1"}), "has no parameter 'zzz'; see: gpuagent workloads train"),
        (RunSpec(workload="zzz"), "unknown workload 'zzz'; see: gpuagent workloads"),
        (RunSpec(workload="train", parameters={"batch-size": "many"}), "of type int"),
        (RunSpec(workload="train", parameters={"batch-size": "-5"}), "'batch-size' must be at least 1, not '-5'"),
        (RunSpec(workload="train", parameters={"batch-size": str(10**20)}), "at most 64 bits, not '1000"),
        (RunSpec(workload="train", parameters={"load": "3"}), "'load' must be at least 0.5 and at most 2, not '3'"),
        (RunSpec(workload="train", parameters={"load": "nan"}), "'load' must be at least 0.5"),
        (RunSpec(workload="train", parameters={"device": "tpu"}), "one of auto, cpu"),
        (RunSpec(workload="train", parameters={"compile": "perhaps"}), "of type bool"),
        (RunSpec(workload="train", interference=["train"]), "--with takes: burn"),
        (RunSpec(workload="train", environment="dokcer"), "unknown environment 'dokcer'; did you mean 'docker'?"),
        (RunSpec(workload="train", environment="zzz"), "see: gpuagent info"),
        (RunSpec(workload="train", image="x"), "no images"),
        (RunSpec(command=["x"], parameters={"a": "1"}), "--param"),
        (RunSpec(command=[""]), "empty"),
        (RunSpec(command=["x"], name="../x"), "--name takes"),
        (RunSpec(workload="train", name="x"), "--name is for programs of your own"),
        (RunSpec(command=["x", "\0"]), "NUL"),
        (RunSpec(workload="train", labels={f"k{number}": "v" for number in range(65)}), "up to 64 labels"),
        (RunSpec(workload="train", labels={"k": "v" * 1001}), "up to 1,000 printable"),
        (RunSpec(workload="train", experiment="\x1b[2J"), "printable"),
        (RunSpec(workload="z" * 1001), "up to 1,000 printable"),
        (RunSpec(workload="train", environment="z" * 1001), "up to 1,000 printable"),
        (RunSpec(workload="train", interference=["z" * 1001]), "up to 1,000 printable"),
        (RunSpec(workload="train", parameters={"z" * 1001: "1"}), "up to 1,000 printable"),
        (RunSpec(workload="train", repeats=1_000_000), "at most"),
        (RunSpec(workload="train", first_repeat=2**32 - 1, repeats=2), "number of a repeat"),
        (RunSpec(workload="train", parameters={"batch-size": "9" * 2**17}), "at most 131,071 bytes"),
        (RunSpec(workload="train", parameters={"steps=5 --param batch-size": "1"}), "no parameter"),
        (RunSpec(workload="train", parameters={"batch-size": "5 --param load=2"}), "of type int"),
        (RunSpec(workload="../train"), "unknown workload"),
        (RunSpec(workload="--help"), "unknown workload"),
        (RunSpec(workload="train", interference=["--help"]), "unknown workload"),
        (RunSpec(workload="train", cpus=float("inf")), "cpus must be"),
        (RunSpec(workload="train", memory_bytes=2**64 - 1), "bare cannot limit memory"),
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
    "spec",
    [
        RunSpec(command=["bare"]),
        RunSpec(workload="train", environment="charliecloud", image="/image"),
        # The command of a server, which serve-load starts.
        RunSpec(workload="train", parameters={"serve": "anything"}),
        # torch's launcher loads a pickle from there.
        RunSpec(workload="train", nodes=2, parameters={"rendezvous": "evil:1"}),
        RunSpec(workload="train", environment="slurm", options=["--prolog=/tmp/evil"]),
        RunSpec(workload="train", environment="docker", options=["--volume=/:/host"]),
        RunSpec(workload="train", working_directory="/tmp/evil"),
    ],
)
def test_only_the_owner_may_run_commands_unless_allowed(spec: RunSpec) -> None:
    with pytest.raises(GpuAgentError, match="--allow-commands"):
        planner().plan(spec, from_owner=False)


# What a launch may ask for without --allow-commands; the rest can start a program.
HARMLESS = {"workload", "parameters", "interference", "environment", "repeats", "first_repeat", "labels", "experiment"}
HARMLESS |= {"timeout_seconds", "cpus", "memory_bytes", "cpu_changes", "nodes", "job"}
OTHERS: dict[str, Any] = {
    "command": ["x"],
    "image": "x",
    "options": ["x"],
    "working_directory": "/",
    "name": "x",
    "observe": True,
    "pattern": "x",
    "items_per_step": 1,
    "input": "/etc/hostname",
}


def test_each_field_of_a_launch_is_harmless_or_for_the_owner_alone() -> None:
    assert {field.name for field in RunSpec.DESCRIPTOR.fields} == {*HARMLESS, *OTHERS}
    for name, value in OTHERS.items():
        with pytest.raises(GpuAgentError):
            planner().plan(RunSpec(workload="train", **{name: value}), from_owner=False)


def test_others_may_run_commands_if_the_owner_allows_it() -> None:
    (plan,) = planner(allow_commands=True).plan(RunSpec(command=["true"], pattern="none"), from_owner=False)
    assert plan.job.variables is os.environ


def test_a_run_has_its_limits_and_data_and_its_interference_has_no_limits(tmp_path: Path) -> None:
    (plan,) = planner().plan(RunSpec(workload="train", cpus=1, interference=["burn"]))
    assert plan.job.limits == Limits(cpus=1)
    beside = plan.job_beside("burn", tmp_path)
    assert (beside.run_id, beside.limits) == (f"{plan.run_id}-with-burn", Limits())
    (plan,) = planner().plan(RunSpec(workload="train", parameters={"data": str(tmp_path)}))
    assert plan.job.data == (tmp_path,)
    (plan,) = planner().plan(RunSpec(workload="train"))
    assert plan.job.data == ()


@pytest.mark.parametrize("text", ["", "{}x", "[1]", '[{"name": "x"}]', "null"])
def test_an_unreadable_list_of_workloads_is_an_error(text: str) -> None:
    with pytest.raises(GpuAgentError, match="cannot be read"):
        parse_list(text)


def test_a_python_without_workloads_is_an_error_with_a_remedy(tmp_path: object) -> None:
    with pytest.raises(GpuAgentError, match="--python"):
        Catalogue("/missing/python").workloads()


PARAMETERS = [("steps", "int", None), ("nodes", "int", 1), ("rendezvous", "str", None)]
WORKLOADS = [
    {
        **LIST[0],
        "parameters": [
            {"name": name, "type": kind, "default": default, "help": "Set it."} for name, kind, default in PARAMETERS
        ],
    },
    LIST[1],
]
IN_A_STEP = {
    "SLURM_CLUSTER_NAME": "satori",
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[007-010,12],other",
}


def join(spec: RunSpec, job: str | None, environment: Mapping[str, str]) -> None:
    join_nodes(spec, 2, job, environment, resolve=lambda *_: [])


def plan_joint(**asked: Any) -> list[PlannedRun]:
    given = {"workload": "train", "nodes": 2, "job": "secret", **asked}
    return Planner(FixedCatalogue(WORKLOADS), allow_commands=True).plan(RunSpec(**given))


def test_nodes_with_equal_requests_derive_the_same_run_and_their_commands_may_differ() -> None:
    here, there = plan_joint(repeats=2), plan_joint(repeats=2)
    assert [run.run_id for run in here] == [run.run_id for run in there]
    assert here[0].run_id != here[1].run_id
    assert here[0].parameters["nodes"] == 2
    assert here[0].job.program[-2:] == ["--param", "nodes=2"]
    first, second = (plan_joint(workload="", command=["torchrun", f"--node-rank={rank}"])[0] for rank in range(2))
    assert first.run_id == second.run_id
    assert first.job.program != second.job.program


@pytest.mark.parametrize(
    "other",
    [
        {"job": "another"},
        {"nodes": 3},
        {"first_repeat": 2},
        {"parameters": {"steps": "7"}},
        {"interference": ["burn"]},
        {"workload": "", "command": ["train"]},
    ],
)
def test_nodes_with_other_requests_derive_another_run(other: dict[str, Any]) -> None:
    assert plan_joint()[0].run_id != plan_joint(**other)[0].run_id


def test_the_name_of_a_run_does_not_reveal_its_invitation() -> None:
    (run,) = plan_joint()
    assert run.invitation is not None
    assert is_invited(run.run_id, run.invitation)
    assert not is_invited(run.run_id, run.run_id)
    assert not is_invited(run.run_id, "secret")


def test_a_run_on_one_node_is_unique_and_needs_no_invitation() -> None:
    one, other = plan_joint(nodes=1)[0], plan_joint(nodes=0)[0]
    assert one.run_id != other.run_id
    assert (one.invitation, one.nodes, other.nodes) == (None, 1, 1)


@pytest.mark.parametrize(
    ("asked", "words"), [({"job": ""}, "--nodes needs --job"), ({"workload": "burn"}, "burn runs on one node")]
)
def test_an_invalid_joint_run_is_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        plan_joint(**asked)


def test_a_step_of_slurm_gives_job_and_rendezvous_unless_options_do() -> None:
    spec, requeued = RunSpec(workload="train"), RunSpec(workload="train")
    join(spec, None, IN_A_STEP)
    assert spec.job == "slurm satori 42 0 0"
    host, _, port = spec.parameters["rendezvous"].partition(":")
    assert host == "n007"
    assert 20_000 <= int(port) < 30_000
    join(requeued, None, {**IN_A_STEP, "SLURM_RESTART_COUNT": "1"})
    assert requeued.job != spec.job
    given = RunSpec(workload="train", parameters={"rendezvous": "n1:29400"})
    join(given, "secret", IN_A_STEP)
    assert (given.job, given.parameters["rendezvous"]) == ("secret", "n1:29400")
    outside = RunSpec(command=["true"])
    join(outside, None, {"SLURM_JOB_ID": "42"})
    assert (outside.job, dict(outside.parameters)) == ("", {})


def test_a_step_whose_first_node_has_no_address_is_refused_at_once() -> None:
    def unknown(host: str, port: None) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    spec = RunSpec(workload="train")
    with pytest.raises(MisuseError, match=r"on n007, .* no address here \(Name .*: --rendezvous HOST:PORT"):
        join_nodes(spec, 2, None, IN_A_STEP, resolve=unknown)
    given = RunSpec(workload="train", parameters={"rendezvous": "10.0.0.7:29400"})
    join_nodes(given, 2, None, IN_A_STEP, resolve=unknown)
    assert given.parameters["rendezvous"] == "10.0.0.7:29400"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-4]", "n1"),
        ("n[007-010,12],other", "n007"),
        ("rack[2,3]n[04-05]-ib,x", "rack2n04-ib"),
        ("", ""),
    ],
)
def test_the_first_host_of_slurm_s_lists(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_standard_input_is_an_existing_file_for_commands_alone(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (plan,) = planner().plan(RunSpec(command=["sort"], input=str(tmp_path / "data")))
    assert Path(plan.asked.input) == tmp_path / "data"
    for spec, words in (
        (RunSpec(command=["sort"], input=str(tmp_path / "missing")), "there is no file"),
        (RunSpec(command=["sort"], input=str(tmp_path)), "there is no file"),
        (RunSpec(workload="train", input=str(tmp_path / "data")), "not train"),
    ):
        with pytest.raises(MisuseError, match=words):
            planner().plan(spec)


def test_a_program_is_told_all_digits_of_its_items_per_step() -> None:
    asked = RunSpec(command=["python", "train.py"], items_per_step=2**20)
    assert make_job(asked, "run-1", ["python"], None, (), {}).variables["GPUAGENT_ITEMS_PER_STEP"] == "1048576"


def test_parameters_that_contradict_one_another_are_found_without_a_run() -> None:
    catalogue, good = Catalogue(sys.executable), {"find": "rate", "slo-ttft": "200"}
    catalogue.check_together("serve-load", [good, {"rate": "4"}])
    with pytest.raises(MisuseError, match=r"^serve-load: --find needs a limit, such as --slo-ttft 200$"):
        catalogue.check_together("serve-load", [good, {"find": "rate"}])
    # One that cannot say leaves it to the run.
    Catalogue("false").check_together("serve-load", [{"find": "rate"}])
