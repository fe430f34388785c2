"""What a reader must know before acting on a recommendation: what holds for comparisons, and what it cannot tell."""

from collections.abc import Iterator, Sequence
from math import comb

from gpuagent_collector.compare.caveats import find_caveats as find_caveats_of_comparison
from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.figures import compute_figures
from gpuagent_collector.compare.specs import spec_rows
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.recommend.ranking import Ranking
from gpuagent_collector.runs.cells import Layout, tell_apart
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.statistics.shift import Verdict, least_runs

# Codes of warnings about what a comparison tests, which is other than what a ranking does.
_OF_TESTS = frozenset({"n_too_small", "untested", "no_throughput"})


def find_caveats(layout: Layout, facts: Facts, rankings: Sequence[Ranking], *, delta: float) -> tuple[Caveat, ...]:
    """Return every warning that the data gives reason for."""
    evidence = Evidence(
        layout=layout,
        facts=facts,
        figures=compute_figures(layout, facts, metric=None, delta=delta),
        specs=spec_rows(layout, facts),
    )
    of_comparison = (caveat for caveat in find_caveats_of_comparison(evidence) if caveat.code not in _OF_TESTS)
    return (*_few_runs(rankings), *_unranked(layout, rankings), *of_comparison)


def _few_runs(rankings: Sequence[Ranking]) -> Iterator[Caveat]:
    judgements = [standing.judgement for ranking in rankings for standing in ranking.standings]
    if any(judgement and judgement.verdict is Verdict.TOO_FEW for judgement in judgements):
        pairs = sum(comb(len(ranking.standings), 2) for ranking in rankings)
        yield Caveat(
            code="n_too_small",
            text="so few runs could not tell some of the sides apart, whatever they took",
            remedy=f"repeat with at least {least_runs(pairs)} runs a side (7 is a good number)",
        )


def _unranked(layout: Layout, rankings: Sequence[Ranking]) -> Iterator[Caveat]:
    ranked = [ranking.block for ranking in rankings]
    others = [tell_apart(block, layout.blocks) for block in layout.blocks if block not in ranked]
    if others:
        yield Caveat(
            code="unranked",
            text=f"not ranked, since what is weighed is not known of two sides: {', '.join(others)}",
            remedy="weigh what is known of them, or run them where it is",
        )
