"""How many bytes a second a GPU copies from the host's memory and back."""

import torch

from gpuagent_workloads.measuring.timing import median_seconds
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings.extent import Extent


def report_transfers(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report both directions, from pinned memory and from pageable memory, which the driver has to copy first."""
    on_gpu = torch.empty(extent.transfer_bytes, dtype=torch.uint8, device=device)
    for kind in ("pinned", "pageable"):
        # Written once, since pages that were never touched are all the same page of zeros.
        on_host = torch.empty(extent.transfer_bytes, dtype=torch.uint8, pin_memory=kind == "pinned").fill_(1)
        for name, target, source in (
            ("host_to_device", on_gpu, on_host),
            ("device_to_host", on_host, on_gpu),
        ):
            rate = extent.transfer_bytes / _copy_seconds(target, source, extent.repeats, device)
            reporter.result(f"{name}_{kind}_bytes_per_second", rate, unit="bytes/s")


def _copy_seconds(target: torch.Tensor, source: torch.Tensor, repeats: int, device: torch.device) -> float:
    return median_seconds(lambda: target.copy_(source, non_blocking=True), device, repeats)
