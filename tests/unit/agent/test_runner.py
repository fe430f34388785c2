import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuagent.environments.bare import Bare
from gpuagent.environments.environment import Job, Launch
from gpuagent.locations import lock
from gpuagent.runs import runner
from gpuagent.runs.execution import read_oom_kills
from gpuagent.runs.planning import PlannedRun
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.parts import executing
from tests.support.servers import until
from tests.unit.agent.running import REPORT, Node, life, plan

BURN = REPORT + "report(event='phase', name='measure'); report(event='result', name='load', value=100); time.sleep(60)"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_run_waits_for_that_of_another_agent_on_the_node(tmp_path: Path, *, is_cancelled: bool) -> None:
    first, second = (Node(tmp_path / name, tmp_path / "node.run") for name in ("first", "second"))
    go, ended = tmp_path / "go", tmp_path / "ended"
    until_go = f"while not os.path.exists('{go}'): time.sleep(.05)\nopen('{ended}', 'w').close()"
    with executing(first.runner), executing(second.runner):
        first.runner.submit([plan(until_go)], first.updates.put)
        first.until("running")
        second.runner.submit([plan(f"assert os.path.exists('{ended}')", "s")], second.updates.put)
        while not (waits := second.until("queued")).reason:
            pass
        assert waits.reason == f"another agent of this node has a run under way (process {os.getpid()})"
        if is_cancelled:
            second.runner.cancel(["s"])
            second.until("cancelled")
        go.touch()
        first.until("succeeded")
        if not is_cancelled:
            second.until("succeeded")
    second.pipeline.flush()
    assert second.states("s")[-1] == ("cancelled" if is_cancelled else "succeeded")
    for one in (first, second):
        one.spool.close()


def test_a_run_that_another_one_starts_does_not_wait_for_it(tmp_path: Path) -> None:
    node_lock = tmp_path / "node.run"
    node = Node(tmp_path, node_lock)
    with lock(node_lock, held="the run around it"), executing(node.runner):
        node.runner.submit([plan("", variables={"GPUAGENT_RUN_ID": "around"})], node.updates.put)
        node.until("succeeded")
    node.spool.close()


def test_a_run_that_a_run_of_the_same_agent_starts_is_refused(node: Node) -> None:
    node.runner.submit([around := plan("import time; time.sleep(60)")], node.updates.put)
    node.until("running")
    with pytest.raises(MisuseError, match="at a time"):
        node.runner.submit([plan("", "inner", variables={"GPUAGENT_RUN_ID": around.run_id})], node.updates.put)
    node.runner.cancel([around.run_id])
    node.until("cancelled")


