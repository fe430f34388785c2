import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.backoff import Backoff
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import (
    NO_LIMITS,
    CpuChange,
    Limits,
    make_limits,
    memory_text,
    parse_change,
    parse_memory,
    read_limits,
)
from gpuagent_proto.v1.run_pb2 import RunSpec


def test_equal_limits_have_equal_texts() -> None:
    one = make_limits(2.0, "1024M", ["cpus=4@60s", "cpus=8.0@30s"])
    assert str(one) == "cpus=2 memory=1G cpus=8@30s cpus=4@60s"
    assert str(one) == str(make_limits(2, "1G", ["cpus=8@30s", "cpus=4.0@60.0s"]))
    assert str(NO_LIMITS) == "none"


@given(st.integers(1, 10**6), st.sampled_from("KMGT"))
def test_memory_is_written_as_it_is_read(amount: int, unit: str) -> None:
    assert parse_memory(memory_text(parse_memory(f"{amount}{unit}"))) == parse_memory(f"{amount}{unit}")
    assert parse_memory("8G") == parse_memory("8g") == parse_memory("8GB") == parse_memory("8gib") == 8 * 2**30
    assert parse_memory(memory_text(parse_memory("1.0001K"))) == 1024
    assert parse_memory(memory_text(parse_memory("1.5K"))) == 1536


@pytest.mark.parametrize("text", ["8", "0G", "-1G", "8 G", "0.0001B", "", "G", "8X", "8GiBs"])
def test_an_invalid_size_of_memory_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="as 8G"):
        parse_memory(text)


@given(st.integers(1, 10**6), st.integers(0, 10**9))
def test_a_change_is_written_as_it_is_read(thousandths: int, milliseconds: int) -> None:
    change = CpuChange(cpus=thousandths / 1000 + 0.01, after_seconds=milliseconds / 1000)
    again = parse_change(str(change))
    assert (again.cpus, again.after_seconds) == pytest.approx((change.cpus, change.after_seconds))


@pytest.mark.parametrize("text", ["cpus=8", "cpus=8@60", "memory=8G@60s", "cpus=8@-1s", "cpus=8@60s ", "8@60s"])
def test_an_invalid_change_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="as cpus=8@60s"):
        parse_change(text)


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(MisuseError, match=r"0\.01 or more"):
        make_limits(0.0, None, ())
    with pytest.raises(MisuseError, match="same time"):
        make_limits(None, None, ["cpus=1@1s", "cpus=2@1.0s"])


CHANGES = st.dictionaries(st.integers(0, 10**6), st.integers(1, 1000), max_size=3)


@given(st.none() | st.floats(0.01, 1000), st.none() | st.integers(1, 2**50), CHANGES)
def test_limits_survive_the_wire(cpus: float | None, memory: int | None, changes: dict[int, int]) -> None:
    asked = make_limits(cpus, None, [f"cpus={number}@{seconds}s" for seconds, number in changes.items()])
    limits = Limits(cpus=asked.cpus, memory_bytes=memory, changes=asked.changes)
    spec = RunSpec()
    limits.write(spec)
    assert read_limits(spec) == limits


def test_delays_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5)
    assert [backoff.next_delay_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_delay_seconds() == 1


def test_a_retry_is_due_when_the_delay_has_passed() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=60)
    assert backoff.is_due(0)
    backoff.note_failure(10)
    assert (backoff.is_due(10.9), backoff.is_due(11)) == (False, True)
    backoff.note_failure(11)
    assert (backoff.is_due(12.9), backoff.is_due(13)) == (False, True)
    backoff.reset()
    assert backoff.is_due(0)


@pytest.mark.parametrize(("drawn", "delay"), [(0.5, 0.5), (1.0, 1.0)])
def test_jitter_shortens_a_delay(drawn: float, delay: float) -> None:
    def uniform(lowest: float, highest: float) -> float:
        assert (lowest, highest) == (0.5, 1.0)
        return drawn

    assert Backoff(first_seconds=1, longest_seconds=60, jitter=0.5, uniform=uniform).next_delay_seconds() == delay


def test_an_outage_of_any_length_has_a_delay() -> None:
    backoff = Backoff(first_seconds=0.5, longest_seconds=30, failures=100_000)
    assert backoff.next_delay_seconds() == 30


