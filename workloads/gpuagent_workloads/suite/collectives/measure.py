"""Measurement of each operation at each size, and of each pair of ranks; its options are `Config` in `__init__.py`."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import median

import psutil
import torch
import torch.distributed as dist

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.measuring.setup import BACKENDS, Member, bus_bandwidth, free_gpu_bytes, run_ranks, set_up_device
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.collectives import Config, parse_operations, parse_sizes
from gpuagent_workloads.training.timing import time_calls

# Of float32, as nccl-tests has by default.
ELEMENT_BYTES = 4

# Values repeat after this many, a prime, so that a part at a wrong place is noticed. Sums over 64 ranks are exact.
_PERIOD = 251

# torch 2.13 has new names for these.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An operation with its buffers.

    Attributes:
        size_bytes: what nccl-tests calls the size: the larger of a rank's two buffers.
        call: does it once.
        reset: restores the buffers as they were before the first call.
        output: where the result is; expected: what it must be after one call.
    """

    size_bytes: int
    call: Callable[[], object]
    reset: Callable[[], object]
    output: torch.Tensor
    expected: torch.Tensor

    def wrong_values(self) -> int:
        """Return the number of wrong values of this rank after one call; it resets the buffers before and after."""
        self.reset()
        self.call()
        wrong = int((self.output != self.expected).sum().item())
        self.reset()
        return wrong


