"""Ranks as processes, over gloo."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from gpuagent_workloads.data.cifar import IMAGE_BYTES
from gpuagent_workloads.suite.mnist.data import make_digits
from tests.unit.workloads.runs import (
    assert_gone,
    measuring,
    of_kind,
    phases_of,
    read_events,
    results_of,
    run_torchrun,
    run_workloads,
    write_mnist,
)

pytestmark = pytest.mark.slow

SMALL = ("--device", "cpu", "--threads", "1", "--warmup", "1")


@pytest.mark.usefixtures("forked_ranks")
def test_two_ranks_train_as_one_on_batches_of_twice_the_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    records = np.random.default_rng(1).integers(0, 256, (200, 1 + IMAGE_BYTES), dtype=np.uint8)
    records[:, 0] %= 10
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(records.tobytes())
    for directory, more in ((alone, ("--batch-size", "8")), (together, ("--batch-size", "4", "--ranks", "2"))):
        directory.mkdir()
        some = (*SMALL, *more, "--steps", "21", "--data", str(tmp_path))
        done = run_workloads("run", "cifar10", *some, GPUAGENT_RUN_DIR=str(directory))
        assert done.returncode == 0, done.stderr
    # Of the ranks, which are processes, only the first says what happens.
    said = capfd.readouterr()
    assert said.err.splitlines().count("cifar10: measure") == 1
    assert len([line for line in said.out.splitlines() if line.startswith("throughput ")]) == 1
    one = read_events(alone / "events.0.0.jsonl")
    both = [read_events(together / f"events.{rank}.0.jsonl") for rank in range(2)]
    for events in both:
        assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
        assert {event["items"] for event in of_kind(events, "step")} == {4}
        results = results_of(events)
        assert (results["ranks"], results["steps"]) == (2, 21)
        assert 2 * results["model_flops_per_step"] == results_of(one)["model_flops_per_step"]
    # The mean of what both computed on their halves of a batch is what one computes on all of it.
    losses = [[event["value"] for event in of_kind(events, "metric")] for events in (one, *both)]
    for whole, first, second in zip(*losses, strict=True):
        assert (first + second) / 2 == pytest.approx(whole, rel=1e-3)
        assert first != second


AGREE = """
from gpuagent_workloads.training.ranks import AgreedEnd
from gpuagent_workloads.training.ranks import Ranks
import pathlib, sys, torch

ranks = Ranks.from_environment()
ranks.join(torch.device("cpu"))
end, steps = AgreedEnd(ranks, least_seconds=10), 0
# Each rank's clock says something else; rank 0's, a tenth of a second a step.
while not end(steps, steps * (0.1 + ranks.rank)):
    steps += 1
pathlib.Path(sys.argv[1], str(ranks.rank)).write_text(str(steps))
ranks.leave()
"""


def test_ranks_that_torchrun_started_end_after_the_same_step_by_rank_0s_clock(tmp_path: Path) -> None:
    script = tmp_path / "agree.py"
    script.write_text(AGREE)
    name = Path("/proc/self/comm").read_text()
    run_torchrun(script, tmp_path)
    assert Path("/proc/self/comm").read_text() == name
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["100", "100"]


@contextmanager
def measuring_ranks(folder: Path, digits: Path) -> Iterator[tuple["subprocess.Popen[str]", list[psutil.Process]]]:
    """Two ranks of mnist that have begun to measure: the process that was started, and theirs."""
    endless = ("--ranks", "2", "--batch-size", "8", "--data", str(digits), "--epochs", "100000")
    # What is killed cannot tidy up.
    with measuring("mnist", *SMALL, *endless, TMPDIR=str(folder)) as process:
        yield process, psutil.Process(process.pid).children(recursive=True)


def test_ctrl_c_ends_all_ranks(tmp_path: Path, digits: Path) -> None:
    with measuring_ranks(tmp_path, digits) as (process, ranks):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "error" not in errors
    assert_gone(ranks)


def test_a_rank_that_is_killed_fails_the_run_in_one_line_and_ends_the_other(tmp_path: Path, digits: Path) -> None:
    with measuring_ranks(tmp_path, digits) as (process, ranks):
        ranks[1].kill()
        _, errors = process.communicate()
    assert process.returncode == 1
    assert [line for line in errors.splitlines() if "mnist: " not in line] == [
        "error: rank 1 was ended by SIGKILL: perhaps memory ran out"
    ]
    assert_gone(ranks)


def test_ranks_end_when_what_started_them_is_killed(tmp_path: Path, digits: Path) -> None:
    with measuring_ranks(tmp_path, digits) as (process, ranks):
        process.kill()
        process.communicate()
    assert_gone(ranks)


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize(
    ("data", "code", "complaint"),
    [
        ("digits", 2, "error: --batch-size 15 on 2 ranks is more than the 20 training samples"),
        ("nowhere", 1, "nowhere has neither train-images-idx3-ubyte nor"),
    ],
)
def test_what_ranks_complain_of_is_said_once(
    data: str, code: int, complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits").mkdir()
    write_mnist(tmp_path / "digits", *make_digits(20, np.random.default_rng(1)))
    done = run_workloads("run", "mnist", *SMALL, "--ranks", "2", "--batch-size", "15", "--data", str(tmp_path / data))
    said = (done.stderr + capfd.readouterr().err).splitlines()
    (error,) = (line for line in said if "mnist: " not in line)
    assert error.startswith("error: ")
    assert complaint in error
    assert done.returncode == code
