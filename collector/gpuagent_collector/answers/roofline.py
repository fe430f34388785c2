"""`collector roofline`: what bounds a run, beside the limits of its device."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from string import ascii_letters
from typing import Any

from gpuagent_collector.answers.roofline_points import (
    NEARNESS,
    NO_ROOFS,
    Ceilings,
    Flops,
    Nearness,
    Point,
    Roofline,
    Roofs,
    Side,
    Traffic,
    Trial,
    datasheet_roofs,
    divide_trials,
    exceeds,
    find_ceilings,
    load_trials,
    locate,
    make_points,
    settings_of,
)
from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics.bounds import TIME_PERCENT, UNIT_PERCENT, count_steps, find_traced
from gpuagent_collector.present.answer import Answer, Caveat, Legend, Part, Section, caveat_sections, in_short
from gpuagent_collector.present.human import in_unit, significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import CANCELLED, first_few
from gpuagent_collector.runs.data import Run, load_facts, load_runs
from gpuagent_collector.runs.facets import CONDITIONS, Facet, find_facet
from gpuagent_collector.runs.find import ROOFS, find_runs, only_with
from gpuagent_collector.runs.words import distinguishing, name_file, reasons, telling, write_command
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted


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


_WITH_FLOPS = """
SELECT DISTINCT run_id FROM results
WHERE name IN ('model_flops_per_step', 'executed_flops_per_step') AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""


def study_runs(ask: Ask, facet: Facet, runs: Iterable[Run], each: PartKind | None = None) -> Study:
    """Return the roofline of these runs, or of each rank of them, named by its rank or its GPU.

    Raises:
        GpuAgentError: none reports the figures of a roofline.
    """
    chosen = list(runs)
    succeeded = [run for run in chosen if run.status == "succeeded" and run.workload != ROOFS]
    measured = [run for run in load_runs(ask, facet, workload=ROOFS, experiment=None) if run.status == "succeeded"]
    # Most programs report no FLOPs, and a point is of one workload.
    reporting = {row["run_id"] for row in ask(_WITH_FLOPS, [[run.run_id for run in succeeded]])}
    workloads = {run.workload for run in succeeded if run.run_id in reporting}
    could_be_drawn = [run for run in succeeded if run.workload in workloads]
    together = [*could_be_drawn, *measured]
    facts = load_facts(ask, [run.run_id for run in together])
    trials = load_trials(ask, together, facts)
    drawn, ceilings = trials[: len(could_be_drawn)], trials[len(could_be_drawn) :]
    points = make_points(divide_trials(ask, drawn, facts, each) if each else drawn)
    if not points:
        raise GpuAgentError(
            "no roofline to draw: no run that succeeded reports the FLOPs and times of its steps; "
            "built-in training workloads do; for other programs see docs/your-program.md"
        )
    placed = {trial.run.run_id for point in points for trial in point.trials}
    rooflines = tuple(_make_rooflines(_label_points(points, facet), ceilings))
    return Study(
        facet=facet,
        rooflines=tuple(replace(roofline, is_only=len(rooflines) == 1) for roofline in rooflines),
        without_figures=tuple(run for run in succeeded if run.run_id not in placed),
        unsuccessful=tuple(run for run in chosen if run.status not in ("succeeded", CANCELLED)),
        cancelled=tuple(run for run in chosen if run.status == CANCELLED),
    )


def _nearness_to_roof(point: Point) -> tuple[bool, float]:
    """Order points: those with a known share of a roof, then of the peak of their arithmetic; the highest first."""
    roof = point.measured.roof_percent or point.datasheet.roof_percent
    return roof is None, -(roof or _of_peak(point) or 0.0)


