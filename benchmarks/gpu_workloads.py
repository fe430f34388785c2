"""Every workload on this machine's GPU, through the agent: the table of docs/benchmarks.md."""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.servers import Node

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


def measure(node: Node, wanted: Sequence[str]) -> None:
    """Run the workloads, or those named, and print the table as it grows."""
    print(_HEADER)
    for arguments in WORKLOADS:
        if not wanted or arguments[0] in wanted:
            run = run_on_gpu(node, arguments)
            print(_row(arguments, run, _figures(node, run["run_id"])), flush=True)


def run_on_gpu(node: Node, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one workload through the agent and return what `--json` prints of it."""
    done = node.run("gpuagent", "run", *arguments, "--device", "cuda", "--json")
    (run,) = json.loads(done.stdout)
    return dict(run)


def _figures(node: Node, run_id: str) -> dict[str, float | None]:
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
