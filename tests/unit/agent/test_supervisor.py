import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from gpuagent.environments.environment import Launch
from gpuagent.runs import processes, supervisor
from gpuagent.runs.processes import SupervisedProcess, read_unread_end
from gpuagent.runs.supervisor import CANNOT_START, STOPPED_BY_AGENT, UNREAD_NEWS, _report
from tests.support.servers import LIMIT_SECONDS, until

PYTHON = [sys.executable, "-c"]
SLEEPING = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
DAEMON = """
import os, time
readable, writable = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(writable, b"up")
        time.sleep(600)
    os._exit(0)
os.read(readable, 2)
"""


def started(
    program: list[str],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    grace: float = 60.0,
    afterwards: Sequence[Sequence[str]] = (),
    passes_signals: bool = False,
) -> SupervisedProcess:
    return SupervisedProcess(
        Launch(command=program, grace_seconds=grace, afterwards=afterwards, passes_signals=passes_signals),
        run_directory=directory,
        environment={**os.environ, **(environment or {})},
        working_directory=None,
    )


def wait_for_line(file: Path) -> str:
    until(lambda: file.exists() and "\n" in file.read_text(), "the first line")
    return file.read_text().splitlines()[0]


def stopped(process: SupervisedProcess, directory: Path) -> str:
    line = wait_for_line(directory / "stdout")
    process.stop()
    assert process.wait() == STOPPED_BY_AGENT
    return line


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(42)", 42),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
)
def test_the_exit_code_or_signal_of_the_program_is_returned(tmp_path: Path, program: str, code: int) -> None:
    assert started([*PYTHON, program], tmp_path).wait() == code


@pytest.mark.parametrize("is_stopped", [False, True])
def test_commands_for_afterwards_run_for_every_end_of_the_program(tmp_path: Path, is_stopped: bool) -> None:
    afterwards = [["/missing"], ["false"], ["echo", "tidied"]]
    program = [*PYTHON, SLEEPING] if is_stopped else ["sh", "-c", "exit 3"]
    process = started(program, tmp_path, grace=0.1, afterwards=afterwards)
    if is_stopped:
        stopped(process, tmp_path)
    else:
        assert process.wait() == 3
    assert (tmp_path / "afterwards").read_text() == "tidied\n"


def test_a_container_that_appears_after_the_stop_is_removed(tmp_path: Path) -> None:
    comes = ["sh", "-c", f"mkdir '{tmp_path}/container' && exit 1; rmdir '{tmp_path}/container' && echo tidied"]
    stopped(started([*PYTHON, SLEEPING], tmp_path, afterwards=[comes]), tmp_path)
    assert (tmp_path / "afterwards").read_text().endswith("tidied\n")


def test_a_program_that_ignores_sigterm_is_killed_after_the_commands_for_afterwards(tmp_path: Path) -> None:
    program = ["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 600; done"]
    sees = ["sh", "-c", f"kill -0 $(cat '{tmp_path}/stdout') && echo alive"]
    pid = int(stopped(started(program, tmp_path, grace=0.1, afterwards=[sees]), tmp_path))
    assert ((tmp_path / "afterwards").read_text(), is_gone(pid)) == ("alive\n", True)


def test_output_and_the_cause_of_a_failed_start_go_to_files(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['GPUAGENT_RUN_DIR']); print(os.environ['X'], file=sys.stderr)"
    started([*PYTHON, program], tmp_path, {"X": "y"}).wait()
    assert (tmp_path / "stdout").read_text().strip() == str(tmp_path)
    assert (tmp_path / "stderr").read_text() == "y\n"
    assert started([str(tmp_path / "missing")], tmp_path).wait() == CANNOT_START
    assert "cannot start" in (tmp_path / "stderr").read_text()


def test_a_stopped_program_gets_sigterm_first(tmp_path: Path) -> None:
    program = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15});"
        "print('up', flush=True); signal.sigwait({15}); print('bye', flush=True)"
    )
    stopped(started([*PYTHON, program], tmp_path), tmp_path)
    assert (tmp_path / "stdout").read_text() == "up\nbye\n"


# Signals are blocked and waited for: a handler could run just before pause(), which then never returns.
PARENT_AND_WORKER = """
import os, signal
awaited = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
worker = os.fork()
if worker:
    print("up", flush=True)
if signal.sigwait(awaited) == signal.SIGTERM:
    open(os.environ["GPUAGENT_RUN_DIR"] + ("/program" if worker else "/worker"), "w").close()
if worker and os.environ["PASSES"]:
    os.kill(worker, signal.SIGUSR1)
"""


@pytest.mark.parametrize(("passes_signals", "heard"), [(False, ["program", "worker"]), (True, ["program"])])
def test_who_passes_signals_on_gets_sigterm_alone(tmp_path: Path, passes_signals: bool, heard: list[str]) -> None:
    environment = {"PASSES": "yes" if passes_signals else ""}
    stopped(started([*PYTHON, PARENT_AND_WORKER], tmp_path, environment, passes_signals=passes_signals), tmp_path)
    assert [name for name in ("program", "worker") if (tmp_path / name).exists()] == heard


