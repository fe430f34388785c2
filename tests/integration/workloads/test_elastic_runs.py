"""Elastic training through torchrun's launcher: ranks that are killed, and nodes that join, in mid-run."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from gpuagent_workloads.training.restarts import Attempt, read_log
from tests.support.servers import until
from tests.unit.workloads.runs import (
    assert_gone,
    environment_with,
    of_kind,
    phases_of,
    read_events,
    results_of,
    workloads_command,
)

pytestmark = pytest.mark.slow

SMALL = ("--device", "cpu", "--threads", "1", "--batch-size", "4", "--warmup", "1", "--checkpoint-every", "10")


@contextmanager
def nodes(run_directory: Path, digits: Path, *arguments: str) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Yield what starts one more node of a run; whatever still runs in the end is stopped."""
    command = workloads_command("run", "mnist", *SMALL, "--data", str(digits), *arguments)
    environment = environment_with(GPUAGENT_RUN_DIR=str(run_directory), TMPDIR=str(run_directory))

    with ExitStack() as running:

        def start() -> "subprocess.Popen[str]":
            node = running.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
            )
            running.callback(node.kill)
            return node

        yield start


def wait_until(condition: Callable[[Sequence[Attempt]], bool], log: Path) -> None:
    """Read the log of steps until it shows something."""
    until(lambda: log.exists() and condition(read_log(log)), "what the log shows")


def test_a_run_survives_a_rank_that_is_killed_and_says_what_that_cost(tmp_path: Path, digits: Path) -> None:
    log = tmp_path / "checkpoint" / "steps.log"
    with nodes(tmp_path, digits, "--ranks", "2", "--elastic", "1:1", "--steps", "100") as start:
        node = start()
        wait_until(lambda attempts: any(attempt.last >= 15 for attempt in attempts), log)
        psutil.Process(node.pid).children()[1].kill()
        output, errors = node.communicate()
    assert (node.returncode, "error" in errors) == (0, False)
    assert "recovery_seconds" in output
    first, last = read_log(log)
    assert last.first == max(first.saved) >= 10
    before, after = (read_events(tmp_path / f"events.0.{restart}.jsonl") for restart in range(2))
    assert phases_of(before)[:4] == ["prepare", "setup", "warmup", "measure"]
    assert phases_of(after) == ["prepare", "setup", "measure", "teardown", "end"]
    assert [event["step"] for event in of_kind(after, "step")] == list(range(last.first, 100))
    (recovery,) = of_kind(after, "recovery")
    assert (recovery["last_step"], recovery["resumed_step"]) == (first.last, last.first)
    results = results_of(after)
    assert (results["steps"], results["restarts"], results["ranks"]) == (100, 1, 2)
    assert results["work_lost_steps"] == first.last - last.first
    assert results["throughput_during"] < results["throughput"] < results["throughput_before"]
    assert (results["ranks_before"], results["ranks_after"]) == (2, 2)
    # Each rank reports its share of the same net throughput.
    other = results_of(read_events(tmp_path / "events.1.1.jsonl"))
    assert other["throughput"] == results["throughput"]
    seconds = (last.done[100] - first.began_unix_nano) / 1e9
    assert results["throughput"] == pytest.approx(100 * 4 / seconds)


def test_a_node_that_joins_in_mid_run_makes_the_world_larger(tmp_path: Path, digits: Path, meeting: str) -> None:
    shared = tmp_path / "shared"
    more = ("--elastic", "1:2", "--rendezvous", meeting, "--checkpoint", str(shared), "--epochs", "100000")
    with nodes(tmp_path, digits, *more) as start:
        first = start()
        wait_until(lambda attempts: any(attempt.last >= 5 for attempt in attempts), shared / "steps.log")
        second = start()
        wait_until(lambda attempts: len(attempts) > 1 and len(attempts[1].done) >= 5, shared / "steps.log")
        ranks = [rank for node in (first, second) for rank in psutil.Process(node.pid).children()]
        for node in (first, second):
            node.send_signal(signal.SIGTERM)
        errors = [node.communicate()[1] for node in (first, second)]
    assert [node.returncode for node in (first, second)] == [143, 143], errors
    assert len(ranks) >= 2
    assert_gone(ranks)
    alone, together = read_log(shared / "steps.log")[:2]
    assert (alone.ranks, together.ranks) == (1, 2)
    # Only work since the last checkpoint is repeated; the last one may lack its line in the log.
    assert max(alone.saved) <= together.first <= alone.last
    assert results_of(read_events(tmp_path / "events.1.0.jsonl"))["ranks"] == 2
