"""`make bench-gpu`: on a machine with NVIDIA GPUs. Arguments choose parts; others are names of workloads.

It prints the tables of docs/benchmarks.md: every workload through the agent, counted operations, our workloads beside
plain code, several ranks, and a training that loses one.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.support.servers import BIN, Node, until

# The studies' settings.
WORKLOADS: tuple[tuple[str, ...], ...] = (
    ("mnist",),
    ("cifar10",),
    ("gcn",),
    *(("sentiment", "--model", model) for model in ("rnn", "lstm", "gru", "transformer")),
    *(
        (name, "--precision", precision)
        for name in ("alexnet", "resnet18", "resnet50")
        for precision in ("fp32", "tf32")
    ),
    ("vgg16", "--batch-size", "128"),
    ("vgg16", "--batch-size", "128", "--order", "swapped"),
    ("resnet50", "--precision", "bf16", "--channels-last"),
    ("biggan",),
    ("gpt", "--precision", "bf16"),
    ("gpt", "--precision", "bf16", "--compile"),
    ("llama", "--model", "1b", "--precision", "bf16"),
    ("llama", "--model", "1b", "--precision", "bf16", "--compile"),
    ("vit", "--precision", "bf16"),
    ("bert", "--precision", "bf16"),
    *(("layer", "--layer", layer) for layer in ("relu", "maxpool", "conv", "linear")),
)

_FIGURES = """
SELECT run_id,
       (SELECT median(gpu_seconds) FROM steps WHERE run_id = metrics.run_id AND phase = 'measure') AS step_seconds,
       max(value) FILTER (metric = 'throughput') AS throughput,
       max(value) FILTER (metric = 'gpu_memory_used_bytes') AS memory_bytes,
       max(value) FILTER (metric = 'gpu_power_watts') AS power_watts,
       max(value) FILTER (metric = 'gpu_utilization_percent') AS utilization_percent
FROM metrics GROUP BY run_id
"""

_HEADER = (
    "| workload | step | GPU busy, gap a step | throughput | model FLOPs a step | MFU (peak) | GPU memory, peak "
    "| power | utilisation |\n|---|---|---|---|---|---|---|---|---|"
)


def run_workloads(node: Node, wanted: Sequence[str]) -> None:
    """Run the workloads, or those named, and print the table as it grows."""
    print(_HEADER)
    for arguments in WORKLOADS:
        if not wanted or arguments[0] in wanted:
            run = run_on_gpu(node, arguments)
            print(_row(arguments, run, _figures_of(node, run["run_id"])), flush=True)


def run_on_gpu(node: Node, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one workload through the agent and return what `--json` prints of it."""
    done = node.run("gpuagent", "run", *arguments, "--device", "cuda", "--json")
    (run,) = json.loads(done.stdout)
    return dict(run)


def _figures_of(node: Node, run_id: str) -> dict[str, float | None]:
    rows = json.loads(node.run("collector", "query", "sql", _FIGURES, "--json").stdout)
    return next(row for row in rows if row["run_id"] == run_id)


def _row(arguments: Sequence[str], run: dict[str, Any], figures: dict[str, float | None]) -> str:
    results = run["results"]
    mfu = f"{results['mfu']:.1f} % ({results['mfu_peak']})" if "mfu" in results else "–"
    busy, gap = (scaled(results.get(f"gpu_{part}_seconds_per_step"), 1e3, "ms") for part in ("busy", "gap"))
    cells = (
        f"`{' '.join(arguments)}`",
        scaled(figures["step_seconds"], 1e3, "ms"),
        f"{busy}, {gap}",
        scaled(figures["throughput"], 1, "items/s"),
        scaled(results.get("model_flops_per_step"), 1e-9, "GFLOP"),
        mfu,
        scaled(figures["memory_bytes"], 1e-9, "GB"),
        scaled(figures["power_watts"], 1, "W"),
        scaled(figures["utilization_percent"], 1, "%"),
    )
    return f"| {' | '.join(cells)} |"


def scaled(value: float | None, factor: float, unit: str) -> str:
    """Return a figure for people, in another unit; a dash where there is none."""
    return "–" if value is None else f"{value * factor:,.4g} {unit}"


_COUNTED: tuple[tuple[str, ...], ...] = (
    ("mnist",),
    ("resnet18", "--precision", "fp32"),
    ("resnet18", "--precision", "tf32"),
    ("resnet18", "--precision", "bf16", "--channels-last"),
)

