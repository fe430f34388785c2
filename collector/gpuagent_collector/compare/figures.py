"""The figures of a comparison: tests of one metric, a table of all, and what warnings are derived from."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isnan, log, log1p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuagent_collector.metrics import BY_NAME, STEPS, Metric, hint_at
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN, currencies_of
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.runs.arguments import Command, identify_command, parse_arguments, record_command
from gpuagent_collector.runs.cells import CANCELLED, EXCLUDED, UNFINISHED, Block, Cell, Layout, match_runs
from gpuagent_collector.runs.data import Facts, Run, distinct
from gpuagent_collector.runs.specs import SpecRow
from gpuagent_collector.runs.words import write_command
from gpuagent_collector.statistics.shift import Floats, Scale, Shift, Sides, Values, estimate_shift, least_pairs
from gpuagent_collector.statistics.strata import stratified_shift
from gpuagent_collector.statistics.summaries import GeometricMean, geometric_mean, median
from gpuagent_collector.statistics.verdicts import Judgement, Verdict, judge
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.program_name import is_step_size
from gpuagent_common.text import counted

if TYPE_CHECKING:
    from gpuagent_collector.compare.needed import Needed

# Returns the values of a block's baseline and of another of its sides.
ValuesOf = Callable[[Block, str, Metric], Sides]

# Tested unless another metric is named, in this order: a run without throughput still has a duration.
DEFAULT_PRIMARIES = ("throughput", "run_seconds")
# What a whole run takes, by the begins of the metrics' names.
OF_RUNS = ("run_seconds", "gpu_energy_run_", f"{COST_PER_RUN.stem}_")
# Of a server that is sent requests at a given rate: it answers at that rate, sooner or later.
_OPEN_LOAD_PRIMARIES = ("highest_rate", "highest_scale", "ttft_p90_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric of one cell, over the `runs` runs that have it, and their values in the order of the runs."""

    side: str
    runs: int
    median: float
    lowest: float
    highest: float
    values: Floats = field(compare=False)


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class Row:
    """One metric of one block.

    Attributes:
        unit: of its figures; of throughput the run's own, such as images/s.
        figures: by side; without sides that have no readings.
        find_shifts: returns the shifts.
    """

    metric: Metric
    unit: str
    figures: Mapping[str, Figure]
    find_shifts: Callable[[], Mapping[str, Shift]] = field(compare=False)

    @cached_property
    def shifts(self) -> Mapping[str, Shift]:
        """The shifts by side, from the baseline; only where both have the metric. Most are of rows not shown."""
        return self.find_shifts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One comparison of the primary metric: the verdict on `other` against `baseline`.

    Attributes:
        pairs: number of pairs of matched runs that were tested; None: the runs are independent.
    """

    block: Block
    unit: str
    baseline: Figure
    other: Figure
    pairs: int | None
    judgement: Judgement

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the other side and of the baseline."""
        return self.other.side, self.baseline.side


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """The primary metric's ratios of `side` to `baseline` over several blocks.

    Attributes:
        mean: their geometric mean, which is not tested.
        shift: the ratio that they have in common, with the test of all of them together; None: too many runs for it.
        runs: of the side and of the baseline, over all blocks.
        is_split: whether some block is shown to differ one way, and another one the other way.
        is_equal: whether each block is shown to be the same.
        is_far_apart: whether some block is shown not to have the ratio of the test of all.
    """

    side: str
    baseline: str
    mean: GeometricMean
    shift: Shift | None
    runs: tuple[int, int]
    is_split: bool
    is_equal: bool
    is_far_apart: bool

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the other side and of the baseline, as those of its tests."""
        return self.side, self.baseline

    @property
    def common(self) -> Shift | None:
        """The ratio in common; None: it is unknown, or blocks that differ both ways have none."""
        return None if self.is_split else self.shift

    @property
    def is_shown(self) -> bool:
        """Return whether all blocks together are shown to differ."""
        return self.common is not None and self.common.is_shown and not self.is_equal

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on all blocks together; None: they have no common ratio, and a mean is not tested."""
        if self.is_equal:
            return Verdict.EQUAL
        if self.common is None:
            return None
        if self.common.is_shown:
            return Verdict.DIFFERS
        return Verdict.TOO_FEW if self.common.low is None else Verdict.NOT_SHOWN


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class BlockFigures:
    """All metrics of one block, which are found when they are asked for: a first screen shows none of them.

    Attributes:
        metrics: those that runs can have.
        find_row: returns the row of one of them, which may be empty.
    """

    block: Block
    metrics: tuple[Metric, ...]
    find_row: Callable[[Metric], Row] = field(compare=False)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The metrics that runs have."""
        return tuple(row for row in map(self.find_row, self.metrics) if row.figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a comparison.

    Attributes:
        primary: the tested metric; all others only have intervals.
        fell_back: throughput is not reported, or of steps of different sizes, so the duration was tested.
        delta: the share that counts as equal.
        alpha: the error rate over all tests together.
        unpaired: whether matched runs too are taken as independent, because that was asked for.
        overall: for each side with the same baseline in several blocks, where all values are positive.
    """

    primary: Metric
    fell_back: bool
    delta: float
    alpha: float
    unpaired: bool
    tests: tuple[Test, ...]
    overall: tuple[Overall, ...]
    blocks: tuple[BlockFigures, ...]

    @property
    def differing(self) -> set[tuple[str, str]]:
        """The sides and baselines between which some block shows a difference."""
        return {test.sides for test in self.tests if test.judgement.verdict is Verdict.DIFFERS}

    @property
    def differs(self) -> bool:
        """Return whether a difference is shown, in some block or in all of them together."""
        return bool(self.differing) or any(overall.is_shown for overall in self.overall)

    @property
    def are_level(self) -> bool:
        """Return whether several sides of one block have equal medians."""
        medians = {side.median for test in self.tests for side in (test.baseline, test.other)}
        return len(self.blocks) == 1 and len(self.tests) > 1 and len(medians) == 1

    def find_test(self, block: Block, side: str) -> Test | None:
        """Return the test of a side of a block; None: there is none."""
        return next((test for test in self.tests if test.block is block and test.other.side == side), None)

    def tests_of(self, overall: Overall) -> list[Test]:
        """Return the tests of the same two sides, one for each block."""
        return [test for test in self.tests if test.sides == overall.sides]


