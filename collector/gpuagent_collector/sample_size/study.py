"""A whole plan: from what was asked to the repeats that a new experiment needs for each effect."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.compare.comparison import find_runs
from gpuagent_collector.compare.figures import DEFAULT_PRIMARY, WITHOUT_THROUGHPUT, values_of
from gpuagent_collector.metrics import BY_NAME, Metric, Stat
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, find_facet
from gpuagent_collector.sample_size.power import repeats_to_differ, repeats_to_equal
from gpuagent_collector.sample_size.spread import Spread, pooled_spread
from gpuagent_common.errors import GpuAgentError, MisuseError

# How probably a new experiment shall show what is there.
POWERS = (0.8, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What shall be planned.

    Attributes:
        workload, experiment, where: which runs tell the spread, as in a comparison; None: all.
        metric: the one to test; None: throughput, or the run's duration where no run reports it.
        stat: what counts of quantities that were followed over time; None: the usual statistic.
        effects: shares by which the new sides may differ, each above 0.
        delta: the share that counts as equal, above 0.
        comparisons: how many the new experiment will test together.
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
        """The level of the worst placed of the comparisons in Holm's procedure."""
        return self.alpha / self.comparisons


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many repeats a side something takes; None: more than anybody plans for.

    Attributes:
        effect: the share by which the sides differ; None: they do not, and shall be called equal.
        as_seen, cautious: for each of POWERS.
    """

    effect: float | None
    as_seen: tuple[int | None, ...]
    cautious: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """What one workload with its parameters needs; its cells are the circumstances that it ran in."""

    block: Block
    runs: int
    spread: Spread
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is shown; the block with the most runs first."""

    question: Question
    metric: Metric
    blocks: tuple[BlockPlan, ...]


def plan_repeats(ask: Ask, question: Question) -> Plan:
    """Return how many repeats a new experiment needs.

    Raises:
        MisuseError: a workload, experiment, condition or metric makes no sense.
        GpuAgentError: no runs tell a spread.
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
    for metric in _candidates(question.metric):
        plans = [plan for block in blocks if (plan := _plan(block, facts, metric, question))]
        if plans:
            plans.sort(key=lambda plan: -plan.runs)
            return Plan(question=question, metric=metric, blocks=tuple(plans))
    raise GpuAgentError(
        f"no runs tell how far {question.metric or DEFAULT_PRIMARY} scatters: it takes two or more that succeeded with "
        "the same parameters in the same circumstances, and values above 0"
    )


def _candidates(name: str | None) -> Sequence[Metric]:
    if name is not None and name not in BY_NAME:
        raise MisuseError(f"--metric {name} is unknown; there are: {', '.join(BY_NAME)}")
    return [BY_NAME[each] for each in ([name] if name else [DEFAULT_PRIMARY, WITHOUT_THROUGHPUT])]


def _blocks(runs: Sequence[Run]) -> list[Block]:
    """Return a block for each workload with its parameters, with a cell for each circumstance."""
    groups: dict[tuple[str, str], dict[tuple[Any, ...], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        groups[run.workload, run.parameters][tuple(getattr(run, name) for name in CONDITIONS)].append(run)
    return [
        Block(
            workload=workload,
            parameters=json.loads(parameters),
            held={},
            cells=tuple(_cell(circumstances, members) for circumstances, members in cells.items()),
        )
        for (workload, parameters), cells in groups.items()
    ]


def _cell(circumstances: Sequence[str | None], runs: Sequence[Run]) -> Cell:
    return Cell(side=", ".join(filter(None, circumstances)), runs=tuple(runs), others={})


def _plan(block: Block, facts: Facts, metric: Metric, question: Question) -> BlockPlan | None:
    cells = [values_of(cell, facts, metric) for cell in block.cells]
    if any(value <= 0 for values in cells for value in values):
        return None
    spread = pooled_spread(cells)
    if spread is None:
        return None
    effects = [*question.effects, None]
    return BlockPlan(
        block=block,
        runs=sum(map(len, cells)),
        spread=spread,
        needs=tuple(_need(spread, effect, question) for effect in effects),
    )


def _need(spread: Spread, effect: float | None, question: Question) -> Need:
    return Need(
        effect=effect,
        as_seen=tuple(_repeats(spread.seen, effect, power, question) for power in POWERS),
        cautious=tuple(_repeats(spread.cautious, effect, power, question) for power in POWERS),
    )


def _repeats(spread: float, effect: float | None, power: float, question: Question) -> int | None:
    if effect is None:
        return repeats_to_equal(spread, question.delta, power=power, level=question.level)
    return repeats_to_differ(spread, effect, power=power, level=question.level)
