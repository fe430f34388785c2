"""Training over 1, 2, 4, … of this machine's GPUs, and the result of `collector scaling`."""

import subprocess

from benchmarks.gpu_workloads import run_on_gpu
from tests.support.servers import Node

# VGG-16 in batches of 64 is S2's.
WORKLOADS: tuple[tuple[str, ...], ...] = (
    ("vgg16", "--batch-size", "64"),
    ("resnet50", "--precision", "bf16", "--channels-last"),
    ("gpt", "--precision", "bf16"),
)


def measure(node: Node) -> None:
    """Train on every power of two of GPUs that there is, and print the tables."""
    gpus = len(subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.splitlines())
    for arguments in WORKLOADS:
        for ranks in (2**power for power in range(gpus.bit_length())):
            run_on_gpu(node, (*arguments, "--ranks", str(ranks)))
    print(node.run("collector", "scaling").stdout)
