"""A comparison: the request, its runs in groups, and the figures of both sides."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial

from gpuagent_collector.choices import PartKind, Stat
from gpuagent_collector.compare.because import OF_SPLITS, Because, differ_in_items, find_because, find_product
from gpuagent_collector.compare.caveats import OF_DISTURBANCES, find_caveats
from gpuagent_collector.compare.figures import (
    DEFAULT_PRIMARIES,
    OF_RUNS,
    BlockFigures,
    Contest,
    Evidence,
    Figures,
    Overall,
    Row,
    Test,
    compute_figures,
    is_work_unlike,
    judge_contests,
)
from gpuagent_collector.compare.needed import Needed, find_needed
from gpuagent_collector.compare.sweeps import Dependence, Options, find_options
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.metrics import STEPS, Better
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN, Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import USUAL_REPEATS
from gpuagent_collector.runs.cells import Block, Layout, LeftOut, choose_sides, lay_out, tell_apart
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.find import Choice, find_work, median_run
from gpuagent_collector.runs.like import like_key
from gpuagent_collector.runs.parts import Parts, load_parts
from gpuagent_collector.runs.releases import EVENTS, find_releases, load_states
from gpuagent_collector.runs.repeating import repeat_layout
from gpuagent_collector.runs.series import CHARTS, Course, load_courses
from gpuagent_collector.runs.specs import SpecRow, spec_rows
from gpuagent_collector.runs.words import write_command
from gpuagent_collector.statistics.shift import Shift
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import MisuseError
from gpuagent_common.program_name import find_step_size

SIDES = ("before", "after")

# The name of what separates the sides at a time.
AT_TIME = "time"


def lay_out_event(ask: Ask, runs: Sequence[Run], text: str) -> Layout:
    """Return the runs before and after the last event on each node, of runs that are the oldest first.

    Before is the time since the event of the same kind that preceded it. Nodes without such an event are left out.
    `text` is an event such as `driver`, or `driver=580.95` for the change to that value. A time, in UTC unless it has
    a zone, is one for all nodes.

    Raises:
        MisuseError: there is no such event.
        NothingToCompareError: no node has one with runs on both sides.
    """
    event, _, value = text.partition("=")
    if event in EVENTS:
        sided = _assign(ask, runs, event, value or None)
        change = f"a change of {text}"
    elif (time := _read_time(text)) is not None:
        sided = _divide_at(runs, time)
        event, change = AT_TIME, text
    else:
        named = event or "''"
        raise MisuseError(f"--before {named} is unknown; there are: {', '.join(EVENTS)}, or a time: 2026-11-29T03:01")
    if not sided:
        raise NothingToCompareError(f"nothing to compare: no node has runs on both sides of {change}")
    fixes = frozenset({event} & {"image"})
    facet = Facet(name=event, plural="times", expression="NULL", preposition="", fixes=fixes, in_time=True)
    layouts = []
    for node, of_node in sided.items():
        try:
            layout = lay_out(of_node, facet, SIDES)
        except NothingToCompareError:
            if len(sided) == 1:
                raise
            continue
        # The largest first within a node; nodes by name.
        layouts.append(
            replace(
                layout,
                blocks=tuple(replace(block, held={"node": node, **block.held}) for block in layout.blocks),
                left_out=tuple(replace(one, what=f"{one.what} on {node}") for one in layout.left_out),
            )
        )
    if not layouts:
        raise NothingToCompareError(f"nothing to compare: no node ran the same before and after {change}")
    return Layout(
        facet=facet,
        sides=SIDES,
        blocks=tuple(block for layout in layouts for block in layout.blocks),
        left_out=tuple(one for layout in layouts for one in layout.left_out),
    )


def _assign(ask: Ask, runs: Sequence[Run], event: str, value: str | None) -> Mapping[str, list[Run]]:
    """Return the runs on both sides of each node's event, with `before` or `after` as their side."""
    states = load_states(ask, runs, load_facts(ask, [run.run_id for run in runs]))
    by_node: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.started_at and run.node_count == 1 and event in states.get(run.run_id, {}):
            by_node[run.nodes or "unknown node"].append(run)
    sided = {}
    for node, of_node in sorted(by_node.items()):
        of_node.sort(key=lambda run: (run.started_at, run.run_id))
        places = [(index, release) for index, release in find_releases(of_node, states) if release.event == event]
        wanted = [number for number, (_, release) in enumerate(places) if value in (None, release.after)]
        if wanted:
            number = wanted[-1]
            start = places[number - 1][0] if number else 0
            change = places[number][0]
            end = places[number + 1][0] if number + 1 < len(places) else len(of_node)
            sided[node] = [
                replace(run, side=SIDES[index >= change]) for index, run in enumerate(of_node) if start <= index < end
            ]
    return sided


