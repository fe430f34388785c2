"""The runs of a roofline, named, beside the limits of their device, with warnings."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

from gpuagent_collector.answers.roofline_points import (
    ARITHMETICS,
    Ceilings,
    Flops,
    Group,
    Mix,
    Nearness,
    Point,
    Roofs,
    RoofShares,
    Traffic,
    Trial,
    datasheet_roofs,
    divide_trials,
    exceeds,
    find_ceilings,
    load_trials,
    locate,
    make_points,
)
from gpuagent_collector.choices import PartKind
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import CANCELLED, cancelled_caveat
from gpuagent_collector.runs.data import Run, load_facts, load_runs
from gpuagent_collector.runs.facets import CONDITIONS, Facet, find_facet
from gpuagent_collector.runs.find import ROOFS, find_runs, only_with
from gpuagent_collector.runs.words import distinguishing, reasons, telling
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A point below the roofs of its device."""

    point: Point
    measured: RoofShares
    datasheet: RoofShares


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The roofs of a device, and the points that belong below them.

    Attributes:
        device: its model.
        ceilings: the measured roofs; None: no run measured them.
        datasheet: the maker's roofs; empty where no run reported them.
        placed: at least one.
    """

    device: str
    ceilings: Ceilings | None
    datasheet: Roofs
    placed: tuple[Placed, ...]

    @property
    def measured(self) -> Roofs:
        """The measured roofs; empty without any."""
        return self.ceilings.roofs if self.ceilings else _NO_ROOFS

    @property
    def is_gpu(self) -> bool:
        """Return whether the device is a GPU."""
        return any(trial.device_ids for placed in self.placed for trial in placed.point.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A roofline with everything that is shown of it.

    Attributes:
        facet: separates points beside their settings.
        rooflines: at least one; those of one device with the same roofs together.
        without_figures: succeeded runs that report no FLOPs, or no time of a step.
        unsuccessful: runs that ended otherwise, or have not ended.
        cancelled: runs that the user stopped.
    """

    facet: Facet
    rooflines: tuple[Roofline, ...]
    without_figures: tuple[Run, ...]
    unsuccessful: tuple[Run, ...]
    cancelled: tuple[Run, ...]


_NO_ROOFS = Roofs(flops_per_second={}, bytes_per_second=None)


def study_roofline(
    ask: Ask, *, workloads: Sequence[str], by: str, platform: str | None, experiment: str | None
) -> Study:
    """Return the roofline of some workloads; empty: all. None: any platform, any experiment.

    Raises:
        MisuseError: a workload, facet, platform or experiment is unknown.
        GpuAgentError: no run reports the figures of a roofline.
    """
    facet = find_facet(by)
    runs = find_runs(ask, facet, workload=None, experiment=experiment)
    chosen = only_with(only_with(runs, "platform", [platform] if platform else []), "workload", workloads)
    return study_runs(ask, facet, chosen)


def study_runs(ask: Ask, facet: Facet, runs: Iterable[Run], each: PartKind | None = None) -> Study:
    """Return the roofline of these runs, or of each rank of them, named by its rank or its GPU.

    Raises:
        GpuAgentError: none reports the figures of a roofline.
    """
    chosen = list(runs)
    succeeded = [run for run in chosen if run.status == "succeeded" and run.workload != ROOFS]
    measured = [run for run in load_runs(ask, facet, workload=ROOFS, experiment=None) if run.status == "succeeded"]
    together = [*succeeded, *measured]
    facts = load_facts(ask, [run.run_id for run in together])
    trials = load_trials(ask, together, facts)
    drawn, ceilings = trials[: len(succeeded)], trials[len(succeeded) :]
    points = make_points(divide_trials(ask, drawn, facts, each) if each else drawn)
    if not points:
        raise GpuAgentError(
            "no roofline to draw: no run that succeeded reports the FLOPs and times of its steps; "
            "built-in training workloads do, such as `gpuagent run mnist`"
        )
    placed = {trial.run.run_id for point in points for trial in point.trials}
    return Study(
        facet=facet,
        rooflines=tuple(_rooflines(points, ceilings)),
        without_figures=tuple(run for run in succeeded if run.run_id not in placed),
        unsuccessful=tuple(run for run in chosen if run.status not in ("succeeded", CANCELLED)),
        cancelled=tuple(run for run in chosen if run.status == CANCELLED),
    )


