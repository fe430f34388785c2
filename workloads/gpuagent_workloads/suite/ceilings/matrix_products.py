"""How many floating-point operations a second a device reaches in matrix products, by arithmetic."""

from collections.abc import Sequence

import torch

from gpuagent_workloads.measuring.memory import free_gpu_bytes
from gpuagent_workloads.measuring.setup import tf32_set, type_of, why_not
from gpuagent_workloads.measuring.timing import median_seconds
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings.extent import Extent

# Those that a device does not have are left out. On a CPU, so is fp16, which few have.
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")


def report_matrix_products(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the rate at each size, and the best of them, for each precision that the device has."""
    for precision in PRECISIONS:
        if why_not(precision, device) is not None:
            continue
        rates = {side: _rate(side, precision, extent.repeats, device) for side in _fitting(extent.sides, device)}
        for side, rate in rates.items():
            reporter.result(f"gemm_{precision}_{side}_flops_per_second", rate, unit="FLOP/s")
        best_side = max(rates, key=lambda side: rates[side])
        reporter.result(f"gemm_{precision}_flops_per_second", rates[best_side], unit="FLOP/s")
        reporter.result(f"gemm_{precision}_best_side", best_side)


def _fitting(sides: Sequence[int], device: torch.device) -> list[int]:
    """Return the sizes of which three matrices, of the largest type, take at most half of what is free."""
    if device.type != "cuda":
        return list(sides)
    free_bytes = free_gpu_bytes(device)
    return [side for side in sides if 3 * 8 * side**2 <= free_bytes / 2]


def _rate(side: int, precision: str, repeats: int, device: torch.device) -> float:
    """Return the operations a second of a product of square matrices; a multiplication and an addition are two."""
    dtype = type_of(precision)
    # Random: on zeros a GPU draws less power, and so clocks higher than in any real work.
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    with tf32_set(precision):
        seconds = median_seconds(lambda: torch.mm(left, right, out=product), device, repeats)
    return 2 * side**3 / seconds
