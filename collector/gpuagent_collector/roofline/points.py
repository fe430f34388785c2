"""The points of a roofline: FLOPs per byte, and FLOPs per second."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from gpuagent_collector.roofline.roofs import ARITHMETICS, CUDA_CORES, Mix, Roofs, Trial


class Flops(Enum):
    """The source of a point's FLOPs."""

    # The GPU's counters of executed ones.
    EXECUTED = "executed"
    # The formula of the model.
    MODEL = "model"


class Traffic(Enum):
    """The source of a point's bytes, the best one first."""

    # The GPU's counters, of one step.
    COUNTED = "counted"
    # The sampled share of the memory's peak bandwidth while the steps ran.
    SAMPLED = "sampled"
    # The formula of a lower bound.
    LEAST = "at least"


class Side(Enum):
    """The side of a roof's ridge on which a point is, and so the roof above it."""

    MEMORY = "memory"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The settings in which repeats agree.

    Attributes:
        side: value of the facet that separates points; None: no value.
        parameters: canonical JSON.
        part: the rank or GPU of each run; None: the run.
    """

    workload: str
    side: str | None
    platform: str | None
    environment: str | None
    image: str | None
    interference: str | None
    limits: str | None
    device: str
    parameters: str
    part: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Repeats of one thing: medians over them, of a step of one rank on its device.

    Attributes:
        trials: at least one.
        seconds: time of a step, idle time of the device included.
        flops: above 0; their source is `flops_by`.
        mix: `flops` by arithmetic; empty: unknown.
        model_flops, model_mix: by the model's formula; None and empty: not reported.
        traffic_bytes: to and from the device's memory; None: unknown. Their source is `traffic_by`.
        busy_percent: share of a step in which the GPU had work; None: there is no trace.
    """

    group: Group
    trials: tuple[Trial, ...]
    seconds: float
    flops: float
    flops_by: Flops
    mix: Mix
    model_flops: float | None
    model_mix: Mix
    traffic_bytes: float | None
    traffic_by: Traffic | None
    busy_percent: float | None

    @property
    def flops_per_second(self) -> float:
        """The achieved FLOP/s."""
        return self.flops / self.seconds

    @property
    def intensity(self) -> float | None:
        """FLOPs by byte; an upper bound where the bytes are a lower one."""
        return None if self.traffic_bytes is None else self.flops / self.traffic_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofShares:
    """The place of a point below the roofs of one source. None: unknown.

    Attributes:
        roof_percent: achieved share of the roof at its intensity; a lower bound where the intensity is a bound.
        mfu_percent: model FLOPs utilisation: model FLOPs by time, of the peak of their arithmetic.
        side: of the ridge. With a bound of the intensity only the memory's side can be known.
    """

    roof_percent: float | None
    mfu_percent: float | None
    side: Side | None


