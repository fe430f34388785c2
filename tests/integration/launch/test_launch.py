"""Launching on real agents, over real gRPC."""

import signal
import sys
from pathlib import Path

import grpc
import pytest

from gpuagent_common.connection import bearer, read_token
from gpuagent_proto.v1.run_pb2 import RunSpec
from gpuagent_proto.v1.run_service_pb2 import AgentsRequest, LaunchRequest
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.launch.lab import Lab, Result
from tests.support.servers import until

pytestmark = pytest.mark.slow

# A workload that needs no torch.
QUICK = ("cpu-burn", "--param", "duration=0.5", "--param", "cores=1", "--param", "load=10")


def test_a_workload_is_run_as_often_as_asked_and_followed_to_its_end(lab: Lab) -> None:
    asked = ("--on", "platform=satori", "--repeat", "2", "--cpus", "1")
    said = lab.command("launch", *QUICK, *asked, "--wait", "--json")
    runs = said.json()["runs"]
    assert [(run["node"], run["platform"], run["repeat"], run["status"], run["exit_code"]) for run in runs] == [
        ("strict", "satori", 1, "succeeded", 0),
        ("strict", "satori", 2, "succeeded", 0),
    ]
    first, second = (run["run_id"] for run in runs)
    assert f"collector: {first} on strict: succeeded after" in said.err
    same = "SELECT DISTINCT parameters->>'load' AS load, limits FROM runs WHERE run_id IN "
    assert lab.ask(f"{same} ('{first}', '{second}')") == [{"load": "10.0", "limits": "cpus=1"}]
    experiments = f"SELECT count(DISTINCT experiment) AS n FROM runs WHERE run_id IN ('{first}', '{second}')"
    assert lab.ask(experiments) == [{"n": 1}]


def test_agents_that_were_not_meant_are_not_launched_on(lab: Lab) -> None:
    choose = "; choose with --on, or give --all or --any"
    several = lab.command("launch", "mnist", "--on", "label.rack=7", code=2).err
    assert several.endswith(f"2 agents match label.rack=7{choose}")
    assert all(word in several for word in ("strict", "openshift", "rack=7"))
    assert lab.command("launch", "mnist", code=2).err.endswith(f"2 agents are connected{choose}")
    nobody = lab.command("launch", "mnist", "--on", "node=strict,platform=openshift", code=1).err
    assert nobody.endswith("matches node=strict,platform=openshift")
    assert "satori" in nobody


def test_all_agents_that_fit_are_launched_on_and_each_may_refuse(lab: Lab) -> None:
    said = lab.command("launch", "--all", "--json", "--wait", "--", "sh", "-c", "exit 0", code=1)
    answer = said.json()
    assert [(run["node"], run["status"]) for run in answer["runs"]] == [("lenient", "succeeded")]
    reason = "it runs built-in workloads only, unless started with --allow-commands"
    assert [(each["node"], each["reason"]) for each in answer["refusals"]] == [("strict", reason)]
    assert "platform satori, refused:" in said.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("mnits",), "unknown workload 'mnits'; did you mean 'mnist'?"),
        (("mnist", "--param", "steps=many"), "parameter 'steps' must be of type int, not 'many'"),
        (("mnist", "--with", "mnist"), "'mnist' is not an interference workload"),
        (("mnist", "--environment", "bare:x"), "this agent does not accept images"),
        (("mnist", "--memory", "1G"), "bare cannot limit memory"),
        (("mnist", "--change", "cpus=1@2s"), "bare cannot change the CPUs of a running program"),
        (("mnist", "--environment", "vmware"), "unknown environment 'vmware'"),
    ],
)
def test_an_agent_says_why_it_refuses_and_nothing_is_stored(lab: Lab, words: tuple[str, ...], reason: str) -> None:
    before = lab.ask("SELECT count(*) AS n FROM run_requests")
    said = lab.command("launch", *words, "--on", "node=strict", code=1)
    assert reason in said.err
    assert said.out == ""
    assert lab.ask("SELECT count(*) AS n FROM run_requests") == before


