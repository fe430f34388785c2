import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.backoff import Backoff
from gpuagent_common.connection import configuration_folder
from gpuagent_common.errors import GpuAgentError, MisuseError
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


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no name."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31)
    with pytest.raises(GpuAgentError, match="set HOME"):
        configuration_folder()
