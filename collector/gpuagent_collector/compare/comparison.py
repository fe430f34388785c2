"""A whole comparison: from what was asked to figures, specs, warnings and the runs to draw."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent_collector.compare.caveats import find_caveats
from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.figures import Figures, compute_figures
from gpuagent_collector.compare.specs import SpecRow, spec_rows
from gpuagent_collector.metrics import Stat
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.condition import parenthesised
from gpuagent_collector.runs.cells import Layout, choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, Run, load_facts, load_runs
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.series import Trace, load_trace
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be compared.

    Attributes:
        by: name of the facet that tells the sides apart; of several, comma-separated.
        values: the facet's values to compare; empty: all.
        baseline: the value to compare with; None: the usual one, or the first.
        workload, experiment: only runs of these; None: all.
        where: only runs of which this SQL condition on the view `runs` is true; None: all.
        stat: what is compared of quantities that were followed over time; None: each metric's usual statistic.
        metric: the primary metric; None: throughput, or the run's duration where no run reports it.
        delta: the share that counts as equal, above 0.
        prices: what runs cost; None: that is not known.
        everything: whether metrics that matter less are shown too.
        series: whether time series of one run a side are wanted; they alone read samples.
    """

    by: str = "platform"
    values: Sequence[str] = ()
    baseline: str | None = None
    workload: str | None = None
    experiment: str | None = None
    where: str | None = None
    stat: Stat | None = None
    metric: str | None = None
    delta: float = 0.02
    prices: Prices | None = None
    everything: bool = False
    series: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that is shown; `traces` are of the first block, empty when they were not asked for."""

    request: Request
    layout: Layout
    facts: Facts
    figures: Figures
    specs: tuple[SpecRow, ...]
    caveats: tuple[Caveat, ...]
    traces: tuple[Trace, ...]


def compare(ask: Ask, request: Request) -> Comparison:
    """Compare as requested.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    facet = find_facet(request.by)
    runs = find_runs(ask, facet, workload=request.workload, experiment=request.experiment, where=request.where)
    sides = choose_sides(runs, facet, request.values, request.baseline)
    layout = lay_out(runs, facet, sides)
    chosen = [run.run_id for block in layout.blocks for cell in block.cells for run in cell.runs]
    facts = with_costs(ask, load_facts(ask, chosen, request.stat), request.prices)
    figures = compute_figures(layout, facts, metric=request.metric, delta=request.delta)
    specs = spec_rows(layout, facts)
    return Comparison(
        request=request,
        layout=layout,
        facts=facts,
        figures=figures,
        specs=specs,
        caveats=find_caveats(Evidence(layout=layout, facts=facts, figures=figures, specs=specs)),
        traces=_traces(ask, layout, facts, figures) if request.series else (),
    )


def find_runs(
    ask: Ask, facet: Facet, *, workload: str | None, experiment: str | None, where: str | None = None
) -> list[Run]:
    """Return the runs of a workload and an experiment that satisfy an SQL condition, oldest first; None: all.

    Raises:
        MisuseError: no run is one of them, or the condition makes no sense.
        GpuAgentError: the store has no runs.
    """
    runs = load_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = runs if where is None else _satisfying(ask, runs, where)
    if chosen:
        return chosen
    if runs:
        raise MisuseError(f"no run satisfies --where {where}")
    for column, value in (("workload", workload), ("experiment", experiment)):
        if value is not None:
            present = [row["value"] for row in ask(_PRESENT.format(column=column))]
            if value not in present:
                known = f"there are: {', '.join(present)}" if present else "the store has no runs yet"
                raise MisuseError(f"no run has the {column} {value}; {known}")
    if workload and experiment:
        raise MisuseError(f"the experiment {experiment} has no run of the workload {workload}")
    raise GpuAgentError("the store has no runs yet; make some with `gpuagent run mnist --repeat 5`")


def _satisfying(ask: Ask, runs: Sequence[Run], where: str) -> list[Run]:
    try:
        rows = ask(_SATISFYING.format(where=parenthesised(where)))
    except MisuseError as error:
        raise MisuseError(f"--where: {error}") from error
    ids = {row["run_id"] for row in rows}
    return [run for run in runs if run.run_id in ids]


_SATISFYING = "SELECT run_id FROM runs WHERE {where}"

_PRESENT = "SELECT DISTINCT {column} AS value FROM runs WHERE {column} IS NOT NULL ORDER BY value"


def _traces(ask: Ask, layout: Layout, facts: Facts, figures: Figures) -> tuple[Trace, ...]:
    """Return the samples of each side's median run in the first block."""
    runs = [median_run(cell.runs, facts, figures.primary.name) for cell in layout.blocks[0].cells if cell.runs]
    return tuple(load_trace(ask, run, facts) for run in runs)


def median_run(runs: Sequence[Run], facts: Facts, metric: str) -> Run:
    """Return the run whose metric is the median, the lower one of two; the first where none has it."""
    known = [run for run in runs if metric in facts.metrics.get(run.run_id, {})]
    ranked = sorted(known, key=lambda run: facts.metrics[run.run_id][metric])
    return ranked[(len(ranked) - 1) // 2] if ranked else runs[0]
