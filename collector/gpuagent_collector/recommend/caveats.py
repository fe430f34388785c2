"""Warnings that a reader must know before acting on a recommendation: those of comparisons, and its own."""

from collections.abc import Iterator, Sequence
from math import comb

from gpuagent_collector.compare.caveats import find_caveats as find_caveats_of_comparison
from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.figures import compute_figures
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.recommend.ranking import Ranking
from gpuagent_collector.runs.cells import Layout, tell_apart
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.specs import spec_rows
from gpuagent_collector.statistics.shift import least_runs
from gpuagent_collector.statistics.verdicts import Verdict

# Codes of warnings about the tests of a comparison; a ranking tests something else.
_OF_TESTS = frozenset({"n_too_small", "untested", "no_throughput"})


def find_caveats(layout: Layout, facts: Facts, rankings: Sequence[Ranking], *, delta: float) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    evidence = Evidence(
        layout=layout,
        facts=facts,
        figures=compute_figures(layout, facts, metric=None, delta=delta),
        specs=spec_rows(layout, facts),
    )
    of_comparison = [caveat for caveat in find_caveats_of_comparison(evidence) if caveat.code not in _OF_TESTS]
    found = (*_few_runs(rankings), *_unranked(layout, rankings), *of_comparison)
    # A load of others makes every figure doubtful.
    return tuple(sorted(found, key=lambda caveat: caveat.code != "foreign_load"))


def _few_runs(rankings: Sequence[Ranking]) -> Iterator[Caveat]:
    judgements = [standing.judgement for ranking in rankings for standing in ranking.standings]
    if any(judgement and judgement.verdict is Verdict.TOO_FEW for judgement in judgements):
        pairs = sum(comb(len(ranking.standings), 2) for ranking in rankings)
        yield Caveat(
            code="n_too_small",
            text="too few runs to show a difference between some of the sides, whatever they took",
            remedy=f"repeat with at least {least_runs(pairs)} runs a side (7 is a good number)",
        )


def _unranked(layout: Layout, rankings: Sequence[Ranking]) -> Iterator[Caveat]:
    ranked = [ranking.block for ranking in rankings]
    others = [tell_apart(block, layout.blocks) for block in layout.blocks if block not in ranked]
    if others:
        yield Caveat(
            code="unranked",
            text=f"not ranked, because two sides lack a figure that is weighed: {', '.join(others)}",
            remedy="weigh figures that they have, or run them where these are measured",
        )
