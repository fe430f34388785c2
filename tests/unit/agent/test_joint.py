import socket
from collections.abc import Mapping
from typing import Any

import pytest

from gpuagent.cli.spec import first_host, join_nodes
from gpuagent.runs.planning import PlannedRun, Planner
from gpuagent_common.errors import MisuseError
from gpuagent_common.invitation import is_invited
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.parts import FixedCatalogue

WORKLOADS = [
    {
        "name": "train",
        "kind": "training",
        "summary": "Trains.",
        "parameters": [
            {"name": "steps", "type": "int", "default": None, "help": "Steps."},
            {"name": "nodes", "type": "int", "default": 1, "help": "Nodes."},
            {"name": "rendezvous", "type": "str", "default": None, "help": "Where they meet."},
        ],
    },
    {"name": "burn", "kind": "interference", "summary": "Burns.", "parameters": []},
]
IN_A_STEP = {
    "SLURM_CLUSTER_NAME": "satori",
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[007-010,12],other",
}


def join(spec: RunSpec, job: str | None, environment: Mapping[str, str]) -> None:
    """Join two nodes whose names are known."""
    join_nodes(spec, 2, job, environment, resolve=lambda *_: [])


def plan(**asked: Any) -> list[PlannedRun]:
    given = {"workload": "train", "nodes": 2, "job": "secret", **asked}
    return Planner(FixedCatalogue(WORKLOADS), allow_commands=True).plan(RunSpec(**given))


def test_nodes_with_equal_requests_derive_the_same_run() -> None:
    here, there = plan(repeats=2), plan(repeats=2)
    assert [run.run_id for run in here] == [run.run_id for run in there]
    assert here[0].run_id != here[1].run_id
    assert here[0].parameters["nodes"] == 2
    assert here[0].program[-2:] == ("--param", "nodes=2")


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
    assert plan()[0].run_id != plan(**other)[0].run_id


def test_the_name_of_a_run_does_not_reveal_its_invitation() -> None:
    (run,) = plan()
    assert run.invitation is not None
    assert is_invited(run.run_id, run.invitation)
    assert not is_invited(run.run_id, run.run_id)
    assert not is_invited(run.run_id, "secret")


def test_commands_may_differ_between_nodes() -> None:
    first, second = (plan(workload="", command=["torchrun", f"--node-rank={rank}"])[0] for rank in range(2))
    assert first.run_id == second.run_id
    assert first.program != second.program


def test_a_run_on_one_node_is_unique_and_needs_no_invitation() -> None:
    one, other = plan(nodes=1)[0], plan(nodes=0)[0]
    assert one.run_id != other.run_id
    assert (one.invitation, one.nodes, other.nodes) == (None, 1, 1)


@pytest.mark.parametrize(
    ("asked", "words"), [({"job": ""}, "--nodes needs --job"), ({"workload": "burn"}, "burn runs on one node")]
)
def test_an_invalid_joint_run_is_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        plan(**asked)


def test_a_step_of_slurm_gives_job_and_rendezvous() -> None:
    spec = RunSpec(workload="train")
    join(spec, None, IN_A_STEP)
    assert spec.job == "slurm satori 42 0 0"
    host, _, port = spec.parameters["rendezvous"].partition(":")
    assert host == "n007"
    assert 20_000 <= int(port) < 30_000


def test_options_take_precedence_over_slurm() -> None:
    spec = RunSpec(workload="train", parameters={"rendezvous": "n1:29400"})
    join(spec, "secret", IN_A_STEP)
    assert (spec.job, spec.parameters["rendezvous"]) == ("secret", "n1:29400")


def test_a_requeued_job_is_another() -> None:
    first, second = RunSpec(workload="train"), RunSpec(workload="train")
    join(first, None, IN_A_STEP)
    join(second, None, {**IN_A_STEP, "SLURM_RESTART_COUNT": "1"})
    assert first.job != second.job


def test_a_step_whose_first_node_has_no_address_is_refused_at_once() -> None:
    def unknown(host: str, port: None) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    spec = RunSpec(workload="train")
    with pytest.raises(MisuseError, match=r"on n007, .* no address here \(Name .*: --rendezvous HOST:PORT"):
        join_nodes(spec, 2, None, IN_A_STEP, resolve=unknown)
    given = RunSpec(workload="train", parameters={"rendezvous": "10.0.0.7:29400"})
    join_nodes(given, 2, None, IN_A_STEP, resolve=unknown)
    assert given.parameters["rendezvous"] == "10.0.0.7:29400"


def test_in_a_batch_script_outside_of_a_step_nothing_is_guessed() -> None:
    spec = RunSpec(command=["true"])
    join(spec, None, {"SLURM_JOB_ID": "42"})
    assert (spec.job, dict(spec.parameters)) == ("", {})


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
