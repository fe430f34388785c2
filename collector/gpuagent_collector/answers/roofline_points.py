"""Points of a roofline: the operations and bytes of runs, and the limits of their device."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from math import isfinite, log10
from statistics import median

from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics.bounds import LEAST_SAMPLED_SECONDS
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import identify_command, parse_arguments
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.parts import label_parts, load_parts

# Name → figure of a run, mean over its ranks; above 0.
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that succeeded, with its reports.

    Attributes:
        device: name of the GPU, as each rank has one, or of the processor and its threads.
        device_ids: keys of its GPUs; empty: no known GPU.
        node_ids: keys of its nodes.
        figures: results of the workload, `step_seconds` and `steps` of its measured steps.
        metrics: its figures, by metric.
        texts: its results that are texts.
        is_short: whether it measured for less than 10 s, or reported that this was too short a time.
        part: the rank or GPU that is meant; None: the run.
    """

    run: Run
    device: str
    device_ids: frozenset[int]
    node_ids: frozenset[int]
    figures: Figures
    metrics: Mapping[str, float]
    texts: Mapping[str, str]
    is_short: bool
    part: str | None = None


# Where known, in a run's figures, as its maker states it.
_BANDWIDTH = "datasheet_dram_bytes_per_second"


def load_trials(ask: Ask, runs: Iterable[Run], facts: Facts) -> list[Trial]:
    """Return the runs with their reports on steps and on their devices' roofs."""
    runs = list(runs)
    figures = _load_figures(ask, [run.run_id for run in runs], rank="NULL")
    trials = []
    for run in runs:
        run_id, texts = run.run_id, facts.texts.get(run.run_id, {})
        sessions, devices = facts.sessions.get(run_id, []), facts.devices.get(run_id, [])
        trials.append(
            Trial(
                run=run,
                device=_name_device(texts, sessions, devices),
                device_ids=frozenset(device["device_id"] for device in devices),
                node_ids=frozenset(session["node_id"] for session in sessions),
                figures=figures[run_id, None],
                metrics=facts.metrics.get(run_id, {}),
                texts=texts,
                is_short=run_id in facts.short
                or facts.metrics.get(run_id, {}).get("measure_seconds", LEAST_SAMPLED_SECONDS) < LEAST_SAMPLED_SECONDS,
            )
        )
    # Workloads report the bandwidth of a device, and programs of the user's own do not.
    known = {trial.device: trial.figures[_BANDWIDTH] for trial in trials if _BANDWIDTH in trial.figures}
    return [
        replace(trial, figures={_BANDWIDTH: known[trial.device], **trial.figures}) if trial.device in known else trial
        for trial in trials
    ]


def _load_figures(ask: Ask, run_ids: Sequence[str], rank: str) -> Mapping[tuple[str, int | None], Figures]:
    """Return results and steps by run and by this expression of the rank; NULL: means over the ranks."""
    figures: dict[tuple[str, int | None], dict[str, float]] = defaultdict(dict)
    for query in (_RESULTS, _STEPS):
        for row in ask(query.format(rank=rank), [list(run_ids)]):
            if isfinite(row["value"]) and row["value"] > 0:
                figures[row["run_id"], row["rank"]][row["name"]] = row["value"]
    return figures


def _name_device(texts: Mapping[str, str], sessions: Iterable[Record], devices: Iterable[Record]) -> str:
    """Return the device as named by the workload, else by NVML; for a processor with the number of its threads."""
    named = texts.get("device") or ", ".join(sorted({device["name"] or "unknown GPU" for device in devices}))
    if named and named != "cpu":
        return named
    processors = ", ".join(sorted({session["cpu_model"] or "unknown CPU" for session in sessions}))
    threads = texts.get("threads")
    with_threads = f" with {threads} thread{'s' * (threads != '1')}" if threads else ""
    return f"{processors or 'unknown CPU'}{with_threads}"


_RESULTS = """
SELECT run_id, {rank} AS rank, name, avg(value) AS value  -- of the last report of each rank
FROM (
    SELECT run_id, rank, name, arg_max(value, time) AS value
    FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
        AND (ends_with(name, '_per_step') OR ends_with(name, '_per_second') OR name = 'quick')
    GROUP BY ALL
)
WHERE value IS NOT NULL
GROUP BY ALL"""

