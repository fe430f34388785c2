"""The activities of a GPU in the Chrome trace of torch's profiler (Kineto), and their figures.

These are their time by name, the GPU's busy time, occupancy and communication, and its waits for other ranks."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch.distributed as dist

Kind = Literal["kernel", "memcpy", "memset"]

# Begin and end in whole nanoseconds, so that sums are exact. Empty unless the end is after the begin.
Interval = tuple[int, int]

# Kineto's categories of a GPU's activities. Its gpu_user_annotation only labels a stretch of time.
_KINDS: Mapping[str, Kind] = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One kernel, copy or set on the GPU."""

    kind: Kind
    # Demangled, with all its template arguments: thousands of characters are not rare.
    name: str
    begin_nano: int
    # As `begin_nano`, on the trace's own clock.
    end_nano: int
    # Blocks of the kernel by streaming multiprocessors of the GPU. None: not in the trace, or no kernel.
    blocks_per_sm: float | None = None
    # Kineto's estimate, from the kernel's launch, of resident warps by those that an SM could hold. None: likewise.
    occupancy_percent: float | None = None

    @property
    def interval(self) -> Interval:
        """From its begin to its end."""
        return self.begin_nano, self.end_nano

    @property
    def nano(self) -> int:
        """Its duration."""
        return self.end_nano - self.begin_nano

    @property
    def is_communication(self) -> bool:
        """True if it is a kernel of NCCL: ncclDevKernel_…, formerly ncclKernel_…."""
        return self.kind == "kernel" and "nccl" in self.name


def read_activities(path: Path) -> list[Activity]:
    """Return the activities of the GPU, in the order of their begin, from a trace file, gzipped if it is named so.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a trace of Kineto's.
    """
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return parse_activities(json.load(file, object_hook=_without_host_events))


def parse_activities(trace: Any) -> list[Activity]:
    """Return the activities in a trace, in the order of their begin.

    Raises ValueError: it is not a trace of Kineto's.
    """
    try:
        events: Iterable[Mapping[str, Any] | None] = trace["traceEvents"]
        activities = []
        for event in events:
            if event and event.get("cat") in _KINDS:
                arguments = event.get("args", {})
                # Microseconds with three decimals.
                begin_nano = round(1e3 * event["ts"])
                activities.append(
                    Activity(
                        kind=_KINDS[event["cat"]],
                        name=str(event["name"]),
                        begin_nano=begin_nano,
                        end_nano=begin_nano + round(1e3 * event["dur"]),
                        blocks_per_sm=_figure_or_none(arguments.get("blocks per SM")),
                        occupancy_percent=_figure_or_none(arguments.get("est. achieved occupancy %")),
                    )
                )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a Chrome trace of Kineto's: {type(error).__name__}: {error}") from error
    return sorted(activities, key=lambda activity: activity.interval)


def join_cycles(cycles: Iterable[Sequence[Activity]]) -> list[Activity]:
    """Return the activities of all cycles, each moved to the end of the one before: the steps between are left out."""
    joined: list[Activity] = []
    end_nano = 0
    for activities in cycles:
        shift_nano = end_nano - activities[0].begin_nano
        joined += [
            replace(one, begin_nano=one.begin_nano + shift_nano, end_nano=one.end_nano + shift_nano)
            for one in activities
        ]
        end_nano = max(one.end_nano for one in joined)
    return joined


def _without_host_events(value: dict[str, Any]) -> dict[str, Any] | None:
    """Drop each event of the host as soon as it is read: a trace with operators has ten times as many of them."""
    return None if "ph" in value and value.get("cat") not in _KINDS else value


def _figure_or_none(value: Any) -> float | None:
    """Return a figure of a kernel, None where it is unknown: Kineto then writes a negative number or "inf"."""
    return float(value) if isinstance(value, int | float) and 0 <= value < math.inf else None


# The number of names of each kind with a row of their own; the others share one.
LISTED = 100

OTHERS = "(others)"

# Longer names are cut. Names of kernels differ long before, and a line of events holds 64 KiB.
MAX_NAME_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The sum of all calls of one name in a trace. None: does not apply, or has no sum."""

    # operator, kernel, memcpy or memset.
    kind: str
    name: str
    calls: int
    # Of an operator on the host, including its callees.
    cpu_seconds: float | None = None
    # The same without its callees.
    cpu_self_seconds: float | None = None
    # Of kernels, copies and sets; of an operator, those that it and its callees launched.
    gpu_seconds: float | None = None
    # Of an operator, those that it launched itself.
    gpu_self_seconds: float | None = None


def device_operations(activities: Iterable[Activity]) -> list[Operation]:
    """Return the GPU's activities by kind and name; the longest of each kind first, the rest in one."""
    durations: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for activity in activities:
        durations[activity.kind, _cut(activity.name)].append(activity.nano)
    operations = [
        Operation(kind=kind, name=name, calls=len(nano), gpu_seconds=sum(nano) / 1e9)
        for (kind, name), nano in durations.items()
    ]
    kinds = sorted({operation.kind for operation in operations})
    return [
        operation
        for kind in kinds
        for operation in longest([one for one in operations if one.kind == kind], lambda one: one.gpu_seconds or 0.0)
    ]


def operators(averages: Iterable[Any], *, on_gpu: bool) -> list[Operation]:
    """Return torch's operators; those with the most time of their own first, the rest in one.

    Args:
        averages: from the profiler's `key_averages`, times in microseconds. They include calls of CUDA's runtime,
            annotations such as the optimizer's, and as ProfilerStep* the steps themselves.
        on_gpu: whether a GPU was traced; else the times on it are absent.
    """
    hosts = [
        Operation(
            kind="operator",
            name=_cut(average.key),
            calls=average.count,
            cpu_seconds=average.cpu_time_total / 1e6,
            cpu_self_seconds=average.self_cpu_time_total / 1e6,
            gpu_seconds=average.device_time_total / 1e6 if on_gpu else None,
            gpu_self_seconds=average.self_device_time_total / 1e6 if on_gpu else None,
        )
        for average in averages
        if average.device_type.name == "CPU"
    ]
    return longest(hosts, lambda one: max(one.cpu_self_seconds or 0.0, one.gpu_self_seconds or 0.0))


def longest(operations: Sequence[Operation], seconds: Callable[[Operation], float]) -> list[Operation]:
    """Return the longest operations, all of one kind, and the sum of the rest, so that sums are of all.

    An operator's time includes that of its callees. Such times cannot be added up, so the rest has none.
    """
    ranked = sorted(operations, key=seconds, reverse=True)
    listed, rest = ranked[:LISTED], ranked[LISTED:]
    if not rest:
        return listed
    is_operator = rest[0].kind == "operator"
    others = Operation(
        kind=rest[0].kind,
        name=OTHERS,
        calls=sum(one.calls for one in rest),
        cpu_self_seconds=_sum(one.cpu_self_seconds for one in rest),
        gpu_seconds=None if is_operator else _sum(one.gpu_seconds for one in rest),
        gpu_self_seconds=_sum(one.gpu_self_seconds for one in rest),
    )
    return [*listed, others]


def _sum(figures: Iterable[float | None]) -> float | None:
    present = [figure for figure in figures if figure is not None]
    return sum(present) if present else None


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARACTERS else f"{name[: MAX_NAME_CHARACTERS - 1]}…"


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

    The span that some of them refer to lasts from the begin of the first activity to the end of the last. Raises
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
