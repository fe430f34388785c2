"""A run's times: those of its program, whatever the agent does before and after it."""

import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuagent.environments.apptainer import find_contained
from gpuagent.environments.bare import Bare
from gpuagent.environments.environment import Job, Launch, Span
from gpuagent.environments.kubernetes import Kubernetes
from gpuagent.runs.execution import Execution, RunTimes
from gpuagent.runs.printed import PrintedSteps
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate
from tests.support.servers import until
from tests.unit.agent.running import Node, life, plan

NOTE = "open(os.environ['GPUAGENT_RUN_DIR'] + '/{}', 'w').write(str(time.time_ns()))\n"


class Tidied(Bare):
    """An environment that has something to delete after each program, and notes when."""

    def launch(self, job: Job) -> Launch:
        tidy = [sys.executable, "-c", f"import os, time; {NOTE.format('tidied')}"]
        return Launch(command=job.program, afterwards=[tidy])


def noted(update: RunUpdate, name: str) -> int:
    return int(Path(update.run_directory, name).read_text())


ALIVE = """
file = os.open(os.environ["GPUAGENT_RUN_DIR"] + "/alive", os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, str(time.time_ns()).encode(), 0)
"""


@pytest.mark.parametrize("ending", ["by itself", "timeout", "cancel"])
def test_a_run_lasts_as_long_as_its_program_whatever_is_tidied_after_it(node: Node, ending: str) -> None:
    code = NOTE.format("alive") if ending == "by itself" else ALIVE
    timeout_seconds = 0.5 if ending == "timeout" else 0
    plans = [plan(code, environment=Tidied(), asked=RunSpec(timeout_seconds=timeout_seconds))]
    run_ids = node.runner.submit(plans, node.updates.put)
    if ending == "cancel":
        node.until("running")
        node.runner.cancel(run_ids)
    update = node.until({"timeout": "timed_out", "cancel": "cancelled"}.get(ending, "succeeded"))
    started, ended = life(node)
    assert started < ended < noted(update, "tidied")
    if Path(update.run_directory, "alive").exists():  # a busy machine may stop it sooner
        assert started < noted(update, "alive") < ended
    assert update.seconds == pytest.approx((ended - started) / 1e9)


def test_a_run_does_not_last_until_its_output_is_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, read = PrintedSteps.finish, []

    def note(steps: PrintedSteps) -> None:
        read.append(time.time_ns())
        finish(steps)

    monkeypatch.setattr(PrintedSteps, "finish", note)
    code = f"{NOTE.format('began')}for step in range(9): print('step', step, 'took 5ms')\n{NOTE.format('last')}"
    asked = RunSpec(command=["python"], pattern="step {step} took {step_milliseconds}ms")
    node.runner.submit([plan(code, asked=asked)], node.updates.put)
    update = node.until("succeeded")
    started, ended = life(node)
    assert started < noted(update, "began") < noted(update, "last") < ended < read[0]
    # What its output tells is of the run, so it is no later than that.
    assert max(int(row["time"]) for row in (*node.rows("results"), *node.rows("run_events"))) <= ended


def test_a_begin_that_an_engine_notes_after_the_end_is_not_that_of_the_run(node: Node) -> None:
    class Late(Bare):
        def find_span(self, run_directory: Path) -> Span:
            ended = int((run_directory / "last").read_text())
            return Span(started_unix_nano=ended + 1, ended_unix_nano=ended)

    node.runner.submit([plan(NOTE.format("last"), environment=Late())], node.updates.put)
    update = node.until("succeeded")
    started, ended = life(node)
    assert started < ended == noted(update, "last")


def test_a_run_lasts_as_long_as_its_program_within_a_process_that_unpacks_and_deletes_an_image(node: Node) -> None:
    go, gone = node.folder / "go", node.folder / "gone"

    class Unpacks(Bare):
        def launch(self, job: Job) -> Launch:
            note = "date +%s%N > $GPUAGENT_RUN_DIR"
            wait = f"while [ ! -e {gone} ]; do sleep 0.02; done"
            around = f'{note}/unpacked; APPTAINER_CONTAINER=x "$@"; {wait}; {note}/deleted'
            return Launch(command=["sh", "-c", around, "sh", *job.program], find_program=find_contained)

    until_go = f"while not os.path.exists('{go}'): time.sleep(0.02)"
    code = f"{NOTE.format('began')}{until_go}\n{NOTE.format('last')}"
    node.runner.submit([plan(code, environment=Unpacks())], node.updates.put)
    node.until("running")
    execution = node.runner._executions["r"]
    until(lambda: execution.program_unix_nano, "the program")
    go.touch()
    until(lambda: execution.times.ended_unix_nano, "the program's end")
    gone.touch()
    update = node.until("succeeded")
    started, ended = life(node)
    # The kernel counts a process's begin in hundredths of a second.
    assert noted(update, "unpacked") - 10_000_000 <= started < noted(update, "began")
    assert noted(update, "last") < ended < noted(update, "deleted")


