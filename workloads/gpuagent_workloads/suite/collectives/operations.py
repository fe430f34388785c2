"""The operations: their buffers, their calls, and the values that must come out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpuagent_workloads.measuring.ranks import Member

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

    Raises:
        KeyError: the operation is unknown.
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
    return Prepared(
        size_bytes=output.nbytes,
        call=lambda: _all_gather(output, mine),
        reset=output.zero_,
        output=output,
        expected=torch.cat([message(rank, 0, each, member.device) for rank in range(member.ranks)]),
    )


def _scatter(count: int, member: Member) -> Prepared:
    each = count // member.ranks
    mine = message(member.rank, 0, each * member.ranks, member.device)
    output = torch.zeros(each, device=member.device)
    return Prepared(
        size_bytes=mine.nbytes,
        call=lambda: _reduce_scatter(output, mine),
        reset=output.zero_,
        output=output,
        expected=_sum_of_messages(member.ranks, member.rank * each, each, member.device),
    )


def _all_to_all(count: int, member: Member) -> Prepared:
    each = count // member.ranks
    mine = message(member.rank, 0, each * member.ranks, member.device)
    output = torch.zeros_like(mine)
    parts = [message(rank, member.rank * each, each, member.device) for rank in range(member.ranks)]
    return Prepared(
        size_bytes=mine.nbytes,
        call=lambda: dist.all_to_all_single(output, mine),
        reset=output.zero_,
        output=output,
        expected=torch.cat(parts),
    )


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
    """Return the ring in which each rank sends to the next one and receives from the one before."""
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

    return Prepared(
        size_bytes=mine.nbytes,
        call=call,
        reset=output.zero_,
        output=output,
        expected=message(source, 0, count, member.device),
    )


_PREPARE: dict[str, Callable[[int, Member], Prepared]] = {
    "all-reduce": _all_reduce,
    "all-gather": _gather,
    "reduce-scatter": _scatter,
    "all-to-all": _all_to_all,
    "broadcast": _broadcast,
    "send-recv": _send_recv,
}
