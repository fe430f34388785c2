"""The figures of a comparison: per block and metric what each side has, how far apart they lie, and the verdicts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuagent_collector.metrics import METRICS, Metric, by_group
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.statistics.shift import (
    GeometricMean,
    Judgement,
    Pair,
    Shift,
    estimate_shift,
    geometric_mean,
    judge,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

# A side and the values of its runs.
Sample = tuple[str, Sequence[float]]

# A block, its baseline and another of its sides.
Contest = tuple[Block, Sample, Sample]

DEFAULT_PRIMARY = "throughput"
# What is tested where no run reports a throughput: every run has a duration.
WITHOUT_THROUGHPUT = "run_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric of one cell: over `runs` runs, those that have it."""

    side: str
    runs: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one block.

    Attributes:
        figures: by side; a side without readings is not there.
        shifts: by side, from the baseline; only where both have the metric.
    """

    metric: Metric
    figures: Mapping[str, Figure]
    shifts: Mapping[str, Shift]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One comparison of the primary metric: the verdict on `side` against `baseline`."""

    block: Block
    baseline: Figure
    other: Figure
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """The geometric mean of the primary metric's ratios of `side` to `baseline` over several blocks."""

    side: str
    baseline: str
    mean: GeometricMean


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFigures:
    """All metrics of one block."""

    block: Block
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a comparison.

    Attributes:
        primary: the metric that was tested; all others only have intervals.
        fell_back: no run reports the default primary metric, so another one was tested.
        delta: the share that counts as equal.
        alpha: the error rate over all tests together.
        overall: for each side that is set against the same baseline in several blocks, where all values are positive.
    """

    primary: Metric
    fell_back: bool
    delta: float
    alpha: float
    tests: tuple[Test, ...]
    overall: tuple[Overall, ...]
    blocks: tuple[BlockFigures, ...]


def compute_figures(layout: Layout, facts: Facts, *, metric: str | None, delta: float, alpha: float = 0.05) -> Figures:
    """Return all figures; `metric` is the primary one, None: throughput, or the run's duration where none reports it.

    Raises:
        MisuseError: there is no such metric.
        GpuAgentError: in no block have the baseline and another side both got it.
    """
    primary = _choose_primary(layout, facts, metric)
    contests = [contest for block in layout.blocks for contest in _contests(block, facts, primary)]
    tests = _test(contests, delta, alpha)
    return Figures(
        primary=primary,
        fell_back=metric is None and primary.name != DEFAULT_PRIMARY,
        delta=delta,
        alpha=alpha,
        tests=tests,
        overall=_overall(contests, alpha),
        blocks=tuple(_block_figures(block, facts, tests, primary, alpha) for block in layout.blocks),
    )


def known_metrics(facts: Facts) -> tuple[Metric, ...]:
    """Return every metric that a run can have, those that follow from prices included, in the order to show them."""
    return by_group((*METRICS, *facts.derived))


def values_of(cell: Cell, facts: Facts, metric: Metric) -> list[float]:
    """Return the metric of each of the cell's runs that has it."""
    found = (facts.metrics.get(run.run_id, {}).get(metric.name) for run in cell.runs)
    return [value for value in found if value is not None]


def _choose_primary(layout: Layout, facts: Facts, name: str | None) -> Metric:
    known = {metric.name: metric for metric in known_metrics(facts)}
    if name is not None and name not in known:
        raise MisuseError(f"--metric {name} is unknown; there are: {', '.join(known)}")
    for candidate in [name] if name else [DEFAULT_PRIMARY, WITHOUT_THROUGHPUT]:
        if any(_contests(block, facts, known[candidate]) for block in layout.blocks):
            return known[candidate]
    shared = [name for name, metric in known.items() if any(_contests(b, facts, metric) for b in layout.blocks)]
    has = f"they have: {', '.join(shared)}" if shared else "nor any other; their agents stored no figures"
    raise GpuAgentError(f"no side and its baseline both have the metric {name or DEFAULT_PRIMARY}; {has}")


def _samples(block: Block, facts: Facts, metric: Metric) -> dict[str, list[float]]:
    """Return the values of each side that has some, in the sides' order."""
    return {cell.side: values for cell in block.cells if (values := values_of(cell, facts, metric))}


def _test(contests: Sequence[Contest], delta: float, alpha: float) -> tuple[Test, ...]:
    judgements = judge([(baseline, other) for _, (_, baseline), (_, other) in contests], delta=delta, alpha=alpha)
    return tuple(
        Test(block=block, baseline=_figure(*baseline), other=_figure(*other), judgement=judgement)
        for (block, baseline, other), judgement in zip(contests, judgements, strict=True)
    )


def _overall(contests: Sequence[Contest], alpha: float) -> tuple[Overall, ...]:
    pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for _, (baseline, reference), (side, values) in contests:
        pairs[side, baseline].append((reference, values))
    means = {sides: geometric_mean(of_sides, alpha=alpha) for sides, of_sides in pairs.items() if len(of_sides) > 1}
    return tuple(Overall(side=side, baseline=base, mean=mean) for (side, base), mean in means.items() if mean)


def _contests(block: Block, facts: Facts, primary: Metric) -> list[Contest]:
    """Return the block's baseline against each of its other sides, if and where they have the metric."""
    samples = _samples(block, facts, primary)
    baseline = samples.pop(block.baseline, None)
    return [(block, (block.baseline, baseline), other) for other in samples.items()] if baseline else []


def _block_figures(block: Block, facts: Facts, tests: Sequence[Test], primary: Metric, alpha: float) -> BlockFigures:
    rows = [_row(metric, _samples(block, facts, metric), block.baseline, alpha) for metric in known_metrics(facts)]
    # The tested metric keeps the interval of its test: at another level it could contradict the verdict.
    tested = {test.other.side: test.judgement.shift for test in tests if test.block is block}
    rows = [replace(row, shifts=tested) if row.metric is primary else row for row in rows]
    return BlockFigures(block=block, rows=tuple(row for row in rows if row.figures))


def _row(metric: Metric, samples: Mapping[str, Sequence[float]], baseline: str, alpha: float) -> Row:
    reference = samples.get(baseline)
    return Row(
        metric=metric,
        figures={side: _figure(side, values) for side, values in samples.items()},
        shifts={
            side: estimate_shift(reference, values, alpha=alpha)
            for side, values in samples.items()
            if reference and side != baseline
        },
    )


def _figure(side: str, values: Sequence[float]) -> Figure:
    return Figure(side=side, runs=len(values), median=median(values), lowest=min(values), highest=max(values))