def _rooflines(points: Iterable[Point], measured: Sequence[Trial]) -> Iterable[Roofline]:
    found: dict[tuple[str, str | None], list[tuple[Point, Ceilings | None]]] = defaultdict(list)
    for point in points:
        ceilings = find_ceilings(point.trials, measured)
        found[point.group.device, ceilings.run.run_id if ceilings else None].append((point, ceilings))
    for (device, _), members in found.items():
        # The worst of several nearnesses.
        ceilings = min((each for _, each in members if each), key=lambda each: each.nearness, default=None)
        yield _roofline(device, ceilings, [point for point, _ in members], measured)


def _roofline(device: str, ceilings: Ceilings | None, points: Sequence[Point], measured: Iterable[Trial]) -> Roofline:
    of_points = (trial.figures for point in points for trial in point.trials)
    datasheet = datasheet_roofs([*(one.figures for one in measured if one.device == device), *of_points])
    roofs = ceilings.roofs if ceilings else _NO_ROOFS
    placed = (
        Placed(point=point, measured=locate(point, roofs), datasheet=locate(point, datasheet)) for point in points
    )
    return Roofline(device=device, ceilings=ceilings, datasheet=datasheet, placed=tuple(placed))


# The device whose roofs were measured.
NEARNESS = {
    Nearness.SAME_DEVICE: "the same device",
    Nearness.SAME_NODE: "another of the same model on the node",
    Nearness.OTHER_NODE: "one of the same model on another node",
}

# Marks points for which no letter is left.
NO_MARK = "•"


def marked(roofline: Roofline) -> Iterator[tuple[str, Placed]]:
    """Yield the points with the letters that mark them in chart and tables."""
    for index, placed in enumerate(roofline.placed):
        yield (ascii_letters[index] if index < len(ascii_letters) else NO_MARK), placed


def label(point: Point, study: Study, *, briefly: bool = False) -> str:
    """Return the point's workload and the settings that distinguish it from the others on such a device.

    `briefly` leaves out settings that distinguish it from no further point than those before.
    """
    others = [each.point.group for roofline in study.rooflines for each in roofline.placed]
    own = settings_of(point.group, study)
    near = (point.group.workload, point.group.device)
    alike = [settings_of(group, study) for group in others if (group.workload, group.device) == near]
    settings = (telling if briefly else distinguishing)(own, alike)
    words = [point.group.workload, *(_setting(name, str(value)) for name, value in settings.items())]
    return " ".join(filter(None, [*words, point.group.part]))


def settings_of(group: Group, study: Study) -> dict[str, str]:
    """Return everything in which the runs of a group agree, by name, except workload and device."""
    place = {
        study.facet.name: group.side,
        "platform": group.platform,
        "environment": group.environment,
        "image": group.image,
        "interference": group.interference,
        "limits": group.limits,
    }
    parameters: Mapping[str, object] = json.loads(group.parameters)
    return {
        **{name: value or _NONE for name, value in place.items()},
        **{name: str(value) for name, value in parameters.items() if value is not None},
    }


_NONE = "none"


def _setting(name: str, value: str) -> str:
    """Return a setting in words; values of the usual conditions need no name."""
    if name not in CONDITIONS:
        return f"{name}={value}"
    return value if value != _NONE else f"no {name}"


def intensity_of(point: Point) -> str | None:
    """Return FLOPs by byte, as a bound where only that is known; None: unknown."""
    if point.intensity is None:
        return None
    return f"{'≤ ' if point.traffic_by is Traffic.LEAST else ''}{significant(point.intensity)}"


def arithmetic_of(mix: Mix) -> str | None:
    """Return the arithmetic of FLOPs: TF32 90 %, FP32 10 %; None: unknown."""
    total = sum(mix.values())
    named = sorted(mix.items(), key=lambda each: -each[1])
    if len(named) == 1:
        return named[0][0].upper()
    return ", ".join(f"{name.upper()} {significant(100 * flops / total)} %" for name, flops in named) or None