_STEPS = """
WITH of_ranks AS (
    -- The wall time of a step on a GPU is that of its launch.
    SELECT run_id, rank, avg(coalesce(gpu_seconds, wall_seconds)) AS seconds, count(*) AS steps
    FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND phase = 'measure'
    GROUP BY ALL
)
SELECT run_id, {rank} AS rank, 'step_seconds' AS name, avg(seconds) AS value
FROM of_ranks WHERE seconds IS NOT NULL GROUP BY ALL
UNION ALL
SELECT run_id, {rank}, 'steps', avg(steps) FROM of_ranks GROUP BY ALL"""


# Each has its own peak, and this name in the results of runs.
ARITHMETICS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")

# FLOPs of a step by arithmetic; only those above 0.
Mix = Mapping[str, float]

# The arithmetic outside tensor cores.
CUDA_CORES = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The peaks of one device, from one source.

    Attributes:
        flops_per_second: the known ones, by arithmetic.
        bytes_per_second: of the device's memory, both directions; None: unknown.
    """

    flops_per_second: Mapping[str, float]
    bytes_per_second: float | None

    def peak(self, mix: Mix) -> float | None:
        """Return the FLOP/s of a mix at its peaks, one arithmetic after the other; None: a peak is unknown."""
        if not mix or not self.flops_per_second.keys() >= mix.keys():
            return None
        return sum(mix.values()) / sum(flops / self.flops_per_second[name] for name, flops in mix.items())

    def at(self, mix: Mix, intensity: float) -> float | None:
        """Return the roof in FLOP/s at an intensity: the lesser of the peak and of bandwidth × FLOPs by byte."""
        peak = self.peak(mix)
        if peak is None or self.bytes_per_second is None:
            return None
        return min(peak, intensity * self.bytes_per_second)

    def ridge(self, mix: Mix) -> float | None:
        """Return the FLOPs by byte from which on arithmetic is the bound, not memory."""
        peak = self.peak(mix)
        return None if peak is None or self.bytes_per_second is None else peak / self.bytes_per_second


NO_ROOFS = Roofs(flops_per_second={}, bytes_per_second=None)


def measured_roofs(figures: Mapping[str, float]) -> Roofs:
    """Return the roofs from a run of `ceilings`: its best matrix products, and the better of copy and triad."""
    bandwidths = [figures.get(f"dram_{way}_bytes_per_second") for way in ("copy", "triad")]
    return Roofs(
        flops_per_second=_by_arithmetic(figures, "gemm_{}_flops_per_second"),
        bytes_per_second=max((each for each in bandwidths if each), default=None),
    )


def datasheet_roofs(runs: Iterable[Mapping[str, float]]) -> Roofs:
    """Return the datasheet's roofs from the results of runs on one device."""
    known = {name: value for figures in runs for name, value in figures.items()}
    return Roofs(
        flops_per_second=_by_arithmetic(known, "datasheet_{}_flops_per_second"),
        bytes_per_second=known.get(_BANDWIDTH),
    )


def _by_arithmetic(figures: Mapping[str, float], name: str) -> dict[str, float]:
    found = {arithmetic: figures.get(name.format(arithmetic)) for arithmetic in ARITHMETICS}
    return {arithmetic: value for arithmetic, value in found.items() if value}


class Nearness(IntEnum):
    """The relation of the device whose roofs were measured to those of the runs, the nearest last."""

    OTHER_NODE = 0
    SAME_NODE = 1
    SAME_DEVICE = 2


