"""A recommendation: from the request to rankings, the reasons for them and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuagent_collector.compare.because import Because, find_because, find_product
from gpuagent_collector.compare.choosing import compare_what_differs
from gpuagent_collector.compare.comparison import Comparison, compare, find_best
from gpuagent_collector.compare.comparison import Request as CompareRequest
from gpuagent_collector.compare.figures import Test
from gpuagent_collector.errors import OneSideError
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.recommend.bottlenecks import Reasons, find_reasons
from gpuagent_collector.recommend.ranking import Ranking, place_by_options, rank
from gpuagent_collector.runs.cells import OTHER_VALUES, Layout, first_few, tell_apart
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.find import Choice
from gpuagent_collector.runs.words import write_command
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError

# Of the metric that `compare` tests: the criteria name theirs.
_OF_METRICS = frozenset({"untested", "no_throughput"})


def find_caveats(tests: Comparison, layout: Layout, rankings: Sequence[Ranking]) -> tuple[Caveat, ...]:
    """Return the warnings of the comparison of the same runs, and that some of them are not ranked."""
    of_comparison = [caveat for caveat in tests.caveats if caveat.code not in _OF_METRICS]
    found = []
    ranked = [ranking.block for ranking in rankings]
    others = [tell_apart(block, layout.blocks) for block in layout.blocks if block not in ranked]
    if others:
        found.append(
            Caveat(
                code="unranked",
                text=f"not ranked, because two sides lack a figure that is weighed: {first_few(others)}",
                remedy="weigh figures that they have, or run them where these are measured",
            )
        )
    return (*of_comparison, *found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Choice):
    """A request for a recommendation.

    Attributes:
        workload: the one to place.
        by: name of the facet to choose a value of; several are comma-separated.
        weights: name of each criterion that counts → its weight, above 0; None: cost where it is known, else time.
        delta: the share that counts as equal, above 0.
        prices: of nodes and electricity; None: unknown.
    """

    workload: str
    by: str = "platform"
    weights: Mapping[str, float] | None = None
    delta: float = 0.02
    prices: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A recommendation with everything that is shown of it.

    Attributes:
        weights: those that counted.
        rankings: at least one.
        because: for each ranking, where the difference between the best side and the next comes from.
        reasons: for each ranking, the bounds of the workload on each of its sides, in their order.
        tests: what `compare` shows of the same runs, by the criterion if only one is weighed.
        options: those of its options that share in the places; empty: none is shown to matter.
    """

    request: Request
    layout: Layout
    facts: Facts
    weights: Mapping[str, float]
    rankings: tuple[Ranking, ...]
    reasons: tuple[tuple[Reasons, ...], ...]
    because: tuple[Because | None, ...]
    caveats: tuple[Caveat, ...]
    tests: Comparison
    options: tuple[tuple[Facet, tuple[Test, ...]], ...]

    @property
    def reasoned(self) -> list[tuple[Ranking, tuple[Reasons, ...]]]:
        """Each ranking with its reasons."""
        return list(zip(self.rankings, self.reasons, strict=True))