def prepare(operation: str, size_bytes: int, member: Member) -> Prepared:
    """Return the operation for messages of at most `size_bytes`: a whole number of values for each rank.

    Raises KeyError: the operation is unknown.
    """
    return _PREPARE[operation](size_bytes // ELEMENT_BYTES, member)


def least_bytes(operation: str, ranks: int) -> int:
    """Return the size of the smallest message: a value, or one for each rank."""
    return ELEMENT_BYTES * (ranks if operation in ("all-gather", "reduce-scatter", "all-to-all") else 1)


def message(rank: int, start: int, count: int, device: torch.device) -> torch.Tensor:
    """Return `count` values of the rank's message, from number `start` on: whole numbers below 251."""
    places = torch.arange(start, start + count, dtype=torch.int32, device=device)
    return places.add_(7 * rank).remainder_(_PERIOD).float()


def _sum_of_messages(ranks: int, start: int, count: int, device: torch.device) -> torch.Tensor:
    total = message(0, start, count, device)
    for rank in range(1, ranks):
        total += message(rank, start, count, device)
    return total


def _into(output: torch.Tensor, size_bytes: int, call: Callable[[], object], expected: torch.Tensor) -> Prepared:
    """Return an operation that writes into a buffer of its own."""
    return Prepared(size_bytes=size_bytes, call=call, reset=output.zero_, output=output, expected=expected)


def _all_reduce(count: int, member: Member) -> Prepared:
    # A sum: for the maximum of float32, NCCL cannot reduce within NVSwitches.
    source = message(member.rank, 0, count, member.device)
    buffer = source.clone()
    return Prepared(
        size_bytes=buffer.nbytes,
        call=lambda: dist.all_reduce(buffer),
        reset=lambda: buffer.copy_(source),
        output=buffer,
        expected=_sum_of_messages(member.ranks, 0, count, member.device),
    )


def _gather(count: int, member: Member) -> Prepared:
    each = count // member.ranks
    mine = message(member.rank, 0, each, member.device)
    output = torch.zeros(each * member.ranks, device=member.device)
    expected = torch.cat([message(rank, 0, each, member.device) for rank in range(member.ranks)])
    return _into(output, output.nbytes, lambda: _all_gather(output, mine), expected)


def _scatter(count: int, member: Member) -> Prepared:
    each = count // member.ranks
    mine = message(member.rank, 0, each * member.ranks, member.device)
    output = torch.zeros(each, device=member.device)
    expected = _sum_of_messages(member.ranks, member.rank * each, each, member.device)
    return _into(output, mine.nbytes, lambda: _reduce_scatter(output, mine), expected)


def _all_to_all(count: int, member: Member) -> Prepared:
    each = count // member.ranks
    mine = message(member.rank, 0, each * member.ranks, member.device)
    output = torch.zeros_like(mine)
    parts = [message(rank, member.rank * each, each, member.device) for rank in range(member.ranks)]
    return _into(output, mine.nbytes, lambda: dist.all_to_all_single(output, mine), torch.cat(parts))


def _broadcast(count: int, member: Member) -> Prepared:
    expected = message(0, 0, count, member.device)
    buffer = expected.clone()
    return Prepared(
        size_bytes=buffer.nbytes,
        call=lambda: dist.broadcast(buffer, src=0),
        reset=lambda: buffer if member.rank == 0 else buffer.zero_(),
        output=buffer,
        expected=expected,
    )


def _send_recv(count: int, member: Member) -> Prepared:
    return exchange(count * ELEMENT_BYTES, member, (member.rank + 1) % member.ranks, (member.rank - 1) % member.ranks)


def exchange(size_bytes: int, member: Member, target: int, source: int) -> Prepared:
    """Return sending to rank `target` and receiving from rank `source` at the same time."""
    count = size_bytes // ELEMENT_BYTES
    mine = message(member.rank, 0, count, member.device)
    output = torch.zeros_like(mine)

    def call() -> None:
        both = [dist.P2POp(dist.isend, mine, target), dist.P2POp(dist.irecv, output, source)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return _into(output, mine.nbytes, call, message(source, 0, count, member.device))


_PREPARE: dict[str, Callable[[int, Member], Prepared]] = {
    "all-reduce": _all_reduce,
    "all-gather": _gather,
    "reduce-scatter": _scatter,
    "all-to-all": _all_to_all,
    "broadcast": _broadcast,
    "send-recv": _send_recv,
}


GPU_SIZES = "1K,16K,256K,1M,4M,16M,64M,256M,1G"
CPU_SIZES = "1K,16K,256K,1M,4M,16M"

# Buffers, the values that must come out, and what making them takes.
_COPIES = 8
_WARMUP_CALLS = 5
# Slow links make fewer calls a round, but at least two.
_ROUND_SECONDS = 0.5


def measure(config: Config, reporter: Reporter) -> None:
    """Run the workload from its devices to the last pair.

    Raises:
        MisuseError: there are fewer than two GPUs, or than ranks, or a size does not fit.
        WorkloadError: a rank failed, or an operation gave wrong values.
    """
    device = set_up_device(config.device, reporter)
    gpus = torch.cuda.device_count() if device.type == "cuda" else None
    ranks = config.ranks or gpus or 2
    if gpus is not None and ranks > gpus:
        raise MisuseError(f"--ranks {ranks} is more than the {gpus} GPUs that torch finds")
    if ranks < 2:
        raise MisuseError("there is one GPU, and collectives need two: --device cpu --ranks 2 measures this host")
    # The sizes: those that are asked for, or the usual ones that fit into memory.
    # Half of what is free, since other programs may want some.
    free_bytes = free_gpu_bytes(device) if device.type == "cuda" else psutil.virtual_memory().available // ranks
    most_bytes = free_bytes // 2 // _COPIES
    if config.sizes is None:
        usual = parse_sizes(GPU_SIZES if device.type == "cuda" else CPU_SIZES)
        if usual[0] > most_bytes:
            raise MisuseError(
                f"not even {usual[0]} bytes fit into free memory: with {_COPIES} buffers, {most_bytes} do; free some"
            )
        sizes_bytes = [size for size in usual if size <= most_bytes]
    else:
        sizes = parse_sizes(config.sizes)
        if sizes[-1] > most_bytes:
            raise MisuseError(
                f"--sizes has {sizes[-1]} bytes, and with {_COPIES} such buffers {most_bytes} fit: give less"
            )
        for operation in parse_operations(config.operations):
            if sizes[0] < least_bytes(operation, ranks):
                least = least_bytes(operation, ranks)
                raise MisuseError(f"--sizes has {sizes[0]} bytes: {operation} over {ranks} ranks needs {least} or more")
        sizes_bytes = sizes
    reporter.result("ranks", ranks)
    reporter.result("backend", BACKENDS[device.type])
    if device.type == "cuda":
        reporter.result("nccl_version", ".".join(map(str, torch.cuda.nccl.version())))
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("NCCL_", "GLOO_"))}
    if settings:
        reporter.result("communication_settings", " ".join(f"{name}={value}" for name, value in settings.items()))
    reporter.phase("measure")
    run_ranks("collectives", ranks, device, partial(measure_rank, config, sizes_bytes), reporter)
    reporter.phase("teardown")


