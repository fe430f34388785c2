"""Our workloads beside plain code, each in a process of its own, in turn."""

import json
import subprocess
import sys

from benchmarks.gpu_workloads import run_on_gpu
from tests.support.servers import Node


def measure(node: Node) -> None:
    """Print the ratios for the throughput of ResNet-50 and Llama 1b, and for the roofs."""
    ours = run_on_gpu(node, ("resnet50", "--precision", "bf16", "--channels-last"))["results"]["throughput"]
    _print("resnet50 bf16 channels-last, images/s", ours, float(_plain("plain_loop")))
    ours = run_on_gpu(node, ("llama", "--model", "1b", "--precision", "bf16"))["results"]["throughput"]
    _print("llama 1b bf16, tokens/s", ours, float(_plain("on_gpu.plain_llama")))
    roofs = run_on_gpu(node, ("ceilings", "--ranks", "1"))["results"]
    for name, plain in json.loads(_plain("plain_roofs")).items():
        _print(name, roofs[name], plain)


def _plain(module: str) -> str:
    command = [sys.executable, "-m", f"benchmarks.{module}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[-2]


def _print(name: str, ours: float, plain: float) -> None:
    print(f"{name}: ours {ours:.5g}, plain {plain:.5g}, ratio {ours / plain:.3f}", flush=True)