NEARNESS = ("one of the same model on another node", "another of the same model on the node", "the same device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The roofs from a run of `ceilings`."""

    run: Run
    roofs: Roofs
    nearness: Nearness


def find_ceilings(trials: Sequence[Trial], measured: Iterable[Trial]) -> Ceilings | None:
    """Return the newest roofs of the nearest device of the model that the trials ran on; None: no roofs were measured.

    Args:
        trials: runs on one model of device; at least one.
        measured: runs of `ceilings`, oldest first. Quick tests are left out.
    """
    alike = [one for one in measured if one.device == trials[0].device and "quick" not in one.figures]
    if not alike:
        return None
    nearest = max(reversed(alike), key=lambda one: _nearness(one, trials))
    return Ceilings(run=nearest.run, roofs=measured_roofs(nearest.figures), nearness=_nearness(nearest, trials))


def _nearness(measured: Trial, trials: Sequence[Trial]) -> Nearness:
    if any(measured.device_ids & trial.device_ids for trial in trials):
        return Nearness.SAME_DEVICE
    if not any(measured.node_ids & trial.node_ids for trial in trials):
        return Nearness.OTHER_NODE
    # A node has processors of one kind, and threads of either run may be on any of them.
    on_processor = not measured.device_ids and not any(trial.device_ids for trial in trials)
    return Nearness.SAME_DEVICE if on_processor else Nearness.SAME_NODE


def divide_trials(ask: Ask, trials: Sequence[Trial], facts: Facts, kind: PartKind) -> Iterator[Trial]:
    """Yield a trial for each rank: its own steps and results, and the samples of its GPU, by which it can be named."""
    runs = [trial.run for trial in trials]
    run_ids = [run.run_id for run in runs]
    figures = _load_figures(ask, run_ids, rank="coalesce(rank, 0)")
    of_ranks, of_gpus = (load_parts(ask, runs, facts, each) for each in (PartKind.RANK, PartKind.GPU))
    devices: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in ask(_DEVICES, [run_ids]):
        devices[row["run_id"], row["rank"]].append(row["device_id"])
    for trial in trials:
        run_id, gpus = trial.run.run_id, label_parts(trial.run, facts, PartKind.GPU)
        for rank, label in label_parts(trial.run, facts, PartKind.RANK).items():
            # A rank on several GPUs keeps its name and the means over them.
            own = devices[run_id, rank] if len(devices[run_id, rank]) == 1 else []
            gpu = gpus.get(own[0]) if own else None
            yield replace(
                trial,
                part=gpu if gpu and kind is PartKind.GPU else label,
                device_ids=frozenset(own) or trial.device_ids,
                # What one rank reports of the device, such as its datasheet, is true of all.
                figures={**trial.figures, **figures.get((run_id, rank), {})},
                metrics={
                    **trial.metrics,
                    **of_ranks.get(run_id, {}).get(label, {}),
                    **of_gpus.get(run_id, {}).get(gpu or "", {}),
                },
            )


_DEVICES = """
SELECT DISTINCT run_id, coalesce(rank, 0) AS rank, device_id FROM run_devices
WHERE device_id IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""


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
class RoofShares:
    """The place of a point below the roofs of one source. None: unknown.

    Attributes:
        roof_percent: achieved share of the roof at its intensity; a lower bound where the intensity is a bound.
        mfu_percent: model FLOPs utilisation: model FLOPs by time, of the peak of their arithmetic.
        side: of the ridge. With a bound of the intensity only the memory's side can be known.
    """

    roof_percent: float | None = None
    mfu_percent: float | None = None
    side: Side | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Repeats of one thing: medians over them, of a step of one rank on its device.

    Attributes:
        trials: at least one; all agree in workload, place, device, part and parameters.
        seconds: time of a step, idle time of the device included.
        flops: above 0; their source is `flops_by`.
        mix: `flops` by arithmetic; empty: unknown.
        model_flops, model_mix: by the model's formula; None and empty: not reported.
        traffic_bytes: to and from the device's memory; None: unknown. Their source is `traffic_by`.
        busy_percent: share of time in which the GPU had work: of a step by its trace, else by NVML's samples; None:
            unknown.
        mark: its letter in chart and tables.
        label: its workload, and the settings that distinguish it from the others on such a device.
        brief_label: the same without settings that distinguish it from no further point than those before.
        measured, datasheet: its place below the roofs that were measured, and below the maker's.
    """

    trials: tuple[Trial, ...]
    parameters: Mapping[str, object]
    seconds: float
    flops: float
    flops_by: Flops
    mix: Mix
    model_flops: float | None
    model_mix: Mix
    traffic_bytes: float | None
    traffic_by: Traffic | None
    busy_percent: float | None
    mark: str = ""
    label: str = ""
    brief_label: str = ""
    measured: RoofShares = RoofShares()
    datasheet: RoofShares = RoofShares()

    @property
    def run(self) -> Run:
        """The run that stands for all in what they agree."""
        return self.trials[0].run

    @property
    def device(self) -> str:
        """The model of its device."""
        return self.trials[0].device

    @property
    def part(self) -> str | None:
        """The rank or GPU of each run; None: the run."""
        return self.trials[0].part

    @property
    def flops_per_second(self) -> float:
        """The achieved FLOP/s."""
        return self.flops / self.seconds

    @property
    def intensity(self) -> float | None:
        """FLOPs by byte; an upper bound where the bytes are a lower one."""
        return None if self.traffic_bytes is None else self.flops / self.traffic_bytes

    @property
    def has_share(self) -> bool:
        """Return whether its share of any roof is known."""
        shares = (self.measured, self.datasheet)
        return any(each.roof_percent is not None or each.mfu_percent is not None for each in shares)


# Traces and counters beside or after the measured steps do not change them.
_APART = frozenset({"trace", "profile", "counters"})


def make_points(trials: Iterable[Trial]) -> list[Point]:
    """Return a point for each group of repeats that report FLOPs and time of a step."""
    groups: dict[tuple[str, ...], list[Trial]] = defaultdict(list)
    for trial in trials:
        run, parameters = trial.run, json.dumps(_parameters(trial.run), sort_keys=True)
        what = (trial.device, run.workload, run.side, run.platform, parameters, trial.part)
        how = (run.environment, run.image, run.interference, run.limits)
        # Programs of the user's own have no parameters, but other arguments are other work.
        named, words = identify_command(run.command) if parameters == "{}" else ((), ())
        command = json.dumps([sorted(named), words])
        groups[tuple(each or "" for each in (*what, *how, command))].append(trial)
    points = [_make_point(groups[key]) for key in sorted(groups)]
    return [point for point in points if point]


def _parameters(run: Run) -> dict[str, object]:
    return {name: value for name, value in json.loads(run.parameters).items() if name not in _APART}


def settings_of(point: Point) -> dict[str, str]:
    """Return the parameters of a point's runs by name, or the named arguments of a program of the user's own."""
    known = point.parameters or {
        name: value for name, value in parse_arguments(point.run.command).items() if value or name.startswith("-")
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def locate(point: Point, roofs: Roofs) -> RoofShares:
    """Return the place of a point below roofs."""
    roof, ridge, side = None, roofs.ridge(point.mix), None
    if point.intensity is not None and ridge is not None:
        roof = roofs.at(point.mix, point.intensity)
        if point.intensity < ridge:
            side = Side.MEMORY
        elif point.traffic_by is not Traffic.LEAST:
            side = Side.COMPUTE
    peak = roofs.peak(point.model_mix)
    return RoofShares(
        roof_percent=100 * point.flops_per_second / roof if roof else None,
        mfu_percent=100 * point.model_flops / point.seconds / peak if point.model_flops and peak else None,
        side=side,
    )


def exceeds(mix: Mix, seconds: float, roofs: Roofs) -> bool:
    """Return whether some arithmetic alone would have to be faster than its peak; different ones may overlap."""
    return any(flops / seconds > roofs.flops_per_second.get(name, float("inf")) for name, flops in mix.items())


def _make_point(trials: Sequence[Trial]) -> Point | None:
    # The median of each figure over the runs that have it.
    steps = [_step(trial) for trial in trials]
    names = dict.fromkeys(name for figures in steps for name in figures)
    figures = {name: median(step[name] for step in steps if name in step) for name in names}
    model = figures.get("model_flops_per_step")
    executed = figures.get("executed_flops_per_step")
    flops, seconds = executed or model, figures.get("step_seconds")
    if flops is None or seconds is None:
        return None
    model_mix = _model_mix(figures, trials[0].texts) if model else {}
    traffic_by = next((way for way in Traffic if way.value in figures), None)
    return Point(
        trials=tuple(trials),
        parameters=_parameters(trials[0].run),
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


def _step(trial: Trial) -> dict[str, float]:
    ways = {
        Traffic.COUNTED: trial.figures.get("dram_bytes_per_step"),
        Traffic.SAMPLED: _sampled_bytes(trial),
        Traffic.LEAST: trial.figures.get("minimum_bytes_per_step"),
    }
    figures = {**trial.figures, **{way.value: value for way, value in ways.items() if value}}
    # Without GPUs of its own, those of its node are sampled.
    is_sampled = trial.device_ids and not trial.is_short
    sampled = trial.metrics.get("gpu_utilization_percent") if is_sampled else None
    busy = trial.metrics.get("gpu_busy_percent", sampled)
    return figures if busy is None else {**figures, "gpu_busy_percent": busy}


# With a smaller share of steps in the measured phase, its samples are not those of steps.
_LEAST_COVERED = 0.95


def _sampled_bytes(trial: Trial) -> float | None:
    """Return the bytes of a step by the sampled share of the memory's peak bandwidth; None: unknown."""
    percent, phase_seconds = trial.metrics.get("dram_active_percent"), trial.metrics.get("measure_seconds")
    peak, seconds = trial.figures.get(_BANDWIDTH), trial.figures.get("step_seconds")
    if trial.is_short or not (percent and phase_seconds and peak and seconds):
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


# Points (FLOP/byte, FLOP/s) that are joined.
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The roofs of a device, and the points that belong below them.

    Attributes:
        device: its model.
        ceilings: the measured roofs; None: no run measured them.
        datasheet: the maker's roofs; empty where no run reported them.
        points: at least one; those nearest to a roof are the first.
        is_only: whether there is no other one, so that sentences need not name the device.
    """

    device: str
    ceilings: Ceilings | None
    datasheet: Roofs
    points: tuple[Point, ...]
    is_only: bool = False

    @property
    def where(self) -> str:
        """The device in a sentence: ` on NVIDIA H200`; '' where there is no other one."""
        return "" if self.is_only else f" on {self.device}"

    @property
    def measured(self) -> Roofs:
        """The measured roofs; empty without any."""
        return self.ceilings.roofs if self.ceilings else NO_ROOFS

    @property
    def is_gpu(self) -> bool:
        """Return whether the device is a GPU."""
        return any(trial.device_ids for point in self.points for trial in point.trials)

    @property
    def arithmetics(self) -> list[str]:
        """The arithmetics that some point used, in their usual order."""
        used = {name for point in self.points for name in (*point.mix, *point.model_mix)}
        return [name for name in ARITHMETICS if name in used]

    @property
    def peaks(self) -> dict[str, float]:
        """The known peaks of these in FLOP/s, the measured one where there is one."""
        known = {**self.datasheet.flops_per_second, **self.measured.flops_per_second}
        return {name: known[name] for name in self.arithmetics if name in known}

    @property
    def corners(self) -> list[tuple[float, float]]:
        """The ridges of the measured roofs and of the datasheet's."""
        return [*self.ridges(self.measured), *self.ridges(self.datasheet)]

    @property
    def is_drawn(self) -> bool:
        """Return whether there are a roof and a point to draw."""
        return bool(self.corners) and any(point.intensity is not None for point in self.points)

    def ridges(self, roofs: Roofs) -> list[tuple[float, float]]:
        """Return the points where each arithmetic's roof meets the memory's: (FLOP/byte, FLOP/s)."""
        if roofs.bytes_per_second is None:
            return []
        peaks = [roofs.flops_per_second[name] for name in self.arithmetics if name in roofs.flops_per_second]
        return [(peak / roofs.bytes_per_second, peak) for peak in peaks]

    def lines(self, roofs: Roofs, left: float, right: float) -> Iterator[Line]:
        """Yield the memory's roof up to the highest ridge, and the peak from each ridge on."""
        corners = self.ridges(roofs)
        if not corners or roofs.bytes_per_second is None:
            return
        yield [(left, left * roofs.bytes_per_second), max(corners)]
        for intensity, peak in corners:
            yield [(intensity, peak), (right, peak)]


def merge_marks(
    points: Iterable[Point], across: float, upwards: float, unknown: float | None = None
) -> Iterator[tuple[float, float, str]]:
    """Yield letters and their places (FLOP/byte, FLOP/s); points within so many decades would hide one another.

    Points whose traffic is unknown are at `unknown` FLOP/byte; None: they have no place.
    """
    groups: list[tuple[float, float, list[Point]]] = []
    for point in points:
        x, y = point.intensity or unknown, point.flops_per_second
        if x is None:
            continue
        for other_x, other_y, members in groups:
            if abs(log10(x / other_x)) < across and abs(log10(y / other_y)) < upwards:
                members.append(point)
                break
        else:
            groups.append((x, y, [point]))
    for x, y, members in groups:
        arrow = "←" if any(point.traffic_by is Traffic.LEAST for point in members) else ""
        yield x, y, arrow + ",".join(point.mark for point in members)
