"""A whole recommendation: from the request to ranked sides, reasons and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuagent_collector.output.document import Caveat
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.recommend.caveats import find_caveats
from gpuagent_collector.recommend.ranking import Ranking, rank
from gpuagent_collector.recommend.reasons import Reasons, find_reasons
from gpuagent_collector.runs.cells import Layout, choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a recommendation.

    Attributes:
        workload: the one to place.
        by: name of the facet to choose a value of; several are comma-separated.
        experiment: only runs of this; None: all.
        where: only runs that satisfy this SQL condition on the view `runs`; None: all.
        weights: name of each criterion that counts → its weight, above 0.
        delta: the share that counts as equal, above 0.
        prices: of nodes and electricity; None: unknown.
    """

    workload: str
    by: str = "platform"
    experiment: str | None = None
    where: str | None = None
    weights: Mapping[str, float]
    delta: float = 0.02
    prices: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A recommendation with everything that is shown of it.

    Attributes:
        rankings: at least one.
        reasons: for each ranking, the bounds of the workload on each of its sides, in their order.
    """

    request: Request
    layout: Layout
    facts: Facts
    rankings: tuple[Ranking, ...]
    reasons: tuple[tuple[Reasons, ...], ...]
    caveats: tuple[Caveat, ...]

    @property
    def reasoned(self) -> list[tuple[Ranking, tuple[Reasons, ...]]]:
        """Each ranking with its reasons."""
        return list(zip(self.rankings, self.reasons, strict=True))


def recommend(ask: Ask, request: Request) -> Recommendation:
    """Return the recommended place of the workload.

    Raises:
        MisuseError: the workload, the facet or the experiment is unknown.
        GpuAgentError: no two sides to choose from have every weighed criterion.
    """
    facet = find_facet(request.by)
    runs = find_runs(ask, facet, workload=request.workload, experiment=request.experiment, where=request.where)
    layout = lay_out(runs, facet, choose_sides(runs, facet, (), None))
    facts = with_costs(ask, load_facts(ask, layout.run_ids), request.prices)
    rankings = rank(layout.blocks, facts, request.weights, delta=request.delta)
    if not rankings:
        raise GpuAgentError(_nothing_to_rank(request))
    blocks = [ranking.block for ranking in rankings]
    return Recommendation(
        request=request,
        layout=layout,
        facts=facts,
        rankings=rankings,
        reasons=tuple(
            tuple(one for standing in ranking.standings for one in of_block if one.side == standing.side)
            for ranking, of_block in zip(rankings, find_reasons(ask, facet, blocks, facts), strict=True)
        ),
        caveats=find_caveats(layout, facts, rankings, delta=request.delta),
    )


def _nothing_to_rank(request: Request) -> str:
    wanted = " and ".join(request.weights)
    remedy = {
        "cost": "give --prices FILE (see docs/cost.md)",
        "energy": "energy needs a GPU that reports its power",
        "time": "only runs that succeeded count",
    }
    lacking = next(name for name in ("cost", "energy", "time") if name in request.weights)
    if "cost" in request.weights and request.prices:
        remedy["cost"] = f"{request.prices.source} may have no entry for them, or two currencies"
    return f"no two sides with like runs both have {wanted}: {remedy[lacking]}"
