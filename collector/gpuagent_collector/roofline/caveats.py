"""What cannot be so, and what a reader must know of points and roofs before acting on them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.roofline.ceilings import Nearness
from gpuagent_collector.roofline.names import NEARNESS, marked, marks_where, roofs_of, used_arithmetics
from gpuagent_collector.roofline.points import Flops, Point, Traffic, exceeds
from gpuagent_collector.roofline.roofs import Roofs
from gpuagent_collector.roofline.study import Placed, Roofline, Study


def find_errors(study: Study) -> tuple[Caveat, ...]:
    """Return what no device can do: FLOPs that were executed faster than its roof."""
    return tuple(_each(study, _executed_above_roof))


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that the data gives reason for."""
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
            text=f"{marks_where(roofline, marks)}: more FLOPs executed in a second than the device can execute, so "
            "that the count, the time or the roof is wrong",
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
            "that the intensity is at most what is shown",
            remedy="count them with `--counters ncu`, or have it sampled (by GPM on Hopper and newer, by DCGM before)"
            if _is_gpu(roofline)
            else _NOT_COUNTED,
        )


def _no_bytes(roofline: Roofline) -> Iterator[Caveat]:
    marks = _marks(roofline, lambda placed: placed.point.traffic_by is None)
    if marks:
        yield Caveat(
            code="no_bytes",
            text=f"{marks_where(roofline, marks)}: nothing tells the bytes, so that they are in the tables only",
            remedy="count them with `--counters ncu`" if _is_gpu(roofline) else _NOT_COUNTED,
        )


_NOT_COUNTED = "only a GPU's memory traffic can be counted or sampled"


def _is_gpu(roofline: Roofline) -> bool:
    return any(trial.device_ids for placed in roofline.placed for trial in placed.point.trials)


def _no_peak(roofline: Roofline) -> Iterator[Caveat]:
    roofs = [each for each in (roofline.measured, roofline.datasheet) if roofs_of(each, used_arithmetics(roofline))]
    marks = _marks(roofline, lambda placed: bool(roofs) and not any(each.peak(placed.point.mix) for each in roofs))
    if marks:
        yield Caveat(
            code="no_peak",
            text=f"{marks_where(roofline, marks)}: no roof is known of the arithmetic, or it is not known which the "
            "FLOPs are in",
            remedy="run with `--precision fp32`, `tf32`, `fp16` or `bf16`, whichever `ceilings` measured",
        )


def _short(study: Study) -> Iterator[Caveat]:
    runs = [trial for placed in _placed(study) for trial in placed.point.trials if trial.is_short]
    if runs:
        yield Caveat(
            code="measure_short",
            text=f"{_runs(len(runs), 'was', 'were')} measured for less than 10 s: times and samples are left to chance",
            remedy="measure longer, with more `--steps` or without",
        )


def _left_out(study: Study) -> Iterator[Caveat]:
    if study.without_figures:
        yield Caveat(
            code="left_out",
            text=f"{_runs(len(study.without_figures), 'is', 'are')} left out, without FLOPs or without steps: "
            f"{_counted(run.workload for run in study.without_figures)}",
            remedy="report `model_flops_per_step` and steps: docs/run-directory.md says how",
        )
    if study.unsuccessful:
        yield Caveat(
            code="unsuccessful",
            text="runs that are in no point: "
            + _counted((run.status or "unknown").replace("_", " ") for run in study.unsuccessful),
            remedy="`collector runs` says why",
        )


def _is_above_all(point: Point, roofline: Roofline) -> bool:
    """Return whether it is faster than every roof that is known of its arithmetic, and there is one."""
    known: list[Roofs] = [roofs for roofs in (roofline.measured, roofline.datasheet) if roofs.peak(point.mix)]
    return bool(known) and all(exceeds(point.mix, point.seconds, roofs) for roofs in known)


def _marks(roofline: Roofline, concerns: Callable[[Placed], bool]) -> list[str]:
    return [mark for mark, placed in marked(roofline) if concerns(placed)]


def _placed(study: Study) -> Iterator[Placed]:
    return (placed for roofline in study.rooflines for placed in roofline.placed)


def _runs(number: int, one: str, several: str) -> str:
    return f"{number} run {one}" if number == 1 else f"{number} runs {several}"


def _counted(names: Iterable[str]) -> str:
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
