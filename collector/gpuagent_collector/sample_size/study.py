"""A whole plan: from the question to the repeats that a new experiment needs for each effect."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.choices import Stat
from gpuagent_collector.compare.figures import DEFAULT_PRIMARIES
from gpuagent_collector.metrics import BY_NAME, Metric
from gpuagent_collector.metrics.serving import SERVING, SERVING_METRICS
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import identify_command
from gpuagent_collector.runs.cells import Block, Cell, match_runs
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.sample_size.power import repeats_to_differ, repeats_to_equal
from gpuagent_collector.sample_size.spread import Spread, matched_spread, pooled_spread
from gpuagent_common.errors import GpuAgentError, MisuseError

# The probabilities with which a new experiment shall show a difference that exists.
POWERS = (0.8, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The experiment to plan.

    Attributes:
        workload, experiment, where: the runs to take the spread from, as in a comparison; None: all.
        metric: the one to test; None: throughput, or the run's duration where no run reports it.
        stat: the statistic of sampled quantities; None: the usual one.
        effects: shares by which the new sides may differ, each above 0.
        delta: the share that counts as equal, above 0.
        comparisons: the number that the new experiment will test together.
        alpha: the error rate over all of them.
    """

    workload: str | None = None
    experiment: str | None = None
    where: str | None = None
    metric: str | None = None
    stat: Stat | None = None
    effects: Sequence[float] = (0.01, 0.02, 0.05)
    delta: float = 0.02
    comparisons: int = 1
    alpha: float = 0.05

    @property
    def level(self) -> float:
        """The lowest level in Holm's procedure."""
        return self.alpha / self.comparisons


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
    """

    block: Block
    runs: int
    spread: Spread
    matched: bool
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan with everything that is shown of it; the block with the most runs first."""

    question: Question
    metric: Metric
    blocks: tuple[BlockPlan, ...]


def plan_repeats(ask: Ask, question: Question) -> Plan:
    """Return the repeats that a new experiment needs.

    Raises:
        MisuseError: a workload, experiment, condition or metric is unknown or invalid.
        GpuAgentError: no runs have a spread, or only that of a load that was asked for.
    """
    runs = find_runs(
        ask,
        find_facet("platform"),
        workload=question.workload,
        experiment=question.experiment,
        where=question.where,
    )
    succeeded = [run for run in runs if run.status == "succeeded"]
    facts = load_facts(ask, [run.run_id for run in succeeded], question.stat)
    blocks = _blocks(succeeded)
    if question.metric is not None and question.metric not in BY_NAME:
        raise MisuseError(f"--metric {question.metric} is unknown; there are: {', '.join(BY_NAME)}")
    metrics = [BY_NAME[name] for name in ([question.metric] if question.metric else DEFAULT_PRIMARIES)]
    if blocks and all(_is_asked(block, metric) for block in blocks for metric in metrics):
        raise GpuAgentError(_load_was_asked(succeeded, facts))
    for metric in metrics:
        known = [block for block in blocks if not _is_asked(block, metric)]
        plans = [plan for block in known if (plan := _plan(block, facts, metric, question))]
        if plans:
            plans.sort(key=lambda plan: -plan.runs)
            return Plan(question=question, metric=metric, blocks=tuple(plans))
    raise GpuAgentError(
        f"the spread of {question.metric or DEFAULT_PRIMARIES[0]} is unknown: it takes two or more successful runs "
        "with the same parameters in the same circumstances, and values above 0"
    )


# What the parameters of a load decide, whatever its server does: always, and where users do not wait for answers.
_ASKED, _ASKED_OPEN = ("run_seconds", "measure_seconds"), ("throughput", "offered_requests_per_second")


def _is_asked(block: Block, metric: Metric) -> bool:
    is_open = block.parameters.get("concurrency") is None
    asked = (*_ASKED, *_ASKED_OPEN) if is_open else _ASKED
    return block.workload == SERVING and metric.name in asked


def _load_was_asked(runs: Sequence[Run], facts: Facts) -> str:
    """Return why a server's runs have no plan, and the command that plans what the server decides."""
    known = (metric.name for metric in SERVING_METRICS if metric.unit == "seconds" and facts.has(runs, metric.name))
    name = next(known, None)
    instead = f"; its latency does: collector plan {SERVING} --metric {name}" if name else ""
    return f"{SERVING} sends what it is asked to, so its throughput and duration plan nothing{instead}"


def _blocks(runs: Sequence[Run]) -> list[Block]:
    """Return a block for each workload with its parameters, with a cell for each circumstance."""
    groups: dict[tuple[str, str], dict[tuple[Any, ...], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        # Of one program, runs with other arguments are no repeats.
        circumstances = (*(getattr(run, name) for name in CONDITIONS), identify_command(run.command))
        groups[run.workload, run.parameters][circumstances].append(run)
    return [
        Block(
            workload=workload,
            parameters=json.loads(parameters),
            held={},
            cells=tuple(
                Cell(side=", ".join(filter(None, circumstances[:-1])), runs=tuple(members), others={})
                for circumstances, members in cells.items()
            ),
        )
        for (workload, parameters), cells in groups.items()
    ]


def _plan(block: Block, facts: Facts, metric: Metric, question: Question) -> BlockPlan | None:
    cells = [facts.values(cell.runs, metric.name) for cell in block.cells]
    if any(value <= 0 for values in cells for value in values):
        return None
    matched = matched_spread(_tables(block, facts, metric))
    spread = matched or pooled_spread(cells)
    if spread is None:
        return None
    return BlockPlan(
        block=block,
        runs=sum(map(len, cells)),
        spread=spread,
        matched=matched is not None,
        needs=tuple(_need(spread, effect, question, matched is not None) for effect in (*question.effects, None)),
    )


def _tables(block: Block, facts: Facts, metric: Metric) -> list[list[list[float]]]:
    """Return for each experiment and node the values of the repeats that have all of its cells."""
    places = dict.fromkeys((run.experiment, run.nodes) for cell in block.cells for run in cell.runs)
    tables = []
    for place in places:
        members = (tuple(run for run in cell.runs if (run.experiment, run.nodes) == place) for cell in block.cells)
        repeats = match_runs(*(Cell(side="", runs=runs, others={}) for runs in members if runs))
        values = (facts.values(runs, metric.name) for runs in repeats)
        tables.append([known for known in values if len(known) == len(repeats[0])])
    return tables


def _need(spread: Spread, effect: float | None, question: Question, matched: bool) -> Need:
    repeats, share = (repeats_to_equal, question.delta) if effect is None else (repeats_to_differ, effect)
    as_seen, cautious = (
        tuple(repeats(deviation, share, power=power, level=question.level, matched=matched) for power in POWERS)
        for deviation in (spread.seen, spread.cautious)
    )
    return Need(effect=effect, as_seen=as_seen, cautious=cautious)
