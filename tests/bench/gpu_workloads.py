"""`make bench-gpu`: every workload on this machine's GPU, through the agent, and ResNet-50 beside a plain loop."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.servers import Node

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
    ("gpt", "--precision", "bf16"),
    ("gpt", "--precision", "bf16", "--compile"),
    *(("layer", "--layer", layer) for layer in ("relu", "maxpool", "conv", "linear")),
)
"""The studies' settings."""

PLAIN_LOOP = ("resnet50", "--precision", "bf16", "--channels-last")

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
    "| workload | step | throughput | model FLOPs a step | MFU (peak) | GPU memory, peak | power | utilisation |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main(wanted: Sequence[str]) -> None:
    """Run the workloads, or those named, and print the table."""
    chosen = [arguments for arguments in WORKLOADS if not wanted or arguments[0] in wanted]
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder:
        node = Node(Path(folder))
        try:
            node.serve()
            print(_HEADER)
            for arguments in chosen:
                run = _run(node, arguments)
                print(_row(arguments, run, _figures(node, run["run_id"])), flush=True)
                if arguments == PLAIN_LOOP:
                    _print_ratio(run["results"]["throughput"])
        finally:
            node.close()


def _run(node: Node, arguments: Sequence[str]) -> dict[str, Any]:
    done = node.run("gpuagent", "run", *arguments, "--device", "cuda", "--json")
    (run,) = json.loads(done.stdout)
    return dict(run)


def _figures(node: Node, run_id: str) -> dict[str, float | None]:
    rows = json.loads(node.run("collector", "query", "sql", _FIGURES, "--json").stdout)
    return next(row for row in rows if row["run_id"] == run_id)


def _row(arguments: Sequence[str], run: dict[str, Any], figures: dict[str, float | None]) -> str:
    results = run["results"]
    mfu = f"{results['mfu']:.1f} % ({results['mfu_peak']})" if "mfu" in results else "–"
    cells = (
        f"`{' '.join(arguments)}`",
        _scaled(figures["step_seconds"], 1e3, "ms"),
        _scaled(figures["throughput"], 1, "items/s"),
        _scaled(results.get("model_flops_per_step"), 1e-9, "GFLOP"),
        mfu,
        _scaled(figures["memory_bytes"], 1e-9, "GB"),
        _scaled(figures["power_watts"], 1, "W"),
        _scaled(figures["utilization_percent"], 1, "%"),
    )
    return f"| {' | '.join(cells)} |"


def _scaled(value: float | None, factor: float, unit: str) -> str:
    return "–" if value is None else f"{value * factor:,.4g} {unit}"


def _print_ratio(throughput: float) -> None:
    """Compare with the same network in a loop written by hand, in a process of its own right after."""
    done = subprocess.run([sys.executable, "-m", "tests.bench.plain_loop"], check=True, capture_output=True, text=True)
    plain = float(done.stdout.split()[-1])
    ratio = f"ours {throughput:,.1f}, plain loop {plain:,.1f} items/s, ratio {throughput / plain:.3f}"
    print(f"\nresnet50 bf16 channels-last: {ratio}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