def _make_rooflines(points: Iterable[Point], measured: Sequence[Trial]) -> Iterator[Roofline]:
    found: dict[tuple[str, str | None], list[tuple[Point, Ceilings | None]]] = defaultdict(list)
    for point in points:
        ceilings = find_ceilings(point.trials, measured)
        found[point.device, ceilings.run.run_id if ceilings else None].append((point, ceilings))
    for (device, _), members in found.items():
        # The worst of several nearnesses.
        ceilings = min((each for _, each in members if each), key=lambda each: each.nearness, default=None)
        reports = [one.figures for one in measured if one.device == device]
        reports += [trial.figures for point, _ in members for trial in point.trials]
        roofs, datasheet = ceilings.roofs if ceilings else NO_ROOFS, datasheet_roofs(reports)
        placed = [
            replace(point, measured=locate(point, roofs), datasheet=locate(point, datasheet)) for point, _ in members
        ]
        placed.sort(key=_nearness_to_roof)
        marks = chain(ascii_letters, repeat(_NO_MARK))
        marked = tuple(replace(point, mark=mark) for point, mark in zip(placed, marks, strict=False))
        yield Roofline(device=device, ceilings=ceilings, datasheet=datasheet, points=marked)


# Marks points for which no letter is left.
_NO_MARK = "•"
_NONE = "none"
_PLACE = ("platform", "environment", "image", "interference", "limits")


def _label_points(points: Sequence[Point], facet: Facet) -> Iterator[Point]:
    """Yield the points with the settings that distinguish each from the others of its workload on such a device."""
    settings = []
    for point in points:
        # All in which its runs agree, except workload and device.
        own = {facet.name: point.run.side or _NONE}
        own |= {name: getattr(point.run, name) or _NONE for name in _PLACE}
        own |= settings_of(point)
        settings.append((point.device, point.run.workload, own))
    for point, (device, workload, own) in zip(points, settings, strict=True):
        alike = [other for *what, other in settings if what == [device, workload]]
        label, brief_label = (_write_label(point, choose(own, alike)) for choose in (distinguishing, telling))
        yield replace(point, label=label, brief_label=brief_label)


