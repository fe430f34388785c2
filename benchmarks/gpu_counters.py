"""Operations that the GPU executed in a step, by hardware counters, beside those of the model."""

from benchmarks.gpu_workloads import run_on_gpu, scaled
from tests.support.servers import Node

WORKLOADS: tuple[tuple[str, ...], ...] = (
    ("mnist",),
    ("resnet18", "--precision", "fp32"),
    ("resnet18", "--precision", "tf32"),
    ("resnet18", "--precision", "bf16", "--channels-last"),
)

_HEADER = (
    "| workload | model FLOPs a step | executed | executed by model | of them in tensor cores | device memory traffic "
    "| at least |\n|---|---|---|---|---|---|---|"
)


def measure(node: Node) -> None:
    """Run a few workloads with their counters and print the table."""
    print(_HEADER)
    for arguments in WORKLOADS:
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