def _read_time(text: str) -> datetime | None:
    """Return the time that a text is, as the store holds times; None: it is no time."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return time.astimezone(timezone.utc).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):  # in UTC it may be before the first year
        return None


def _divide_at(runs: Sequence[Run], time: datetime) -> Mapping[str, list[Run]]:
    """Return the runs of each node that has some before a time and some from then on, with their side."""
    by_node: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.started_at and run.node_count == 1:
            by_node[run.nodes or "unknown node"].append(replace(run, side=SIDES[run.started_at >= time]))
    return {node: of_node for node, of_node in sorted(by_node.items()) if len({run.side for run in of_node}) > 1}


# The metrics that sentences, warnings and reasons usually read; any other takes reading all others.
_FIRST = sorted(
    {
        *(*DEFAULT_PRIMARIES, *OF_DISTURBANCES, *OF_SPLITS, "client_limited", "gpu_clock_unexplained_percent"),
        *("gpu_idle_percent", "measure_seconds", "steady_throughput", "steps_before_steady", "timed_throughput"),
        *("accuracy", "dram_active_percent", "loss"),
    }
)

# Points of a curve: two for each column that a wide terminal has for it.
_POINTS = 240
_BRIEF = tuple(chart for chart in CHARTS if chart.brief)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Choice):
    """A request for a comparison.

    Attributes:
        by: name of the facet that separates the sides; several are comma-separated.
        values: the facet's values to compare; empty: all.
        baseline: the value to compare with; None: the usual one, or the first.
        also: another condition, which the commands in answers do not repeat.
        stat: the statistic of sampled quantities; None: each metric's usual one.
        stats: further statistics of them, shown beside it.
        each: the parts of runs that have figures and curves of their own; None: none.
        metric: the primary metric; None: throughput, or the run's duration where no run reports it.
        delta: the share that counts as equal, above 0.
        unpaired: whether runs that an experiment made in pairs are tested as independent ones.
        event: compare runs before and after this event on each node, and not by a facet; None: by the facet.
        prices: of nodes and electricity; None: unknown.
        everything: whether metrics that matter less are shown too.
        series: whether time series of one run a side are wanted; only they read samples.
        every_chart: whether all time series are wanted, or the few that a terminal shows at once.
        every_status: whether runs count that did not succeed.
        described: whether runs are described and not tested, those with throughputs in other units apart.
        brief: whether most metrics are not shown, and are read only where something needs them.
    """

    by: str = "platform"
    values: Sequence[str] = ()
    baseline: str | None = None
    also: str | None = None
    stat: Stat | None = None
    stats: Sequence[Stat] = ()
    each: PartKind | None = None
    metric: str | None = None
    delta: float = 0.02
    unpaired: bool = False
    event: str | None = None
    prices: Prices | None = None
    everything: bool = False
    series: bool = True
    every_status: bool = False
    described: bool = False
    every_chart: bool = False
    brief: bool = False

    @property
    def is_usual(self) -> bool:
        """Return whether it says nothing about sides: the platforms are compared, if there are several."""
        return self.by == "platform" and self.event is None and not self.values and self.baseline is None

    @property
    def choice(self) -> Mapping[str, str | None]:
        """The options of a command that chooses the same runs and sides, with their values."""
        return {
            "--by": None if self.event or self.by == "platform" else self.by,
            "--before": self.event,
            **self.words,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison, or the description of one side, with everything that is shown of it.

    Attributes:
        runs: all that meet the request's conditions, also those in no block.
        courses: of the median run of each side of the first block, and of its parts; empty unless requested.
        parts: run_id → name of a part → metric → value; empty unless requested.
        needed: the repeats that would show what is open; None: nothing is, or no spread is known.
        again: the command that makes as many runs as are needed; None: unknown, or many.
        reasons: where shown differences of speed or duration come from, in the order of the tests.
        options: of a sweep, the tests of each option alone, over all values of the others.
        dependences: of a sweep, the options whose effects depend on each other, which are not among `options`.
        costs: the figures of the cost of several blocks; None: it is unknown, or the primary metric.
        experiments: where one was chosen, that and the others that could be, with their numbers of runs.
        is_uncounted: whether steps of several sizes were not compared, and new runs can count their items.
    """

    request: Request
    runs: Sequence[Run]
    layout: Layout
    facts: Facts
    figures: Figures
    specs: tuple[SpecRow, ...]
    caveats: tuple[Caveat, ...]
    needed: Needed | None
    again: str | None
    courses: tuple[Course, ...]
    parts: Parts
    reasons: tuple[Because, ...]
    options: Options = ()
    dependences: tuple[Dependence, ...] = ()
    costs: Figures | None = None
    experiments: Sequence[tuple[str, int]] = ()
    is_uncounted: bool = False

    @property
    def headline(self) -> Test | None:
        """The test of a sweep's best side, or where the baseline is best, of the next one; None: it is no sweep.

        A sweep has several sides in one block, and a metric of which more or less is better; where all medians are
        equal, no side is the best. Sides with too few runs are the best only where all have too few.
        """
        better, tests = self.figures.primary.better, self.figures.tests
        if better is None or len(self.layout.blocks) > 1 or len(tests) < 2 or self.figures.are_level:
            return None
        sign = 1 if better is Better.HIGHER else -1
        enough = [test for test in tests if test.judgement.verdict is not Verdict.TOO_FEW]
        return max(enough or tests, key=lambda test: sign * test.other.median)


