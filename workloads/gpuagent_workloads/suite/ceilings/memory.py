"""How many bytes a second move between a device and its memory, both directions counted.

A CPU may read a line of cache before it writes it, which is not counted: it moves more than this.
"""

import torch

from gpuagent_workloads.measuring.memory import free_gpu_bytes
from gpuagent_workloads.measuring.timing import median_seconds
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings.extent import Extent


def report_memory(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the bandwidth of a copy (a = b) and of a triad (a = b + s·c)."""
    values = _buffer_bytes(extent, device) // 4
    a, b, c = (torch.randn(values, device=device) for _ in range(3))
    copy_seconds = median_seconds(lambda: a.copy_(b), device, extent.repeats)
    reporter.result("dram_copy_bytes_per_second", 2 * a.nbytes / copy_seconds, unit="bytes/s")
    triad_seconds = median_seconds(lambda: torch.add(b, c, alpha=1.5, out=a), device, extent.repeats)
    reporter.result("dram_triad_bytes_per_second", 3 * a.nbytes / triad_seconds, unit="bytes/s")


def _buffer_bytes(extent: Extent, device: torch.device) -> int:
    """Return the size of each of three buffers, which together take at most half of what is free."""
    if device.type != "cuda":
        return extent.buffer_bytes
    return min(extent.buffer_bytes, free_gpu_bytes(device) // 6)
