"""The whole path with real processes, as a user starts them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from gpuagent.delivery.spool import Spool
from gpuagent_proto.v1.records_pb2 import Records
from tests.integration.watch.terminals import FakeTerminal
from tests.support.servers import LIMIT_SECONDS, ForkingNode, Node, until

pytestmark = pytest.mark.slow

QUIET = (sys.executable, "-c", "print('hello')")
SIGXFSZ_IGNORED = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
ENDLESS = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")


# Forty steps, and more until the file `enough` exists.
STEPS = """
import itertools, json, os, time
print("begins", flush=True)
with open(os.environ["GPUAGENT_RUN_DIR"] + "/events.0.0.jsonl", "a", buffering=1) as file:
    for step in itertools.count():
        if step >= 40 and os.path.exists("enough"):
            break
        file.write(json.dumps({"t": time.time_ns(), "event": "step", "phase": "measure", "step": step}) + "\\n")
        time.sleep(0.02)
"""


@pytest.mark.parametrize("with_agent", [True, False])
def test_on_a_terminal_a_line_follows_the_run_and_a_paragraph_the_end(sharing: Node, with_agent: bool) -> None:
    if with_agent:
        sharing.start_agent("--platform", "here")
    terminal = FakeTerminal()
    # The first of its name: of others, the collector of all tests would say more.
    name = "led" if with_agent else "alone"
    words = ("gpuagent", "run", "--name", name, "--", sys.executable, "-c", STEPS)
    process = terminal.start(*words, environment=sharing.environment, folder=sharing.folder)
    terminal.shows("begins")
    terminal.shows("steps/s")
    (sharing.folder / "enough").touch()
    terminal.shows("succeeded in")
    terminal.shows(f"collector show {name}-")
    assert terminal.ended(process) == 0


def test_without_a_terminal_there_is_no_line_of_progress(sharing: Node) -> None:
    (sharing.folder / "enough").touch()
    done = sharing.run("gpuagent", "run", "--name", "walk", "--", sys.executable, "-c", STEPS)
    assert done.stdout == "begins\n"
    assert "\r" not in done.stderr
    assert "steps/s" not in done.stderr
    (run,) = sharing.ask("SELECT workload, starts_with(run_id, 'walk-') AS is_named FROM runs")
    assert run == {"workload": "walk", "is_named": True}
    described = sharing.collector("runs", "walk-").stdout
    assert "succeeded in" in described
    assert "40 measured steps" in described
    assert json.loads(sharing.collector("runs", "walk-", "--json").stdout)[0]["workload"] == "walk"
    failed = sharing.run("gpuagent", "run", "--name", "walk", "--", "false", code=1)
    assert "failed" in failed.stderr
    (last,) = sharing.ask("SELECT run_id FROM runs WHERE status = 'failed'")
    assert f"collector logs {last['run_id']}" in sharing.collector("runs", last["run_id"]).stdout


def test_a_result_without_a_phase_is_a_metric_and_malformed_events_are_reported(sharing: Node) -> None:
    good = '{"t": 1, "event": "result", "name": "throughput", "value": 5}'.replace("1,", "'$(date +%s%N)',", 1)
    script = f"cd $GPUAGENT_RUN_DIR; printf '%s\\n' '{good}' nonsense 'password=hunter2' > events.0.0.jsonl"
    done = sharing.run("gpuagent", "run", "--", "sh", "-c", script)
    assert "2 lines of events" in done.stderr
    until(lambda: sharing.ask("SELECT 1 FROM metrics WHERE metric = 'throughput' AND value = 5"), "the metric")
    (detail,) = sharing.ask("SELECT detail FROM run_events WHERE event = 'malformed' AND name = 'total'")
    assert json.loads(detail["detail"])["lines"] == 2


def test_without_a_collector_the_run_works_and_the_next_agent_delivers_it(node: Node) -> None:
    node.without_collector()
    done = node.run("gpuagent", "run", "--", *QUIET)
    assert done.stdout == "hello\n"
    waiting = re.search(r"(\d+) messages wait in", done.stderr)
    assert waiting, done.stderr
    assert "collector serve" in done.stderr
    node.serve()
    node.run("gpuagent", "run", "--repeat", "2", "--", *QUIET)
    statuses = node.ask("SELECT status, count(*) AS runs FROM runs GROUP BY ALL")
    assert statuses == [{"status": "succeeded", "runs": 3}]
    assert node.ask("SELECT count(DISTINCT session_id) AS sessions FROM host_samples") == [{"sessions": 2}]


def test_an_agent_prints_once_that_what_waited_is_delivered(node: Node) -> None:
    node.without_collector()
    node.run("gpuagent", "run", "--", *QUIET)
    node.serve()
    agent, log = node.start_agent(), node.folder / "agent.log"
    until(lambda: re.search(r"\d+ waiting messages delivered\n", log.read_text()), "the delivery")
    assert node.ask("SELECT count(*) AS runs FROM runs WHERE status = 'succeeded'") == [{"runs": 1}]
    assert node.stop(agent, signal.SIGINT) == 0
    assert log.read_text().count("delivered") == 1


def test_a_running_agent_serves_commands_and_refuses_what_contradicts_it(sharing: Node, shared_collector: Node) -> None:
    agent = sharing.start_agent("--platform", "here")
    refused = sharing.run("gpuagent", "run", "--platform", "elsewhere", "--", *QUIET, code=2)
    assert "samples as platform 'here'" in refused.stderr
    assert f"stop it (process {agent.pid})" in refused.stderr
    refused = sharing.run("gpuagent", "start", code=1)
    assert "another agent" in refused.stderr
    own = sharing.environment["GPUAGENT_SPOOL_DIR"]
    assert "ignores --rate\n" in sharing.run("gpuagent", "run", "--rate", "5", "--spool", own, "--", *QUIET).stderr
    until(lambda: sharing.ask("SELECT 1 FROM runs WHERE status = 'succeeded'"), "the run's end")
    assert sharing.ask("SELECT count(*) AS sessions FROM sessions") == [{"sessions": 1}]
    assert json.loads(sharing.run("gpuagent", "info", "--json").stdout)["agent"]["connected"] is True

    tools, elsewhere = sharing.folder / "tools", sharing.folder / "elsewhere"
    for folder, name in ((tools, "mine"), (elsewhere, "ours")):
        folder.mkdir()
        (folder / name).write_text('#!/bin/sh\necho "$OMP_NUM_THREADS $PWD ${GPUAGENT_RUN_DIR##*/}"\n')
        (folder / name).chmod(0o700)
    secret, path = "a-value-of-the-caller", f"{tools}:{os.environ['PATH']}"
    sharing.environment |= {"OMP_NUM_THREADS": "1", "PATH": path, "MINE": secret, "GPUAGENT_RUN_DIR": "/elsewhere"}
    for program in ("mine", "./ours"):
        threads, started_in, run = sharing.run("gpuagent", "run", "--", program, folder=elsewhere).stdout.split()
        assert (threads, started_in) == ("1", str(elsewhere))
        assert run.startswith(program.removeprefix("./"))
    until(lambda: len(sharing.ask("SELECT 1 FROM runs WHERE status = 'succeeded'")) == 3, "all ends")
    written = [path for node in (sharing, shared_collector) for path in node.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_an_interrupted_run_ends_with_one_line_and_what_waits(node: Node) -> None:
    node.without_collector()
    terminal = FakeTerminal()
    process = terminal.start("gpuagent", "run", "--", *ENDLESS, environment=node.environment, folder=node.folder)
    try:
        terminal.shows("up")
        terminal.press("\x03")
        assert terminal.ended(process) == 130
    finally:
        terminal.close(process)
    text = re.sub(rb"\x1b\[K|\r", b"", terminal.sent).decode()
    _, waits = text[text.index("gpuagent: cancelled after") :].splitlines()
    assert "messages wait in" in waits
    assert "`gpuagent start` or the next run" in waits


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_command_waits_for_the_runs_of_others_that_use_its_agent(node: Node, interrupted: bool) -> None:
    node.without_collector()
    first_waits, second_waits = (("sh", "-c", f"until test -e {name}; do sleep 0.1; done") for name in ("one", "two"))
    first = node.start("gpuagent", "run", "--name", "first", "--", *first_waits, log="first.log")
    until(lambda: "runs" in (node.folder / "first.log").read_text(), "the first run")
    second = node.start("gpuagent", "run", "--name", "second", "--", *second_waits, log="second.log")
    until(lambda: list((node.folder / "spool" / "runs").glob("second-*")), "the second run in the first one's agent")
    first.send_signal(signal.SIGINT) if interrupted else (node.folder / "one").touch()
    until(lambda: "waiting for runs of other commands" in (node.folder / "first.log").read_text(), "the first command")
    (node.folder / "two").touch()
    assert second.wait(timeout=LIMIT_SECONDS) == 0, (node.folder / "second.log").read_text()
    assert first.wait(timeout=LIMIT_SECONDS) == (130 if interrupted else 0)


def test_an_agent_with_a_relative_spool_serves_callers_in_other_folders(node: Node) -> None:
    collector = node.serve()
    node.environment |= {"GPUAGENT_SPOOL_DIR": "relative", "GPUAGENT_NODE_ID": "5b8a2f0e-6f0b-4c8e-9a57-2f6f3f5d9a11"}
    node.start_agent("--platform", "here")
    del node.environment["GPUAGENT_SPOOL_DIR"]
    (node.folder / "elsewhere").mkdir()
    node.environment["XDG_STATE_HOME"] = str(node.folder / "elsewhere")
    done = node.run("gpuagent", "run", "--json", "--", *QUIET, folder=node.folder / "elsewhere")
    (run,) = json.loads(done.stdout)
    assert done.stderr.count("hello") == 1
    assert Path(run["run_directory"]).is_relative_to(node.folder / "relative")
    node.stop(collector)
    del node.environment["GPUAGENT_COLLECTOR"]
    until(lambda: "no collector answers" in (node.folder / "agent.log").read_text(), "the lost connection")
    late = node.run("gpuagent", "run", "--", *QUIET).stderr
    assert "delivers to 127.0.0.1:" in late
    assert re.search(r"\d+ messages wait .*: no collector", late), late


def test_the_collector_that_a_run_names_gets_it_though_the_node_s_agent_has_another(
    node: Node, tmp_path_factory: pytest.TempPathFactory
) -> None:
    node.serve()
    node.start_agent("--platform", "here")
    agent_collector = node.environment["GPUAGENT_COLLECTOR"]
    with ForkingNode(tmp_path_factory.mktemp("other")) as other:
        other.serve()
        names = ("GPUAGENT_COLLECTOR", "GPUAGENT_TOKEN_FILE")
        node.environment |= {name: other.environment[name] for name in names}
        said = node.run("gpuagent", "run", "--name", "elsewhere", "--", *QUIET).stderr
        wanted = other.environment["GPUAGENT_COLLECTOR"]
        assert f"{agent_collector}; an agent beside it delivers to {wanted}" in said
        assert f"collector at {wanted}\n" in said
        assert [row["workload"] for row in other.ask("SELECT workload FROM runs")] == ["elsewhere"]
        del node.environment["GPUAGENT_COLLECTOR"]
        said = node.run("gpuagent", "run", "--name", "here", "--", *QUIET).stderr
        assert f"collector at {agent_collector}\n" in said
        assert f"{agent_collector}, not 127.0.0.1:50051; --collector" in said
        node.environment["GPUAGENT_COLLECTOR"] = f"{agent_collector.replace('127.0.0.1', 'localhost')},127.0.0.1:9"
        assert "beside" not in node.run("gpuagent", "run", "--name", "here", "--", *QUIET).stderr
        assert len(other.ask("SELECT 1 FROM runs")) == 1


def test_a_full_disk_under_the_spool_is_reported(node: Node) -> None:
    node.without_collector()
    report = node.folder / "report"
    waits = ["sh", "-c", f"until grep -q 'cannot be written' '{report}'; do sleep 0.1; done"]
    arguments = ["run", "--rate", "100", "--", *waits]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); {SIGXFSZ_IGNORED}"
    program = f"{limit}; from gpuagent.cli import main; import sys; sys.argv[1:] = {arguments!r}; main()"
    with report.open("w") as stderr:
        process = subprocess.run(
            [sys.executable, "-c", program], env=node.environment, stderr=stderr, timeout=2 * LIMIT_SECONDS, check=False
        )
    assert process.returncode == 0
    assert "messages lost: " in report.read_text()
    assert "Traceback" not in report.read_text()


@pytest.mark.parametrize(("number", "says_goodbye"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_an_agent_that_ends_in_order_says_goodbye_last(node: Node, number: signal.Signals, says_goodbye: bool) -> None:
    node.without_collector()
    process = node.start_agent("--platform", "here")
    os.kill(process.pid, number)
    process.wait()
    with closing(Spool(node.folder / "spool/spool.sqlite", node_uuid="n", limit_bytes=1 << 30)) as spool:
        records = [Records.FromString(message.records) for message in spool.messages_after(0, limit=10_000)]
    ends = [at for at, each in enumerate(records) for table in each.tables if table.name == "session_ends"]
    assert ends == ([len(records) - 1] if says_goodbye else [])


@pytest.mark.parametrize("with_agent", [True, False])
def test_ctrl_c_cancels_the_run_and_leaves_no_process(sharing: Node, with_agent: bool) -> None:
    if with_agent:
        sharing.start_agent("--platform", "here")
    process = sharing.start("gpuagent", "run", "--with", "cpu-burn", "--", *ENDLESS, log="run.log")
    until(lambda: "up" in (sharing.folder / "run.log").read_text(), "the program's output")
    started = {child.pid for child in psutil.Process().children(recursive=True)}
    assert sharing.stop(process, signal.SIGINT) == 130
    until(lambda: sharing.ask("SELECT 1 FROM runs WHERE status = 'cancelled'"), "the run's end")
    left = [psutil.Process(pid).cmdline() for pid in started if psutil.pid_exists(pid)]
    assert not [command for command in left if "time.sleep(600)" in " ".join(command) or "cpu-burn" in command]


@pytest.mark.parametrize(
    ("command", "said", "code"), [(("start",), "sampling", 0), (("run", "--", *ENDLESS), "up", 130)]
)
def test_a_suspended_command_ends_when_continued(sharing: Node, command: tuple[str, ...], said: str, code: int) -> None:
    process = sharing.start("gpuagent", *command, log="agent.log")
    until(lambda: said in (sharing.folder / "agent.log").read_text(), "its first line")
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    assert sharing.stop(process, signal.SIGCONT) == code


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 143)]
)
def test_the_exit_code_is_that_of_the_workload(sharing: Node, program: str, code: int) -> None:
    sharing.run("gpuagent", "run", "--", sys.executable, "-c", program, code=code)
    assert sharing.ask("SELECT status FROM runs") == [{"status": "failed"}]


MISUSE: list[tuple[list[str], str]] = [
    (["run"], "give either a workload or"),
    (["run", "--ranks", "2", "--", "true"], "unexpected '--ranks' before `--`; there is no such option"),
    (["run", "--profile", "--", "true"], "unexpected '--profile' before `--`; it is of built-in workloads"),
    (["run", "--repeats", "2", "--", "true"], "unexpected '--repeats' before `--`; did you mean --repeat?"),
    (["run", "--vary", "lr=1,2", "--", "true"], "has it: gpuagent bench --vary lr=1,2 -- true"),
    (["run", "python3", "train.py"], "gpuagent run -- python3 train.py"),
    (["run", "nmist"], "did you mean 'mnist'"),
    (["run", "cnn"], "unknown workload 'cnn'; that is mnist or cifar10;"),
    (["run", "rnn"], "unknown workload 'rnn'; that is sentiment;"),
    (["run", "mnist", "--batchsize", "3"], "did you mean 'batch-size'"),
    (["run", "mnist", "--param", "steps"], "NAME=VALUE"),
    (["run", "mnist", "--param", "steps=1", "--steps", "2"], "given twice"),
    (["run", "--steps", "9", "mnist", "--lr=1"], "its parameters follow it: gpuagent run mnist --steps 9 --lr=1"),
    (["run", "--epochs", "1", "--lr=2", "mnist"], "follow it: gpuagent run mnist --epochs 1 --lr=2"),
    (["run", "mnist", "--with", "mnist"], "--with takes"),
    (["run", "mnist", "--environment", "dokcer"], "unknown environment"),
    (["start", "--rate", "0"], "0.1"),
    (["strat"], "no command 'strat'; did you mean 'start'"),
    (["run", "--rate", "nan", "mnist"], "--rate"),
    (["run", "--timeout", "1e300", "--", "true"], "timeout"),
    (["run", "--timeout", "5s", "--", "true"], "--timeout takes a number of seconds, not '5s'"),
    (["run", "--repeat", "99999999999999999999", "--", "true"], "--repeat"),
    (["run", "--platform", "\x1b[31m", "--", "true"], "printable"),
    (["run", "--platform", "x" * 5000, "--", "true"], "characters"),
    (["run", "--platform", "  ", "--", "true"], "blank"),
    (["run", "--experiment", "\x1b[31m", "--", "true"], "printable"),
    (["run", "--label", "x", "mnist"], "NAME=VALUE"),
    (["run", "--label", "x=", "mnist"], "blank"),
]


def test_misuse_is_one_clear_line_and_exit_code_2(node: Node) -> None:
    ended = node.run_each(*(arguments for arguments, _ in MISUSE))
    for (arguments, words), (code, out, err) in zip(MISUSE, ended, strict=True):
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
        assert words in err


def test_a_locale_that_is_not_utf_8_ends_no_command(node: Node) -> None:
    node.environment["PYTHONIOENCODING"] = "ascii"
    assert "identity" in node.run("gpuagent", "info").stdout
    assert "batch-size" in node.run("gpuagent", "workloads", "mnist").stdout
    lines = node.run("gpuagent", "workloads").stdout.splitlines()
    assert "basic MNIST example" in lines[0]
    assert all(len(line) < 80 for line in lines)


def test_a_wrong_token_is_reported_and_no_data_is_lost(sharing: Node) -> None:
    wrong = sharing.folder / "wrong-token"
    wrong.write_text("not the token")
    wrong.chmod(0o600)
    # Several attempts may be needed: gRPC now and then loses the reason of a refusal.
    report = sharing.folder / "run.log"
    waits = ("sh", "-c", f"until grep -q 'does not accept the token' '{report}'; do sleep 0.1; done")
    process = sharing.start("gpuagent", "run", "--token-file", str(wrong), "--", *waits, log="run.log")
    assert process.wait(LIMIT_SECONDS) == 0
    _, unsent = report.read_text().rsplit("messages wait", 1)
    assert "does not accept the token" in unsent
    assert "`gpuagent start` or the next run" in unsent
    sharing.run("gpuagent", "run", "--", *QUIET)
    assert sharing.ask("SELECT count(*) AS runs FROM runs") == [{"runs": 2}]


MNIST = ("mnist", "--device", "cpu", "--threads", "1", "--batch-size", "4", "--steps", "3", "--warmup", "1", "--data")


@pytest.fixture
def nodes(node: Node, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    node.serve()
    (tmp_path / "other").mkdir()
    with closing(ForkingNode(tmp_path / "other")) as other:
        for name in ("GPUAGENT_TOKEN_FILE", "GPUAGENT_COLLECTOR"):
            other.environment[name] = node.environment[name]
        for number, each in enumerate((node, other)):
            each.environment |= {"GPUAGENT_NODE_ID": f"node-{number}", "GPUAGENT_NODE_NAME": f"host{number}"}
        yield node, other


def begin(node: Node, *what: str) -> "subprocess.Popen[str]":
    return node.start("gpuagent", "run", "--nodes", "2", "--job", "secret", *what, log="run.log")


def ended(node: Node, process: "subprocess.Popen[str]") -> int:
    code = process.wait(timeout=2 * LIMIT_SECONDS)
    return node.stop(process) or code


def ask(node: Node, *command: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(node.collector(*command, "--json").stdout)
    return rows


def test_ranks_on_two_nodes_are_one_run_with_the_samples_of_both(
    nodes: tuple[Node, Node], meeting: str, digits: Path
) -> None:
    processes = [begin(node, *MNIST, str(digits), "--rendezvous", meeting) for node in nodes]
    codes = [ended(node, process) for node, process in zip(nodes, processes, strict=True)]
    assert codes == [0, 0], [(node.folder / "run.log").read_text() for node in nodes]
    node, _ = nodes
    (run,) = ask(node, "runs")
    assert (run["status"], run["node_count"]) == ("succeeded", 2)
    parts = [(part["hostname"], part["status"]) for part in ask(node, "runs", "--parts")]
    assert parts == [("host0", "succeeded"), ("host1", "succeeded")]
    (seen,) = node.ask(
        """SELECT
            (SELECT count(DISTINCT (rank, node_id)) FROM steps WHERE phase = 'measure') AS ranks,
            (SELECT count(*) FROM steps WHERE phase = 'measure') AS steps,
            (SELECT count(DISTINCT node_id) FROM process_samples) AS sampled,
            (SELECT value FROM metrics WHERE metric = 'throughput')
                = (SELECT sum(value) FROM results WHERE name = 'throughput') AS whole"""
    )
    assert seen == {"ranks": 2, "steps": 6, "sampled": 2, "whole": True}


def test_a_node_has_one_part_and_a_failed_part_fails_the_run(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    joint = ("gpuagent", "run", "--nodes", "2", "--job", "secret", "--", "sh", "-c")
    first.run(*joint, "exit 0")
    refused = first.run(*joint, "exit 0", code=1)
    assert "in run exit-" in refused.stderr
    assert [run["status"] for run in ask(first, "runs")] == ["running"]
    second.run(*joint, "exit 3", code=3)
    (run,) = ask(first, "runs")
    assert (run["status"], run["exit_code"], run["reason"]) == ("failed", 3, "exit code 3")