def used_arithmetics(roofline: Roofline) -> list[str]:
    """Return the arithmetics that some point used, in their usual order."""
    used = {name for placed in roofline.placed for name in (*placed.point.mix, *placed.point.model_mix)}
    return [name for name in ARITHMETICS if name in used]


def roofs_of(roofs: Roofs, arithmetics: Iterable[str]) -> str:
    """Return roofs in words: TF32 401 TFLOP/s, FP32 53.5 TFLOP/s, memory 4.35 TB/s; '' for no roofs."""
    peaks = {name: roofs.flops_per_second[name] for name in arithmetics if name in roofs.flops_per_second}
    listed = [f"{name.upper()} {notation([peak], 'FLOP/s').write(peak)}" for name, peak in peaks.items()]
    if roofs.bytes_per_second is not None:
        listed.append(f"memory {notation([roofs.bytes_per_second], 'bytes/s').write(roofs.bytes_per_second)}")
    return ", ".join(listed)


def marks_where(roofline: Roofline, letters: Iterable[str]) -> str:
    """Return points in words: points a, c on NVIDIA H200."""
    listed = list(letters)
    return f"point{'s' * (len(listed) != 1)} {', '.join(listed)} on {roofline.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A warning about the points for which `concerns` is true.

    Attributes:
        remedy: for workloads on a GPU.
        processor_remedy: without a GPU; None: `remedy`.
        own_remedy: for programs of the user's own, which have no options of workloads.
    """

    code: str
    concerns: Callable[[Placed, Roofline], bool]
    text: str
    remedy: str
    processor_remedy: str | None = None
    own_remedy: str

    def __call__(self, roofline: Roofline) -> Iterator[Caveat]:
        found = [(mark, placed) for mark, placed in marked(roofline) if self.concerns(placed, roofline)]
        marks = [mark for mark, _ in found]
        if marks:
            remedy = self.remedy if roofline.is_gpu else self.processor_remedy or self.remedy
            if all(trial.run.command for _, placed in found for trial in placed.point.trials):
                remedy = self.own_remedy
            yield Caveat(code=self.code, text=f"{marks_where(roofline, marks)}: {self.text}", remedy=remedy)


def find_errors(study: Study) -> tuple[Caveat, ...]:
    """Return the impossible: FLOPs that were executed faster than the device's roof."""
    return tuple(caveat for roofline in study.rooflines for caveat in _EXECUTED_ABOVE_ROOF(roofline))


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    of_rooflines = (caveat for check in _CHECKS for roofline in study.rooflines for caveat in check(roofline))
    return (*of_rooflines, *_short(study), *_left_out(study))


def _is_above_all(point: Point, roofline: Roofline) -> bool:
    """Return whether it is faster than every known roof of its arithmetic, and there is one."""
    known = [roofs for roofs in (roofline.measured, roofline.datasheet) if roofs.peak(point.mix)]
    return bool(known) and all(exceeds(point.mix, point.seconds, roofs) for roofs in known)


def _has_no_peak(placed: Placed, roofline: Roofline) -> bool:
    roofs = [each for each in (roofline.measured, roofline.datasheet) if roofs_of(each, used_arithmetics(roofline))]
    return bool(roofs) and not any(each.peak(placed.point.mix) for each in roofs)


def _no_ceilings(roofline: Roofline) -> Iterator[Caveat]:
    if roofline.ceilings is None:
        yield Caveat(
            code="no_ceilings",
            text=f"no roofs were measured of any {roofline.device}",
            remedy="`gpuagent run ceilings` on its node measures them in a few minutes",
        )


def _other_device(roofline: Roofline) -> Iterator[Caveat]:
    ceilings = roofline.ceilings
    if ceilings and ceilings.nearness is not Nearness.SAME_DEVICE:
        yield Caveat(
            code="roofs_of_another_device",
            text=f"the roofs of {roofline.device} were measured on {NEARNESS[ceilings.nearness]} "
            f"({ceilings.run.nodes or 'unknown node'}): clocks, power limits and cooling may differ",
            remedy="`gpuagent run ceilings` on the device of the runs",
        )


_NOT_COUNTED = "only a GPU's memory traffic can be counted or sampled"
_REPORT_BYTES = (
    "report the bytes, `dram_bytes_per_step`, or have them sampled (by GPM on Hopper and newer, else by DCGM)"
)