def test_misuse_is_told_on_the_node_too_before_anything_is_stored(lab: Lab) -> None:
    before = lab.ask("SELECT count(*) AS n FROM run_requests")
    run = ("gpuagent", "run", "--node-id", "lenient", "--spool", str(lab.node.folder / "lenient"))
    image = lab.node.run(*run, "--environment", "bare:x", "--", "true", code=2)
    assert "got 'x'" in image.stderr
    address = lab.node.run("gpuagent", "run", "--collector", "login-1", "--", "true", code=2)
    assert address.stderr == "gpuagent: --collector takes HOST:PORT, such as 127.0.0.1:50051; not 'login-1'\n"
    assert lab.ask("SELECT count(*) AS n FROM run_requests") == before


def test_a_run_that_waits_is_cancelled_at_once_and_one_that_runs_is_stopped(lab: Lab, gate: Path) -> None:
    (running,) = lab.launch("--experiment", "busy", *lab.waiting_for(gate))
    first, second = lab.launch("--repeat", "2", "--experiment", "waits", *lab.waiting_for(gate))
    lab.await_status(first, "queued")
    assert lab.command("cancel", first[:-3]).out == f"stopping {first}\n"
    lab.await_status(first, "cancelled")
    lab.await_status(running, "running")
    assert lab.command("cancel", first).out == f"{first} has already ended: cancelled\n"
    assert lab.command("cancel", "--experiment", "waits").out == f"stopping {second}\n"
    refused = lab.command("cancel", "sh-", code=2).err
    assert "several runs begin with sh-: " in refused
    assert "--experiment NAME stops those of one experiment" in refused
    assert "run is empty" in lab.command("cancel", "", code=2).err
    assert lab.command("cancel", "--experiment", "busy").out == f"stopping {running}\n"
    lab.await_status(running, "cancelled")
    lab.await_status(second, "cancelled")
    nothing = lab.command("cancel", "--experiment", "busy").err
    assert nothing.endswith("running or queued\n")
    assert lab.command("cancel", "sh-nobody", code=1).err.endswith("`collector runs` lists them\n")


def test_output_is_followed_while_it_is_written_and_kept_afterwards(lab: Lab, gate: Path) -> None:
    then = "echo API_TOKEN=hunter2; echo wrong >&2; printf unfinished"
    (run,) = lab.launch(*lab.waiting_for(gate, then=then))
    followed = lab.start("logs", run, "--follow")
    until(lambda: lab.command("logs", run).out == "begun\n", "the first line")
    gate.touch()
    assert followed.result() == Result(out="begun\nAPI_TOKEN=[hidden]\nunfinished", err="wrong\n")
    lab.await_status(run, "succeeded")
    expected = ("begun\nAPI_TOKEN=[hidden]\nunfinished", "wrong\n")
    for words in ((run,), (run[:-2], "--follow"), (run, "--all")):
        said = lab.command("logs", *words)
        assert (said.out, said.err) == expected
    assert "sh-nobody; `collector runs`" in lab.command("logs", "sh-nobody", code=1).err


def test_long_output_comes_whole_or_its_end(lab: Lab) -> None:
    count = "import sys; sys.stdout.writelines(f'{n} {n * n}\\n' for n in range(40_000))"
    (run,) = lab.launch("--wait", "--on", "node=lenient", "--", sys.executable, "-c", count)
    whole = "".join(f"{n} {n * n}\n" for n in range(40_000))
    assert lab.command("logs", run, "--all").out == whole
    assert lab.command("logs", run).out == whole[-8192:].partition("\n")[2]
    (silent,) = lab.launch("--wait", "--on", "node=lenient", "--", "true")
    assert lab.command("logs", silent).err == f"collector: {silent} has written nothing\n"


