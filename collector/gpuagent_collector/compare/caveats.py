"""What the data shows that a reader must know before acting on a comparison, and what to do about each."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise

from gpuagent_collector.compare.cells import UNFINISHED, Block, Cell, Layout, tell_apart
from gpuagent_collector.compare.data import Run
from gpuagent_collector.compare.evidence import Caveat, Evidence
from gpuagent_collector.compare.facets import CONDITIONS
from gpuagent_collector.compare.figures import values_of
from gpuagent_collector.compare.specs import runs_of
from gpuagent_collector.compare.statistics import Verdict, least_runs, outliers
from gpuagent_collector.output.human import significant

_THROTTLED_PERCENT = 1.0
"""Clocks that were held back for longer than this share of the time are worth a word."""
_IDLE_PERCENT = 50.0
"""A GPU without work for longer than this share of the time does not bound the run."""


def find_caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """Return every warning that the data gives reason for."""
    return tuple(caveat for check in CHECKS for caveat in check(evidence))


def _too_few(evidence: Evidence) -> Iterator[Caveat]:
    tests = evidence.figures.tests
    few = [test for test in tests if test.judgement.verdict is Verdict.TOO_FEW]
    if few:
        runs = " and ".join(str(n) for n in (few[0].baseline.runs, few[0].other.runs))
        needed = least_runs(len(tests), evidence.figures.alpha)
        yield Caveat(
            code="n_too_small",
            text=f"no outcome of {runs} runs could show a difference at {100 * evidence.figures.alpha:.0f} %"
            + (f", with {len(tests)} comparisons tested together" if len(tests) > 1 else ""),
            remedy=f"repeat the experiment with at least {needed} runs a side (7 is a good number)",
        )


def _untested(evidence: Evidence) -> Iterator[Caveat]:
    metric = evidence.figures.primary
    for block in evidence.layout.blocks:
        lacking = [cell.side for cell in block.cells if cell.runs and not values_of(cell, evidence.facts, metric)]
        if lacking:
            concerned = "none of it is tested" if block.baseline in lacking else "not tested there"
            yield Caveat(
                code="untested",
                text=f"{tell_apart(block, evidence.layout.blocks)}: {concerned}, "
                f"since no run of {', '.join(lacking)} has {metric.name}",
                remedy="name a --metric that all sides have, or another --baseline",
            )


def _unsuccessful(evidence: Evidence) -> Iterator[Caveat]:
    counts = _others(evidence.layout, lambda status: status not in UNFINISHED)
    if counts:
        yield Caveat(
            code="unsuccessful",
            text=f"runs that are in no figure: {counts}",
            remedy="`collector runs` says why; a side that fails more often is worse than its figures",
        )


def _unfinished(evidence: Evidence) -> Iterator[Caveat]:
    counts = _others(evidence.layout, lambda status: status in UNFINISHED)
    if counts:
        yield Caveat(
            code="unfinished",
            text=f"runs that have not ended yet: {counts}",
            remedy="compare again when they have",
        )


def _others(layout: Layout, concerns: Callable[[str], bool]) -> str:
    """Return how many runs of each side stand in a status that concerns, in words; '' when none does."""
    numbers: Counter[tuple[str, str]] = Counter()
    for block in layout.blocks:
        for cell in block.cells:
            numbers.update({(cell.side, status): n for status, n in cell.others.items() if concerns(status)})
    return ", ".join(f"{n} {side} {status.replace('_', ' ')}" for (side, status), n in numbers.items())


def _left_out(evidence: Evidence) -> Iterator[Caveat]:
    for one in evidence.layout.left_out:
        yield Caveat(
            code="left_out",
            text=f"{one.runs} {one.side} left out, without a counterpart on another side: {one.what}",
            remedy="run the same workload with the same parameters on each side",
        )


def _one_node(evidence: Evidence) -> Iterator[Caveat]:
    nodes = {side: {run.nodes for run in runs_of(evidence.layout, side)} for side in evidence.layout.sides}
    single = [side for side, names in nodes.items() if len(names) == 1]
    if evidence.layout.facet.name == "node" or not single:
        return
    if len(set().union(*nodes.values())) == 1:
        text = f"all runs are from one node ({next(iter(nodes[single[0]]))}): they say nothing about other nodes"
    else:
        text = f"one node only for {', '.join(single)}: the difference may be this node's and not the side's"
    yield Caveat(code="one_node", text=text, remedy="repeat on other nodes of the same kind")


def _confounded(evidence: Evidence) -> Iterator[Caveat]:
    facet = evidence.layout.facet
    for name in (name for name in CONDITIONS if name not in {facet.name, *facet.fixes, "device"}):
        values = [{getattr(run, name) or "none" for run in runs_of(evidence.layout, s)} for s in evidence.layout.sides]
        if any(one != values[0] for one in values):
            told = " / ".join(", ".join(sorted(one)) for one in values)
            yield Caveat(
                code="confounded",
                text=f"the sides also differ in {name}: {told}",
                remedy=f"run both sides with the same {name}, or compare `--by {name}`",
            )


def _gpu_counts(evidence: Evidence) -> Iterator[Caveat]:
    counts = [
        sorted({_gpus_of(evidence, run) for run in runs_of(evidence.layout, side)}) for side in evidence.layout.sides
    ]
    if any(one != counts[0] for one in counts):
        told = ", ".join(
            f"{side} {' or '.join(map(str, one))}" for side, one in zip(evidence.layout.sides, counts, strict=True)
        )
        yield Caveat(
            code="gpu_counts",
            text=f"the sides used different numbers of GPUs: {told}",
            remedy="compare equal numbers, or read the throughput as a price for all the GPUs of a side",
        )


def _gpus_of(evidence: Evidence, run: Run) -> int:
    return len({device["device_id"] for device in evidence.facts.devices.get(run.run_id, [])})


_NAMES_OF_PLACES = ("Node", "Platform", "Environment", "Image", "Interference")


def _different_specs(evidence: Evidence) -> Iterator[Caveat]:
    titles = [row.title for row in evidence.specs if row.differs and row.title not in _NAMES_OF_PLACES]
    if titles:
        yield Caveat(
            code="different_specs",
            text=f"hardware or software differs between the sides: {', '.join(titles)}",
            remedy="no single one of these is shown to be the cause; change one at a time to find it",
        )


def _throttled(evidence: Evidence) -> Iterator[Caveat]:
    name = "gpu_throttled_percent"
    where = evidence.sides_where(lambda run: (evidence.metric(run, name) or 0) > _THROTTLED_PERCENT)
    if where:
        yield Caveat(
            code="throttled",
            text=f"GPU clocks were held back (power cap, heat) in {where}, "
            f"for up to {significant(evidence.highest(name))} % of the time",
            remedy="look at power limit, temperature and sm_clock_mhz; lock the clocks to compare chips",
        )


def _shared_gpu(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: (evidence.metric(run, "gpu_other_processes") or 0) > 0)
    if where:
        yield Caveat(
            code="shared_gpu",
            text=f"processes that are not known to be the run's were on its GPU in {where}",
            remedy="use a GPU of your own; `gpu_process_samples` has the processes",
        )


def _overlapping(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.neighbours)
    if where:
        yield Caveat(
            code="overlapping",
            text=f"other runs were on the same node at the same time in {where}",
            remedy="run one after the other, or load the node on purpose with `--with`",
        )


def _idle_gpu(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: (evidence.metric(run, "gpu_idle_percent") or 0) > _IDLE_PERCENT)
    if where:
        yield Caveat(
            code="idle_gpu",
            text=f"the GPU had no work for more than {_IDLE_PERCENT:.0f} % of the time in {where}",
            remedy="the GPU is not the limit: look at CPU, data loading and batch size",
        )
    unused = evidence.sides_where(lambda run: run.device is None and _has_gpu(evidence, run))
    if unused:
        yield Caveat(
            code="unused_gpu",
            text=f"the node has GPUs but none is known to be used in {unused}",
            remedy="check that the workload's framework sees the GPU: `gpuagent info`",
        )


def _has_gpu(evidence: Evidence, run: Run) -> bool:
    return any(session["gpu_count"] for session in evidence.facts.sessions.get(run.run_id, []))


def _gaps(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.gap_seconds)
    if where:
        longest = max(evidence.facts.gap_seconds.values())
        yield Caveat(
            code="gaps",
            text=f"samples are missing in {where}" + (f", for up to {significant(longest)} s" if longest else ""),
            remedy="means and peaks may miss that time; the table `gaps` says why",
        )


def _short(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.short)
    if where:
        yield Caveat(
            code="measure_short",
            text=f"the measured phase was too short for sensors that average over a second in {where}",
            remedy="measure for at least 10 s before reading utilisation and power",
        )


def _whole_run(evidence: Evidence) -> Iterator[Caveat]:
    where = evidence.sides_where(lambda run: evidence.metric(run, "measure_seconds") is None)
    if where:
        yield Caveat(
            code="whole_run",
            text=f"no measured phase was reported in {where}: their figures are of the whole run, start-up included",
            remedy="report the phase `measure` through the run directory to leave start-up out",
        )


def _outliers(evidence: Evidence) -> Iterator[Caveat]:
    name = evidence.figures.primary.name
    for block in evidence.layout.blocks:
        for cell in block.cells:
            runs = [run for run in cell.runs if evidence.metric(run, name) is not None]
            odd = outliers([evidence.facts.metrics[run.run_id][name] for run in runs])
            if odd:
                told = ", ".join(f"{runs[i].repeat} ({runs[i].run_id})" for i in odd)
                yield Caveat(
                    code="outliers",
                    text=f"{name} lies far from the others of {cell.side} in repeat {told}",
                    remedy="nothing is removed, and medians bear it; look at what else happened then",
                )


def _not_interleaved(evidence: Evidence) -> Iterator[Caveat]:
    if any(_one_after_the_other(block) for block in evidence.layout.blocks):
        yield Caveat(
            code="not_interleaved",
            text="all runs of one side came before all of another: warming up or neighbours may be the difference",
            remedy="take turns: one run of each side, then the next",
        )


def _one_after_the_other(block: Block) -> bool:
    cells = [cell for cell in block.cells if cell.runs]
    spans = sorted(filter(None, map(_span, cells)))
    many = all(len(cell.runs) > 1 for cell in cells)
    return many and any(before[1] <= after[0] for before, after in pairwise(spans))


def _span(cell: Cell) -> tuple[datetime, datetime] | None:
    starts = [run.started_at for run in cell.runs if run.started_at]
    ends = [run.ended_at for run in cell.runs if run.ended_at]
    return (min(starts), max(ends)) if starts and ends else None


def _fell_back(evidence: Evidence) -> Iterator[Caveat]:
    if evidence.figures.fell_back:
        yield Caveat(
            code="no_throughput",
            text=f"no runs report a throughput on both sides, so {evidence.figures.primary.name} was tested",
            remedy="report the result `throughput` for the phase `measure`, or name another with --metric",
        )


CHECKS: tuple[Callable[[Evidence], Iterator[Caveat]], ...] = (
    _too_few,
    _fell_back,
    _untested,
    _unsuccessful,
    _unfinished,
    _left_out,
    _one_node,
    _not_interleaved,
    _confounded,
    _gpu_counts,
    _different_specs,
    _throttled,
    _shared_gpu,
    _overlapping,
    _idle_gpu,
    _gaps,
    _short,
    _whole_run,
    _outliers,
)
"""Every check, in the order in which warnings are shown."""