_EXECUTED_ABOVE_ROOF = _Check(
    code="executed_above_roof",
    concerns=lambda placed, roofline: placed.point.flops_by is Flops.EXECUTED and _is_above_all(placed.point, roofline),
    text="more FLOPs executed in a second than the device can execute: the count, the time or the roof is wrong",
    remedy="measure the roofs while nothing else runs: `gpuagent run ceilings`; run it again with `--counters ncu`",
    own_remedy="measure the roofs while nothing else runs: `gpuagent run ceilings`; check the FLOPs that it reports",
)

# Every check of a roofline, in the order in which warnings are shown.
_CHECKS: tuple[Callable[[Roofline], Iterator[Caveat]], ...] = (
    _Check(
        code="model_above_roof",
        concerns=lambda placed, roofline: (
            placed.point.flops_by is Flops.MODEL and _is_above_all(placed.point, roofline)
        ),
        text="more model FLOPs in a second than the device can execute: an algorithm was chosen that needs fewer than "
        "the model's formula (such as Winograd's convolutions)",
        remedy="count what is executed, with `--counters ncu`",
        own_remedy="report what is executed, `executed_flops_per_step` (docs/workloads.md)",
    ),
    _Check(
        code="above_measured_roof",
        concerns=lambda placed, roofline: (
            (placed.measured.roof_percent or 0) > 100 and not _is_above_all(placed.point, roofline)
        ),
        text="above the measured roof at that intensity: either the roof was measured too low (another clock, a "
        "neighbour), or the bytes are too few because data stayed in a cache",
        remedy="run `gpuagent run ceilings` while nothing else runs; count the bytes with `--counters ncu`",
        own_remedy="run `gpuagent run ceilings` while nothing else runs; check the bytes that it reports",
    ),
    _no_ceilings,
    _other_device,
    _Check(
        code="bytes_at_least",
        concerns=lambda placed, _: placed.point.traffic_by is Traffic.LEAST,
        text="the bytes are a lower bound (weights and batch, no activations), so the intensity is an upper bound",
        remedy="count them with `--counters ncu`, or have it sampled (by GPM on Hopper and newer, by DCGM before)",
        processor_remedy=_NOT_COUNTED,
        own_remedy=_REPORT_BYTES,
    ),
    _Check(
        code="no_bytes",
        concerns=lambda placed, _: placed.point.traffic_by is None,
        text="the bytes are unknown, so these are in the tables only",
        remedy="count them with `--counters ncu`",
        processor_remedy=_NOT_COUNTED,
        own_remedy=_REPORT_BYTES,
    ),
    _Check(
        code="no_peak",
        concerns=_has_no_peak,
        text="the roof of the arithmetic is unknown, or the arithmetic of the FLOPs",
        remedy="run with `--precision fp32`, `tf32`, `fp16` or `bf16`, whichever `ceilings` measured",
        own_remedy="report the FLOPs of each arithmetic, such as `model_flops_fp32_per_step` (docs/workloads.md)",
    ),
)


def _short(study: Study) -> Iterator[Caveat]:
    points = [placed.point for roofline in study.rooflines for placed in roofline.placed]
    runs = sum(trial.is_short for point in points for trial in point.trials)
    if runs:
        yield Caveat(
            code="measure_short",
            text=f"{counted(runs, 'run')} measured for less than 10 s: times and samples depend on chance",
            remedy="measure longer",
        )


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.without_figures:
        yield Caveat(
            code="left_out",
            text=f"{counted(len(study.without_figures), 'run')} left out, without FLOPs or without steps: "
            f"{_numbers(run.workload for run in study.without_figures)}",
            remedy="report `model_flops_per_step` and steps: see docs/run-directory.md",
        )
    if study.unsuccessful:
        statuses = ((run.status or "unknown").replace("_", " ") for run in study.unsuccessful)
        text = f"runs that are in no point: {_numbers(statuses)}"
        yield Caveat(
            code="unsuccessful", text=text, remedy=f"reasons: {reasons(run.status or '' for run in study.unsuccessful)}"
        )
    if study.cancelled:
        yield cancelled_caveat(str(len(study.cancelled)))


def _numbers(names: Iterable[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(Counter(names).items()))