def measure_rank(config: Config, sizes_bytes: Sequence[int], member: Member, reporter: Reporter) -> None:
    """Measure and report everything on one rank, while all others do the same.

    Raises WorkloadError: an operation gave wrong values.
    """
    for operation in parse_operations(config.operations):
        for size_bytes in sizes_bytes:
            prepared = prepare(operation, size_bytes, member)
            _check(f"{operation} of {size_bytes} bytes", prepared, member)
            seconds = time_call(prepared, member, calls=config.calls, rounds=config.rounds)
            if member.rank == 0:
                name = f"{operation.replace('-', '_')}_{size_bytes}_bytes"
                _report(name, operation, member.ranks, prepared.size_bytes, seconds, reporter)
            # Before the next buffers are made.
            del prepared
    if config.pairs and member.ranks > 2:
        # One pair after the other, so that none shares a link with another.
        for size_bytes in dict.fromkeys((sizes_bytes[0], sizes_bytes[-1])):
            mine = []
            for pair in combinations(range(member.ranks), 2):
                is_in = member.rank in pair
                other = pair[pair[0] == member.rank]
                # The part of a rank that is not in the pair.
                empty = torch.empty(0, device=member.device)
                idle_part = Prepared(size_bytes=0, call=lambda: None, reset=lambda: None, output=empty, expected=empty)
                prepared = exchange(size_bytes, member, other, other) if is_in else idle_part
                _check(f"the exchange of ranks {pair[0]} and {pair[1]}", prepared, member)
                seconds = time_call(prepared, member, calls=config.calls, rounds=config.rounds, among=pair)
                exact_bytes = size_bytes // ELEMENT_BYTES * ELEMENT_BYTES
                if is_in:
                    mine.append(bus_bandwidth("send-recv", len(pair), exact_bytes, seconds))
                if member.rank == 0:
                    name = f"pair_{pair[0]}_{pair[1]}_{size_bytes}_bytes"
                    _report(name, "send-recv", len(pair), exact_bytes, seconds, reporter)
            reporter.result(f"pairs_{size_bytes}_bytes_bus_bytes_per_second", median(mine), unit="bytes/s")


def _report(name: str, operation: str, ranks: int, size_bytes: int, seconds: float, reporter: Reporter) -> None:
    reporter.result(f"{name}_seconds", seconds, unit="s")
    reporter.result(f"{name}_algorithm_bytes_per_second", size_bytes / seconds, unit="bytes/s")
    rate = bus_bandwidth(operation, ranks, size_bytes, seconds)
    reporter.result(f"{name}_bus_bytes_per_second", rate, unit="bytes/s")


def _check(what: str, prepared: Prepared, member: Member) -> None:
    """Check the values that come out of one call, on all ranks. Raises WorkloadError where some are wrong."""
    wrong = prepared.wrong_values()
    all_wrong = int(member.total(wrong))
    if all_wrong:
        raise WorkloadError(
            f"{what} gave {all_wrong} wrong values, {wrong} of them on rank {member.rank}: "
            "a link, a GPU or the library is faulty"
        )


def time_call(
    prepared: Prepared, member: Member, *, calls: int, rounds: int, among: Sequence[int] | None = None
) -> float:
    """Return the seconds of one call: of each round the mean over calls and ranks, of the rounds the median.

    All ranks must call it, and get the same. The mean over the ranks is what nccl-tests takes by default. Before each
    round goes an untimed call.

    Args:
        calls: the most of them in a row; on slow links fewer, but two.
        rounds: how often they are made.
        among: the ranks whose time counts; None: all.
    """
    timed = range(member.ranks) if among is None else among

    def run(number: int) -> float:
        prepared.reset()
        member.total(0)
        row = time_calls(
            lambda: [prepared.call() for _ in range(number)],
            member.device,
            lambda made, _: made == 1,
            # Ranks come here at different times. An untimed call brings most of them together.
            between=prepared.call,
        )
        seconds = row[0].device_seconds / number if member.rank in timed else 0.0
        return member.total(seconds) / len(timed)

    run(_WARMUP_CALLS)
    # All ranks have the same time, and so choose the same number.
    affordable = max(2, int(_ROUND_SECONDS / max(run(1), 1e-9)))
    return median(run(min(calls, affordable)) for _ in range(rounds))
