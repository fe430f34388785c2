"""Measurement of the roofs: matrix products, memory, transfers, launches and all-reduce."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.measuring.setup import (
    BACKENDS,
    Member,
    bus_bandwidth,
    free_gpu_bytes,
    run_ranks,
    set_up_device,
    tf32_set,
    type_of,
    why_not,
)
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings import Config
from gpuagent_workloads.suite.collectives.measure import prepare, time_call
from gpuagent_workloads.training.timing import median_seconds

_OPERATION = "all-reduce"
_CALLS = 20

# Measures one rank's device while all others do the same, and reports it.
Together = Callable[[torch.device, Reporter], None]


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


# Those that a device lacks are left out. So is fp16 on a CPU, which few have.
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Sizes and repeats of the measurements."""

    # Of the square matrices.
    sides: Sequence[int]
    # Of each buffer in the device's memory: many times its last cache.
    buffer_bytes: int
    # Of a copy between host and device.
    transfer_bytes: int
    # Of each rank's contribution.
    all_reduce_bytes: Sequence[int]
    # Kernels launched in a row: fewer than the 1024 that the driver's queue holds.
    launches: int
    # Of which the median is taken.
    repeats: int


GPU = Extent(
    sides=(1024, 2048, 4096, 8192, 16384),
    buffer_bytes=1024 * _MIB,
    transfer_bytes=256 * _MIB,
    all_reduce_bytes=(_MIB, 16 * _MIB, 256 * _MIB),
    launches=500,
    repeats=50,
)

CPU = Extent(
    sides=(512, 1024, 2048, 4096),
    buffer_bytes=512 * _MIB,
    transfer_bytes=256 * _MIB,
    all_reduce_bytes=(_MIB, 16 * _MIB),
    launches=500,
    repeats=20,
)

QUICK = Extent(
    sides=(64, 128), buffer_bytes=4 * _MIB, transfer_bytes=4 * _MIB, all_reduce_bytes=(_MIB,), launches=10, repeats=3
)


def measure(config: Config, reporter: Reporter) -> None:
    """Run the workload from its device to the last roof.

    Raises:
        MisuseError: there is no such device, or fewer GPUs than ranks.
        WorkloadError: this torch was not built for the GPU, or the all-reduce failed.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = set_up_device(config.device, reporter)
    on_gpu = device.type == "cuda"
    gpus = torch.cuda.device_count() if on_gpu else 1
    ranks = config.ranks or gpus
    if on_gpu and ranks > gpus:
        raise MisuseError(f"--ranks {ranks} is more than the {gpus} GPUs that torch finds")
    extent = QUICK if config.quick else GPU if on_gpu else CPU
    if config.quick:
        reporter.result("quick", 1)
    reporter.phase("measure")
    for report in (report_matrix_products, report_memory, *((report_transfers, report_launch) if on_gpu else ())):
        report(extent, device, reporter)
        # Between roofs nothing is timed, and all of them take minutes.
        reporter.flush()
    if ranks > 1:
        together = partial(report_together, extent)
        run_ranks(
            "the all-reduce",
            ranks,
            device,
            partial(_measure, extent.all_reduce_bytes, extent.repeats, together),
            reporter,
        )
    reporter.phase("teardown")


def report_together(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report matrix products, memory and transfers of one device while all others of the node do the same."""
    alone = Reporter(None)
    precision = "bf16" if why_not("bf16", device) is None else "fp32"
    rate = _product_rate(extent.sides[-2], precision, extent.repeats, device)
    alone.result(f"gemm_{precision}_flops_per_second", rate, unit="FLOP/s")
    report_memory(extent, device, alone)
    if device.type == "cuda":
        report_transfers(extent, device, alone)
    for result in alone.results:
        reporter.result(f"together_{result.name}", result.value, unit=result.unit)


def report_matrix_products(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the rate at each size, and the best of them, for each precision that the device has."""
    sides = list(extent.sides)
    if device.type == "cuda":
        # Three matrices of the largest type take at most half of the free memory.
        free_bytes = free_gpu_bytes(device)
        sides = [side for side in sides if 3 * 8 * side**2 <= free_bytes / 2]
    for precision in PRECISIONS:
        if why_not(precision, device) is not None:
            continue
        rates = {side: _product_rate(side, precision, extent.repeats, device) for side in sides}
        for side, rate in rates.items():
            reporter.result(f"gemm_{precision}_{side}_flops_per_second", rate, unit="FLOP/s")
        best_side = max(rates, key=lambda side: rates[side])
        reporter.result(f"gemm_{precision}_flops_per_second", rates[best_side], unit="FLOP/s")
        reporter.result(f"gemm_{precision}_best_side", best_side)


def _product_rate(side: int, precision: str, repeats: int, device: torch.device) -> float:
    """Return the operations a second of a product of square matrices; a multiplication and an addition are two."""
    dtype = type_of(precision)
    # Random: on zeros a GPU draws less power, and so clocks higher than in any real work.
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    with tf32_set(precision):
        seconds = median_seconds(lambda: torch.mm(left, right, out=product), device, repeats)
    return 2 * side**3 / seconds


def report_memory(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the bandwidth of a copy (a = b) and of a triad (a = b + s·c), both directions counted.

    A CPU may read a cache line before it writes it; that is not counted, so it moves more than this.
    """
    buffer_bytes = extent.buffer_bytes
    if device.type == "cuda":
        # Three buffers take at most half of the free memory.
        buffer_bytes = min(buffer_bytes, free_gpu_bytes(device) // 6)
    a, b, c = (torch.randn(buffer_bytes // 4, device=device) for _ in range(3))
    copy_seconds = median_seconds(lambda: a.copy_(b), device, extent.repeats)
    reporter.result("dram_copy_bytes_per_second", 2 * a.nbytes / copy_seconds, unit="bytes/s")
    triad_seconds = median_seconds(lambda: torch.add(b, c, alpha=1.5, out=a), device, extent.repeats)
    reporter.result("dram_triad_bytes_per_second", 3 * a.nbytes / triad_seconds, unit="bytes/s")


def report_transfers(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report both directions, from pinned memory and from pageable memory, which the driver has to copy first."""
    on_gpu = torch.empty(extent.transfer_bytes, dtype=torch.uint8, device=device)
    for kind in ("pinned", "pageable"):
        # Written once, since pages that were never touched are all the same page of zeros.
        on_host = torch.empty(extent.transfer_bytes, dtype=torch.uint8, pin_memory=kind == "pinned").fill_(1)
        for name, target, source in (("host_to_device", on_gpu, on_host), ("device_to_host", on_host, on_gpu)):
            seconds = median_seconds(partial(target.copy_, source, non_blocking=True), device, extent.repeats)
            reporter.result(f"{name}_{kind}_bytes_per_second", extent.transfer_bytes / seconds, unit="bytes/s")


def report_launch(extent: Extent, device: torch.device, reporter: Reporter) -> None:
    """Report the host's time for each launch in a row, and the time of one launch until it is done.

    Both contain torch's own share of a launch.
    """
    value = torch.zeros((), device=device)

    def launch(count: int) -> None:
        for _ in range(count):
            value.add_(1.0)

    row = _median_wall_seconds(lambda: launch(extent.launches), lambda: None, extent.repeats)
    reporter.result("kernel_launch_seconds", row / extent.launches, unit="s")
    round_trip = _median_wall_seconds(lambda: launch(1), torch.cuda.synchronize, extent.repeats)
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
