"""An elastic training that loses a rank: kills one worker during the run, and prints the cost."""

import json
import subprocess
from pathlib import Path

import psutil
import torch

from tests.support.servers import BIN, Node, until

WORKLOAD = ("resnet50", "--precision", "bf16", "--channels-last")
STEPS, CHECKPOINT_EVERY, KILL_AT = 1500, 200, 700

_FIGURES = (
    "ranks",
    "restarts",
    "recovery_seconds",
    "work_lost_steps",
    "work_lost_seconds",
    "checkpoint_seconds",
    "throughput_before",
    "throughput_during",
    "throughput_after",
)


def measure(node: Node) -> None:
    """Train on two GPUs, or on all of fewer, and kill one rank."""
    ranks = min(2, torch.cuda.device_count())
    checkpoint = node.folder / "checkpoint"
    elastic = ("--elastic", "1:1", "--steps", STEPS, "--checkpoint-every", CHECKPOINT_EVERY, "--checkpoint", checkpoint)
    command = [str(BIN / "gpuagent"), "run", *WORKLOAD, "--ranks", ranks, *elastic, "--json"]
    process = subprocess.Popen(
        [str(word) for word in command], env=node.environment, cwd=node.folder, stdout=subprocess.PIPE, text=True
    )
    until(lambda: _has_reached(checkpoint / "steps.log"), f"step {KILL_AT}")
    victim = _ranks_of(process.pid)[-1]
    victim.kill()
    output, _ = process.communicate()
    (run,) = json.loads(output)
    print(f"{' '.join(WORKLOAD)}, {ranks} ranks, one killed at step {KILL_AT} of {STEPS}: {run['status']}")
    for name in _FIGURES:
        print(f"  {name}: {run['results'].get(name)}", flush=True)


def _has_reached(log: Path) -> bool:
    return log.is_file() and f"\nstep {KILL_AT} " in log.read_text()


def _ranks_of(pid: int) -> list[psutil.Process]:
    """Return the processes of the ranks below `pid`."""
    below = psutil.Process(pid).children(recursive=True)
    return [process for process in below if "gpuagent_workloads.rank" in process.cmdline()]
