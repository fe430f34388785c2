#!/usr/bin/env python3
"""Five jobs that hold one GPU: which of them the agent calls idle, at each of its looks.

    PATH=…:$PATH python3 -m benchmarks.on_gpu.held [--seconds 560] [--faster 60]

Two are idle: one sleeps with 60 GB of the GPU's memory, one was given the GPU and does not use it. Three are not: one
waits for its data nearly all the time, one compiles between two kernels, one computes. `--faster` divides the agent's
limits of 15 and 60 minutes, and with them the pauses of the jobs, so that a hundred looks take minutes. It starts a
collector and an agent of its own in a temporary folder, and needs no Slurm: the jobs have its variables.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.on_gpu.observed import Site

# Seconds without a kernel of the jobs that are not idle, in the agent's own time.
_LOADING_SECONDS, _COMPILING_SECONDS = 5 * 60.0, 30 * 60.0
_IDLE = {"asleep": True, "unused": True, "starved": False, "compiling": False, "busy": False}

_START = """
import sys
from gpuagent.sources.support import owner
owner.IDLE_SECONDS /= {faster}
owner.LONGEST_PREPARATION_SECONDS /= {faster}
from gpuagent.cli import main
sys.argv = ["gpuagent", "start", "--owners", "full", "--node-name", "held", "--platform", "one-gpu"]
main()
"""

_LOOKS = """
WITH first AS (SELECT owner_id, min(time) AS time FROM owner_samples GROUP BY owner_id)
SELECT job, count(*) AS looks, count(*) FILTER (idle_now_seconds > 0) AS idle, max(gpu_seconds) AS gpu_seconds,
    max(gpu_memory_used_bytes) / 1e9 AS gigabytes
FROM owner_samples AS sample JOIN first USING (owner_id)
JOIN (SELECT DISTINCT owner_id, job FROM owners) USING (owner_id)
WHERE device_id IS NOT NULL AND epoch(sample.time - first.time) > {settled} GROUP BY job ORDER BY job
"""


def hold(kind: str, faster: float) -> None:
    """Hold the GPU as the job does, until this process is ended."""
    if kind == "unused":
        time.sleep(86_400)
    import torch

    memory = torch.zeros(60 * 10**9 if kind == "asleep" else 1, dtype=torch.uint8, device="cuda")
    matrix = torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    while kind == "asleep":
        time.sleep(60)
        assert memory.is_cuda
    while True:
        if kind == "starved":
            time.sleep(_LOADING_SECONDS / faster)
        elif kind == "compiling":
            end = time.monotonic() + _COMPILING_SECONDS / faster
            while time.monotonic() < end:
                sum(range(10**5))
        for _ in range(50):
            matrix @ matrix
        torch.cuda.synchronize()


def main() -> None:
    """Start the jobs, wait, and print what the agent said of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--faster", type=float, default=60.0)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.hold:
        hold(asked.hold, asked.faster)
    with tempfile.TemporaryDirectory() as name:
        site = Site(Path(name), 0)
        jobs: list[subprocess.Popen[bytes]] = []
        try:
            site.start([sys.executable, "-c", _START.format(faster=asked.faster)])
            for number, kind in enumerate(_IDLE, 1):
                given = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NAME": kind, "SLURM_JOB_GPUS": "0"}
                program = [os.environ.get("PROGRAM_PYTHON", sys.executable), "-m", "benchmarks.on_gpu.held"]
                program += ["--hold", kind, "--faster", str(asked.faster)]
                jobs.append(subprocess.Popen(program, env={**site.environment, **given}))
            time.sleep(asked.seconds)
            # Idle counts once the limit has passed, and is seen at the next look.
            looks = site.ask(_LOOKS.format(settled=15 * 60 / asked.faster + 30))
        finally:
            for job in jobs:
                job.kill()
                job.wait()
            site.stop()
    for row in looks:
        kind = [*_IDLE][int(row["job"]) - 1]
        right = row["idle"] if _IDLE[kind] else row["looks"] - row["idle"]
        print(
            f"{kind:<10} right at {right} of {row['looks']} looks, "
            f"kernels {row['gpu_seconds'] or 0:.1f} s, {row['gigabytes'] or 0:.1f} GB"
        )


if __name__ == "__main__":
    main()
