"""The repeats that a new experiment needs, from the scatter of runs that were recorded."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, compress
from math import expm1, log, sqrt
from pathlib import Path

import numpy as np

from gpuagent_collector.choices import Stat
from gpuagent_collector.compare.caveats import OF_DISTURBANCES, find_disturbances
from gpuagent_collector.compare.caveats.figures import say_other_steps
from gpuagent_collector.compare.choosing import rank_experiments
from gpuagent_collector.compare.comparison import divide_by_unit
from gpuagent_collector.compare.figures import (
    DEFAULT_PRIMARIES,
    default_primaries,
    is_open_load,
    is_work_unlike,
    values_of_sides,
)
from gpuagent_collector.metrics import BY_NAME, Metric, hint_at
from gpuagent_collector.metrics.result import SERVING, SERVING_METRICS
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import in_unit
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import USUAL_REPEATS, Command, differing_arguments
from gpuagent_collector.runs.cells import CANCELLED, UNFINISHED, Block, Cell, Layout, first_few, match_runs, tell_apart
from gpuagent_collector.runs.columns import Floats
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import Choice, find_runs
from gpuagent_collector.runs.like import group_like
from gpuagent_collector.runs.repeating import Recorded, are_elsewhere, find_recorded, find_varied
from gpuagent_collector.runs.words import percent, reasons, statuses, write_command
from gpuagent_collector.statistics.repeats import (
    POWERS,
    Spread,
    fewest_repeats,
    least_deviations,
    matched_spread,
    pooled_spread,
    repeats_to_differ,
    repeats_to_equal,
)
from gpuagent_collector.statistics.shift import estimate_shift, least_pairs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.looks import plan_looks, read_rule

EFFECTS = (0.01, 0.02, 0.05)
DELTA = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Choice):
    """The experiment to plan.

    Attributes:
        metric: the one to test; None: throughput, or the run's duration where no run reports it.
        stat: the statistic of sampled quantities; None: the usual one.
        effects: shares by which the new sides may differ, each above 0.
        delta: the share that counts as equal, above 0.
        comparisons: the number that the new experiment will test together; None: those of the next command.
        are_counted: whether they are those of the next command.
        alpha: the error rate over all of them.
        looks: the repeats after which the new experiment may stop; over these looks the error rate is divided as well.
    """

    metric: str | None = None
    stat: Stat | None = None
    effects: Sequence[float] = EFFECTS
    delta: float = DELTA
    comparisons: int | None = None
    are_counted: bool = False
    alpha: float = 0.05
    looks: tuple[int, ...] = ()

    def level(self, repeats: int = 0) -> float:
        """Return the lowest level in Holm's procedure; more repeats than those of the last look have more looks."""
        later = plan_looks(repeats) if repeats > max(self.looks, default=repeats) else ()
        return self.alpha / ((self.comparisons or 1) * max(1, len(self.looks), len(later)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The repeats a side for one effect; None: more than anybody plans for.

    Attributes:
        effect: the share by which the sides differ; None: they are equal, and shall be called so.
        as_seen, cautious: for each of POWERS.
    """

    effect: float | None
    as_seen: tuple[int | None, ...]
    cautious: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """The needs of one workload with its parameters; its cells are the circumstances that it ran in.

    Attributes:
        matched: whether the new runs are tested in pairs, because these were made so.
        spread: within repeats where they are matched.
        pooled: within cells, for pairs that are too few for a test of pairs, so that runs count as independent.
        clock_step: the share of the least change that the clock of their lines shows, where all runs are equal; else 0.
    """

    block: Block
    runs: int
    # The runs of a side.
    repeats: int
    spread: Spread
    pooled: Spread
    matched: bool
    clock_step: float
    needs: tuple[Need, ...]

    def least_effect(self, repeats: int, question: Question, power: float = POWERS[0]) -> float | None:
        """Return the share from which on so many repeats show a difference, with this power; None: none."""
        level = question.level(repeats)
        pairs = least_pairs(1, level) if self.matched else 0
        matched = self.matched and repeats >= pairs
        spread = self.spread if matched else self.pooled
        deviations = least_deviations(repeats, power=power, level=level, matched=matched)
        if deviations is None:
            return None
        effect = max(self.clock_step, expm1(deviations * spread.seen))
        # What a few runs show should more runs show too, although these are tested in pairs.
        return max(effect, self.least_effect(pairs, question, power) or 0.0) if repeats < pairs else effect

    def expected_width(self, repeats: int, question: Question) -> float | None:
        """Return the usual width of the interval of so many repeats, as a share; None: there is none.

        Half of the experiments show a difference of half an interval.
        """
        half = self.least_effect(repeats, question, 0.5)
        return None if half is None else (1 + half) ** 2 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan with everything that is shown of it; the block with the most runs first, whose options are recorded.

    Attributes:
        commands: those of the first block whose runs have the metric, the commonest first.
        varied: the parameters of a built-in workload in which the blocks differ, where they are all combinations.
        undecided: two commands of the first block whose difference is not shown yet; empty: there are no such two.
        lacking: the workloads that have runs, but none with the metric.
        experiments: those of one program with their runs, of which the first is planned; empty: there was no choice.
        output: the experiment file that was written; None: none was.
    """

    question: Question
    metric: Metric
    blocks: tuple[BlockPlan, ...]
    recorded: Recorded
    caveats: tuple[Caveat, ...]
    commands: tuple[Command, ...]
    undecided: tuple[Command, ...]
    lacking: tuple[str, ...]
    varied: Mapping[str, Sequence[str]]
    experiments: Sequence[tuple[str, int]]
    output: Path | None = None


def plan_repeats(ask: Ask, question: Question) -> Plan:
    """Return the repeats that a new experiment needs.

    Raises:
        MisuseError: a workload, experiment, condition or metric is unknown or invalid.
        GpuAgentError: no runs have a spread, or only that of a load that was asked for.
    """
    runs = find_runs(ask, find_facet("platform"), **question.conditions)
    succeeded = [run for run in runs if run.status == "succeeded"]
    if experiments := _find_experiments(succeeded, question):
        runs, succeeded = ([run for run in each if run.experiment == experiments[0][0]] for each in (runs, succeeded))
    blocks = _blocks(succeeded)
    is_one_workload = len({block.workload for block in blocks}) == 1
    varied = find_varied([block.parameters for block in blocks]) if is_one_workload else {}
    question = replace(question, looks=_find_looks(succeeded, blocks, varied, question.effects))
    _check_metric(question.metric)
    metrics = [BY_NAME[name] for name in ([question.metric] if question.metric else default_primaries(blocks))]
    read = [*(metric.name for metric in metrics), "measure_seconds", "step_seconds", *OF_DISTURBANCES]
    facts = load_facts(ask, [run.run_id for run in succeeded], question.stat, first=read)
    if blocks and all(_is_asked(block, metric) for block in blocks for metric in metrics):
        raise GpuAgentError(_load_was_asked(succeeded, facts))
    unlike: list[Caveat] = []
    for metric in metrics:
        known = [block for block in blocks if not _is_asked(block, metric)]
        plans = [plan for block in known if (plan := _plan(block, facts, metric, question))]
        if plans:
            plans.sort(key=lambda plan: -plan.runs)
            every = [run for plan in plans for run in plan.block.runs]
            # Runs of other commands may lack the metric.
            first = list(compress(plans[0].block.runs, ~np.isnan(facts.column(plans[0].block.runs, metric.name))))
            by_command = divide_shared(first)
            is_usual = question.metric is None and metric.name == "throughput"
            # Of several platforms each command is compared with itself.
            is_one = len({run.platform for run in first}) == 1
            if is_usual and is_one and is_work_unlike(_block_of(*by_command.values()), facts):
                unlike = [say_other_steps(first, are_durations=True)]
                continue  # as a comparison of them does
            having = compress(succeeded, ~np.isnan(facts.column(succeeded, metric.name)))
            others = [cell for plan in plans[1:] for cell in divide_shared(plan.block.runs).values()]
            again = [run for cell in (*by_command.values(), *others) for run in cell.runs]
            having_it = compress(again, ~np.isnan(facts.column(again, metric.name)))
            recorded = find_recorded(ask, [run.run_id for run in of_one_place(list(having_it))])
            caveats = [
                *unlike,
                *_find_unlike_nodes(plans, facts, metric, question.words),
                *_find_unsure(plans),
                *find_plan_caveats(every, runs, facts),
            ]
            return Plan(
                question=question,
                metric=metric,
                blocks=tuple(plans),
                recorded=recorded if question.looks or question.effects[1:] else replace(recorded, rule=""),
                caveats=tuple(caveats),
                commands=tuple(by_command),
                undecided=_find_undecided(by_command, facts, metric, question.level()) if is_one else (),
                lacking=tuple(sorted({block.workload for block in known} - {run.workload for run in having})),
                varied=varied,
                experiments=experiments,
            )
    if question.metric is None and blocks and all(map(is_open_load, blocks)):
        raise GpuAgentError(_load_was_asked(succeeded, facts))
    raise GpuAgentError(_say_unknown_spread(ask, question, succeeded))


def _say_unknown_spread(ask: Ask, question: Question, runs: Sequence[Run]) -> str:
    """Return why these runs have no plan, and the command that makes runs which have one."""
    command = None
    if len({run.workload for run in runs}) == 1:
        recorded = find_recorded(ask, [run.run_id for run in runs])
        commands = [run.command for run in runs]
        if recorded.given or all(commands):  # and not of another tool
            command = recorded.repeat_command(commands, runs[0].workload, USUAL_REPEATS)
    return (
        f"the spread of {question.metric or DEFAULT_PRIMARIES[0]} is unknown: it takes two or more successful runs "
        "with the same parameters in the same circumstances, and values above 0"
        + (f"; make them: `{command}`" if command else "")
    )


def _check_metric(metric: str | None) -> None:
    if metric is not None and metric.startswith(COST_PER_RUN.stem):
        raise MisuseError("the cost of a run at one price scatters as its duration does: --metric run_seconds")
    if metric is not None and metric.startswith(COST_PER_MILLION_ITEMS.stem):
        raise MisuseError("the cost of items at one price scatters as the throughput does; leave --metric out")
    if metric is not None and metric not in BY_NAME:
        raise MisuseError(f"--metric {metric} is not stored with runs; {hint_at(metric, BY_NAME)}")


def _find_experiments(runs: Sequence[Run], question: Question) -> Sequence[tuple[str, int]]:
    """Return the experiments with several commands of the only program, as `compare` prefers them; () for no choice."""
    is_free = not (question.experiment or question.where)
    if not (is_free and len({(run.workload, run.platform) for run in runs}) == 1 and all(run.command for run in runs)):
        return ()
    return rank_experiments(Layout(facet=find_facet("platform"), sides=(), blocks=tuple(_blocks(runs)), left_out=()))


def _find_looks(
    runs: Sequence[Run], blocks: Sequence[Block], varied: Mapping[str, Sequence[str]], effects: Sequence[float]
) -> tuple[int, ...]:
    """Return the looks that all runs were planned with, if one command makes such runs again.

    Looks at which it could stop before the only effect that is asked for is shown are none.
    """
    rules, platforms = {run.until for run in runs}, {run.platform for run in runs}
    sides = {(run.command, run.environment, run.image) for run in runs}
    # With one side alone nothing stops early.
    is_again = varied or len(sides) > len(blocks) == 1
    if not (len(rules) == len(platforms) == 1 and is_again):
        return ()
    width, looks = read_rule(*rules)
    return () if looks and len(effects) == 1 and float(width.rstrip("%")) > 100 * effects[0] else looks


def _find_unsure(plans: Sequence[BlockPlan]) -> Iterator[Caveat]:
    """Yield which spread is known from few runs only."""
    unsure = [plan for plan in plans if plan.spread.freedom < LEAST_FREEDOM and not plan.clock_step]
    if unsure:
        blocks = [each.block for each in plans]
        least = min(unsure, key=lambda each: each.spread.freedom)
        seen, cautious = (percent(expm1(spread)) for spread in (least.spread.seen, least.spread.cautious))
        names = first_few([tell_apart(each.block, blocks) for each in unsure])
        yield Caveat(
            code="unsure_scatter",
            text=f"the scatter of {names} is known from as few as {least.runs} runs: {seen} may be {cautious}",
            remedy=f"plan again once there are {LEAST_FREEDOM + 1} equal runs or more",
        )


def _find_unlike_nodes(
    plans: Sequence[BlockPlan], facts: Facts, metric: Metric, choice: Mapping[str, str | None]
) -> Iterator[Caveat]:
    """Yield the node that is the farthest from the others of its side, where nodes make most of the variance."""
    found: list[tuple[float, str, float, str]] = []
    for plan in plans:
        values: list[Floats] = []
        apart: list[tuple[float, str]] = []
        for cell in plan.block.cells:
            of_nodes = {node: facts.array(runs, metric.name) for node, runs in _divide_by_node(cell.runs).items()}
            medians = {node: float(np.median(figures)) for node, figures in of_nodes.items() if figures.size}
            values += of_nodes.values()
            for node in medians if len(medians) > 1 else ():
                names = [name for name in medians if name != node]
                others = float(np.median([medians[name] for name in names]))
                write = in_unit(facts.unit(cell.runs, metric))
                whose = f"the others of {cell.runs[0].platform}" if names[1:] else names[0]
                text = f"{node} has {write(medians[node])}, {whose} {write(others)}"
                apart.append((abs(log(medians[node] / others)), text))
        within = pooled_spread(values)
        if apart and within and not plan.clock_step and 2 * within.seen**2 < plan.pooled.seen**2:
            found.append((*max(apart), within.seen, plan.block.workload))
    if found:
        _, text, scatter, workload = max(found)
        see = write_command("compare", {**choice, "--by": "node", "--workload": workload})
        yield Caveat(
            code="unlike_nodes",
            text=f"runs of one node scatter by {percent(expm1(scatter))}: {text}",
            remedy=f"see `{see}`; more runs do not make nodes alike",
        )


def _divide_by_node(runs: Sequence[Run]) -> Mapping[str, Sequence[Run]]:
    by_node: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_node[run.nodes or "unknown"].append(run)
    return by_node


def find_plan_caveats(planned: Sequence[Run], runs: Sequence[Run], facts: Facts) -> Iterator[Caveat]:
    """Yield what widens the spread of the runs that are planned from, and how many of all runs failed."""
    yield from find_disturbances({"": planned}, facts)
    failed = Counter(run.status or "unknown" for run in runs if run.status not in ("succeeded", CANCELLED, *UNFINISHED))
    if failed:
        remedy = f"the plan leaves them out; reasons: {reasons(failed)}"
        yield Caveat(code="unsuccessful", text=f"runs that did not succeed: {statuses(failed)}", remedy=remedy)


# What the parameters of a load decide, whatever its server does: always, and where users do not wait for answers.
_ASKED, _ASKED_OPEN = ("run_seconds", "measure_seconds"), ("throughput", "offered_requests_per_second")


def _is_asked(block: Block, metric: Metric) -> bool:
    asked = (*_ASKED, *_ASKED_OPEN) if is_open_load(block) else _ASKED
    return block.workload == SERVING and metric.name in asked


def _load_was_asked(runs: Sequence[Run], facts: Facts) -> str:
    """Return why a server's runs have no plan, and the command that plans what the server decides."""
    known = (metric.name for metric in SERVING_METRICS if metric.unit == "seconds" and facts.has(runs, metric.name))
    name = next(known, None)
    instead = f"; its latency does: collector plan {SERVING} --metric {name}" if name else ""
    return f"{SERVING} sends what it is asked to, so its throughput and duration plan nothing{instead}"


def _blocks(runs: Sequence[Run]) -> list[Block]:
    """Return a block for each workload with its parameters, with a cell for each circumstance and experiment.

    On one platform the sides are its nodes, so that runs of one node alone are equal ones, where a node has several.
    """
    is_one_platform = len({run.platform for run in runs}) == 1
    cells: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    # Of one program, runs with other arguments are no repeats.
    for key, members in group_like(runs, "node_count").items():
        experiments = Counter(run.experiment for run in members)
        is_by_node = is_one_platform and len({run.nodes for run in members}) < len(members)
        equal: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
        for run in members:
            # Between two experiments anything may have changed; runs that were made one by one are their own repeats.
            experiment = run.experiment if experiments[run.experiment] > 1 else None
            equal[run.nodes if is_by_node else None, experiment].append(run)
        for names, repeats in equal.items():
            side = ", ".join([*key.circumstances, *filter(None, names)])
            cells[key.workload, key.parameters].append(Cell(side=side, runs=tuple(repeats), others={}))
    return [
        Block(workload=workload, parameters=json.loads(parameters), held={}, cells=tuple(of_block))
        for (workload, parameters), of_block in cells.items()
    ]


# Of a spread that is known from fewer runs.
LEAST_FREEDOM = 4
# A spread of less is that of rounding: the times of lines are stored to a microsecond.
_EQUAL = 1e-5
# To which the kernel knows when a line was printed, in the usual configuration (250 Hz).
_CLOCK_SECONDS = 0.004


def _find_clock_step(block: Block, facts: Facts, metric: Metric) -> float:
    """Return the share of a run that the clock of its lines does not divide; 0: it has no timed steps.

    Runs that time their steps themselves are never equal.
    """
    measured = facts.array(block.runs, "measure_seconds")
    is_timed = metric.name == "throughput" or metric.unit == "seconds"
    if not (is_timed and measured.size and facts.has(block.runs, "step_seconds")):
        return 0.0
    return _CLOCK_SECONDS / float(np.median(measured))


def _are_apart(runs: Sequence[Run]) -> bool:
    """Return whether platforms are the sides and have no node in common, so that no runs of theirs are pairs."""
    platforms: dict[str | None, set[str | None]] = defaultdict(set)
    for run in runs:
        platforms[run.nodes].add(run.platform)
    return len({run.platform for run in runs}) > 1 and all(len(each) == 1 for each in platforms.values())


def _count_repeats(block: Block, facts: Facts, metric: Metric) -> int:
    """Return the runs of the commonest command on each of two platforms or nodes, or else of its largest experiment."""
    runs = [run for run in block.runs if facts.value(run, metric.name) is not None]
    ((command, _),) = Counter(run.command for run in runs).most_common(1)
    of_command = [run for run in runs if run.command == command]
    for places in (Counter(run.platform for run in of_command), Counter(run.nodes for run in of_command)):
        if len(places) > 1:
            return sorted(places.values())[-2]
    return max(len(facts.array(cell.runs, metric.name)) for cell in block.cells)


def _plan(block: Block, facts: Facts, metric: Metric, question: Question) -> BlockPlan | None:
    # The unit of the most runs first; runs in several units are no equal ones.
    parts = list(divide_by_unit(block, facts)) if metric.name == "throughput" else [block]
    cells = [facts.array(cell.runs, metric.name) for part in parts for cell in part.cells]
    if any((values <= 0).any() for values in cells):
        return None
    pooled = pooled_spread(cells)
    if pooled is None:
        return None
    matched = None if _are_apart(block.runs) else matched_spread(_tables(block, facts, metric), pooled)
    step = _find_clock_step(block, facts, metric) if pooled.seen < _EQUAL else 0.0
    if step:
        # Uniform over one step: they may scatter by less, and by no more.
        spread = step / sqrt(12)
        matched, pooled = None, Spread(seen=spread, cautious=spread, freedom=pooled.freedom)
    plan = BlockPlan(
        block=block,
        runs=sum(map(len, cells)),
        repeats=_count_repeats(parts[0], facts, metric),
        spread=matched or pooled,
        pooled=pooled,
        matched=matched is not None,
        clock_step=step,
        needs=(),
    )
    return with_needs(plan, question)


def of_one_place(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs of the commonest circumstances where no command makes all, as none was made on this node."""
    if not are_elsewhere({run.nodes for run in runs}):
        return runs
    ((commonest, _),) = Counter((run.environment, run.limits) for run in runs).most_common(1)
    return [run for run in runs if (run.environment, run.limits) == commonest]


def _tables(block: Block, facts: Facts, metric: Metric) -> list[Floats]:
    """Return for each experiment and node the values of the repeats that have all of its cells."""
    places: dict[tuple[str | None, str | None], list[list[Run]]] = defaultdict(lambda: [[] for _ in block.cells])
    for number, cell in enumerate(block.cells):
        for run in cell.runs:
            places[run.experiment, run.nodes][number].append(run)
    tables = []
    for members in places.values():
        repeats = match_runs(*(Cell(side="", runs=tuple(runs), others={}) for runs in members if runs))
        together = [run for repeat in repeats for run in repeat]
        values = facts.column(together, metric.name).reshape(-1, sum(map(bool, members)))
        tables.append(values[~np.isnan(values).any(axis=1)])
    return tables


# Commands of which each two are tested.
MOST_TESTED = 4


def divide_by_command(runs: Sequence[Run]) -> dict[Command, Cell]:
    """Return the runs of each command, the commonest first."""
    by_command: dict[Command, list[Run]] = defaultdict(list)
    for run in runs:
        by_command[run.command].append(run)
    ordered = sorted(by_command.items(), key=lambda item: -len(item[1]))
    return {command: Cell(side=shlex.join(command), runs=tuple(members), others={}) for command, members in ordered}


def divide_shared(runs: Sequence[Run]) -> Mapping[Command, Cell]:
    """Return the runs of each command that platforms share, the commonest first; of all commands: they share none.

    The platforms are those of the commonest shared command.
    """
    by_command = divide_by_command(runs)
    for commonest in by_command.values():
        places = {run.platform for run in commonest.runs}
        if len(places) > 1:
            break
    else:
        return by_command
    return {
        command: cell
        for command, cell in divide_by_command([run for run in runs if run.platform in places]).items()
        if len({run.platform for run in cell.runs}) > 1
    }


def _block_of(*cells: Cell) -> Block:
    return Block(workload="", parameters={}, held={}, cells=cells)


def _find_undecided(cells: Mapping[Command, Cell], facts: Facts, metric: Metric, level: float) -> tuple[Command, ...]:
    """Return two of the commonest commands whose difference their runs leave open; () for none.

    Of these, those that differ in the fewest arguments, and of several such pairs that with the largest difference.
    """
    found: dict[tuple[int, float], tuple[Command, Command]] = {}
    for one, other in combinations(list(cells)[:MOST_TESTED], 2):
        block = _block_of(cells[one], cells[other])
        sides = values_of_sides(facts, least_pairs(1, level), block, cells[other].side, metric)
        shift = estimate_shift(*sides, alpha=level)
        # Without an interval the runs are too few to say anything.
        if shift.low is not None and not shift.is_shown:
            found[-len(differing_arguments([[one], [other]])), abs(log(shift.estimate))] = (one, other)
    return found[max(found)] if found else ()


def with_needs(plan: BlockPlan, question: Question) -> BlockPlan:
    """Return the plan with its repeats for each difference of the question, and for equality.

    What a clock does not show takes more repeats than anybody plans for.
    """
    matched, never = plan.spread if plan.matched else None, (None,) * len(POWERS)
    needs = []
    for effect in (*question.effects, None):
        is_seen = effect is None or effect >= plan.clock_step
        need = (
            _need(matched, plan.pooled, effect, question)
            if is_seen
            else Need(effect=effect, as_seen=never, cautious=never)
        )
        needs.append(need)
    return replace(plan, needs=tuple(needs))


def _need(matched: Spread | None, pooled: Spread, effect: float | None, question: Question) -> Need:
    to_show, share = (repeats_to_equal, question.delta) if effect is None else (repeats_to_differ, effect)

    def fewest(pooled: float, matched: float | None, power: float) -> int | None:
        repeats: int | None = 0
        level = None
        while repeats is not None and level != question.level(repeats):
            level = question.level(repeats)  # more repeats have more looks
            repeats = fewest_repeats(to_show, share, pooled, matched, power=power, level=level)
        return repeats

    return Need(
        effect=effect,
        as_seen=tuple(fewest(pooled.seen, matched.seen if matched else None, power) for power in POWERS),
        cautious=tuple(fewest(pooled.cautious, matched.cautious if matched else None, power) for power in POWERS),
    )