def test_nothing_of_the_program_outlives_it_not_even_a_daemon(tmp_path: Path) -> None:
    process = started([*PYTHON, DAEMON], tmp_path)
    assert process.wait() == 0
    assert is_gone(int(wait_for_line(tmp_path / "stdout")))


@pytest.mark.parametrize(("name", "number"), [("PR_SET_CHILD_SUBREAPER", 36), ("PR_SET_PDEATHSIG", 1)])
def test_a_kernel_that_lets_processes_escape_is_a_warning_once(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processes._warn_of_refusal.cache_clear()
    # No kernel knows this option; the news has the number of the real one.
    unknown = Path(supervisor.__file__).read_text().replace(f"{name} = {number}", f"{name} = 10**6 + {number}")
    copy = tmp_path / "supervisor.py"
    copy.write_text(unknown.replace("{option}", "{option % 10**6}"))
    monkeypatch.setattr(supervisor, "__file__", str(copy))
    for _ in range(2):
        process = started([*PYTHON, "print('fine')"], tmp_path)
        assert process.wait() == 0
        assert process.started_unix_nano is not None
    (record,) = caplog.records
    assert (record.levelname, name in record.getMessage()) == ("WARNING", True)
    assert len(record.getMessage()) <= 160


def test_when_the_supervisor_is_killed_the_program_ends_too(tmp_path: Path) -> None:
    process = started([*PYTHON, SLEEPING], tmp_path)
    pid = int(wait_for_line(tmp_path / "stdout"))
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    until(lambda: is_gone(pid), "the program's end")


def test_when_the_agent_is_killed_the_program_ends_too(tmp_path: Path) -> None:
    agent = (
        "import sys; from pathlib import Path; from gpuagent.runs.processes import Launch, SupervisedProcess;"
        "d = Path(sys.argv[1]);"
        f"launch = Launch(command=[sys.executable, '-c', {SLEEPING!r}], grace_seconds=1);"
        "p = SupervisedProcess(launch, run_directory=d, environment={}, working_directory=None);"
        "print(p.pid, flush=True); p.wait()"
    )
    outer, inner = tmp_path / "agent", tmp_path / "run"
    outer.mkdir()
    inner.mkdir()
    process = started([*PYTHON, agent, str(inner)], outer)
    supervisor = int(wait_for_line(outer / "stdout"))
    pid = int(wait_for_line(inner / "stdout"))
    (agent_pid,) = (int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    killed = time.time_ns()
    os.kill(agent_pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert is_gone(pid)
    assert is_gone(supervisor)
    ended = read_unread_end(inner)
    assert ended is not None
    assert killed < ended < time.time_ns()


def test_a_file_that_the_program_put_in_place_of_the_unread_news_stops_nothing(tmp_path: Path) -> None:
    news = tmp_path / UNREAD_NEWS
    now = time.time_ns()
    for text in (
        "",
        "ended ",
        "ended soon\n",
        "ended -5\n",
        f"ended {2 * now}\n",
        f"ended {'9' * 5000}\n",
        "\xff" * 9999,
    ):
        news.write_text(text, encoding="latin-1")
        assert read_unread_end(tmp_path) is None
    news.write_text(f"started 5\nended {now}\n")
    assert read_unread_end(tmp_path) == now
    news.rename(tmp_path / "elsewhere")
    news.symlink_to(tmp_path / "elsewhere")
    assert read_unread_end(tmp_path) is None


def test_a_pipe_in_place_of_unread_news_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / UNREAD_NEWS)
    monkeypatch.setenv("GPUAGENT_RUN_DIR", str(tmp_path))
    closed = os.open("/dev/null", os.O_RDONLY)
    reported = threading.Thread(target=_report, args=(closed, "ended 5"), daemon=True)
    read = threading.Thread(target=read_unread_end, args=(tmp_path,), daemon=True)
    for thread in (reported, read):
        thread.start()
        thread.join(timeout=LIMIT_SECONDS)
        assert not thread.is_alive()
    os.close(closed)


ORPHANS = """
import os, time
for _ in range(50):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
print("made", flush=True)
time.sleep(600)
"""


def test_ended_orphans_are_collected_while_the_program_runs(tmp_path: Path) -> None:
    process = started([*PYTHON, ORPHANS], tmp_path)
    wait_for_line(tmp_path / "stdout")
    supervisor = psutil.Process(process.pid)
    until(lambda: len(supervisor.children()) == 1, "the orphans' end")
    (program,) = supervisor.children()
    assert ORPHANS in program.cmdline()
    process.stop()
    process.wait()


def test_a_short_program_begins_before_its_first_instruction_and_gets_its_input(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("given\n")
    process = SupervisedProcess(
        Launch(command=["sh", "-c", "date +%s%N; cat"]),
        run_directory=tmp_path,
        environment=os.environ,
        working_directory=None,
        input_file=tmp_path / "input",
    )
    assert process.wait() == 0
    first, given = (tmp_path / "stdout").read_text().splitlines()
    assert process.started_unix_nano
    assert process.ended_unix_nano
    assert process.started_unix_nano <= int(first) <= process.ended_unix_nano
    assert given == "given"