def recommend(ask: Ask, request: Request) -> Recommendation:
    """Return the recommended place of the workload.

    Raises:
        MisuseError: the workload, the facet or the experiment is unknown.
        OneSideError: there is only one side.
        GpuAgentError: no two sides to choose from have every weighed criterion, or servers were measured.
    """
    if request.workload == SERVING:
        # Without --by it finds the servers of one platform by itself.
        by = None if request.by == "platform" else request.by
        command = write_command("serving", {**request.words, "--workload": None, "--by": by})
        raise GpuAgentError(
            f"{SERVING} sends what it is asked to, so its throughput ranks no server; its latency at each load does: "
            f"`{command}`"
        )
    asked = CompareRequest(
        **request.conditions, by=request.by, prices=request.prices, delta=request.delta, series=False
    )
    tests = compare_what_differs(ask, asked)
    layout, facts = tests.layout, tests.facts
    if len(layout.sides) == 1:
        raise OneSideError(
            f"all runs of {request.workload} have the {layout.facet.spoken} {layout.sides[0]}: nothing to choose "
            "between"
        )
    request = replace(request, by=tests.request.by, experiment=tests.request.experiment)
    weights, rankings = _rank_by(request, layout, facts)
    # Settings that are alike say more than a mixture.
    rankings = tuple(sorted(rankings, key=lambda ranking: OTHER_VALUES in ranking.block.held.values()))
    options: tuple[tuple[Facet, tuple[Test, ...]], ...] = ()
    if len(weights) == 1:
        (name,) = weights
        metric = next(one.source for one in rankings[0].criteria if one.name == name)
        if tests.figures.primary.name != metric:
            tests = replace(compare(ask, replace(tests.request, metric=metric)), experiments=tests.experiments)
        better = tests.figures.primary.better
        # Where a side is better than the baseline over all settings, it is compared with the others.
        best = find_best(tests)
        if len(rankings) > 1 and best not in (None, layout.sides[0]):
            tests = replace(compare(ask, replace(tests.request, baseline=best)), experiments=tests.experiments)
        verdicts = {test.judgement.verdict for _, of_option in tests.options for test in of_option}
        if len(rankings) == 1 and better and Verdict.DIFFERS in verdicts:
            options = tests.options
            rankings = (place_by_options(rankings[0], options, name, better),)
    blocks = [ranking.block for ranking in rankings]
    return Recommendation(
        request=request,
        layout=layout,
        facts=facts,
        weights=weights,
        rankings=rankings,
        reasons=tuple(
            tuple(one for standing in ranking.standings for one in of_block if one.side == standing.side)
            for ranking, of_block in zip(rankings, find_reasons(ask, layout.facet, blocks, facts), strict=True)
        ),
        because=tuple(_find_because(ranking, facts, weights) for ranking in rankings),
        caveats=find_caveats(tests, layout, rankings),
        tests=tests,
        options=options,
    )


def _rank_by(request: Request, layout: Layout, facts: Facts) -> tuple[Mapping[str, float], Sequence[Ranking]]:
    """Return the weights, those that were asked for or else cost before time, and the ranking of each block by them.

    Raises GpuAgentError: no two sides have every weighed criterion.
    """
    for weights in [request.weights] if request.weights else [{"cost": 1.0}, {"time": 1.0}]:
        rankings = rank(layout.blocks, facts, weights, delta=request.delta, alpha=0.05 / layout.looks)
        if rankings:
            return weights, rankings
    remedy = {
        "cost": why_unpriced(facts) or "give --prices FILE (see docs/cost.md)",
        "energy": "energy needs a GPU that reports its power",
        "time": "only runs that succeeded count",
    }
    lacking = next(name for name in ("cost", "energy", "time") if name in weights)
    raise GpuAgentError(f"no two sides with like runs both have {' and '.join(weights)}: {remedy[lacking]}")


def _find_because(ranking: Ranking, facts: Facts, weights: Mapping[str, float]) -> Because | None:
    """Return where the difference between the best side and the first one behind comes from, as `compare` does."""
    behind = next((standing for standing in ranking.standings if standing.is_behind), None)
    if behind is None or behind.judgement is None or len(weights) > 1:
        return None
    # The others too: steps that differ in their items make all times those of items.
    sides = dict.fromkeys((ranking.reference, behind.side, *(cell.side for cell in ranking.block.cells)))
    block = replace(ranking.block, cells=tuple(map(ranking.block.cell, sides)))
    criterion = next(one for one in ranking.criteria if one.name in weights)
    alpha = behind.judgement.shift.alpha
    if criterion.metric:
        because = find_product(block, behind.side, facts, criterion.metric, alpha=alpha)
    else:
        because = find_because(block, behind.side, facts, whole_runs=criterion.per == "run", alpha=alpha)
    return because if because and because.difference > 0 else None
