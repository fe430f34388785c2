"""The bus bandwidth of an all-reduce: NCCL between GPUs, gloo between processes on a CPU."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from gpuagent_workloads.measuring.ranks import BACKENDS, Member, bus_bandwidth, run_ranks
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.collectives.measure import time_call
from gpuagent_workloads.suite.collectives.operations import prepare

_OPERATION = "all-reduce"
_CALLS = 20

# Measures one rank's device while all others do the same, and reports it.
Together = Callable[[torch.device, Reporter], None]


def report_all_reduce(
    ranks: int,
    sizes_bytes: Sequence[int],
    repeats: int,
    device: torch.device,
    reporter: Reporter,
    together: Together,
) -> None:
    """Report the bandwidth at each size, the best of them, and `together` on each rank.

    Raises:
        WorkloadError: a rank failed.
    """
    run_ranks("the all-reduce", ranks, device, partial(_measure, sizes_bytes, repeats, together), reporter)


def _measure(sizes_bytes: Sequence[int], repeats: int, together: Together, member: Member, reporter: Reporter) -> None:
    rates = {}
    for size_bytes in sizes_bytes:
        seconds = time_call(
            prepare(_OPERATION, size_bytes, member), member, calls=min(_CALLS, repeats), rounds=-(-repeats // _CALLS)
        )
        rates[size_bytes] = bus_bandwidth(_OPERATION, member.ranks, size_bytes, seconds)
    if member.rank == 0:
        for size_bytes, rate in rates.items():
            reporter.result(f"all_reduce_{size_bytes >> 20}_mib_bus_bytes_per_second", rate, unit="bytes/s")
        reporter.result("all_reduce_bus_bytes_per_second", max(rates.values()), unit="bytes/s")
        reporter.result("all_reduce_ranks", member.ranks)
        reporter.result("all_reduce_backend", BACKENDS[member.device.type])
    member.total(0)
    together(member.device, reporter)