def count(cell: Cell, facts: Facts, primary: Metric) -> dict[str, Any]:
    """Return the numbers of runs of a cell by how they ended, those that lack the primary metric, and nodes and GPUs.

    Runs that failed are by status, without cancelled ones.
    """
    nodes = {session["node_id"] for sessions in distinct(facts.sessions, cell.runs) for session in sessions}
    devices = {device["device_id"] for found in distinct(facts.devices, cell.runs) for device in found}
    return {
        "succeeded": len(cell.runs),
        "missing": len(cell.runs) - len(facts.array(cell.runs, primary.name)),
        "failed": {status: n for status, n in cell.others.items() if status not in (*UNFINISHED, CANCELLED, EXCLUDED)},
        "cancelled": cell.others.get(CANCELLED, 0),
        "unfinished": sum(number for status, number in cell.others.items() if status in UNFINISHED),
        "nodes": len(nodes),
        "devices": len(devices),
    }


def compute_figures(
    layout: Layout, facts: Facts, *, metric: str | None, delta: float, alpha: float = 0.05, unpaired: bool = False
) -> Figures:
    """Return all figures.

    Args:
        layout: the runs to compare.
        facts: about these runs.
        metric: the primary one; None: the first of `default_primaries` that runs have.
        delta: the share that counts as equal.
        alpha: the error rate over all tests, and all looks of an experiment that may stop early.
        unpaired: whether matched runs too are taken as independent.

    Raises:
        MisuseError: there is no such metric.
        GpuAgentError: in no block have the baseline and another side both got it, or no run where nothing is compared.
    """
    # Each look could have been the last: errors at all of them together are at most alpha (Bonferroni).
    alpha /= layout.looks
    known = known_metrics(layout.runs, facts)
    primary = _choose_primary(layout, facts, {each.name: each for each in known}, metric)
    tested = layout.blocks if layout.is_compared else ()
    contests = [
        Contest(block, block.baseline, side) for block in tested for side in _contestants(block, facts, primary)
    ]
    pairs: Pairs = {}
    judged = judge_contests(
        contests,
        lambda _block, runs: facts.column(runs, primary.name),
        delta=delta,
        alpha=alpha,
        unpaired=unpaired,
        pairs=pairs,
    )
    tests = tuple(
        Test(
            block=contest.block,
            unit=_unit(contest.block, facts, primary),
            baseline=_figure(contest.block, contest.baseline, facts, primary),
            other=_figure(contest.block, contest.side, facts, primary),
            pairs=len(sides.other) if sides.matched else None,
            judgement=judgement,
        )
        for contest, (sides, judgement) in zip(contests, judged, strict=True)
    )
    of_block = partial(values_of_sides, facts, _least_pairs(contests, alpha, unpaired=unpaired), pairs=pairs)
    return Figures(
        primary=primary,
        fell_back=layout.is_compared and metric is None and primary.name == DEFAULT_PRIMARIES[-1],
        delta=delta,
        alpha=alpha,
        unpaired=unpaired,
        tests=tests,
        overall=_overall(tests, [sides for sides, _ in judged], alpha),
        blocks=tuple(
            _block_figures(block, facts, tests, primary, of_block if layout.is_compared else None, alpha)
            for block in layout.blocks
        ),
    )