def make_points(trials: Iterable[Trial]) -> list[Point]:
    """Return a point for each group of repeats that report FLOPs and time of a step."""
    groups: dict[Group, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[_group(trial)].append(trial)
    points = [_point(group, members) for group, members in groups.items()]
    names = ("device", "workload", "side", "platform", "parameters", "part")
    return sorted(filter(None, points), key=lambda point: [getattr(point.group, name) or "" for name in names])


def locate(point: Point, roofs: Roofs) -> RoofShares:
    """Return the place of a point below roofs."""
    roof = None if point.intensity is None else roofs.at(point.mix, point.intensity)
    peak = roofs.peak(point.model_mix)
    return RoofShares(
        roof_percent=100 * point.flops_per_second / roof if roof else None,
        mfu_percent=100 * point.model_flops / point.seconds / peak if point.model_flops and peak else None,
        side=_side(point, roofs),
    )


def exceeds(mix: Mix, seconds: float, roofs: Roofs) -> bool:
    """Return whether some arithmetic alone would have to be faster than its peak; different ones may overlap."""
    return any(flops / seconds > roofs.flops_per_second.get(name, float("inf")) for name, flops in mix.items())


def _side(point: Point, roofs: Roofs) -> Side | None:
    ridge = roofs.ridge(point.mix)
    if ridge is None or point.intensity is None:
        return None
    if point.intensity < ridge:
        return Side.MEMORY
    return None if point.traffic_by is Traffic.LEAST else Side.COMPUTE


# Traces and counters beside or after the measured steps do not change them.
_APART = frozenset({"trace", "profile", "counters"})


def _group(trial: Trial) -> Group:
    names = ("side", "platform", "environment", "image", "interference", "limits")
    parameters = {name: value for name, value in json.loads(trial.run.parameters).items() if name not in _APART}
    return Group(
        workload=trial.run.workload,
        device=trial.device,
        parameters=json.dumps(parameters, sort_keys=True),
        part=trial.part,
        **{name: getattr(trial.run, name) for name in names},
    )


def _point(group: Group, trials: Sequence[Trial]) -> Point | None:
    figures = medians_of([_step(trial) for trial in trials])
    model = figures.get("model_flops_per_step")
    executed = figures.get("executed_flops_per_step")
    flops, seconds = executed or model, figures.get("step_seconds")
    if flops is None or seconds is None:
        return None
    model_mix = _model_mix(figures, trials[0].texts) if model else {}
    traffic_by = next((way for way in Traffic if way.value in figures), None)
    return Point(
        group=group,
        trials=tuple(trials),
        seconds=seconds,
        flops=flops,
        flops_by=Flops.EXECUTED if executed else Flops.MODEL,
        mix=_executed_mix(executed, figures, model_mix) if executed else model_mix,
        model_flops=model,
        model_mix=model_mix,
        traffic_bytes=figures[traffic_by.value] if traffic_by else None,
        traffic_by=traffic_by,
        busy_percent=figures.get("gpu_busy_percent"),
    )


def medians_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the runs that have it."""
    names = dict.fromkeys(name for figures in runs for name in figures)
    return {name: median(figures[name] for figures in runs if name in figures) for name in names}


def _step(trial: Trial) -> dict[str, float]:
    """Return the figures of a step, the bytes by each way that the trial has."""
    ways = {
        Traffic.COUNTED: trial.figures.get("dram_bytes_per_step"),
        Traffic.SAMPLED: _sampled_bytes(trial),
        Traffic.LEAST: trial.figures.get("minimum_bytes_per_step"),
    }
    busy = {name: trial.metrics[name] for name in ("gpu_busy_percent",) if name in trial.metrics}
    return {**trial.figures, **busy, **{way.value: value for way, value in ways.items() if value}}


# With a smaller share of steps in the measured phase, its samples are not those of steps.
_LEAST_COVERED = 0.95


def _sampled_bytes(trial: Trial) -> float | None:
    """Return the bytes of a step by the sampled share of the memory's peak bandwidth; None: unknown."""
    percent, phase_seconds = trial.metrics.get("dram_active_percent"), trial.metrics.get("measure_seconds")
    peak, seconds = trial.figures.get("datasheet_dram_bytes_per_second"), trial.figures.get("step_seconds")
    if not (percent and phase_seconds and peak and seconds):
        return None
    if seconds * trial.figures["steps"] < _LEAST_COVERED * phase_seconds:
        return None
    return percent / 100 * peak * seconds


def _model_mix(figures: Mapping[str, float], texts: Mapping[str, str]) -> Mix:
    """Return the model FLOPs by arithmetic as reported, or all in the precision of the run."""
    reported = {name: figures.get(f"model_flops_{name}_per_step") for name in ARITHMETICS}
    known = {name: flops for name, flops in reported.items() if flops}
    precision = texts.get("precision")
    return known or ({precision: figures["model_flops_per_step"]} if precision in ARITHMETICS else {})


def _executed_mix(executed: float, figures: Mapping[str, float], model_mix: Mix) -> Mix:
    """Return the executed FLOPs by arithmetic: those of tensor cores are in the model's narrow one; empty: unknown."""
    in_tensor_cores = min(figures.get("executed_tensor_flops_per_step", 0.0), executed)
    narrow = [name for name in model_mix if name != CUDA_CORES]
    if in_tensor_cores and len(narrow) != 1:
        return {}
    mix = {CUDA_CORES: executed - in_tensor_cores, **({narrow[0]: in_tensor_cores} if in_tensor_cores else {})}
    return {name: flops for name, flops in mix.items() if flops}
