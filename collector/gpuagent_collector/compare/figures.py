"""The figures of a comparison: tests of one metric, a table of all, and what warnings are derived from."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuagent_collector.metrics import METRICS, Metric, by_group
from gpuagent_collector.runs.cells import CANCELLED, UNFINISHED, Block, Cell, Layout
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.specs import SpecRow
from gpuagent_collector.statistics.shift import Pair, Shift, estimate_shift
from gpuagent_collector.statistics.summaries import GeometricMean, geometric_mean
from gpuagent_collector.statistics.verdicts import Judgement, judge
from gpuagent_common.errors import GpuAgentError, MisuseError

# A side and the values of its runs.
Sample = tuple[str, Sequence[float]]

# A block, its baseline and another of its sides.
Contest = tuple[Block, Sample, Sample]

# Tested unless another metric is named, in this order: a run without throughput still has a duration.
DEFAULT_PRIMARIES = ("throughput", "run_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric of one cell, over the `runs` runs that have it."""

    side: str
    runs: int
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one block.

    Attributes:
        figures: by side; without sides that have no readings.
        shifts: by side, from the baseline; only where both have the metric.
    """

    metric: Metric
    figures: Mapping[str, Figure]
    shifts: Mapping[str, Shift]


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One comparison of the primary metric: the verdict on `other` against `baseline`."""

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
        primary: the tested metric; all others only have intervals.
        fell_back: no run reports the default primary metric, so another one was tested.
        delta: the share that counts as equal.
        alpha: the error rate over all tests together.
        overall: for each side with the same baseline in several blocks, where all values are positive.
    """

    primary: Metric
    fell_back: bool
    delta: float
    alpha: float
    tests: tuple[Test, ...]
    overall: tuple[Overall, ...]
    blocks: tuple[BlockFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers behind the figures of a cell.

    Attributes:
        succeeded: runs that did.
        missing: those of them without the primary metric.
        failed: runs that ended otherwise, by status, except cancelled ones.
        cancelled: runs that the user stopped.
        unfinished: runs that have not ended.
        nodes, devices: different ones that the succeeded runs used.
    """

    succeeded: int
    missing: int
    failed: Mapping[str, int]
    cancelled: int
    unfinished: int
    nodes: int
    devices: int


def count(cell: Cell, facts: Facts, primary: Metric) -> Counts:
    """Count the runs, nodes and GPUs of a cell."""

    def different(records: Mapping[str, list[Mapping[str, object]]], key: str) -> int:
        return len({record[key] for run in cell.runs for record in records.get(run.run_id, [])})

    return Counts(
        succeeded=len(cell.runs),
        missing=len(cell.runs) - len(facts.values(cell.runs, primary.name)),
        failed={status: n for status, n in cell.others.items() if status not in (*UNFINISHED, CANCELLED)},
        cancelled=cell.others.get(CANCELLED, 0),
        unfinished=sum(number for status, number in cell.others.items() if status in UNFINISHED),
        nodes=different(facts.sessions, "node_id"),
        devices=different(facts.devices, "device_id"),
    )


def compute_figures(layout: Layout, facts: Facts, *, metric: str | None, delta: float, alpha: float = 0.05) -> Figures:
    """Return all figures; `metric` is the primary one, None: the first of DEFAULT_PRIMARIES that runs have.

    Raises:
        MisuseError: there is no such metric.
        GpuAgentError: in no block have the baseline and another side both got it.
    """
    known = by_group((*METRICS, *facts.derived))
    primary = _choose_primary(layout, facts, {each.name: each for each in known}, metric)
    contests = [contest for block in layout.blocks for contest in _contests(block, facts, primary)]
    judgements = judge([(baseline, other) for _, (_, baseline), (_, other) in contests], delta=delta, alpha=alpha)
    tests = tuple(
        Test(block=block, baseline=_figure(*baseline), other=_figure(*other), judgement=judgement)
        for (block, baseline, other), judgement in zip(contests, judgements, strict=True)
    )
    return Figures(
        primary=primary,
        fell_back=metric is None and primary.name != DEFAULT_PRIMARIES[0],
        delta=delta,
        alpha=alpha,
        tests=tests,
        overall=_overall(contests, alpha),
        blocks=tuple(_block_figures(block, facts, known, tests, primary, alpha) for block in layout.blocks),
    )


def _choose_primary(layout: Layout, facts: Facts, known: Mapping[str, Metric], name: str | None) -> Metric:
    if name is not None and name not in known:
        raise MisuseError(f"--metric {name} is unknown; there are: {', '.join(known)}")
    shared = [each for each in known.values() if any(_contests(block, facts, each) for block in layout.blocks)]
    for candidate in [name] if name else DEFAULT_PRIMARIES:
        if known[candidate] in shared:
            return known[candidate]
    has = f"they have: {', '.join(each.name for each in shared)}" if shared else "they have no figures in common"
    raise GpuAgentError(f"no side and its baseline both have the metric {name or DEFAULT_PRIMARIES[0]}; {has}")


def _samples(block: Block, facts: Facts, metric: Metric) -> dict[str, list[float]]:
    """Return the values of each side that has some, in the sides' order."""
    found = {cell.side: facts.values(cell.runs, metric.name) for cell in block.cells}
    return {side: values for side, values in found.items() if values}


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


def _block_figures(
    block: Block, facts: Facts, known: Sequence[Metric], tests: Sequence[Test], primary: Metric, alpha: float
) -> BlockFigures:
    rows = [_row(metric, _samples(block, facts, metric), block.baseline, alpha) for metric in known]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The data that checks read."""

    layout: Layout
    facts: Facts
    figures: Figures
    specs: tuple[SpecRow, ...]

    @property
    def sides(self) -> Mapping[str, list[Run]]:
        """The succeeded runs of each side."""
        return {side: self.layout.runs_of(side) for side in self.layout.sides}

    def sides_where(self, concerns: Callable[[Run], bool]) -> str:
        """Return the number of runs of each side for which `concerns` is true, in words; '' for none."""
        counts = {side: (sum(map(concerns, runs)), len(runs)) for side, runs in self.sides.items()}
        return ", ".join(f"{number} of {runs} {side}" for side, (number, runs) in counts.items() if number)

    def sides_above(self, metric: str, bound: float) -> str:
        """Return the number of runs of each side whose figure is above a bound, in words; '' for none."""
        return self.sides_where(lambda run: (self.facts.value(run, metric) or 0) > bound)

    def highest(self, metric: str) -> float:
        """Return the highest figure of all runs; 0 when no run has it."""
        return max((value for runs in self.sides.values() for value in self.facts.values(runs, metric)), default=0.0)