def known_metrics(runs: Sequence[Run], facts: Facts) -> tuple[Metric, ...]:
    """Return the metrics that are known, with the runs' own unit of work in their units and titles."""
    unit, units = facts.unit(runs, BY_NAME["throughput"]), facts.throughput_units(runs)
    work = "million steps" if units == {STEPS} else "million items or steps" if STEPS in units else "million items"
    known = (replace(each, title=each.title.replace("million items", work)) for each in facts.known)
    return tuple(replace(each, unit=unit) if each.name == "throughput" else each for each in known)


class Contest(NamedTuple):
    """Two sides of a block that are tested against each other."""

    block: Block
    baseline: str
    side: str


# Returns the figure of each of some runs of a block; NaN: absent.
FiguresOf = Callable[[Block, Sequence[Run]], Floats]
# (id of a block, baseline, side) → the baseline's runs and in the same order those of the side made with them.
Pairs = dict[tuple[int, str, str], tuple[tuple[Run, ...], ...]]


def judge_contests(
    contests: Sequence[Contest],
    figures_of: FiguresOf,
    *,
    delta: float,
    alpha: float,
    unpaired: bool = False,
    pairs: Pairs | None = None,
) -> list[tuple[Sides, Judgement]]:
    """Return the values of each contest and the verdict on its side, all of them tested as one family.

    Args:
        contests: in each, both sides have some figure.
        figures_of: the figures that are tested.
        delta: the share that counts as equal.
        alpha: the error rate over all of them.
        unpaired: whether matched runs too are taken as independent.
        pairs: the matched runs that are known; found ones are added.
    """
    pairs = {} if pairs is None else pairs
    needed = _least_pairs(contests, alpha, unpaired=unpaired)
    families = [_match_values(contest, figures_of, needed, pairs) for contest in contests]
    judgements = judge(families, delta=delta, alpha=alpha)
    for number, contest in enumerate(contests):
        is_equal = judgements[number].verdict is Verdict.EQUAL
        if is_equal and _are_commands_apart(contest, figures_of, pairs, delta):
            judgements[number] = replace(judgements[number], verdict=Verdict.NOT_SHOWN)
    return list(zip(families, judgements, strict=True))


def _least_pairs(contests: Sequence[Contest], alpha: float, *, unpaired: bool) -> int | None:
    """Return the pairs that are tested as such; None: none are.

    With fewer the signed-rank test can show nothing at all in so many comparisons.
    """
    return None if unpaired else least_pairs(max(1, len(contests)), alpha)


def _match_values(contest: Contest, figures_of: FiguresOf, needed: int | None, pairs: Pairs) -> Sides:
    """Return the values of both sides: matched where so many pairs as needed have them."""
    block = contest.block
    if needed is not None:
        before, after = (figures_of(block, runs) for runs in _find_pairs(contest, pairs))
        known = ~np.isnan(before + after)
        if np.count_nonzero(known) >= needed:
            return Sides(before[known], after[known], matched=True)
    before, after = (figures_of(block, block.cell(side).runs) for side in (contest.baseline, contest.side))
    return Sides(before[~np.isnan(before)], after[~np.isnan(after)])


def _find_pairs(contest: Contest, known: Pairs) -> tuple[tuple[Run, ...], ...]:
    """Return the matched runs, looked for once; twice nothing: they are independent."""
    block, baseline, side = contest
    if (id(block), baseline, side) not in known:
        matched = match_runs(block.cell(baseline), block.cell(side))
        known[id(block), baseline, side] = tuple(zip(*matched, strict=True)) or ((), ())
    return known[id(block), baseline, side]