def rank_sides(comparison: Comparison) -> list[Overall]:
    """Return the tests of several sides over all blocks, by their ratio to one baseline.

    Empty: there are no such, or the first or the last is shown not to be so in some block.
    """
    ordered = order_sides(comparison)
    if not ordered:
        return []
    ratios = {ordered[0].baseline: 1.0, **{one.side: one.common.estimate for one in ordered if one.common}}
    lowest, highest = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    for block in _tested_blocks(comparison):
        if _find_ahead(comparison, block, lowest, -1) or _find_ahead(comparison, block, highest, 1):
            return []
    return ordered


def order_sides(comparison: Comparison) -> list[Overall]:
    """Return the tests as `rank_sides`, also where blocks differ in which side is the first or the last."""
    overall = comparison.figures.overall
    ratios = {one.side: one.common.estimate for one in overall if one.common}
    is_known = comparison.figures.primary.better is not None and len(ratios) == len(overall) > 1
    if not is_known or len({one.baseline for one in overall}) > 1:
        return []
    return sorted(overall, key=lambda one: ratios[one.side])


def _tested_blocks(comparison: Comparison) -> list[BlockFigures]:
    tested = {id(test.block) for test in comparison.figures.tests}
    return [block for block in comparison.figures.blocks if id(block.block) in tested]


def _find_ahead(comparison: Comparison, block: BlockFigures, side: str, sign: int) -> bool:
    """Return whether another side of a block is shown to be above a side (`sign` 1), or below it (-1)."""
    figures = block.find_row(comparison.figures.primary).figures
    own = figures.get(side)
    ahead = [name for name, each in figures.items() if own and sign * each.median > sign * own.median]
    return any(_differ(comparison, block.block, side, name) for name in ahead)


