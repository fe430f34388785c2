"""Set-up of a measurement: device, arithmetic, software and free memory; and processes that measure together."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessContext, ProcessException, spawn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter, number_in
from gpuagent_workloads.training.device import choose_device, report_device, report_software
from gpuagent_workloads.training.precision import refusal

_TYPES = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}


def set_up_device(wanted: str, reporter: Reporter) -> torch.device:
    """Return the device for `wanted` (auto, cpu or cuda), and report it and the software.

    Raises:
        MisuseError: there is no such device, or torchrun started several ranks.
        WorkloadError: this torch was not built for the GPU.
    """
    if number_in(os.environ, "WORLD_SIZE", 1) > 1:
        raise MisuseError("this workload starts its own processes: start it without torchrun")
    device = choose_device(wanted)
    report_device(device, reporter)
    report_software(reporter)
    return device


def why_not(precision: str, device: torch.device) -> str | None:
    """Return the reason why the device lacks a precision, None if it has it."""
    return refusal(precision, torch.cuda.get_device_capability(device) if device.type == "cuda" else None)


def type_of(precision: str) -> torch.dtype:
    """Return the type of the tensors in a precision; TF32 computes on float32."""
    return _TYPES.get(precision, torch.float32)


@contextmanager
def tf32_set(precision: str) -> Iterator[None]:
    """Turn TF32 on for `tf32` and off for `fp32`, in matrix products and convolutions; keep the flags otherwise."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    if precision in ("fp32", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def free_gpu_bytes(device: torch.device) -> int:
    """Return the free memory of a GPU, including torch's unused cache."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)


# By the type of device.
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}

_TIMEOUT = timedelta(minutes=2)

# The file into which rank 0 writes its results, and how often they are passed on.
_RESULTS = "results.jsonl"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This process among those that measure together."""

    rank: int
    ranks: int
    device: torch.device

    def total(self, value: float) -> float:
        """Return the sum of all ranks' values; all must call it, and leave it at the same time.

        It goes over gloo between the hosts, so that it uses neither the GPUs nor their links.
        """
        values = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(values)
        return values.item()


# Measures on one rank, and reports it.
Work = Callable[[Member, Reporter], None]


def run_ranks(what: str, ranks: int, device: torch.device, work: Work, reporter: Reporter) -> None:
    """Run `work` in a process for each rank, to their end.

    Rank 0's results go to `reporter`, those of the others to their own files in the run directory.

    Args:
        ranks: number of processes, a GPU each.
        device: its type is that of all ranks' devices.
        work: can be pickled.

    Raises:
        WorkloadError: a rank failed.
    """
    rest = ""
    with tempfile.TemporaryDirectory(prefix="gpuagent-ranks-") as folder:
        results = Path(folder, _RESULTS)
        results.touch()
        with results.open(encoding="utf-8") as lines:
            # As daemons, so that they end with this process.
            started: ProcessContext = spawn(
                _run_rank, (ranks, device.type, folder, work), nprocs=ranks, join=False, daemon=True
            )
            try:
                while not started.join(timeout=_POLL_SECONDS):
                    rest = _pass_on(rest + lines.read(), reporter)
            except ProcessException as error:
                cause = str(error).strip().splitlines()[-1].removeprefix(f"{WorkloadError.__module__}.WorkloadError: ")
                raise WorkloadError(f"{what} over {ranks} ranks failed: {cause}") from error
            finally:
                for process in started.processes:
                    process.kill()
                    process.join()
                _pass_on(rest + lines.read(), reporter)


def _pass_on(text: str, reporter: Reporter) -> str:
    """Report the results in whole lines, and return the rest, which rank 0 is writing or did not finish."""
    *lines, rest = text.split("\n")
    for line in lines:
        event = json.loads(line)
        if event["event"] == "result":
            reporter.result(event["name"], event["value"], unit=event.get("unit"), phase=event.get("phase"))
    reporter.flush()
    return rest


def _run_rank(rank: int, ranks: int, device_type: str, folder: str, work: Work) -> None:
    device = torch.device(device_type, rank) if device_type == "cuda" else torch.device(device_type)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        # Ranks that share cores would wait for one another's threads.
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    meeting = f"file://{folder}/meeting"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=ranks, timeout=_TIMEOUT)
    # Rank 0 shares its run directory's file with the process that started the ranks, and that has reported the device.
    reporter = (
        Reporter.from_environment({**os.environ, "RANK": str(rank)}) if rank else Reporter(Path(folder, _RESULTS))
    )
    if rank:
        report_device(device, reporter)
    work(Member(rank=rank, ranks=ranks, device=device), reporter)
    reporter.flush()
    # Only after success: NCCL waits here for all ranks of the node, and a failed one would hide its error.
    dist.destroy_process_group()


def bus_factor(operation: str, ranks: int) -> float:
    """Return the bus bandwidth's share of the algorithm's, for `ranks` from 2 on, as nccl-tests' PERFORMANCE.md has it.

    A message's size is that of the larger of a rank's two buffers: of an all-gather its output, of a reduce-scatter its
    input. The algorithm's bandwidth is size / time. The bus bandwidth is the rate at which each link has to work if the
    algorithm is the best one. Raises KeyError: the operation is unknown.
    """
    others = (ranks - 1) / ranks
    factors = {"all-reduce": 2 * others, "broadcast": 1.0, "send-recv": 1.0}
    factors |= dict.fromkeys(("all-gather", "reduce-scatter", "all-to-all"), others)
    return factors[operation]


def bus_bandwidth(operation: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """Return the bytes a second that each link carries."""
    return bus_factor(operation, ranks) * size_bytes / seconds
