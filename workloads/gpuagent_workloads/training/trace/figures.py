"""The figures of a trace: the GPU's busy time, occupancy and communication, and its waits for other ranks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.distributed as dist

from gpuagent_workloads.training.trace.activity import Activity, Interval, Kind

# Name of a kernel of NCCL, and how many nanoseconds it ran.
Collective = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """The shares of NCCL's kernels, in percent."""

    # Of the time of all kernels, added up.
    share: float
    # Of the span, the time in which NCCL's kernels ran and no others.
    exposed_share: float
    # Of the time in which NCCL's kernels ran, that in which others ran, too.
    overlap_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The activity of a GPU in the steps of a trace."""

    # In which at least one kernel, copy or set was under way, on any stream.
    busy_seconds_per_step: float
    kernels_per_step: float
    # Percent of the busy time in which a copy was under way.
    memcpy_share: float
    # Percent of the busy time in which a set was under way.
    memset_share: float
    # Share of the multiprocessors that had a block, in the mean over the span, as the sizes of the launches tell:
    # "Est. SM Efficiency" of PyTorch's TensorBoard plugin. None: the trace does not have it.
    sm_efficiency_percent: float | None
    # Kineto's estimate for each kernel, weighted by time: that plugin's "Est. Achieved Occupancy". None: likewise.
    occupancy_percent: float | None
    # None: no kernel of NCCL ran.
    communication: Communication | None


def compute_figures(activities: Sequence[Activity], steps: int) -> Figures:
    """Return the figures of a trace of that many steps.

    The span that some of them refer to lasts from the begin of the first activity to the end of the last.

    Raises:
        ValueError: no kernel took any time.
    """
    kernels = [activity for activity in activities if activity.kind == "kernel"]
    if not _sum_covered(kernels):
        raise ValueError("the trace holds no kernels")
    busy_nano = _sum_covered(activities)
    levels = [(*kernel.interval, kernel.blocks_per_sm) for kernel in kernels if kernel.blocks_per_sm is not None]
    weighted = [(kernel.nano, kernel.occupancy_percent) for kernel in kernels if kernel.occupancy_percent is not None]
    total_nano = sum(nano for nano, _ in weighted)
    nccl = [kernel.interval for kernel in kernels if kernel.is_communication]
    others = [kernel.interval for kernel in kernels if not kernel.is_communication]
    nccl_nano, exposed_nano = covered(nccl), covered_by_first_only(nccl, others)
    if not nccl_nano:
        communication = None
    else:
        communication = Communication(
            share=100 * sum(end - begin for begin, end in nccl) / sum(kernel.nano for kernel in kernels),
            exposed_share=100 * exposed_nano / span_nano(activities),
            overlap_share=100 * (nccl_nano - exposed_nano) / nccl_nano,
        )
    return Figures(
        busy_seconds_per_step=busy_nano / 1e9 / steps,
        kernels_per_step=len(kernels) / steps,
        memcpy_share=_share(activities, "memcpy", busy_nano),
        memset_share=_share(activities, "memset", busy_nano),
        sm_efficiency_percent=100 * integrate_capped(levels) / span_nano(activities) if levels else None,
        occupancy_percent=(sum(nano * percent for nano, percent in weighted) / total_nano if total_nano else None),
        communication=communication,
    )


def span_nano(activities: Sequence[Activity]) -> int:
    """Return the time from the begin of the first activity to the end of the last."""
    return max(activity.end_nano for activity in activities) - min(activity.begin_nano for activity in activities)


def _sum_covered(activities: Sequence[Activity]) -> int:
    return covered(activity.interval for activity in activities)


def _share(activities: Sequence[Activity], kind: Kind, busy_nano: int) -> float:
    return 100 * _sum_covered([activity for activity in activities if activity.kind == kind]) / busy_nano


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union as separate intervals, in order."""
    union: list[Interval] = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif begin < end:
            union.append((begin, end))
    return union


def covered(intervals: Iterable[Interval]) -> int:
    """Return the length of the union."""
    return sum(end - begin for begin, end in merge(intervals))


def covered_by_first_only(first: Iterable[Interval], second: Iterable[Interval]) -> int:
    """Return the length of the union of `first` outside the union of `second`."""
    second = list(second)
    return covered([*first, *second]) - covered(second)


def integrate_capped(levels: Iterable[tuple[int, int, float]]) -> float:
    """Return the integral over time of the sum of all levels (begin, end, level), limited to 1."""
    # Each level is limited by itself before it is added: the same result, also for infinity.
    capped = [(begin, end, min(level, 1.0)) for begin, end, level in levels if begin < end]
    changes = sorted(change for begin, end, level in capped for change in ((begin, level), (end, -level)))
    integral, height, since = 0.0, 0.0, 0
    for time, change in changes:
        integral += min(height, 1.0) * (time - since)
        height, since = height + change, time
    return integral


def collectives(activities: Sequence[Activity]) -> list[Collective]:
    """Return the collectives of one rank, in the order of their begin."""
    return [(activity.name, activity.nano) for activity in activities if activity.is_communication]


def gather(mine: Sequence[Collective] | None) -> list[Sequence[Collective] | None]:
    """Return the collectives of every rank, by rank; every rank must call this. None: that rank has no trace."""
    if not dist.is_available() or not dist.is_initialized():
        return [mine]
    of_all: list[Sequence[Collective] | None] = [None] * dist.get_world_size()
    # Between the hosts where the group has a backend for them; otherwise torch copies to the GPU and back.
    dist.all_gather_object(of_all, mine)
    return of_all


def wait_nano(of_all: Sequence[Sequence[Collective] | None], rank: int) -> int | None:
    """Return the time that `rank` waited in collectives for the last rank to arrive.

    A collective ends on all ranks at once, so it is shortest on the last. None: there is one rank only, none had a
    collective, or the ranks traced different ones.
    """
    present = [one for one in of_all if one]
    sequences = {tuple(name for name, _ in one) for one in present}
    if len(of_all) < 2 or len(present) < len(of_all) or len(sequences) != 1:
        return None
    durations = [[nano for _, nano in one] for one in present]
    shortest: list[int] = [min(nano) for nano in zip(*durations, strict=True)]
    return sum(durations[rank]) - sum(shortest)