def _differ(comparison: Comparison, block: Block, side: str, other: str) -> bool:
    """Return whether any two sides of a block are shown to differ, by a test of their own."""
    figures = comparison.figures
    ((_, judgement),) = judge_contests(
        [Contest(block, side, other)],
        lambda _block, runs: comparison.facts.column(runs, figures.primary.name),
        delta=figures.delta,
        alpha=figures.alpha,
        unpaired=figures.unpaired,
    )
    return judgement.verdict is Verdict.DIFFERS


def find_best_by_block(comparison: Comparison) -> dict[str | None, list[Block]]:
    """Return the blocks in which each side is shown to be better than all others; None: in which no side is."""
    primary, found = comparison.figures.primary, defaultdict(list)
    choose = max if primary.better is Better.HIGHER else min
    for block in _tested_blocks(comparison):
        medians = {side: figure.median for side, figure in block.find_row(primary).figures.items()}
        best = choose(medians, key=medians.__getitem__)
        is_shown = all(_differ(comparison, block.block, best, side) for side in medians if side != best)
        found[best if is_shown else None].append(block.block)
    return found


def find_best(comparison: Comparison) -> str | None:
    """Return which of several sides is best over all blocks of those shown to be better than the baseline, or else it.

    None: nothing is shown of all blocks together.
    """
    ranked, is_higher = rank_sides(comparison), comparison.figures.primary.better is Better.HIGHER
    shown = [one for one in ranked if one.is_shown and one.common and (one.common.estimate > 1) is is_higher]
    if shown:
        return shown[-1 if is_higher else 0].side
    return ranked[0].baseline if any(one.is_shown for one in ranked) else None


def cost_row(block: BlockFigures) -> Row | None:
    """Return the cost of a block: per million items, else per run; None: it is unknown, or in several currencies."""
    for kind in (COST_PER_MILLION_ITEMS, COST_PER_RUN):
        of_kind = [metric for metric in block.metrics if metric.name.startswith(f"{kind.stem}_")]
        # Without prices there are none, and no row needs to be found.
        rows = [row for row in block.rows if row.metric in of_kind] if of_kind else []
        if len(rows) == 1:
            return rows[0]
    return None


def _test_costs(layout: Layout, facts: Facts, figures: Figures) -> Figures | None:
    """Return the figures of the cost that most of several blocks have; None: there is none, or it is the primary."""
    rows = [cost_row(block) for block in figures.blocks]
    metrics = Counter(row.metric.name for row in rows if row and row.shifts)
    if len(rows) < 2 or not metrics or figures.primary.group == "Cost":
        return None
    ((metric, _),) = metrics.most_common(1)
    return compute_figures(layout, facts, metric=metric, delta=figures.delta, unpaired=figures.unpaired)


def telling_side(row: Row, baseline: str, best: str | None = None) -> str:
    """Return the side with the lowest cost of those that differ; where that is the baseline, `best` or the highest."""
    differing = [side for side, shift in row.shifts.items() if shift.is_shown] or [*row.shifts]
    lowest, *_, highest = sorted([baseline, *differing], key=lambda side: row.figures[side].median)
    if lowest != baseline:
        return lowest
    return best if best in differing else highest


def cost_shift(block: BlockFigures, side: str, costs: Figures | None) -> Shift | None:
    """Return the shift of a side's cost, of several blocks that of its test among the `costs`; None: it has none."""
    row = cost_row(block)
    test = costs.find_test(block.block, side) if costs and row and row.metric.name == costs.primary.name else None
    return test.judgement.shift if test else row.shifts.get(side) if row else None


