"""Runs trials, each in a process of its own: what one leaves behind in an allocator never tells on the next."""

import os
import signal
import subprocess
import sys

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.suite.memory_limit.trial import Outcome, Trial

_COMMAND = (sys.executable, "-m", "gpuagent_workloads.suite.memory_limit.trial_process")


def run_in_fresh_process(trial: Trial) -> Outcome:
    """Run a trial to its end.

    Raises:
        WorkloadError: it failed for another reason than memory.
    """
    # All but the smallest blocks come from the kernel and go back to it, so that a limit counts what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    # The process lives as long as somebody holds the write end; should this one be killed, nobody does.
    lifeline_read, lifeline_write = os.pipe()
    try:
        done = subprocess.run(
            [*_COMMAND, trial.as_json()],
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
    """Return what a trial's process said, or what its end says.

    Raises:
        WorkloadError: it failed for another reason than memory.
    """
    if exit_code == 0:
        return Outcome.from_json(output.splitlines()[-1])
    if exit_code == -signal.SIGKILL or (exit_code == -signal.SIGABRT and "bad_alloc" in errors):
        # By the kernel, for want of memory; or by C++, which could not allocate where nobody catches it.
        return Outcome(fits=False)
    last = (errors.strip().splitlines() or ["it said nothing"])[-1]
    raise WorkloadError(f"a trial failed with exit code {exit_code}: {last}")
