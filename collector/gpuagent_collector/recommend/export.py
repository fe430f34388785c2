"""A recommendation for programs: JSON, CSV and Markdown."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gpuagent_collector.compare.export import write_csv, write_markdown
from gpuagent_collector.metrics.bounds import Bound
from gpuagent_collector.recommend.answer import answer
from gpuagent_collector.recommend.document import build_document
from gpuagent_collector.recommend.ranking import Ranking, Standing
from gpuagent_collector.recommend.reasons import Reasons
from gpuagent_collector.recommend.study import Recommendation


def to_json(recommendation: Recommendation) -> str:
    """Return everything that is shown as one JSON object."""
    found = {
        "answer": answer(recommendation),
        "workload": recommendation.request.workload,
        "by": recommendation.layout.facet.name,
        "weights": recommendation.request.weights,
        "delta": recommendation.request.delta,
        "rankings": [
            _ranking(ranking, reasons)
            for ranking, reasons in zip(recommendation.rankings, recommendation.reasons, strict=True)
        ],
        "warnings": [asdict(caveat) for caveat in recommendation.caveats],
    }
    return json.dumps(found, indent=2)


def to_csv(recommendation: Recommendation) -> str:
    """Return a header and a line for each side of each block."""
    return write_csv(list(_lines(recommendation)))


def to_markdown(recommendation: Recommendation) -> str:
    """Return the document with its tables in GitHub's Markdown."""
    return write_markdown(build_document(recommendation))


def _ranking(ranking: Ranking, reasons: Sequence[Reasons]) -> dict[str, Any]:
    return {
        "parameters": ranking.block.parameters,
        "held": ranking.block.held,
        "criteria": {one.name: {"what": one.what, "per": one.per, "unit": one.unit} for one in ranking.criteria},
        "sides": [_standing(standing) for standing in ranking.standings],
        "unranked": ranking.unranked,
        "runs": {cell.side: [run.run_id for run in cell.runs] for cell in ranking.block.cells},
        "bounds": {one.side: [_bound(bound) for bound in one.bounds] for one in reasons},
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "side": standing.side,
        "n": standing.runs,
        "place": standing.place,
        "medians": standing.medians,
        **_score(standing),
        "in_pareto_set": standing.is_efficient,
    }


def _score(standing: Standing) -> dict[str, Any]:
    if standing.judgement is None:
        return {"verdict": "best", **dict.fromkeys(("score", "score_low", "score_high", "level"))}
    shift = standing.judgement.shift
    ends = {"score": shift.estimate, "score_low": shift.low, "score_high": shift.high, "level": shift.alpha}
    return {"verdict": standing.judgement.verdict.value, **ends}


def _bound(bound: Bound) -> dict[str, Any]:
    return {**asdict(bound), "limit": bound.limit.value}


def _lines(recommendation: Recommendation) -> Iterator[dict[str, Any]]:
    for ranking, reasons in zip(recommendation.rankings, recommendation.reasons, strict=True):
        bounds = {one.side: one.bounds for one in reasons}
        units = {one.name: one.unit for one in ranking.criteria}
        for standing in ranking.standings:
            yield {
                "workload": ranking.block.workload,
                "parameters": json.dumps(ranking.block.parameters),
                "held": json.dumps(ranking.block.held),
                "by": recommendation.layout.facet.name,
                "side": standing.side,
                "n": standing.runs,
                "place": standing.place,
                **{name: standing.medians.get(name) for name in ("time", "energy", "cost")},
                "cost_unit": units.get("cost"),
                **_score(standing),
                "in_pareto_set": standing.is_efficient,
                **{f"{bound.limit.value}_percent": bound.percent for bound in bounds[standing.side]},
                "bound_by": " ".join(bound.limit.value for bound in bounds[standing.side] if bound.is_shown),
            }