def _is_cost_shown(block: BlockFigures, side: str, costs: Figures | None) -> bool:
    """Return whether a side's cost differs: by its own test, or as all blocks together are shown to differ."""
    row, shift = cost_row(block), cost_shift(block, side, costs)
    own = row.shifts.get(side) if row else None
    if shift is None or own is None or shift.is_shown or costs is None:
        return shift is not None and shift.is_shown
    sides = (side, block.block.baseline)
    common = [one.common.estimate for one in costs.overall if one.sides == sides and one.is_shown and one.common]
    return own.is_shown and any((estimate > 1) is (own.estimate > 1) for estimate in common)


def find_reasons(figures: Figures, facts: Facts, costs: Figures | None = None) -> Iterator[Because]:
    """Yield where each shown difference of speed, duration, energy or cost comes from, as far as that is known.

    `costs` have the tests of the cost of several blocks.
    """
    primary, whole_runs = figures.primary, figures.primary.name == "run_seconds"
    parts_of = partial(
        find_because,
        facts=facts,
        alpha=figures.alpha,
        unpaired=figures.unpaired,
        whole_runs=whole_runs,
        by_item=differ_in_items([block.block for block in figures.blocks], facts),
    )
    factors_of = partial(find_product, facts=facts, alpha=figures.alpha, unpaired=figures.unpaired)
    blocks = {id(block.block): block for block in figures.blocks}
    for test in figures.tests:
        shift, of_side = test.judgement.shift, (test.block, test.other.side)
        if shift.is_shown and primary.name in DEFAULT_PRIMARIES:
            because = parts_of(*of_side)
            # More throughput takes less time; what goes the other way does not explain it.
            is_longer = (shift.estimate > shift.neutral) is whole_runs
            if because and (because.difference > 0) is is_longer:
                yield because
        elif shift.is_shown and (because := factors_of(*of_side, metric=primary)):
            yield because
        cost = cost_row(blocks[id(test.block)])
        is_beside = cost is not None and cost.metric.name != primary.name
        if cost and is_beside and _is_cost_shown(blocks[id(test.block)], test.other.side, costs):
            because = factors_of(*of_side, metric=cost.metric)
            if because:
                yield because


def divide_by_unit(block: Block, facts: Facts) -> Iterator[Block]:
    """Yield the runs of a block by the units of their throughputs: units of the most sides, then runs, first.

    Runs without any are with the first unit that their side has.
    """
    unit_of = {run.run_id: unit for run in block.runs for unit in facts.throughput_units([run])}
    if len(set(unit_of.values())) < 2:
        yield block
        return
    by_cell = [{unit_of.get(run.run_id) for run in cell.runs} for cell in block.cells]
    units = [unit for unit, _ in Counter(unit_of.values()).most_common()]
    units.sort(key=lambda unit: -sum(unit in of_cell for of_cell in by_cell))
    for unit in units:
        cells = []
        for cell, of_cell in zip(block.cells, by_cell, strict=True):
            own = [each for each in units if each in of_cell] or units[:1]
            if unit in own:
                runs = tuple(run for run in cell.runs if unit_of.get(run.run_id, own[0]) == unit)
                cells.append(replace(cell, runs=runs, others=cell.others if unit == own[0] else {}))
        yield replace(block, held={**block.held, "unit": unit}, cells=tuple(cells))


def _hold_units(layout: Layout, facts: Facts) -> Layout:
    """Return a layout whose blocks have one unit of throughput each, as far as no side is lost by that.

    Beside a unit that can be compared, one that cannot is left out, also where a side has no other.
    """
    least = 2 if layout.is_compared else 1
    blocks, left_out = [], [*layout.left_out]
    for block in layout.blocks:
        parts = list(divide_by_unit(block, facts))
        kept = found = [part for part in parts if len({cell.side for cell in part.cells if cell.runs}) >= least]
        having, every = ({cell.side for part in some for cell in part.cells if cell.runs} for some in (kept, [block]))
        # Runs that count items say what those that count steps of other sizes cannot.
        alike = [part for part in kept if least == 1 or not is_work_unlike(part, facts)]
        if 0 < len(alike) < len(kept):
            kept = alike
        elif having != every:
            blocks.append(block)
            continue
        blocks += kept
        for part in (part for part in parts if part not in kept):
            left = LeftOut(side="", runs=0, what=tell_apart(part, [*layout.blocks, *parts]), is_unlike=part in found)
            left_out += [replace(left, side=cell.side, runs=len(cell.runs)) for cell in part.cells if cell.runs]
    having = {cell.side for block in blocks for cell in block.cells if cell.runs}
    sides = tuple(side for side in layout.sides if side in having)
    return replace(layout, sides=sides, blocks=tuple(blocks), left_out=tuple(left_out))


