"""Errors and warnings that a reader must know before acting on points and roofs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.roofline.names import NEARNESS, marked, marks_where, roofs_of, used_arithmetics
from gpuagent_collector.roofline.points import Flops, Point, Traffic, exceeds
from gpuagent_collector.roofline.roofs import Nearness
from gpuagent_collector.roofline.study import Placed, Roofline, Study
from gpuagent_collector.runs.cells import cancelled_caveat
from gpuagent_collector.runs.words import reasons
from gpuagent_common.text import counted


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