def test_a_process_with_a_large_descriptor_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    process = subprocess.Popen(["true"])
    opened = os.pidfd_open(process.pid)
    large = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 1024)
    os.close(opened)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    execution = Execution(plan(""), tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", lambda _pid: large)
        execution._wait_for_end_of(process.pid)
    assert execution.times.ended_unix_nano is not None
    process.wait()


def test_a_python_without_descriptors_of_processes_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    execution = Execution(plan(""), tmp_path)
    execution._wait_for_end_of(os.getpid())
    assert execution.times.ended_unix_nano is None


def test_a_program_that_cannot_be_seen_is_looked_for_less_and_less(tmp_path: Path) -> None:
    waits: list[float] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) == 20:
                self.set()
            return self.is_set()

    execution = Execution(plan(""), tmp_path)
    execution._ended, execution.root_pid = Ended(), os.getpid()
    execution._follow_program(lambda _root: None)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.2, 60.0)


def test_a_run_ended_when_its_pod_did_whatever_had_to_be_deleted_after_it(node: Node) -> None:
    class InPod(Bare):
        find_span = Kubernetes.find_span

    learned = "open(os.environ['GPUAGENT_RUN_DIR'] + '/pod-0.json', 'w').write('{\"ended_unix_nano\": %d}' % seen)"
    code = f"seen = time.time_ns(); {learned}\nwhile time.time_ns() == seen: pass"
    node.runner.submit([plan(code, environment=InPod())], node.updates.put)
    update = node.until("succeeded")
    assert life(node)[1] == json.loads(Path(update.run_directory, "pod-0.json").read_text())["ended_unix_nano"]


def test_what_is_counted_in_another_run_of_the_program_is_no_part_of_its_run(node: Node) -> None:
    again = "report(event='phase', name='counters')\n" * 2
    node.runner.submit([plan(f"{NOTE.format('last')}{again}report(event='phase', name='end')")], node.updates.put)
    update = node.until("succeeded")
    events = [row for row in node.rows("run_events") if row["event"] == "phase"]
    first, second = sorted(int(row["time"]) for row in events if row["name"] == "counters")
    (end,) = (int(row["time"]) for row in events if row["name"] == "end")
    # The first time counts.
    assert noted(update, "last") < life(node)[1] == first < second < end


@pytest.mark.parametrize("ago_seconds", [3600, -3600])
def test_a_time_that_a_program_makes_up_is_not_the_end_of_its_run(node: Node, ago_seconds: int) -> None:
    made_up = f"report(event='phase', name='counters', t=time.time_ns() - {ago_seconds} * 10**9)\n"
    node.runner.submit([plan(f"{NOTE.format('began')}{made_up}{NOTE.format('last')}")], node.updates.put)
    update = node.until("succeeded")
    started, ended = life(node)
    assert started < noted(update, "began") < noted(update, "last") < ended < time.time_ns()


def test_a_clock_that_was_set_back_leaves_no_duration() -> None:
    assert RunTimes(launch_unix_nano=2_000_000_000, ended_unix_nano=1_000_000_000).seconds is None


LEAVES = f"""
import ctypes, signal
readable, writable = os.pipe()
if os.fork() == 0:
    os.setsid()
    ctypes.CDLL(None).prctl(15, b"NAME", 0, 0, 0)  # PR_SET_NAME
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
    os.write(writable, b"up")
    signal.sigwait({{signal.SIGTERM}})
    {NOTE.format("told")}
    os._exit(0)
os.read(readable, 2)
"""


@pytest.mark.parametrize(("name", "said"), [("left", "left"), ("", "unnamed")])
def test_processes_that_a_program_leaves_in_the_background_are_no_part_of_its_run_and_reported(
    node: Node, name: str, said: str
) -> None:
    node.runner.submit([plan(LEAVES.replace("NAME", name))], node.updates.put)
    update = node.until("succeeded")
    assert life(node)[1] < noted(update, "told")
    (left,) = (json.loads(row["detail"]) for row in node.rows("run_events") if row["event"] == "left")
    assert left == {"processes": 1, "names": [said]}
    assert f"1 process ({said})" in update.notice
    assert "`wait`" in update.notice


def test_a_process_that_ends_soon_after_its_program_was_not_left(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.runs.processes._PATIENCE_SECONDS", 600.0)
    code = "parent = os.getpid()\nif os.fork() == 0:\n    while os.getppid() == parent: pass\n    os._exit(0)\n"
    node.runner.submit([plan(code)], node.updates.put)
    assert node.until("succeeded").notice == ""
    node.pipeline.flush()
    assert not [row for row in node.rows("run_events") if row["event"] == "left"]
