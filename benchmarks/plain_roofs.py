"""Matrix products and a copy as anybody would time them, beside what `ceilings` reports of the same GPU.

Prints one JSON object: the workload's names of the figures, and their values.
"""

import json
import time
from collections.abc import Callable

import torch

SIDES = (4096, 8192, 16384)
COPY_BYTES = 1 << 30
REPEATS = 30


def main() -> None:
    """Time everything and print it."""
    figures = {f"gemm_{name}_flops_per_second": _best_gemm(name) for name in ("fp32", "tf32", "fp16", "bf16")}
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    figures["dram_copy_bytes_per_second"] = 2 * COPY_BYTES / _seconds(lambda: target.copy_(source))
    print(json.dumps(figures))


def _best_gemm(name: str) -> float:
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(name, torch.float32)
    return max(_gemm(side, dtype) for side in SIDES)


def _gemm(side: int, dtype: torch.dtype) -> float:
    left, right = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * side**3 / _seconds(lambda: left @ right)


def _seconds(work: Callable[[], object]) -> float:
    """Return the mean time of `work`."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began_seconds = time.perf_counter()
    for _ in range(REPEATS):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began_seconds) / REPEATS


if __name__ == "__main__":
    main()
