"""Errors and warnings that a reader must know before acting on points and roofs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import counted
from gpuagent_collector.roofline.ceilings import Nearness
from gpuagent_collector.roofline.names import NEARNESS, marked, marks_where, roofs_of, used_arithmetics
from gpuagent_collector.roofline.points import Flops, Point, Traffic, exceeds
from gpuagent_collector.roofline.roofs import Roofs
from gpuagent_collector.roofline.study import Placed, Roofline, Study
from gpuagent_collector.runs.cells import cancelled_caveat
from gpuagent_collector.runs.words import REASONS


def find_errors(study: Study) -> tuple[Caveat, ...]:
    """Return the impossible: FLOPs that were executed faster than the device's roof."""
    return tuple(_each(study, _executed_above_roof))


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    of_rooflines = (caveat for check in _CHECKS for caveat in _each(study, check))
    return (*of_rooflines, *_short(study), *_left_out(study))


Check = Callable[[Roofline], Iterator[Caveat]]


def _each(study: Study, check: Check) -> Iterator[Caveat]:
    return (caveat for roofline in study.rooflines for caveat in check(roofline))


def _executed_above_roof(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(
        roofline, lambda placed: placed.point.flops_by is Flops.EXECUTED and _is_above_all(placed.point, roofline)
    )
    if marks:
        yield Caveat(
            code="executed_above_roof",
            text=f"{marks_where(roofline, marks)}: more FLOPs executed in a second than the device can execute: "
            "the count, the time or the roof is wrong",
            remedy="run `ceilings` on this device while nothing else runs, the workload again with `--counters ncu`",
        )


def _model_above_roof(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(
        roofline, lambda placed: placed.point.flops_by is Flops.MODEL and _is_above_all(placed.point, roofline)
    )
    if marks:
        yield Caveat(
            code="model_above_roof",
            text=f"{marks_where(roofline, marks)}: more model FLOPs in a second than the device can execute: an "
            "algorithm was chosen that needs fewer than the model's formula (as Winograd's convolutions)",
            remedy="count what is executed, with `--counters ncu`",
        )


def _above_measured(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(
        roofline,
        lambda placed: (placed.measured.roof_percent or 0) > 100 and not _is_above_all(placed.point, roofline),
    )
    if marks:
        yield Caveat(
            code="above_measured_roof",
            text=f"{marks_where(roofline, marks)}: above the measured roof at that intensity: either the roof was "
            "measured too low (another clock, a neighbour), or the bytes are too few since data stayed in a cache",
            remedy="run `ceilings` again while nothing else runs; count the bytes with `--counters ncu`",
        )


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


def _bounds(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(roofline, lambda placed: placed.point.traffic_by is Traffic.LEAST)
    if marks:
        yield Caveat(
            code="bytes_at_least",
            text=f"{marks_where(roofline, marks)}: the bytes are a lower bound (weights and batch, no activations), so "
            "the intensity is an upper bound",
            remedy="count them with `--counters ncu`, or have it sampled (by GPM on Hopper and newer, by DCGM before)"
            if roofline.is_gpu
            else _NOT_COUNTED,
        )


def _no_bytes(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(roofline, lambda placed: placed.point.traffic_by is None)
    if marks:
        yield Caveat(
            code="no_bytes",
            text=f"{marks_where(roofline, marks)}: the bytes are unknown, so these are in the tables only",
            remedy="count them with `--counters ncu`" if roofline.is_gpu else _NOT_COUNTED,
        )


_NOT_COUNTED = "only a GPU's memory traffic can be counted or sampled"


def _no_peak(roofline: Roofline) -> Iterator[Caveat]:
    roofs = [each for each in (roofline.measured, roofline.datasheet) if roofs_of(each, used_arithmetics(roofline))]
    marks = _marks(roofline, lambda placed: bool(roofs) and not any(each.peak(placed.point.mix) for each in roofs))
    if marks:
        yield Caveat(
            code="no_peak",
            text=f"{marks_where(roofline, marks)}: the roof of the arithmetic is unknown, or the arithmetic of the "
            "FLOPs",
            remedy="run with `--precision fp32`, `tf32`, `fp16` or `bf16`, whichever `ceilings` measured",
        )


def _short(study: Study) -> Iterator[Caveat]:
    runs = [
        trial
        for roofline in study.rooflines
        for placed in roofline.placed
        for trial in placed.point.trials
        if trial.is_short
    ]
    if runs:
        yield Caveat(
            code="measure_short",
            text=f"{counted(len(runs), 'run')} measured for less than 10 s: times and samples depend on chance",
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
        yield Caveat(
            code="unsuccessful",
            text="runs that are in no point: "
            + _numbers((run.status or "unknown").replace("_", " ") for run in study.unsuccessful),
            remedy=f"reasons: {REASONS}",
        )
    if study.cancelled:
        yield cancelled_caveat(str(len(study.cancelled)))


def _is_above_all(point: Point, roofline: Roofline) -> bool:
    """Return whether it is faster than every known roof of its arithmetic, and there is one."""
    known: list[Roofs] = [roofs for roofs in (roofline.measured, roofline.datasheet) if roofs.peak(point.mix)]
    return bool(known) and all(exceeds(point.mix, point.seconds, roofs) for roofs in known)


def _marks(roofline: Roofline, concerns: Callable[[Placed], bool]) -> list[str]:
    return [mark for mark, placed in marked(roofline) if concerns(placed)]


def _numbers(names: Iterable[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(Counter(names).items()))


# Every check of a roofline, in the order in which warnings are shown.
_CHECKS: tuple[Check, ...] = (
    _model_above_roof,
    _above_measured,
    _no_ceilings,
    _other_device,
    _bounds,
    _no_bytes,
    _no_peak,
)
