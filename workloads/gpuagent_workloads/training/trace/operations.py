"""The time of a trace by name: kernels, copies and sets on the GPU, and torch's operators."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_workloads.training.trace.activity import Activity

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
