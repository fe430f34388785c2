"""Measures the roofs one after the other."""

from collections.abc import Callable, Sequence

import torch

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.measuring.setup import set_up_device
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings import Config
from gpuagent_workloads.suite.ceilings.all_reduce import report_all_reduce
from gpuagent_workloads.suite.ceilings.extent import CPU, GPU, QUICK, Extent
from gpuagent_workloads.suite.ceilings.launch import report_launch
from gpuagent_workloads.suite.ceilings.matrix_products import report_matrix_products
from gpuagent_workloads.suite.ceilings.memory import report_memory
from gpuagent_workloads.suite.ceilings.transfer import report_transfers

Roof = Callable[[Extent, torch.device, Reporter], None]

_EVERYWHERE: Sequence[Roof] = (report_matrix_products, report_memory)
_ON_GPUS: Sequence[Roof] = (report_transfers, report_launch)


def measure(config: Config, reporter: Reporter) -> None:
    """Run the workload from its device to the last roof."""
    device = set_up_device(config.device, reporter)
    ranks = _choose_ranks(config.ranks, device)
    extent = _choose_extent(config.quick, device)
    if config.quick:
        reporter.result("quick", 1)
    reporter.phase("measure")
    for report in (*_EVERYWHERE, *(_ON_GPUS if device.type == "cuda" else ())):
        report(extent, device, reporter)
        # Between roofs nothing is timed, and all of them take minutes.
        reporter.flush()
    if ranks > 1:
        report_all_reduce(ranks, extent, device, reporter)
    reporter.phase("teardown")


def _choose_ranks(wanted: int | None, device: torch.device) -> int:
    if device.type != "cuda":
        return wanted or 1
    gpus = torch.cuda.device_count()
    if wanted is not None and wanted > gpus:
        raise MisuseError(f"--ranks {wanted} is more than the {gpus} GPUs that torch finds")
    return wanted or gpus


def _choose_extent(quick: bool, device: torch.device) -> Extent:
    if quick:
        return QUICK
    return GPU if device.type == "cuda" else CPU