# Its thread never ends, so that Python waits for it on exit.
_STUCK = """
import threading
import click
from gpuagent_common.cli import run_command_line

@click.group()
def tool(): ...

@tool.command()
def stick():
    threading.Thread(target=threading.Event().wait).start()
    raise KeyboardInterrupt

run_command_line(tool)
"""


def test_a_second_interrupt_ends_an_exit_without_a_traceback() -> None:
    with subprocess.Popen([sys.executable, "-c", _STUCK, "stick"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        lines = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(signal.SIGINT)
        lines.append(process.stderr.read())
    assert lines == ["\n", "tool: interrupted\n", ""]
    assert process.returncode == -signal.SIGINT


_TOOL = """
import logging, os, sys, threading
import click
from gpuagent_common.cli import run_command_line
from gpuagent_common.unexpected import LineFormatter

class Remote(Exception): ...

@click.group()
def tool(): ...

@tool.command()
@click.argument("text", default="")
def show(text): click.echo(f"{text} {sys.stdout.isatty()}")

@tool.command()
def fail(): raise Remote("line one\\nline two " + "x" * 1000)

@tool.command()
def recurse(): recurse.callback()

@tool.command()
def exhaust(): raise MemoryError

@tool.command()
def look(): os.getcwd()

@tool.command()
def log():
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("tool: %(message)s"))
    logging.basicConfig(handlers=[handler])
    try:
        1 / 0
    except ZeroDivisionError:
        logging.exception("the source nvml")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

run_command_line(tool)
"""


def run_tool(folder: Path, *words: str | bytes, cwd: Path | None = None, **more: str) -> tuple[int, str, str]:
    environment = {**os.environ, "TMPDIR": str(folder), **more}
    done = subprocess.run(
        [sys.executable, "-c", _TOOL, *words], capture_output=True, cwd=cwd, env=environment, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


@pytest.mark.parametrize(("command", "kind"), [("fail", "Remote"), ("recurse", "RecursionError")])
def test_an_error_that_nobody_foresaw_is_one_line_and_its_traceback_in_a_private_file(
    tmp_path: Path, command: str, kind: str
) -> None:
    code, _, printed = run_tool(tmp_path, command)
    (report,) = tmp_path.glob("tool-error-*.txt")
    assert (code, printed.count("\n")) == (1, 1)
    assert printed.startswith(f"tool: unexpected {kind}: ")
    assert printed.endswith(f"please report it with {report}\n")
    assert "Traceback" in report.read_text()
    assert report.stat().st_mode & 0o077 == 0


def test_a_traceback_is_printed_where_it_is_wanted_and_one_line_where_no_file_can_be_written(tmp_path: Path) -> None:
    _, _, printed = run_tool(tmp_path, "fail", GPUAGENT_DEBUG="1")
    assert "Traceback" in printed
    assert "memory ran out" in run_tool(tmp_path, "exhaust")[2]


def test_errors_in_logs_and_threads_are_a_line_each(tmp_path: Path) -> None:
    code, _, printed = run_tool(tmp_path, "log")
    logged, thread = printed.splitlines()
    assert code == 0
    assert "source nvml: ZeroDivisionError:" in logged
    assert thread.startswith("tool: unexpected ZeroDivisionError")
    assert "Traceback" in run_tool(tmp_path, "log", GPUAGENT_DEBUG="1")[2]


def test_an_argument_or_folder_that_is_not_utf8_is_a_misuse(tmp_path: Path) -> None:
    foreign = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    foreign.mkdir()
    for printed in (run_tool(tmp_path, "show", b"caf\xe9"), run_tool(tmp_path, "show", cwd=foreign)):
        assert printed[0] == 2
        assert re.fullmatch("tool: .* not UTF-8: .*\n", printed[2])


def test_arguments_are_utf8_where_the_locale_has_no_letters(tmp_path: Path) -> None:
    printed = run_tool(tmp_path, "show", "café", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert printed == (0, "café False\n", "")


def test_a_deleted_working_directory_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    delete = 'rmdir "$0"; exec "$@"'
    command = ["sh", "-c", delete, str(folder), sys.executable, "-P", "-c", _TOOL, "look"]
    command.remove("-P") if sys.version_info < (3, 11) else None
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1].split(";")[0]) == (
        1,
        "tool: the working directory does not exist any more",
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_no_command(closed: str) -> None:
    command = ["sh", "-c", f'"$0" -c "$1" show {closed}', sys.executable, _TOOL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
