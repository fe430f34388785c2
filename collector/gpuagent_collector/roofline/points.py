"""Where runs lie in a roofline: how much they compute for each byte, and how fast."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from gpuagent_collector.roofline.data import Trial
from gpuagent_collector.roofline.roofs import ARITHMETICS, CUDA_CORES, Mix, Roofs


class Flops(Enum):
    """How the FLOPs of a point were got."""

    # By the GPU's counters, of what it executed.
    EXECUTED = "executed"
    # By formula, of what the model asks for.
    MODEL = "model"


class Traffic(Enum):
    """How the bytes of a point were got, the best way first."""

    # By the GPU's counters, of one step.
    COUNTED = "counted"
    # From the share of the memory's peak bandwidth that was in use while the steps ran.
    SAMPLED = "sampled"
    # By formula, and it can only be more.
    LEAST = "at least"


class Side(Enum):
    """On which side of a roof's ridge a point lies, and so which of the two roofs is above it."""

    MEMORY = "memory"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What repeats agree in.

    Attributes:
        side: value of the facet that points are told apart by; None: the runs have none.
        parameters: canonical JSON.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Repeats of one thing: medians over them, of a step of one rank on its device.

    Attributes:
        trials: at least one.
        seconds: time of a step, idle time of the device included.
        flops: above 0; `flops_by` says how they were got.
        mix: `flops` by arithmetic; empty: not known.
        model_flops, model_mix: as the model asks for; None and empty: not reported.
        traffic_bytes: to and from the device's memory; None: not known. `traffic_by` says how they were got.
        busy_percent: share of a step in which the GPU had something to do; None: no trace tells.
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
        """What it achieved."""
        return self.flops / self.seconds

    @property
    def intensity(self) -> float | None:
        """FLOPs by byte; at most so many where the bytes are a lower bound."""
        return None if self.traffic_bytes is None else self.flops / self.traffic_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a point stands to the roofs of one source. None: not known.

    Attributes:
        roof_percent: what it achieved, of the roof at its intensity; at least so much where that is a bound.
        mfu_percent: model FLOPs utilisation: model FLOPs by time, of the peak of their arithmetic.
        side: of the ridge. With a bound of the intensity only the memory's side can be told.
    """

    roof_percent: float | None
    mfu_percent: float | None
    side: Side | None


def make_points(trials: Iterable[Trial]) -> list[Point]:
    """Return a point for each group of repeats that say how many FLOPs a step has and how long it took."""
    groups: dict[Group, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[_group(trial)].append(trial)
    points = [_point(group, members) for group, members in groups.items()]
    return sorted((point for point in points if point), key=_order)


def stand(point: Point, roofs: Roofs) -> Standing:
    """Return how a point stands to roofs."""
    roof = None if point.intensity is None else roofs.at(point.mix, point.intensity)
    peak = roofs.peak(point.model_mix)
    return Standing(
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


# What is watched beside or after the measured steps makes no difference to them.
_APART = frozenset({"trace", "profile", "counters"})


def _group(trial: Trial) -> Group:
    run = trial.run
    parameters = {name: value for name, value in json.loads(run.parameters).items() if name not in _APART}
    return Group(
        workload=run.workload,
        side=run.side,
        platform=run.platform,
        environment=run.environment,
        image=run.image,
        interference=run.interference,
        limits=run.limits,
        device=trial.device,
        parameters=json.dumps(parameters, sort_keys=True),
    )


def _point(group: Group, trials: Sequence[Trial]) -> Point | None:
    figures = _medians([_step(trial) for trial in trials])
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


def _medians(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over those trials that have it."""
    names = dict.fromkeys(name for figures in trials for name in figures)
    return {name: median(figures[name] for figures in trials if name in figures) for name in names}


def _step(trial: Trial) -> dict[str, float]:
    """Return the figures of a step, the bytes by each way that the trial has."""
    ways = {
        Traffic.COUNTED: trial.figures.get("dram_bytes_per_step"),
        Traffic.SAMPLED: _sampled_bytes(trial),
        Traffic.LEAST: trial.figures.get("minimum_bytes_per_step"),
    }
    busy = {name: trial.metrics[name] for name in ("gpu_busy_percent",) if name in trial.metrics}
    return {**trial.figures, **busy, **{way.value: value for way, value in ways.items() if value}}


# So much of the measured phase must be steps, or else its samples are of more than them.
_LEAST_COVERED = 0.95


def _sampled_bytes(trial: Trial) -> float | None:
    """Return the bytes of a step by the sampled share of the memory's peak bandwidth; None: not to be told."""
    percent, phase_seconds = trial.metrics.get("dram_active_percent"), trial.metrics.get("measure_seconds")
    peak, seconds = trial.figures.get("datasheet_dram_bytes_per_second"), trial.figures.get("step_seconds")
    if not (percent and phase_seconds and peak and seconds):
        return None
    if seconds * trial.figures["steps"] < _LEAST_COVERED * phase_seconds:
        return None
    return percent / 100 * peak * seconds


def _model_mix(figures: Mapping[str, float], texts: Mapping[str, str]) -> Mix:
    """Return the model FLOPs by arithmetic as reported, or all in the one that the run says it used."""
    reported = {name: figures.get(f"model_flops_{name}_per_step") for name in ARITHMETICS}
    known = {name: flops for name, flops in reported.items() if flops}
    precision = texts.get("precision")
    return known or ({precision: figures["model_flops_per_step"]} if precision in ARITHMETICS else {})


def _executed_mix(executed: float, figures: Mapping[str, float], model_mix: Mix) -> Mix:
    """Return the executed FLOPs by arithmetic: what tensor cores did is in the model's narrow one; empty: unknown."""
    in_tensor_cores = min(figures.get("executed_tensor_flops_per_step", 0.0), executed)
    narrow = [name for name in model_mix if name != CUDA_CORES]
    if in_tensor_cores and len(narrow) != 1:
        return {}
    mix = {CUDA_CORES: executed - in_tensor_cores, **({narrow[0]: in_tensor_cores} if in_tensor_cores else {})}
    return {name: flops for name, flops in mix.items() if flops}


def _order(point: Point) -> tuple[str, ...]:
    group = point.group
    return tuple(
        str(value or "") for value in (group.device, group.workload, group.side, group.platform, group.parameters)
    )
