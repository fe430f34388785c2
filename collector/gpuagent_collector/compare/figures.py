"""The figures of a comparison: per block and metric what each side has, how far apart they lie, and the verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuagent_collector.compare.cells import Block, Cell, Layout
from gpuagent_collector.compare.data import Facts
from gpuagent_collector.compare.statistics import Judgement, Shift, estimate_shift, judge
from gpuagent_collector.errors import CollectorError, MisuseError
from gpuagent_collector.metrics import BY_NAME, METRICS, Metric

Sample = tuple[str, Sequence[float]]
"""A side and the values of its runs."""

DEFAULT_PRIMARY = "throughput"
_WITHOUT_THROUGHPUT = "run_seconds"
"""What is tested where no run reports a throughput: every run has a duration."""


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
    """

    primary: Metric
    fell_back: bool
    delta: float
    alpha: float
    tests: tuple[Test, ...]
    blocks: tuple[BlockFigures, ...]


def compute_figures(layout: Layout, facts: Facts, *, metric: str | None, delta: float, alpha: float = 0.05) -> Figures:
    """Return all figures; `metric` is the primary one, None: throughput, or the run's duration where none reports it.

    Raises:
        MisuseError: there is no such metric.
        CollectorError: in no block have the baseline and another side both got it.
    """
    primary = _choose_primary(layout, facts, metric)
    tests = _test(layout, facts, primary, delta, alpha)
    return Figures(
        primary=primary,
        fell_back=metric is None and primary.name != DEFAULT_PRIMARY,
        delta=delta,
        alpha=alpha,
        tests=tests,
        blocks=tuple(_block_figures(block, facts, tests, primary, alpha) for block in layout.blocks),
    )


def values_of(cell: Cell, facts: Facts, metric: Metric) -> list[float]:
    """Return the metric of each of the cell's runs that has it."""
    found = (facts.metrics.get(run.run_id, {}).get(metric.name) for run in cell.runs)
    return [value for value in found if value is not None]


def _choose_primary(layout: Layout, facts: Facts, name: str | None) -> Metric:
    if name is not None and name not in BY_NAME:
        raise MisuseError(f"--metric {name} is unknown; there are: {', '.join(BY_NAME)}")
    for candidate in [name] if name else [DEFAULT_PRIMARY, _WITHOUT_THROUGHPUT]:
        if any(_contests(block, facts, BY_NAME[candidate]) for block in layout.blocks):
            return BY_NAME[candidate]
    shared = [metric.name for metric in METRICS if any(_contests(block, facts, metric) for block in layout.blocks)]
    has = f"they have: {', '.join(shared)}" if shared else "nor any other; their agents stored no figures"
    raise CollectorError(f"no side and its baseline both have the metric {name or DEFAULT_PRIMARY}; {has}")


def _samples(block: Block, facts: Facts, metric: Metric) -> dict[str, list[float]]:
    """Return the values of each side that has some, in the sides' order."""
    return {cell.side: values for cell in block.cells if (values := values_of(cell, facts, metric))}


def _test(layout: Layout, facts: Facts, primary: Metric, delta: float, alpha: float) -> tuple[Test, ...]:
    contests = [contest for block in layout.blocks for contest in _contests(block, facts, primary)]
    judgements = judge([(baseline, other) for _, (_, baseline), (_, other) in contests], delta=delta, alpha=alpha)
    return tuple(
        Test(block=block, baseline=_figure(*baseline), other=_figure(*other), judgement=judgement)
        for (block, baseline, other), judgement in zip(contests, judgements, strict=True)
    )


def _contests(block: Block, facts: Facts, primary: Metric) -> list[tuple[Block, Sample, Sample]]:
    """Return the block's baseline against each of its other sides, if and where they have the metric."""
    samples = _samples(block, facts, primary)
    baseline = samples.pop(block.baseline, None)
    return [(block, (block.baseline, baseline), other) for other in samples.items()] if baseline else []


def _block_figures(block: Block, facts: Facts, tests: Sequence[Test], primary: Metric, alpha: float) -> BlockFigures:
    rows = [_row(metric, _samples(block, facts, metric), block.baseline, alpha) for metric in METRICS]
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
