"""The bus bandwidth of an all-reduce: NCCL between GPUs, gloo between processes on a CPU.

It is 2 (n − 1) / n × bytes / time for n ranks, as NCCL's own tests define it: the load of each link, so that figures
for different n can be compared.
"""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessException, spawn

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.device import report_device
from gpuagent_workloads.training.timing import median_seconds

_TIMEOUT = timedelta(minutes=2)

# By the type of device.
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}

# The file in which rank 0 leaves the seconds of each size.
_ANSWER = "seconds.json"


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
    with tempfile.TemporaryDirectory(prefix="gpuagent-all-reduce-") as folder:
        try:
            # As daemons, so that they end with this process.
            spawn(_run_rank, (ranks, sizes_bytes, repeats, device.type, folder, together), nprocs=ranks, daemon=True)
        except ProcessException as error:
            raise WorkloadError(f"the all-reduce over {ranks} ranks failed: {str(error).splitlines()[-1]}") from error
        seconds: dict[str, float] = json.loads(Path(folder, _ANSWER).read_text(encoding="ascii"))
    rates = {int(size): bus_bandwidth(ranks, int(size), time) for size, time in seconds.items()}
    for size_bytes, rate in rates.items():
        reporter.result(f"all_reduce_{size_bytes >> 20}_mib_bus_bytes_per_second", rate, unit="bytes/s")
    reporter.result("all_reduce_bus_bytes_per_second", max(rates.values()), unit="bytes/s")
    reporter.result("all_reduce_ranks", ranks)
    reporter.result("all_reduce_backend", _BACKENDS[device.type])


def bus_bandwidth(ranks: int, size_bytes: int, seconds: float) -> float:
    """Return the bytes a second that each link carries."""
    return 2 * (ranks - 1) / ranks * size_bytes / seconds


def _run_rank(
    rank: int,
    ranks: int,
    sizes_bytes: Sequence[int],
    repeats: int,
    device_type: str,
    folder: str,
    together: Together,
) -> None:
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device(device_type)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    address = f"file://{folder}/meeting"
    backend = _BACKENDS[device_type]
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=ranks, timeout=_TIMEOUT)
    try:
        seconds = {size: _slowest_seconds(size, repeats, device) for size in sizes_bytes}
        if rank == 0:
            Path(folder, _ANSWER).write_text(json.dumps(seconds), encoding="ascii")
        reporter = Reporter.from_environment({**os.environ, "RANK": str(rank)})
        # Rank 0 shares its file with the process that started the ranks, and that has reported the device.
        if rank > 0:
            report_device(device, reporter)
        dist.barrier()
        together(device, reporter)
    finally:
        dist.destroy_process_group()


def _slowest_seconds(size_bytes: int, repeats: int, device: torch.device) -> float:
    """Return the median time of an all-reduce on the slowest rank."""
    values = torch.ones(size_bytes // 4, device=device)
    # With a budget, ranks could choose different repeats, and then wait for one another for ever.
    median = median_seconds(lambda: dist.all_reduce(values, op=dist.ReduceOp.MAX), device, repeats, budget_seconds=None)
    slowest = torch.tensor(median, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()
