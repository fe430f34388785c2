"""The activities of a GPU in the Chrome trace that torch's profiler (Kineto) exports, and their time by name."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

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

    Raises:
        ValueError: it is not a trace of Kineto's.
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
