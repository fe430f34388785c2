"""The bounds of a workload: their measured figures, and the thresholds from which these show them.

Nothing is guessed: a bound needs a figure, and several can be shown at once. Thresholds:

- A third of the time. Without that share a run would be at least one and a half times as fast.
- 60 % of what a unit can do. Below that Nsight Compute's "Speed Of Light" rule calls a kernel bound by latency, and not
  by the unit.
- 90 % of the CPU that a run may use, while the GPU waits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil

# Figures of a run, or medians over repeats, by the names of metrics.
Metrics = Mapping[str, float]

TIME_PERCENT = 100 / 3
UNIT_PERCENT = 60.0
CPU_PERCENT = 90.0

# The use of a GPU and its parts is sampled once a second, or averaged over about as long: in a shorter measured phase
# it depends on chance, and on the time before.
LEAST_SAMPLED_SECONDS = 10


def count_steps(seconds: float) -> int:
    """Return how many steps of so many seconds are sampled for long enough, with a margin of a tenth."""
    return ceil(1.1 * LEAST_SAMPLED_SECONDS / seconds)


class Limit(Enum):
    """A possible bound of a workload."""

    # The host hands work to the GPU too slowly: many small kernels, or something else between them.
    LAUNCH = "launch"
    DATA = "data"
    # The CPUs that the run may use are busy with it, and the GPU waits.
    HOST = "host"
    COMPUTE = "compute"
    # Of the device: its bandwidth.
    MEMORY = "memory"
    # Between ranks, where computing does not hide it.
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The figure of one limit.

    Attributes:
        sign: the figure in words.
        percent: the figure; None: not measured.
        threshold_percent: the figure from which it shows the bound.
        is_shown: whether it does. For the host the GPU must wait, too.
        idle_percent: of launches that no trace has: the share of samples in which the GPU had no work, less waits for
            data. Launches have a part in it, as have copies, checkpoints and other work of the program.
    """

    limit: Limit
    sign: str
    percent: float | None
    threshold_percent: float
    is_shown: bool
    idle_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts beside the figures of a run. None: unknown.

    Attributes:
        cpu_limit_cores: cores that it may use, on all its nodes together.
        compute_roof_percent: its FLOPs by time, of the peak that was measured on its device.
        memory_roof_percent: its device's memory traffic by time, of the bandwidth that was measured there.
    """

    cpu_limit_cores: float | None = None
    compute_roof_percent: float | None = None
    memory_roof_percent: float | None = None


def find_bounds(metrics: Metrics, surroundings: Surroundings) -> tuple[Bound, ...]:
    """Return the figure of every limit, in the order of `Limit`."""
    return tuple(rule(metrics, surroundings) for rule in _RULES)


def _launch(metrics: Metrics, _surroundings: Surroundings) -> Bound:
    busy, waits = metrics.get("gpu_busy_percent"), metrics.get("data_wait_percent")
    sign = "GPU without work" if waits is None else "GPU without work, less waits for data"
    idle = _idle_percent(metrics)
    left = None if idle is None else max(0.0, idle - (waits or 0.0))
    if busy is not None:
        return _time(Limit.LAUNCH, sign, left)
    return replace(_time(Limit.LAUNCH, sign, None), idle_percent=left if "gpus" in metrics else None)


def _data(metrics: Metrics, _surroundings: Surroundings) -> Bound:
    # A wait of the host for the next batch while the GPU still computes delays nothing.
    both = [metrics.get("data_wait_percent"), _idle_percent(metrics)]
    known = [each for each in both if each is not None]
    return _time(Limit.DATA, "waits for data while the GPU has no work", min(known) if len(known) == 2 else None)


def _host(metrics: Metrics, surroundings: Surroundings) -> Bound:
    # The node's CPU in use does not count: others may use it, and that does not bound the workload elsewhere.
    own, limit = metrics.get("process_cpu_cores"), surroundings.cpu_limit_cores
    percent = 100 * own / limit if own is not None and limit else None
    idle = _idle_percent(metrics) if "gpus" in metrics else 100.0
    bound = _above(Limit.HOST, "the run's own CPU, of what it may use", percent, CPU_PERCENT)
    return replace(bound, is_shown=bound.is_shown and idle is not None and idle >= TIME_PERCENT)


def _compute(metrics: Metrics, surroundings: Surroundings) -> Bound:
    signs = {
        "tensor pipes active": metrics.get("tensor_active_percent"),
        "FP32 pipes active": metrics.get("fp32_active_percent"),
        "FLOPs, of the measured peak": surroundings.compute_roof_percent,
        "FLOPs, of the datasheet's peak": metrics.get("mfu_percent"),
    }
    return _highest(Limit.COMPUTE, signs, UNIT_PERCENT)


def _memory(metrics: Metrics, surroundings: Surroundings) -> Bound:
    signs = {
        "device memory's bandwidth in use": metrics.get("dram_active_percent"),
        "device memory's traffic, of the measured bandwidth": surroundings.memory_roof_percent,
    }
    return _highest(Limit.MEMORY, signs, UNIT_PERCENT)


def _communication(metrics: Metrics, _surroundings: Surroundings) -> Bound:
    sign = "communication that computing does not hide"
    return _time(Limit.COMMUNICATION, sign, metrics.get("exposed_communication_percent"))


def _time(limit: Limit, sign: str, percent: float | None) -> Bound:
    return _above(limit, sign, percent, TIME_PERCENT)


def _highest(limit: Limit, signs: Mapping[str, float | None], threshold_percent: float) -> Bound:
    """Return the bound by the highest of several figures: each is of another part of the unit, or of another whole."""
    known = {sign: percent for sign, percent in signs.items() if percent is not None}
    sign = max(known, key=known.__getitem__, default=next(iter(signs)))
    return _above(limit, sign, known.get(sign), threshold_percent)


def _above(limit: Limit, sign: str, percent: float | None, threshold_percent: float) -> Bound:
    return Bound(
        limit=limit,
        sign=sign,
        percent=percent,
        threshold_percent=threshold_percent,
        is_shown=percent is not None and percent >= threshold_percent,
    )


def find_traced(metrics: Mapping[str, Metrics]) -> str | None:
    """Return the last of runs, by their identities, whose kernels or operators are known; None: there is none."""
    known = ("kernel_seconds_per_step", "operator_cpu_seconds_per_step")
    found = [run for run, of_run in metrics.items() if not of_run.keys().isdisjoint(known)]
    return found[-1] if found else None


def _idle_percent(metrics: Metrics) -> float | None:
    """Return the share of time in which the GPU had no work: of a step by its trace, else by its utilisation."""
    busy = metrics.get("gpu_busy_percent", metrics.get("gpu_utilization_percent"))
    return None if busy is None else 100 - busy


# A rule for each limit, in their order.
_RULES: tuple[Callable[[Metrics, Surroundings], Bound], ...] = (
    _launch,
    _data,
    _host,
    _compute,
    _memory,
    _communication,
)