def _put_priced_first(layout: Layout, facts: Facts, runs: Sequence[Run]) -> Layout:
    """Return the layout with a baseline that has a cost, where two sides have one and the usual baseline has none."""
    stems = (COST_PER_RUN.stem, COST_PER_MILLION_ITEMS.stem)
    costs = [metric.name for metric in facts.derived if metric.name.startswith(stems)]
    priced = {side for side in layout.sides if any(facts.has(layout.runs_of(side), name) for name in costs)}
    if len(priced) < 2 or layout.sides[0] in priced:
        return layout
    first, *_ = choose_sides([run for run in runs if run.side in priced], layout.facet, (), None)
    sides = sorted(layout.sides, key=lambda side: (side != first, side not in priced))
    ordered = (sorted(block.cells, key=lambda cell: sides.index(cell.side)) for block in layout.blocks)
    blocks = (replace(block, cells=tuple(cells)) for block, cells in zip(layout.blocks, ordered, strict=True))
    return replace(layout, sides=tuple(sides), blocks=tuple(blocks))


# Sides that are places by themselves.
_PLACES = frozenset({"platform", "node", "device", "run"})


def _name_platform(ask: Ask, layout: Layout) -> Layout:
    """Return the layout with the platform of all its runs in the names of its blocks, where the store has others."""
    platforms = {run.platform for run in layout.runs}
    if len(platforms) > 1 or not layout.is_compared or layout.facet.in_time or _PLACES & layout.facet.names:
        return layout
    (store,) = ask("SELECT count(DISTINCT platform) AS platforms FROM sessions")
    if store["platforms"] < 2:
        return layout
    held = {"platform": platforms.pop()}
    named = (replace(block, held={**held, **block.held}, named=("platform", *block.named)) for block in layout.blocks)
    return replace(layout, blocks=tuple(named))


# What follows from a platform.
_OF_PLATFORMS = ("platform", "device", "node_count")


def _find_again(ask: Ask, layout: Layout, request: Request, repeats: int | None) -> str | None:
    """Return the command that makes so many more runs, or compares an experiment's only side with other platforms.

    None: it is unknown, or the runs are no repeats.
    """
    is_one = len(layout.sides) == 1
    if layout.facet.describes or (is_one and layout.facet.name in ("all", "run")):
        return None
    if is_one and request.experiment and not request.where:
        run = layout.runs[0]
        alike = like_key(run, *_OF_PLATFORMS)
        for other in find_work(ask, find_facet("platform"), workload=run.workload, experiment=None):
            is_elsewhere = other.platform != run.platform and other.status == "succeeded"
            if is_elsewhere and like_key(other, *_OF_PLATFORMS) == alike:
                return write_command("compare", {"--workload": run.workload})
    return repeat_layout(ask, layout, repeats)


def _lay_out(ask: Ask, request: Request, facet: Facet, runs: Sequence[Run]) -> Layout:
    if request.event is not None:
        return lay_out_event(ask, runs, request.event)
    return lay_out(
        runs,
        facet,
        choose_sides(runs, facet, request.values, request.baseline),
        described=request.described,
        chosen_by_name=bool(request.values),
        every_status=request.every_status,
    )