def test_no_more_runs_are_queued_than_a_collector_stores(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_OPEN_RUNS", 2)
    node.runner.submit([plan("", "a"), plan("", "b")])
    with pytest.raises(GpuAgentError, match="limit is 2"):
        node.runner.submit([plan("", "c")])
    node.runner.cancel(["a"])
    node.runner.submit([plan("", "c")])


def test_the_lock_of_a_node_needs_no_space_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_file: int, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with lock(tmp_path / "node.run", held="another test"):
        pass


def test_a_run_is_stored_with_its_events_and_states(node: Node) -> None:
    node.runner.submit([plan("report(event='result', name='throughput', value=5); print('hello')")], node.updates.put)
    update = node.until("succeeded")
    assert (update.exit_code, update.reason) == (0, "")
    node.pipeline.flush()
    # The launch, then the program's own begin.
    assert node.states() == ["queued", "running", "running", "succeeded"]
    assert [row["name"] for row in node.rows("results")] == ["throughput"]
    said = [json.loads(row["detail"]) for row in node.rows("run_events") if row["event"] == "output"]
    assert said == [{"tail": "hello\n"}]
    (request,) = node.rows("run_requests")
    assert json.loads(request["parameters"]) == {"batch-size": 64}


@pytest.mark.parametrize(
    ("code", "changes", "reason"),
    [
        ("time.sleep(60)", {"asked": RunSpec(timeout_seconds=0.2)}, "0.2 s"),
        ("sys.exit(3)", {}, "exit code 3"),
        ("print('=\\n', file=sys.stderr); sys.exit('error: no such file')", {}, "exit code 1: no such file"),
        ("os.kill(os.getpid(), 9)", {}, "ended by signal 9"),
        ("", {"required_results": ("throughput",)}, "it reported no throughput"),
        ("", {"program": ("/missing/program",)}, "no program"),
        ("", {"asked": RunSpec(working_directory="/missing")}, "cannot start"),
        ("", {"interference": {"burn": ["/bin/false"]}}, "ended before it reached"),
    ],
)
def test_a_failed_run_has_a_reason(node: Node, code: str, changes: dict[str, Any], reason: str) -> None:
    status = "timed_out" if reason == "0.2 s" else "failed"
    node.runner.submit([plan(code, **changes)], node.updates.put)
    assert reason in node.until(status).reason
    node.pipeline.flush()
    assert node.states()[-1] == status


def test_runs_go_one_after_the_other_and_cancelling_reaches_running_and_queued_ones(node: Node) -> None:
    plans = [plan("time.sleep(60)", "first"), plan("time.sleep(60)", "second")]
    run_ids = node.runner.submit(plans, node.updates.put)
    node.until("running")
    node.runner.cancel(run_ids)
    assert {node.until("cancelled").run_id, node.until("cancelled").run_id} == {"first", "second"}
    node.pipeline.flush()
    assert node.states("first") == ["queued", "running", "running", "cancelled"]
    assert node.states("second") == ["queued", "cancelled"]


def test_runs_that_a_stop_of_the_agent_cancels_have_it_as_their_reason(node: Node) -> None:
    plans = [plan("time.sleep(60)", name) for name in ("asked", "first", "second")]
    node.runner.submit(plans, node.updates.put)
    node.until("running")
    node.runner.cancel(["asked"])
    reasons = {"asked": node.until("cancelled").reason}
    node.until("running")
    node.runner.begin_stop()
    node.runner.close()
    reasons |= {(update := node.until("cancelled")).run_id: update.reason for _ in range(2)}
    assert reasons == {"asked": "", "first": "the agent was stopped", "second": "the agent was stopped"}
    node.pipeline.flush()
    stored = {row["run_id"]: row.get("reason") for row in node.rows("run_states") if row["status"] == "cancelled"}
    assert {run_id: reason or "" for run_id, reason in stored.items()} == reasons


def test_interference_reaches_its_load_before_the_run_and_is_stored(node: Node) -> None:
    code = "print(open(os.environ['GPUAGENT_RUN_DIR'] + '/with-burn/events.0.0.jsonl').read().count('measure'))"
    node.runner.submit([plan(code, interference={"burn": [sys.executable, "-c", BURN]})], node.updates.put)
    update = node.until("succeeded")
    assert Path(update.run_directory, "stdout").read_text() == "1\n"
    node.pipeline.flush()
    begun = Path(update.run_directory, "with-burn/events.0.0.jsonl").read_text().splitlines()
    assert life(node)[0] > json.loads(begun[0])["t"]
    beside = [row for row in node.rows("run_events") if row["event"] == "interference"]
    assert [(row["name"], json.loads(row["detail"])) for row in beside] == [("burn", {"load": 100})]


class Changeable(Bare):
    def __init__(self, command: str) -> None:
        self._command = command

    def launch(self, job: Job) -> Launch:
        change = ["sh", "-c", f"cd '{job.run_directory}' && {self._command}"]
        return Launch(command=job.program, find_root=os.getpid, change_cpus=lambda _cpus: change)


def changed(command: str, code: str, *seconds: float) -> PlannedRun:
    asked = RunSpec(cpus=0.5)
    for index, after in enumerate(seconds):
        asked.cpu_changes.add(cpus=index + 1.0, after_seconds=after)
    return plan(code, environment=Changeable(command), asked=asked)


def test_changes_are_made_while_it_runs_and_stored_with_their_times(node: Node) -> None:
    until_both_are_made = """
changes = os.environ["GPUAGENT_RUN_DIR"] + "/changes"
while not (os.path.exists(changes) and len(open(changes).readlines()) == 2):
    time.sleep(0.02)
"""
    node.runner.submit([changed("echo made >> changes", until_both_are_made, 0, 0.1)], node.updates.put)
    node.until("succeeded")
    node.pipeline.flush()
    events = [json.loads(row["detail"]) for row in node.rows("run_events") if row["event"] == "change"]
    assert events == [{"cpus": 1, "after_seconds": 0}, {"cpus": 2, "after_seconds": 0.1}]
    (request,) = node.rows("run_requests")
    assert request["limits"] == "cpus=0.5 cpus=1@0s cpus=2@0.1s"


@pytest.mark.parametrize(
    ("program", "code", "seconds", "reason"),
    [
        ("false", "time.sleep(60)", 0, "its change cpus=1@0s was not made"),
        ("true", "", 1e9, "it ended before its change cpus=1@1000000000s"),
        ("true", "sys.exit(3)", 1e9, "exit code 3"),
    ],
)
def test_a_run_without_all_its_changes_fails(node: Node, program: str, code: str, seconds: float, reason: str) -> None:
    node.runner.submit([changed(program, code, seconds)], node.updates.put)
    assert reason in node.until("failed").reason


def test_secrets_in_arguments_and_output_are_not_stored(node: Node) -> None:
    secret = "hunter2hunter2"
    node.runner.submit([plan(f"print('password={secret}')", program=("/bin/echo", f"--password={secret}"))])
    node.runner.submit([plan(f"print('password={secret}'); sys.exit('password={secret}')", "second")], node.updates.put)
    assert node.until("failed").reason == "exit code 1: password=[hidden]"
    node.pipeline.flush()
    stored = b"".join(message.records for message in node.spool.messages_after(0, limit=1000))
    assert secret.encode() not in stored
    assert b"[hidden]" in stored


def test_old_run_directories_are_deleted_but_not_the_newest(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.runs.runner.KEPT_RUNS", 2)
    for number in range(4):
        node.runner.submit([plan("", f"r{number}")], node.updates.put)
        directory = Path(node.until("succeeded").run_directory)
        os.utime(directory, (number, number))
    until(lambda: not node.runner._executions, "the last run's end")
    node.runner.tidy()
    assert sorted(path.name for path in (node.folder / "runs").iterdir()) == ["r2", "r3"]


def test_a_run_of_a_killed_agent_is_read_to_its_end_and_lost(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "r"
    directory.mkdir(parents=True)
    first_line = b'{"t": 1, "event": "result", "name": "a", "value": 1}\n'
    (directory / "events.0.0.jsonl").write_bytes(first_line + first_line.replace(b'"a"', b'"b"'))
    (directory / "stdout").touch()
    (directory / "unread-news").write_text("started 1\nended 7\nleft 1 sh\n")
    waiting = tmp_path / "runs" / "waiting"
    waiting.mkdir()
    node = Node(tmp_path)
    opened = {"r": directory, "waiting": waiting, "gone": tmp_path / "gone"}
    node.spool.append([], opened=opened, offsets={("r", "events.0.0.jsonl"): len(first_line)})
    for run_id, (folder, offsets) in node.spool.open_runs().items():
        node.runner.recover(run_id, folder, offsets)
    node.pipeline.flush()
    assert [row["name"] for row in node.rows("results")] == ["b"]
    assert {row["run_id"]: (row["status"], row["reason"]) for row in node.rows("run_states")} == {
        "r": ("lost", "the agent was killed while it ran"),
        "waiting": ("lost", "the agent was killed before it began"),
        "gone": ("lost", "the agent was killed, and its run directory is gone"),
    }
    assert next(row["time"] for row in node.rows("run_states") if row["run_id"] == "r") == "7"
    assert node.spool.open_runs() == {}
    node.spool.close()


def test_a_run_is_in_the_spool_before_it_can_begin(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runner.submit([plan("pass")])
    assert node.states() == ["queued"]
    assert list(node.spool.open_runs()) == ["r"]
    node.spool.close()


def test_the_kernels_count_of_processes_that_it_ended_for_lack_of_memory(tmp_path: Path) -> None:
    here = read_oom_kills()
    assert here is not None
    assert here >= 0
    assert read_oom_kills(tmp_path) is None
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 3\n")
    assert read_oom_kills(tmp_path) == 3
    (tmp_path / "vmstat").write_text("nr_free_pages 7\n")
    assert read_oom_kills(tmp_path) is None
