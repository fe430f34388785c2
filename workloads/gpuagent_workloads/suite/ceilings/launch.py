"""How long it takes to start a kernel, with what torch itself adds to each."""

import statistics
import time
from collections.abc import Callable

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings.extent import Extent


def report_launch(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the host's time for each launch in a row of them, and the time of one launch until it is done."""
    value = torch.zeros((), device=device)

    def launch() -> None:
        value.add_(1.0)

    row = _median_wall_seconds(lambda: _times(launch, extent.launches), lambda: None, extent.repeats)
    reporter.result("kernel_launch_seconds", row / extent.launches, unit="s")
    round_trip = _median_wall_seconds(launch, torch.cuda.synchronize, extent.repeats)
    reporter.result("kernel_round_trip_seconds", round_trip, unit="s")


def _median_wall_seconds(work: Callable[[], None], wait: Callable[[], None], repeats: int) -> float:
    """Return the median of the host's time for `work` and `wait`, begun with an idle GPU, after one for warm-up."""
    seconds = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        began_seconds = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - began_seconds)
    return statistics.median(seconds[1:])


def _times(work: Callable[[], None], count: int) -> None:
    for _ in range(count):
        work()