def _is_uncounted(block: Block, facts: Facts, figures: Figures) -> bool:
    """Return whether what whole runs take is tested of steps of several sizes, and new runs can count their items."""
    return (
        figures.primary.name.startswith(OF_RUNS)
        and is_work_unlike(block, facts)
        and facts.throughput_units(block.runs) == {STEPS}
        and find_step_size(run.command for run in block.runs) != ""
    )


def _load_courses(ask: Ask, request: Request, layout: Layout, facts: Facts, figures: Figures) -> Iterator[Course]:
    """Yield the curves of the median run of each side of the first block, and of its parts."""
    charts = CHARTS if request.every_chart else _BRIEF
    for cell in layout.blocks[0].cells:
        if cell.runs:
            run = median_run(cell.runs, facts, figures.primary.name)
            yield from load_courses(ask, run, facts, buckets=_POINTS, charts=charts, each=request.each)


def compare(ask: Ask, request: Request) -> Comparison:
    """Compare as requested, or describe the only side that there is.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    facet = find_facet(request.by)
    where = request.where or request.also
    if request.where and request.also:
        where = f"({request.where}\n) AND {request.also}"  # a comment may end the first
    runs = find_work(ask, facet, **{**request.conditions, "where": where})
    workloads = Counter(run.workload for run in runs if run.side is not None)
    if facet.argument == "" and len(workloads) > 1 and not request.values:
        raise MisuseError(
            f"--by {facet.name} compares the commands of one workload; name it: --workload "
            f"{workloads.most_common(1)[0][0]}; there are: {', '.join(workloads)}"
        )
    layout = _lay_out(ask, request, facet, runs)
    first = _FIRST if request.brief else ()
    facts = with_costs(ask, load_facts(ask, layout.run_ids, request.stat, request.stats, first), request.prices)
    layout = replace(layout, is_described=request.described)
    if request.experiment or request.where:
        layout = _name_platform(ask, layout)
    if not (request.values or request.baseline or request.event):
        layout = _put_priced_first(layout, facts, runs)
    if request.metric != "run_seconds":
        layout = _hold_units(layout, facts)
    # Equal repeats of one experiment's name before and after an event were not made together.
    unpaired = request.unpaired or request.event is not None
    figures = compute_figures(layout, facts, metric=request.metric, delta=request.delta, unpaired=unpaired)
    is_uncounted = _is_uncounted(layout.blocks[0], facts, figures)
    # More runs that count no items would show as little.
    needed = None if is_uncounted else find_needed(figures, facts)
    repeats = needed.repeats if needed else USUAL_REPEATS if is_uncounted else None
    undecided = layout
    if needed and facet.name == "node":  # more runs are of that workload alone
        workload = needed.test.block.workload
        undecided = replace(layout, blocks=tuple(block for block in layout.blocks if block.workload == workload))
    specs = spec_rows(layout, facts)
    evidence = Evidence(
        layout=layout,
        facts=facts,
        figures=figures,
        specs=specs,
        asked={
            **request.choice,
            "--baseline": request.baseline,
            "--metric": request.metric,
            "--prices": request.prices.source if request.prices else None,
        },
        named=request.values,
        needed=needed,
    )
    # Of one argument alone nothing is said about the others.
    is_of_several = len(facet.parts) > 1 or facet.argument == ""
    is_swept = is_of_several and len(figures.tests) > 1
    options, dependences = find_options(layout, facts, figures) if is_swept else ((), ())
    costs = _test_costs(layout, facts, figures)
    return Comparison(
        request=request,
        runs=runs,
        layout=layout,
        facts=facts,
        figures=figures,
        specs=specs,
        caveats=find_caveats(evidence),
        needed=needed,
        again=_find_again(ask, undecided, request, repeats),
        courses=tuple(_load_courses(ask, request, layout, facts, figures)) if request.series else (),
        parts=load_parts(ask, [run for run in runs if run.run_id in facts.metrics], facts, request.each)
        if request.each
        else {},
        reasons=tuple(find_reasons(figures, facts, costs)),
        options=options,
        dependences=dependences,
        costs=costs,
        is_uncounted=is_uncounted,
    )
