"""Trials, each in a process of its own: the remains of one in an allocator never affect the next. Without torch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gpuagent_common.own_module import module_command
from gpuagent_workloads.errors import WorkloadError

_COMMAND = module_command(sys.executable, "gpuagent_workloads.suite.memory_limit.trial_process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of the input, (batch size, channels, side, side), which each layer keeps."""

    batch_size: int
    channels: int
    side: int
    # Of the convolutions.
    kernel: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Consecutive layers on one device, the convolutions first."""

    # As torch names it: cpu, cuda:0, …
    device: str
    conv: int
    fc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A stack of layers to train."""

    stages: tuple[Stage, ...]
    shape: Shape
    warmup: int
    steps: int
    # Of the stack on each device; None: all free memory.
    limit_bytes: int | None

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """Return the trial in a line of JSON."""
        members = json.loads(text)
        stages = tuple(Stage(**stage) for stage in members.pop("stages"))
        return cls(stages=stages, shape=Shape(**members.pop("shape")), **members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a trial."""

    fits: bool
    # Mean of the timed steps, each until all devices had done it; None: it did not fit.
    step_seconds: float | None = None
    # The part of it in which each stage computed, forward and backward.
    stage_seconds: Sequence[float] = ()
    # Of each device before the trial; of a CPU, the kernel's estimate. Empty: unknown.
    free_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator. Empty on a CPU.
    peak_allocated_bytes: Sequence[int] = ()
    # Of each GPU, by torch's allocator from the driver. Empty on a CPU.
    peak_reserved_bytes: Sequence[int] = ()


def run_in_fresh_process(trial: Trial) -> Outcome:
    """Run a trial to its end.

    Raises:
        WorkloadError: it failed for another reason than memory.
    """
    # All but the smallest blocks come from the kernel and go back to it, so that a limit counts the memory in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    # The process ends when the write end is closed, also by the death of this one.
    lifeline_read, lifeline_write = os.pipe()
    try:
        done = subprocess.run(
            [*_COMMAND, json.dumps(asdict(trial))],
            stdin=lifeline_read,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    finally:
        os.close(lifeline_read)
        os.close(lifeline_write)
    return outcome_of(done.returncode, done.stdout, done.stderr)


def outcome_of(exit_code: int, output: str, errors: str) -> Outcome:
    """Return the outcome that a trial's process printed, or that its exit code implies.

    Raises:
        WorkloadError: it failed for another reason than memory.
    """
    if exit_code == 0:
        return Outcome(**json.loads(output.splitlines()[-1]))
    if exit_code == -signal.SIGKILL or (exit_code == -signal.SIGABRT and "bad_alloc" in errors):
        # By the kernel, out of memory; or by C++, which failed to allocate outside any handler.
        return Outcome(fits=False)
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    raise WorkloadError(f"a trial failed with exit code {exit_code}: {last}")