def _write_label(point: Point, settings: Mapping[str, object]) -> str:
    """Return a point in words; values of the usual conditions need no name."""
    words = [point.run.workload]
    for name, value in settings.items():
        if name.startswith("-"):
            words.append(f"{name} {value}".rstrip())
        elif name not in CONDITIONS:
            words.append(f"{name}={value}")
        else:
            words.append(f"no {name}" if value == _NONE else str(value))
    return " ".join([*words, *([point.part] if point.part else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A warning about the points for which `concerns` is true.

    Attributes:
        remedy: for workloads; `needs_gpu`: on a GPU alone, so that there is no warning without one.
        own_remedy: for programs of the user's own, which have no options of workloads.
    """

    code: str
    concerns: Callable[[Point, Roofline], bool]
    text: str
    remedy: str
    own_remedy: str
    needs_gpu: bool = False

    def __call__(self, roofline: Roofline) -> Iterator[Caveat]:
        points = [point for point in roofline.points if self.concerns(point, roofline)]
        are_own = all(trial.run.command for point in points for trial in point.trials)
        if points and (are_own or roofline.is_gpu or not self.needs_gpu):
            remedy = self.own_remedy if are_own else self.remedy
            yield Caveat(code=self.code, text=f"{_name_points(points, roofline)}: {self.text}", remedy=remedy)


# All of more points than these need no letters.
_MOST_LETTERS = 3


def _name_points(points: Sequence[Point], roofline: Roofline) -> str:
    """Return points in words: points a, c on NVIDIA H200."""
    if len(points) == len(roofline.points) > _MOST_LETTERS:
        return f"all {len(points)} points{roofline.where}"
    return f"point{'s' * (len(points) != 1)} {', '.join(point.mark for point in points)}{roofline.where}"


def find_errors(study: Study) -> tuple[Caveat, ...]:
    """Return the impossible: FLOPs that were executed faster than the device's roof."""
    return tuple(caveat for roofline in study.rooflines for caveat in _EXECUTED_ABOVE_ROOF(roofline))


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    of_rooflines = (caveat for check in _CHECKS for roofline in study.rooflines for caveat in check(roofline))
    return (*of_rooflines, *_of_runs(study))


def _is_above_all(point: Point, roofline: Roofline) -> bool:
    """Return whether it is faster than every known roof of its arithmetic, and there is one."""
    known = [roofs for roofs in (roofline.measured, roofline.datasheet) if roofs.peak(point.mix)]
    return bool(known) and all(exceeds(point.mix, point.seconds, roofs) for roofs in known)


def _is_sampled_briefly(point: Point) -> bool:
    """Return whether longer runs would have sampled bytes: the memory was sampled, in measured phases too short."""
    return all(trial.is_short and "dram_active_percent" in trial.metrics for trial in point.trials)


def _has_no_peak(point: Point, roofline: Roofline) -> bool:
    roofs = [each for each in (roofline.measured, roofline.datasheet) if _describe_roofs(each, roofline)]
    return bool(roofs) and not any(each.peak(point.mix) for each in roofs)


# A bench of one run: where no collector listens, `gpuagent run` would leave its figures in no store.
_MEASURE = f"gpuagent bench {ROOFS} --rounds 1 --warm-up 0"


def _measure(roofline: Roofline) -> str:
    """Return the command that measures the roofs of a device; those of a processor are of so many threads."""
    threads = re.search(r" with ([0-9]+) threads?$", roofline.device)
    return f"{_MEASURE}{f' --threads {threads[1]}' if threads else ''}"


def _no_ceilings(roofline: Roofline) -> Iterator[Caveat]:
    if roofline.ceilings is None:
        yield Caveat(
            code="no_ceilings",
            text=f"no ceilings were measured for {roofline.device}",
            remedy=f"`{_measure(roofline)}` on its node measures them",
        )


def _other_device(roofline: Roofline) -> Iterator[Caveat]:
    ceilings = roofline.ceilings
    if ceilings and ceilings.nearness is not Nearness.SAME_DEVICE:
        yield Caveat(
            code="roofs_of_another_device",
            text=f"the roofs of {roofline.device} were measured on {NEARNESS[ceilings.nearness]} "
            f"({ceilings.run.nodes or 'unknown node'}): clocks, power limits and cooling may differ",
            remedy=f"`{_MEASURE}` on the device of the runs",
        )


_REPORT_BYTES = (
    "report the bytes, `dram_bytes_per_step`, or have them sampled (by GPM on Hopper and newer, else by DCGM)"
)

_EXECUTED_ABOVE_ROOF = _Check(
    code="executed_above_roof",
    concerns=lambda point, roofline: point.flops_by is Flops.EXECUTED and _is_above_all(point, roofline),
    text="more FLOPs executed in a second than the device can execute: the count, the time or the roof is wrong",
    remedy=f"measure the roofs while nothing else runs: `{_MEASURE}`; run it again with `--counters ncu`",
    own_remedy=f"measure the roofs while nothing else runs: `{_MEASURE}`; check the FLOPs that it reports",
)

# Every check of a roofline, in the order in which warnings are shown.
_CHECKS: tuple[Callable[[Roofline], Iterator[Caveat]], ...] = (
    _Check(
        code="model_above_roof",
        concerns=lambda point, roofline: point.flops_by is Flops.MODEL and _is_above_all(point, roofline),
        text="more model FLOPs in a second than the device can execute: an algorithm was chosen that needs fewer than "
        "the model's formula (such as Winograd's convolutions)",
        remedy="count what is executed, with `--counters ncu`",
        own_remedy="report what is executed, `executed_flops_per_step` (docs/workloads.md)",
    ),
    _Check(
        code="above_measured_roof",
        concerns=lambda point, roofline: (
            (point.measured.roof_percent or 0) > 100 and not _is_above_all(point, roofline)
        ),
        text="above the measured roof at that intensity: either the roof was measured too low (another clock, a "
        "neighbour), or the bytes are too few because data stayed in a cache",
        remedy=f"run `{_MEASURE}` while nothing else runs; count the bytes with `--counters ncu`",
        own_remedy=f"run `{_MEASURE}` while nothing else runs; check the bytes that it reports",
    ),
    _no_ceilings,
    _other_device,
    _Check(
        code="bytes_at_least",
        concerns=lambda point, _: point.traffic_by is Traffic.LEAST,
        text="the bytes are a lower bound, so FLOP/byte is an upper one",
        remedy="count them with `--counters ncu`, or sample them by GPM or DCGM",
        own_remedy=_REPORT_BYTES,
        needs_gpu=True,
    ),
    _Check(
        code="no_bytes",
        concerns=lambda point, _: point.traffic_by is None and not _is_sampled_briefly(point),
        text="the bytes are unknown, and so is the share of a roof",
        remedy="count them with `--counters ncu`",
        own_remedy=_REPORT_BYTES,
        needs_gpu=True,
    ),
    _Check(
        code="no_peak",
        concerns=_has_no_peak,
        text="the roof of the arithmetic is unknown, or the arithmetic of the FLOPs",
        remedy="run with `--precision fp32`, `tf32`, `fp16` or `bf16`, whichever `ceilings` measured",
        own_remedy="report the FLOPs of each arithmetic, such as `model_flops_fp32_per_step` (docs/workloads.md)",
    ),
)


def _of_runs(study: Study) -> Iterator[Caveat]:
    points = [point for roofline in study.rooflines for point in roofline.points]
    short = [(trial, point) for point in points for trial in point.trials if trial.is_short]
    if short:
        # In steps of the fastest.
        seconds = min(trial.figures.get("step_seconds", point.seconds) for trial, point in short)
        are_needed = any(point.traffic_by is None and _is_sampled_briefly(point) for point in points)
        unused = ", and the sampled bytes are not used" if are_needed else ""
        yield Caveat(
            code="measure_short",
            text=f"{counted(len(short), 'run')} measured for less than 10 s: times depend on chance{unused}",
            remedy=f"run more steps, at least {count_steps(seconds):,}",
        )
    if study.without_figures:
        yield Caveat(
            code="left_out",
            text=f"{counted(len(study.without_figures), 'run')} left out, without FLOPs or without steps: "
            f"{_count(run.workload for run in study.without_figures)}",
            remedy="report `model_flops_per_step` and steps: see docs/your-program.md",
        )
    if study.unsuccessful:
        statuses = [run.status or "unknown" for run in study.unsuccessful]
        text = f"runs that are in no point: {_count(status.replace('_', ' ') for status in statuses)}"
        yield Caveat(code="unsuccessful", text=text, remedy=f"reasons: {reasons(statuses)}")


def _count(names: Iterable[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(Counter(names).items()))


# The tables have the others.
_SPOKEN_POINTS, _FIRST_POINTS = 3, 2


def answer(study: Study, *, most: int = _SPOKEN_POINTS) -> str:
    """Return the performance of the first points."""
    points = [(point, roofline.where) for roofline in study.rooflines for point in roofline.points]
    known = []
    for point, where in points:
        if point.has_share:
            intensity = _intensity(point)
            at = f" at {intensity} FLOP/byte" if intensity else ""
            rate = in_unit("FLOP/s")(point.flops_per_second)
            reached = f"{point.label} ({point.mark}){where} reaches {rate}{at}"
            known.append(f"{reached}, {_describe_share(point)}; {_describe_limit(point)}.")
    sentences = in_short(known, most=most)
    unknown = [f"{point.label}{where}" for point, where in points if not point.has_share]
    if unknown:
        sentences.append(f"No limits are known for {first_few(unknown)}.")
    return " ".join(sentences)


def _describe_limit(point: Point) -> str:
    """Return what limits a point, from the shares on that `recommend` takes."""
    if point.busy_percent is not None and 100 - point.busy_percent >= TIME_PERCENT:
        share = significant(100 - point.busy_percent)
        return f"its GPU was idle for {share} % of the time, so its host limits it before any roof"
    shares = next((each for each in (point.measured, point.datasheet) if each.roof_percent is not None), None)
    if shares is None or shares.roof_percent is None:
        # Whatever the bytes, the roof is no higher than the peak.
        is_near = (_of_peak(point) or 0) >= UNIT_PERCENT
        return "arithmetic limits it" if is_near else "no roof is shown to limit it"
    if shares.roof_percent >= UNIT_PERCENT and shares.side:
        return f"{'arithmetic' if shares.side is Side.COMPUTE else 'memory bandwidth'} limits it"
    if point.traffic_by is Traffic.LEAST:
        return "no roof is shown to limit it"
    if point.busy_percent is not None:
        busy = f"its GPU was busy for {significant(point.busy_percent)} % of the time"
        return f"{busy}, so its kernels limit it, not a roof"
    return "too little for that to limit it"


def _describe_share(point: Point) -> str:
    """Return the share of the measured roof, else of the datasheet's; without bytes that of the peak."""
    sources = (("measured", point.measured), ("datasheet's", point.datasheet))
    for name, shares in sources:
        if shares.roof_percent is not None:
            least = "at least " if point.traffic_by is Traffic.LEAST else ""
            side = f"{shares.side.value} " if shares.side else ""
            # Without a side the place of the point is known as a bound alone, and so is the roof there.
            of_roof = "roof"
            if shares.side is None and shares.roof_percent:
                height = in_unit("FLOP/s")(100 * point.flops_per_second / shares.roof_percent)
                of_roof = f"roof, which is {height} there"
            return f"{least}{significant(shares.roof_percent, 2)} % of the {name} {side}{of_roof}"
    for name, shares in sources:
        if shares.mfu_percent is not None:
            return f"{significant(shares.mfu_percent, 2)} % of the {name} peak of its arithmetic"
    return "its share of a roof is unknown"


def answer_roofline(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` as for `study_roofline`. It fails for a point above the device's limit."""
    return render(study_roofline(ask, **asked))


def render(study: Study) -> Answer:
    """Return the answer; CSV has a line for each point."""
    errors, caveats = find_errors(study), find_caveats(study)
    tables, sections, rooflines = [], [], []
    for roofline in study.rooflines:
        # A terminal shows the points whose share of a roof is known, or all where that of none is.
        known, ceilings = sum(point.has_share for point in roofline.points), roofline.ceilings
        about, more = {"ceilings_run": ceilings.run.run_id if ceilings else None}, _name_unknown if known else None
        table = Table(_POINTS, roofline.points, about=about, most=known or MOST_ROWS, can_shrink=True, more=more)
        rooflines.append(
            {
                "device": roofline.device,
                "measured": roofline.measured,
                **about,
                "ceilings_of": ceilings.nearness.name.lower() if ceilings else None,
                "datasheet": roofline.datasheet,
                "points": table,
            }
        )
        tables.append(table)
        workloads = {point.run.workload for point in roofline.points}
        if len(workloads) == 1 and roofline.points[1:]:
            # The sentences name it.
            name = f"{workloads.pop()} "
            rows = [replace(each, brief_label=each.brief_label.removeprefix(name)) for each in roofline.points]
            table = replace(table, rows=rows)
        if not any(point.intensity for point in roofline.points):
            table = replace(table, columns=(*_POINTS, _OF_PEAK))
        sections.append(_section(roofline, table))
    last = sections.pop()
    last = Section(last.heading, [*last.parts, Legend("", _legend(study))])
    return Answer(
        heading=f"Roofline: {' · '.join(dict.fromkeys(roofline.device for roofline in study.rooflines))}",
        text=answer(study),
        short=answer(study, most=_FIRST_POINTS),
        parts=[] if sections else last.parts,  # of an only device, which the heading names
        sections=[*sections, *([last] if sections else []), *caveat_sections(errors, heading="Errors")],
        caveats=caveats,
        next=_next(study),
        more="all figures",
        facts={
            "by": study.facet.name,
            "rooflines": rooflines,
            "left_out": [run.run_id for run in study.without_figures],
            "unsuccessful": [run.run_id for run in study.unsuccessful],
            "cancelled": [run.run_id for run in study.cancelled],
            "errors": errors,
        },
        failed=bool(errors),
        csv=tables,
    )


def _next(study: Study) -> str:
    """Return the command that says what limits a workload, draws several, or measures roofs where there are none."""
    workloads = {point.run.workload for roofline in study.rooflines for point in roofline.points}
    if any(roofline.is_drawn for roofline in study.rooflines):
        if len(workloads) == 1:
            return _next_of_workload(study.rooflines[0].points[0])
        by = None if study.facet.name == "platform" else study.facet.name
        return write_command("plot", {"--by": by, "-o": name_file("roofline.pdf")}, "roofline")
    if study.rooflines[0].ceilings:
        return _next_of_workload(study.rooflines[0].points[0])
    return _measure(study.rooflines[0])


def _next_of_workload(point: Point) -> str:
    """Return the command that shows the kernels of a point's newest run, or what limits its workload."""
    traced = find_traced({trial.run.run_id: trial.metrics for trial in point.trials})
    if traced:
        return write_command("profile", {}, traced)
    return write_command("recommend", {"--experiment": point.run.experiment, "--all": ""}, point.run.workload)


def _section(roofline: Roofline, table: Table) -> Section:
    # The roofs of a device and their sources.
    ceilings = roofline.ceilings
    measured, stated = (_describe_roofs(roofs, roofline) for roofs in (roofline.measured, roofline.datasheet))
    sentences = [f"Datasheet: {stated}."] if stated else []
    if ceilings and measured:
        node = ceilings.run.nodes or "an unknown node"
        other = "" if ceilings.nearness is Nearness.SAME_DEVICE else f" ({NEARNESS[ceilings.nearness]})"
        sentences.insert(0, f"Measured by {ceilings.run.run_id} on {node}{other}: {measured}.")
    parts: list[Part] = [text] if (text := " ".join(sentences)) else []
    details = replace(table, columns=_DETAILS, more=None)
    return Section(f"What runs reach on {roofline.device}", [*parts, table, Legend("", details)])


def _describe_roofs(roofs: Roofs, roofline: Roofline) -> str:
    """Return roofs in words: TF32 401 TFLOP/s, FP32 53.5 TFLOP/s, memory 4.35 TB/s; '' for no roofs."""
    peaks, write = roofs.flops_per_second, in_unit("FLOP/s")
    listed = [f"{name.upper()} {write(peaks[name])}" for name in roofline.arithmetics if name in peaks]
    if roofs.bytes_per_second is not None:
        listed.append(f"memory {in_unit('bytes/s')(roofs.bytes_per_second)}")
    return ", ".join(listed)


_MOST_UNKNOWN = 3


def _name_unknown(points: Sequence[Point]) -> str:
    named = [f"{point.label} {in_unit('FLOP/s')(point.flops_per_second)}" for point in points[:_MOST_UNKNOWN]]
    rest = len(points) - len(named)
    others = f" and {rest} more; --format markdown has all" if rest else ""
    return f"Their share of a roof is unknown: {', '.join(named)}{others}."


def _intensity(point: Point) -> str | None:
    """Return FLOPs by byte, as a bound where only that is known; None: unknown."""
    if point.intensity is None:
        return None
    return f"{'≤ ' if point.traffic_by is Traffic.LEAST else ''}{significant(point.intensity)}"


def _of_roof(point: Point, source: str) -> str | None:
    percent = getattr(point, source).roof_percent
    if percent is None:
        return None
    return f"{'≥ ' if point.traffic_by is Traffic.LEAST else ''}{significant(percent, 2)} %"


def _of_source(source: str) -> Iterator[Column]:
    for name in ("roof_percent", "mfu_percent", "side"):
        yield Column(f"{source}_{name}", value=f"{source}.{name}")


# A row for each point, for people and for programs.
_POINTS = (
    Column("mark", "", left=True),
    Column(None, "runs of", "brief_label", left=True),
    *(Column(name, value=f"run.{name}") for name in ("workload", "side", *_PLACE)),
    *map(Column, ("device", "parameters", "part")),
    Column("n", "n", lambda point: len(point.trials)),
    Column("step_seconds", value="seconds"),
    *map(Column, ("flops", "flops_by", "model_flops")),
    Column("arithmetic", value="mix"),
    Column("bytes", value="traffic_bytes"),
    Column("bytes_by", value="traffic_by"),
    Column("flops_per_byte", value="intensity"),
    Column(None, "FLOP/byte", _intensity),
    Column("flops_per_second", "achieved", show=in_unit("FLOP/s")),
    Column("gpu_busy_percent", value="busy_percent"),
    *_of_source("measured"),
    *_of_source("datasheet"),
    Column(None, "% of roof", partial(_of_roof, source="measured")),
    Column(None, "datasheet", partial(_of_roof, source="datasheet")),
    Column(None, "side", lambda point: point.measured.side or point.datasheet.side),
    Column("runs", value=lambda point: [trial.run.run_id for trial in point.trials]),
)


def _of_peak(point: Point) -> float | None:
    """Return the share of the measured peak of its arithmetic, else of the datasheet's; None: unknown."""
    return point.measured.mfu_percent or point.datasheet.mfu_percent


# Where no share of a roof is known.
_OF_PEAK = Column(None, "of peak", _of_peak, unit="percent")


def _arithmetic(point: Point) -> str | None:
    """Return the arithmetic of FLOPs: TF32 90 %, FP32 10 %; None: unknown."""
    total = sum(point.mix.values())
    named = sorted(point.mix.items(), key=lambda each: -each[1])
    if len(named) == 1:
        return named[0][0].upper()
    return ", ".join(f"{name.upper()} {significant(100 * flops / total)} %" for name, flops in named) or None


def _bytes(point: Point) -> str | None:
    if point.traffic_bytes is None or point.traffic_by is None:
        return None
    return f"{_BYTES_BY[point.traffic_by]}{in_unit('bytes')(point.traffic_bytes)}"


_FLOPS_BY = {Flops.EXECUTED: "ncu", Flops.MODEL: "model"}
_BYTES_BY = {Traffic.COUNTED: "", Traffic.SAMPLED: "≈ ", Traffic.LEAST: "≥ "}

# What the points are made of.
_DETAILS = (
    Column(None, "", "mark", left=True),
    Column(None, "arithmetic", _arithmetic, left=True),
    Column(None, "FLOPs", lambda point: f"{in_unit('FLOP')(point.flops)} {_FLOPS_BY[point.flops_by]}", left=True),
    Column(None, "bytes", _bytes, left=True),
    Column(None, "step", "seconds", show=in_unit("seconds")),
    Column(None, "busy", "busy_percent", show=in_unit("percent")),
    Column(None, "MFU", "measured.mfu_percent", show=in_unit("percent")),
    Column(None, "datasheet", "datasheet.mfu_percent", show=in_unit("percent")),
)


def _legend(study: Study) -> str:
    points = [point for roofline in study.rooflines for point in roofline.points]
    sentences = [
        "Medians over runs; FLOP/s are FLOPs by the mean time of a measured step, idle time of the device included."
    ]
    if any(point.has_share for point in points):
        sentences.append(
            "% of roof: of the lesser of peak and bandwidth × FLOP/byte, measured and as the datasheet has it. MFU: "
            "model FLOPs by time, of the peak of their arithmetic alone. Side: of the measured ridge, else of the "
            "datasheet's. FLOPs: of the model by formula, or executed as ncu counted them in one step. Bytes: counted "
            "by ncu in one step; ≈ sampled by GPM or DCGM, as a share of the datasheet's bandwidth; ≥ at least so "
            "many, by formula. Busy: of a step by its trace, else by NVML's samples."
        )
    return " ".join(sentences)
