#!/usr/bin/env python3
"""A Python for `gpuagent --python` whose workloads start side by side and measure in turns.

Most of a short run is its start: imports, data, the model. Several experiments at once hide that time, while a lock
(GPUAGENT_TURNS, a file) lets one process at a time warm up and measure. GPUAGENT_TURN_SECONDS replaces the 10 s of the
measured phase.
"""

import fcntl
import os
import runpy
import sys
from typing import Any


def take_turns(lock_file: str, seconds: float) -> None:
    """Hold the lock from the phase `warmup` to `teardown`; measure for so many seconds."""
    from gpuagent_workloads.report import Reporter
    from gpuagent_workloads.training import loop

    # Before any workload copies it.
    loop.MEASURE_SECONDS = seconds
    # Never closed: the end of the process releases the lock too.
    turns = os.open(lock_file, os.O_CREAT | os.O_RDWR)
    report_phase = Reporter.phase

    def phase(self: Reporter, name: str, **options: Any) -> None:
        if name == "warmup":
            fcntl.flock(turns, fcntl.LOCK_EX)
        report_phase(self, name, **options)
        if name == "teardown":
            fcntl.flock(turns, fcntl.LOCK_UN)

    Reporter.phase = phase  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1:2] != ["-c"] or sys.argv[3:4] != ["gpuagent_workloads"]:
        sys.exit("turns.py stands for Python in `gpuagent --python`: it runs gpuagent_workloads alone")
    sys.argv[1:4] = []
    if sys.argv[1:2] == ["run"]:
        take_turns(os.environ["GPUAGENT_TURNS"], float(os.environ.get("GPUAGENT_TURN_SECONDS", "10")))
    runpy.run_module("gpuagent_workloads", run_name="__main__", alter_sys=True)