def _are_commands_apart(contest: Contest, figures_of: FiguresOf, known: Pairs, delta: float) -> bool:
    """Return whether one command's own pairs are further apart than what is equal; the middle of all hides that."""
    pairs = _find_pairs(contest, known)
    by_command: dict[object, tuple[list[float], list[float]]] = {}
    figures = (figures_of(contest.block, runs).tolist() for runs in pairs)
    for run, one, two in zip(pairs[0], *figures, strict=True):
        if not isnan(one + two):
            of_command = by_command.setdefault(identify_command(run.command), ([], []))
            of_command[0].append(one)
            of_command[1].append(two)
    middles = [estimate_shift(*pair, matched=True) for pair in by_command.values()] if len(by_command) > 1 else []
    return any(abs(log(each.estimate)) > log1p(delta) for each in middles if each.scale is Scale.RATIO)


def is_work_unlike(block: Block, facts: Facts) -> bool:
    """Return whether a unit of throughput is other work on its sides, so that speeds cannot be compared.

    Some count steps and others items, or all count steps, and their commands have other batch sizes.
    """
    units = facts.throughput_units(block.runs)
    if len(units) > 1:
        return True
    sizes: set[frozenset[Command]] = set()
    for cell in block.cells:
        if cell.runs:
            sizes.add(frozenset(_find_sizes(command) for command in {run.command for run in cell.runs}))
    # Where all sides have the same ones, each command is compared with itself.
    return len(sizes) > 1 and units == {STEPS}


def _find_sizes(command: Command) -> Command:
    """Return the arguments of a command that decide how much a step does, in the order of their names."""
    return tuple(f"{name}={value}" for name, value in sorted(parse_arguments(command).items()) if is_step_size(name))


def name_work(runs: Sequence[Run], facts: Facts) -> str:
    """Return the unit of work of the runs' throughputs: step where all of them count steps, else item."""
    return "step" if facts.throughput_units(runs) == {STEPS} else "item"


# Of the metrics in an error.
_MOST_NAMED = 5


def is_open_load(block: Block) -> bool:
    """Return whether a server was sent requests at a given rate, which decides its throughput."""
    return block.workload == SERVING and block.parameters.get("concurrency") is None