def test_any_takes_the_agent_with_least_to_do_and_passes_on_what_one_refuses(lab: Lab, gate: Path) -> None:
    (busy,) = lab.launch(*lab.waiting_for(gate))
    lab.await_status(busy, "running")
    answer = lab.command("launch", *QUICK, "--any", "--wait", "--json").json()
    assert [run["node"] for run in answer["runs"]] == ["strict"]
    gate.touch()
    lab.await_status(busy, "succeeded")
    answer = lab.command("launch", "--any", "--wait", "--json", "--", "true").json()
    assert [(run["node"], run["status"]) for run in answer["runs"]] == [("lenient", "succeeded")]
    assert answer["refusals"] == []


def test_what_two_operators_launch_at_once_runs_one_after_the_other(lab: Lab) -> None:
    words = ("launch", "--json", "--on", "node=lenient", "--repeat", "2", "--wait", "--", "sh", "-c", "sleep 0.05")
    both = [lab.start(*words) for _ in range(2)]
    runs = [run["run_id"] for launched in both for run in launched.result().json()["runs"]]
    assert len(set(runs)) == 4
    overlapping = """
        SELECT one.run_id FROM runs AS one JOIN runs AS other
        ON one.run_id <> other.run_id AND one.node_id = other.node_id
        AND other.started_at > one.started_at AND other.started_at < one.ended_at
        WHERE one.run_id IN ({0}) AND other.run_id IN ({0})
    """.format(", ".join(f"'{run}'" for run in runs))
    assert lab.ask(overlapping) == []


def test_runs_of_a_killed_agent_are_lost_and_who_waits_is_told(lab: Lab, gate: Path) -> None:
    lab.start_agent("fragile", "--platform", "fragile", "--allow-commands")
    try:
        lab.await_agents("strict", "lenient", "fragile")
        program = ["sh", "-c", f"echo begun; while [ ! -e '{gate}' ]; do sleep 0.02; done"]
        running, queued = lab.launch("--on", "node=fragile", "--repeat", "2", "--", *program)
        lab.await_status(running, "running")
        lab.await_status(queued, "queued")
        following = lab.start("logs", running, "-f")
        lab.end_agent("fragile", signal.SIGKILL)
        lab.await_agents("strict", "lenient")
        absent = f"collector: the agent of run {running} is not connected\n"
        assert lab.command("cancel", running, code=1).err == absent
        lab.start_agent("fragile", "--platform", "fragile", "--allow-commands")
        lab.await_status(running, "lost")
        lab.await_status(queued, "lost")
        # The new agent reads on where the old one was.
        assert following.result().out == "begun\n"
        assert lab.command("logs", running).out == "begun\n"
    finally:
        lab.end_agent("fragile", signal.SIGTERM)


def test_who_waits_outlives_a_restart_of_the_collector(lab: Lab, gate: Path) -> None:
    waiting = lab.start("launch", "--wait", "--json", *lab.waiting_for(gate))
    until(lambda: lab.ask("SELECT run_id FROM runs WHERE status = 'running'"), "the run")
    lab.restart_collector()
    gate.touch()
    answer = waiting.result()
    assert [run["status"] for run in answer.json()["runs"]] == ["succeeded"]
    lab.await_agents("strict", "lenient")


def test_ctrl_c_leaves_the_runs_going_and_says_how_to_stop_them(lab: Lab, gate: Path) -> None:
    words = ["launch", "--wait", "--experiment", "left alone", *lab.waiting_for(gate)]
    command = lab.node.start("collector", *words, log="left-alone.log")
    log = lab.node.folder / "left-alone.log"
    until(lambda: "running" in log.read_text(), "its line of the run")
    assert lab.node.stop(command, signal.SIGINT) == 130
    assert "--experiment 'left alone'" in log.read_text()
    gate.touch()
    (run,) = lab.ask("SELECT run_id FROM runs WHERE experiment = 'left alone'")
    lab.await_status(run["run_id"], "succeeded")