_COUNTED_HEADER = (
    "| workload | model FLOPs a step | executed | executed by model | of them in tensor cores | device memory traffic "
    "| at least |\n|---|---|---|---|---|---|---|"
)


def count_operations(node: Node) -> None:
    """Run a few workloads with their counters and print the table."""
    print(_COUNTED_HEADER)
    for arguments in _COUNTED:
        results = run_on_gpu(node, (*arguments, "--steps", "20", "--counters", "ncu"))["results"]
        if "counters_failed" in results:
            print(f"{arguments}: {results['counters_failed']}")
            continue
        model, executed = results["model_flops_per_step"], results["executed_flops_per_step"]
        cells = (
            f"`{' '.join(arguments)}`",
            scaled(model, 1e-9, "GFLOP"),
            scaled(executed, 1e-9, "GFLOP"),
            f"{executed / model:.3f}",
            f"{100 * results['executed_tensor_flops_per_step'] / executed:.1f} %",
            scaled(results["dram_bytes_per_step"], 1e-6, "MB"),
            scaled(results["minimum_bytes_per_step"], 1e-6, "MB") if "minimum_bytes_per_step" in results else "–",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def compare_with_plain(node: Node) -> None:
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


# VGG-16 in batches of 64 is S2's.
_SCALED: tuple[tuple[str, ...], ...] = (
    ("vgg16", "--batch-size", "64"),
    ("resnet50", "--precision", "bf16", "--channels-last"),
    ("gpt", "--precision", "bf16"),
)


def scale(node: Node) -> None:
    """Train on every power of two of GPUs that there is, and print the tables."""
    gpus = len(subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.splitlines())
    for arguments in _SCALED:
        for ranks in (2**power for power in range(gpus.bit_length())):
            run_on_gpu(node, (*arguments, "--ranks", str(ranks)))
    print(node.run("collector", "scaling").stdout)


_TRAINED = ("resnet50", "--precision", "bf16", "--channels-last")
STEPS, CHECKPOINT_EVERY, KILL_AT = 1500, 200, 700

_OF_RESTARTS = (
    *("ranks", "restarts", "recovery_seconds", "work_lost_steps", "work_lost_seconds", "checkpoint_seconds"),
    *("throughput_before", "throughput_during", "throughput_after"),
)


def lose_rank(node: Node) -> None:
    """Train on two GPUs, or on all of fewer, and kill one rank."""
    ranks = min(2, torch.cuda.device_count())
    checkpoint = node.folder / "checkpoint"
    elastic = ("--elastic", "1:1", "--steps", STEPS, "--checkpoint-every", CHECKPOINT_EVERY, "--checkpoint", checkpoint)
    command = [str(BIN / "gpuagent"), "run", *_TRAINED, "--ranks", ranks, *elastic, "--json"]
    process = subprocess.Popen(
        [str(word) for word in command], env=node.environment, cwd=node.folder, stdout=subprocess.PIPE, text=True
    )
    until(lambda: _has_reached(checkpoint / "steps.log"), f"step {KILL_AT}")
    victim = _ranks_of(process.pid)[-1]
    victim.kill()
    output, _ = process.communicate()
    (run,) = json.loads(output)
    print(f"{' '.join(_TRAINED)}, {ranks} ranks, one killed at step {KILL_AT} of {STEPS}: {run['status']}")
    for name in _OF_RESTARTS:
        print(f"  {name}: {run['results'].get(name)}", flush=True)


def _has_reached(log: Path) -> bool:
    return log.is_file() and f"\nstep {KILL_AT} " in log.read_text()


def _ranks_of(pid: int) -> list[psutil.Process]:
    """Return the processes of the ranks below `pid`."""
    below = psutil.Process(pid).children(recursive=True)
    return [process for process in below if "gpuagent_workloads.rank" in process.cmdline()]


_PARTS: dict[str, Callable[[Node], None]] = {
    "plain": compare_with_plain,
    "counters": count_operations,
    "ranks": scale,
    "elastic": lose_rank,
}


def main() -> None:
    """Measure and print."""
    wanted = sys.argv[1:] or ["workloads", *_PARTS]
    workloads = [name for name in wanted if name not in ("workloads", *_PARTS)]
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder, Node(Path(folder)) as node:
        node.serve()
        if workloads or "workloads" in wanted:
            run_workloads(node, workloads)
        for name, measure in _PARTS.items():
            if name in wanted:
                measure(node)


if __name__ == "__main__":
    main()
