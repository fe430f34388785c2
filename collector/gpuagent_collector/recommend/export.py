"""A recommendation in every format."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.recommend.answer import answer
from gpuagent_collector.recommend.document import build_document
from gpuagent_collector.recommend.ranking import Standing
from gpuagent_collector.recommend.study import Recommendation


def render(recommendation: Recommendation) -> Rendering:
    """Return the forms of a recommendation: CSV has a line for each side of each block."""
    return Rendering(
        sections=partial(build_document, recommendation),
        record=partial(_record, recommendation),
        lines=partial(_lines, recommendation),
    )


def _record(recommendation: Recommendation) -> dict[str, Any]:
    return {
        "answer": answer(recommendation),
        "workload": recommendation.request.workload,
        "by": recommendation.layout.facet.name,
        "weights": recommendation.request.weights,
        "delta": recommendation.request.delta,
        "rankings": [
            {
                "parameters": ranking.block.parameters,
                "held": ranking.block.held,
                "criteria": {
                    one.name: {"what": one.what, "per": one.per, "unit": one.unit} for one in ranking.criteria
                },
                "sides": [
                    {"side": each.side, **_place(each), "medians": each.medians, **_score(each), **_efficient(each)}
                    for each in ranking.standings
                ],
                "unranked": ranking.unranked,
                "runs": {cell.side: [run.run_id for run in cell.runs] for cell in ranking.block.cells},
                "bounds": {
                    one.side: [{**asdict(bound), "limit": bound.limit.value} for bound in one.bounds] for one in reasons
                },
            }
            for ranking, reasons in recommendation.reasoned
        ],
        "warnings": [asdict(caveat) for caveat in recommendation.caveats],
    }


def _place(standing: Standing) -> dict[str, Any]:
    return {"n": standing.runs, "place": standing.place}


def _efficient(standing: Standing) -> dict[str, Any]:
    return {"in_pareto_set": standing.is_efficient}


def _score(standing: Standing) -> dict[str, Any]:
    if standing.judgement is None:
        return {"verdict": "best", **dict.fromkeys(("score", "score_low", "score_high", "level"))}
    shift = standing.judgement.shift
    ends = {"score": shift.estimate, "score_low": shift.low, "score_high": shift.high, "level": shift.alpha}
    return {"verdict": standing.judgement.verdict.value, **ends}


def _lines(recommendation: Recommendation) -> Iterator[dict[str, Any]]:
    for ranking, reasons in recommendation.reasoned:
        bounds = {one.side: one.bounds for one in reasons}
        units = {one.name: one.unit for one in ranking.criteria}
        for standing in ranking.standings:
            yield {
                "workload": ranking.block.workload,
                "parameters": ranking.block.parameters,
                "held": ranking.block.held,
                "by": recommendation.layout.facet.name,
                "side": standing.side,
                **_place(standing),
                **{name: standing.medians.get(name) for name in ("time", "energy", "cost")},
                "cost_unit": units.get("cost"),
                **_score(standing),
                **_efficient(standing),
                **{f"{bound.limit.value}_percent": bound.percent for bound in bounds[standing.side]},
                "bound_by": " ".join(bound.limit.value for bound in bounds[standing.side] if bound.is_shown),
            }