HOSTILE = (
    RunSpec(workload="../../etc/passwd"),
    RunSpec(workload="mnist; rm -rf /\x1b[2J"),
    RunSpec(command=[""]),
    RunSpec(command=["\0"]),
    RunSpec(command=["no-such-program"]),
    RunSpec(command=["𠀀" * 100]),
    RunSpec(command=["/" + "a/" * 3000 + "b"]),
    RunSpec(command=["true"], working_directory="/no/such/folder"),
    RunSpec(command=["true"], working_directory="a\0b"),
    RunSpec(command=["true"], image="\0", environment="docker"),
    RunSpec(command=["true"], image="x" * 1_000_000, environment="docker"),
    RunSpec(command=["true"], environment="podman\x1b"),
    RunSpec(command=["true"], experiment="\x1b]0;owned\x07" * 100, labels={"\u202e": "a\r\nb"}),
    RunSpec(command=["true"], labels={"": "\0"}),
    RunSpec(command=["true"], timeout_seconds=float("nan")),
    RunSpec(command=["true"], repeats=4_000_000_000),
    RunSpec(command=["true"], first_repeat=4_294_967_295),
    RunSpec(command=["true"], interference=["cpu-burn", "cpu-burn"]),
    RunSpec(workload="mnist", parameters={"steps": "9" * 5000}),
    RunSpec(workload="mnist", parameters={"--help": "$(reboot)"}),
)


def test_no_request_harms_an_agent(lab: Lab) -> None:
    """Each is refused, or ends as a run; the next one is taken all the same."""
    token = read_token(Path(lab.node.environment["GPUAGENT_TOKEN_FILE"]))
    with grpc.insecure_channel(lab.node.environment["GPUAGENT_COLLECTOR"]) as channel:
        stub = RunServiceStub(channel)
        agents = stub.Agents(AgentsRequest(), metadata=bearer(token)).agents
        (session,) = [agent.session_uuid for agent in agents if agent.allows_commands]
        begun: list[str] = []
        for spec in HOSTILE:
            request = LaunchRequest(session_uuids=[session], spec=spec)
            (answer,) = stub.Launch(request, metadata=bearer(token)).agents
            assert bool(answer.refusal) != bool(answer.run_ids), spec
            begun += answer.run_ids
    for run in begun:
        until(lambda run=run: lab.status(run)[0] in ("failed", "succeeded"), f"the end of {run}")  # type: ignore[misc]
    lab.launch("--wait", "--on", "node=lenient", "--", "true")
    assert "\x1b" not in lab.command("runs", "--limit", "100").out


def test_output_of_several_nodes_comes_node_by_node_or_of_the_one_that_is_named(lab: Lab, gate: Path) -> None:
    """Both agents are this machine's; each is given its part on its own node."""
    parts = []
    for node in ("strict", "lenient"):
        place = ("--node-id", node, "--spool", str(lab.node.folder / node))
        script = f"echo of {node}; echo wrong on {node} >&2; while [ ! -e '{gate}' ]; do sleep 0.02; done"
        command = ("gpuagent", "run", *place, "--nodes", "2", "--job", str(gate), "--", "sh", "-c", script)
        parts.append(lab.node.start(*command, log=f"part-{node}.log"))
    running = "SELECT run_id FROM run_parts WHERE status = 'running'"
    until(lambda: len(lab.ask(running)) == 2, "both parts")
    run = lab.ask(running)[0]["run_id"]
    out = "==> lenient <==\nof lenient\n==> strict <==\nof strict\n"
    both = Result(out=out, err="wrong on lenient\nwrong on strict\n")
    until(lambda: lab.command("logs", run) == both, "what both have written")
    assert lab.command("logs", run, "--node", "strict") == Result(out="of strict\n", err="wrong on strict\n")
    nowhere = lab.command("logs", run, "--node", "mars", code=2).err
    assert nowhere.endswith("lenient, strict")
    follow = lab.command("logs", run, "-f", code=2).err
    assert follow.endswith("follow one: --node lenient")
    gate.touch()
    assert lab.command("logs", run, "-f", "--node", "lenient").out == "of lenient\n"
    assert [process.wait() for process in parts] == [0, 0]
    until(lambda: lab.status(run)[0] == "succeeded", "the end of both")
    assert lab.command("logs", run) == both
    assert lab.command("logs", run, "--node", "lenient").out == "of lenient\n"
