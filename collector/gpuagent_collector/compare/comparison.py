"""A whole comparison: from the request to figures, specs, warnings and the runs to draw."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent_collector.compare.caveats import find_caveats
from gpuagent_collector.compare.figures import Evidence, Figures, compute_figures
from gpuagent_collector.metrics import Stat
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Layout, choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.series import Trace, load_trace
from gpuagent_collector.runs.specs import SpecRow, spec_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a comparison.

    Attributes:
        by: name of the facet that separates the sides; several are comma-separated.
        values: the facet's values to compare; empty: all.
        baseline: the value to compare with; None: the usual one, or the first.
        workload, experiment: only runs of these; None: all.
        where: only runs that satisfy this SQL condition on the view `runs`; None: all.
        stat: the statistic of sampled quantities; None: each metric's usual one.
        metric: the primary metric; None: throughput, or the run's duration where no run reports it.
        delta: the share that counts as equal, above 0.
        unpaired: whether runs that an experiment made in pairs are tested as independent ones.
        prices: of nodes and electricity; None: unknown.
        everything: whether metrics that matter less are shown too.
        series: whether time series of one run a side are wanted; only they read samples.
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
    unpaired: bool = False
    prices: Prices | None = None
    everything: bool = False
    series: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison with everything that is shown of it; `traces` are of the first block, empty unless requested."""

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
    layout = lay_out(runs, facet, choose_sides(runs, facet, request.values, request.baseline))
    facts = with_costs(ask, load_facts(ask, layout.run_ids, request.stat), request.prices)
    figures = compute_figures(layout, facts, metric=request.metric, delta=request.delta, unpaired=request.unpaired)
    specs = spec_rows(layout, facts)
    cells = [cell for cell in layout.blocks[0].cells if cell.runs] if request.series else []
    medians = [median_run(cell.runs, facts, figures.primary.name) for cell in cells]
    return Comparison(
        request=request,
        layout=layout,
        facts=facts,
        figures=figures,
        specs=specs,
        caveats=find_caveats(Evidence(layout=layout, facts=facts, figures=figures, specs=specs)),
        traces=tuple(load_trace(ask, run, facts) for run in medians),
    )