def default_primaries(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return the metrics that are tested unless one is named: the first that the runs have."""
    if blocks and all(map(is_open_load, blocks)):
        return (*_OPEN_LOAD_PRIMARIES, *DEFAULT_PRIMARIES)
    return DEFAULT_PRIMARIES


def _choose_primary(layout: Layout, facts: Facts, known: Mapping[str, Metric], name: str | None) -> Metric:
    if name is not None and name not in known:
        raise MisuseError(_why_unknown(name, known, facts))
    found = _contestants if layout.is_compared else _sides_with
    usual = default_primaries(layout.blocks)
    if layout.is_compared and any(is_work_unlike(block, facts) for block in layout.blocks):
        usual = DEFAULT_PRIMARIES[1:]
    for candidate in [name] if name else usual:
        if any(found(block, facts, known[candidate]) for block in layout.blocks):
            return known[candidate]
    shared = [each for each in known.values() if any(found(block, facts, each) for block in layout.blocks)]
    if name is None and not layout.is_compared:
        return shared[0] if shared else known[DEFAULT_PRIMARIES[0]]
    names = ", ".join(each.name for each in shared[:_MOST_NAMED])
    more = f" and {len(shared) - _MOST_NAMED} more" if shared[_MOST_NAMED:] else ""
    has = f"they have {names}{more}" if shared else "they have no figures in common"
    if name and currencies_of([known[name]]) and (why := why_unpriced(facts)):
        has = f"{why}; add or change a price (docs/cost.md)"
    if name and not any(_sides_with(block, facts, known[name]) for block in layout.blocks):
        # A program of the user's own prints its results.
        command = next((run.command for run in layout.runs_of(layout.sides[0]) if run.command), None)
        if known[name].group == "Result" and command:
            has = f"to record it, name the line that prints it: `{record_command(command, name)}`"
        raise GpuAgentError(f"no run has the metric {name}; {has}")
    cells = [cell for block in layout.blocks for cell in block.cells]
    without = {cell.side for cell in cells if not any(facts.has(cell.runs, each) for each in known)}
    if name is None and without:
        sides = ", ".join(sorted(without))
        raise GpuAgentError(f"no figure of {sides} is stored; if the runs have just ended, try again in a moment")
    raise GpuAgentError(f"no side and its baseline both have the metric {name or DEFAULT_PRIMARIES[0]}; {has}")


def _why_unknown(name: str, known: Mapping[str, Metric], facts: Facts) -> str:
    """Return what a metric lacks: prices, or another name."""
    if name.partition(":")[0] in BY_NAME:
        return f"--metric {name} is unknown; {hint_at(name, known)}"
    if facts.prices is None:
        return f"--metric {name} needs prices: add --prices FILE (docs/cost.md)"
    if why := why_unpriced(facts):
        return f"no run has {name}: {why}; add the price to {facts.prices} (docs/cost.md)"
    return f"no run has {name}; with {facts.prices} there are: {', '.join(each.name for each in facts.derived)}"


def _sides_with(block: Block, facts: Facts, metric: Metric) -> list[str]:
    """Return the sides that have the metric, in their order."""
    return [cell.side for cell in block.cells if facts.has(cell.runs, metric.name)]


def _contestants(block: Block, facts: Facts, metric: Metric) -> list[str]:
    """Return the sides that are compared with the block's baseline: those that have the metric, if it has it too."""
    sides = _sides_with(block, facts, metric)
    return [side for side in sides if side != block.baseline] if block.baseline in sides else []


def values_of_sides(
    facts: Facts, pairs_needed: int | None, block: Block, side: str, metric: Metric, *, pairs: Pairs | None = None
) -> Sides:
    """Return the values of the baseline and of a side: matched where enough pairs have the metric."""

    def figures_of(_block: Block, runs: Sequence[Run]) -> Floats:
        return facts.column(runs, metric.name)

    contest = Contest(block, block.baseline, side)
    return _match_values(contest, figures_of, pairs_needed, {} if pairs is None else pairs)


def _overall(tests: Sequence[Test], families: Sequence[Sides], alpha: float) -> tuple[Overall, ...]:
    blocks: dict[tuple[str, str], list[Sides]] = defaultdict(list)
    directions: dict[tuple[str, str], set[bool]] = defaultdict(set)
    verdicts: dict[tuple[str, str], set[Verdict]] = defaultdict(set)
    intervals: dict[tuple[str, str], list[Shift]] = defaultdict(list)
    for test, sides in zip(tests, families, strict=True):
        blocks[test.sides].append(sides)
        verdicts[test.sides].add(test.judgement.verdict)
        intervals[test.sides].append(test.judgement.shift)
        if test.judgement.verdict is Verdict.DIFFERS:
            directions[test.sides].add(test.judgement.shift.estimate > test.judgement.shift.neutral)
    several = {names: of_names for names, of_names in blocks.items() if len(of_names) > 1}
    found = []
    for names, strata in several.items():
        side, baseline = names
        mean = geometric_mean(strata, alpha=alpha)
        if mean is None:
            continue
        # All sides that are compared with a baseline are one family (Bonferroni).
        shift = stratified_shift(strata, alpha=alpha / len(several))
        runs = sum(len(sides.other) for sides in strata), sum(len(sides.baseline) for sides in strata)
        is_split = len(directions[names]) > 1
        is_equal = verdicts[names] == {Verdict.EQUAL}
        found.append(
            Overall(
                side=side,
                baseline=baseline,
                mean=mean,
                shift=shift,
                runs=runs,
                is_split=is_split,
                is_equal=is_equal,
                is_far_apart=shift is not None and any(each.excludes(shift.estimate) for each in intervals[names]),
            )
        )
    return tuple(found)


def _block_figures(
    block: Block,
    facts: Facts,
    tests: Sequence[Test],
    primary: Metric,
    values_of: ValuesOf | None,
    alpha: float,
) -> BlockFigures:
    """Return the rows of a block; without shifts where there is no `values_of`, because nothing is compared."""
    # The tested metric keeps the interval of its test: at another level it could contradict the verdict.
    tested = {test.other.side: test.judgement.shift for test in tests if test.block is block}

    def shifts(metric: Metric) -> Mapping[str, Shift]:
        if values_of is None:
            return {}
        if metric.name == primary.name:
            return tested
        sides = _contestants(block, facts, metric)
        return {side: estimate_shift(*values_of(block, side, metric), alpha=alpha) for side in sides}

    def find_row(metric: Metric) -> Row:
        return Row(
            metric=metric,
            unit=_unit(block, facts, metric),
            figures={side: _figure(block, side, facts, metric) for side in _sides_with(block, facts, metric)},
            find_shifts=partial(shifts, metric),
        )

    known = known_metrics(block.runs, facts)
    if is_work_unlike(block, facts):
        # A million of one side's units is other work than a million of another's.
        known = tuple(each for each in known if not each.name.startswith(f"{COST_PER_MILLION_ITEMS.stem}_"))
    return BlockFigures(block=block, metrics=known, find_row=find_row)


def _unit(block: Block, facts: Facts, metric: Metric) -> str:
    return facts.unit(block.runs, metric)


def _figure(block: Block, side: str, facts: Facts, metric: Metric) -> Figure:
    return make_figure(side, facts.array(block.cell(side).runs, metric.name))


def make_figure(side: str, values: Values) -> Figure:
    """Return the median and range of at least one value."""
    array = np.asarray(values, dtype=np.float64)
    lowest, highest = float(array.min()), float(array.max())
    return Figure(side=side, runs=array.size, median=median(array), lowest=lowest, highest=highest, values=array)


# More sides are counted together in warnings.
_MOST_COUNTED = 2

# Of each run, whether something holds.
Flags = Sequence[bool] | NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class Observed:
    """The runs of each side, with the facts about them."""

    layout: Layout
    facts: Facts

    @cached_property
    def sides(self) -> Mapping[str, tuple[Run, ...]]:
        """The succeeded runs of each side."""
        return {side: self.layout.runs_of(side) for side in self.layout.sides}

    def sides_where(self, concerns: Callable[[Sequence[Run]], Flags]) -> str:
        """Return the number of runs of each side for which `concerns` has true, in words; '' for none."""
        numbers = {side: int(np.count_nonzero(concerns(runs))) for side, runs in self.sides.items()}
        known = {side: (number, len(self.sides[side])) for side, number in numbers.items() if number}
        some, every = sum(number for number, _ in known.values()), sum(map(len, self.sides.values()))
        if known and some == every:
            return {1: "this run", 2: "both runs"}.get(every, f"all {every:,} runs")
        if known and len(self.sides) == 1:
            return f"{some:,} of {every:,} runs"
        facet, listed = self.layout.facet, []
        if len(known) > _MOST_COUNTED:
            most = max(known, key=lambda side: known[side][0] / known[side][1])
            of_most = f"{known[most][0]:,} of {known[most][1]:,} {facet.where(most)}"
            return f"{some:,} of {every:,} runs, such as {of_most}"
        for side, (number, runs) in known.items():
            of_side = f"all {runs:,} runs" if number == runs > 1 else f"{number:,} of {counted(runs, 'run')}"
            listed.append(f"{of_side} {facet.where(side)}")
        return ", ".join(listed)

    def sides_among(self, run_ids: Collection[str]) -> str:
        """Return the number of runs of each side that are among these, in words; '' for none."""
        return self.sides_where(lambda runs: [run.run_id in run_ids for run in runs]) if run_ids else ""

    def sides_above(self, metric: str, bound: float) -> str:
        """Return the number of runs of each side whose figure is above a bound, in words; '' for none."""
        return self.sides_where(lambda runs: self.facts.column(runs, metric) > bound)

    def highest(self, metric: str) -> float:
        """Return the highest figure of all runs; 0 when no run has it."""
        return max((value for runs in self.sides.values() for value in self.facts.values(runs, metric)), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Evidence(Observed):
    """The data that checks of a comparison read.

    Attributes:
        asked: the options of `collector compare` by which the runs were chosen, with their values.
        named: the sides that were asked for by name.
        needed: the repeats that would show what is open; None: nothing is, or no spread is known.
    """

    figures: Figures
    specs: tuple[SpecRow, ...]
    asked: Mapping[str, str | None]
    named: Sequence[str] = ()
    needed: "Needed | None" = None

    def command(self, **changed: str) -> str:
        """Return the command that compares these runs with other options, for a remedy; '' is a switch."""
        options = {**self.asked, **{f"--{name}": value for name, value in changed.items()}}
        if "by" in changed:  # the baseline is a value of another facet
            options.pop("--baseline", None)
        return f"`{write_command('compare', options, sides=() if 'by' in changed else self.named)}`"

    def has_everywhere(self, metric: str) -> bool:
        """Return whether each side of each block has the metric, so that it can be compared."""
        cells = [cell for block in self.layout.blocks for cell in block.cells if cell.runs]
        return all(self.facts.has(cell.runs, metric) for cell in cells)

    @property
    def is_by_facet(self) -> bool:
        """Return whether the sides are values of a facet, so that another --by can be asked for."""
        return not self.layout.facet.in_time
