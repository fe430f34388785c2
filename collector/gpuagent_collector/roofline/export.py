"""A roofline in every format."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.roofline.answer import answer
from gpuagent_collector.roofline.caveats import find_caveats, find_errors
from gpuagent_collector.roofline.document import build_document, print_study
from gpuagent_collector.roofline.names import marked
from gpuagent_collector.roofline.points import Standing
from gpuagent_collector.roofline.study import Placed, Study


def render(study: Study) -> Rendering:
    """Return the forms of a roofline: CSV has a line for each point; only the terminal has charts."""
    return Rendering(
        sections=partial(build_document, study),
        record=partial(_record, study),
        lines=partial(_lines, study),
        show=lambda console: print_study(console, study),
    )


def _record(study: Study) -> dict[str, Any]:
    errors, caveats = find_errors(study), find_caveats(study)
    return {
        "answer": answer(study, len(errors), len(caveats)),
        "by": study.facet.name,
        "rooflines": [
            {
                "device": each.device,
                "measured": asdict(each.measured),
                "ceilings_run": each.ceilings.run.run_id if each.ceilings else None,
                "ceilings_of": each.ceilings.nearness.name.lower() if each.ceilings else None,
                "datasheet": asdict(each.datasheet),
                "points": [
                    {"mark": mark, **_point(placed), "runs": [trial.run.run_id for trial in placed.point.trials]}
                    for mark, placed in marked(each)
                ],
            }
            for each in study.rooflines
        ],
        "left_out": [run.run_id for run in study.without_figures],
        "unsuccessful": [run.run_id for run in study.unsuccessful],
        "cancelled": [run.run_id for run in study.cancelled],
        "errors": [asdict(error) for error in errors],
        "warnings": [asdict(caveat) for caveat in caveats],
    }


def _point(placed: Placed) -> dict[str, Any]:
    point = placed.point
    return {
        **asdict(point.group),
        "parameters": json.loads(point.group.parameters),
        "n": len(point.trials),
        "step_seconds": point.seconds,
        "flops": point.flops,
        "flops_by": point.flops_by.value,
        "model_flops": point.model_flops,
        "arithmetic": dict(point.mix),
        "bytes": point.traffic_bytes,
        "bytes_by": point.traffic_by.value if point.traffic_by else None,
        "flops_per_byte": point.intensity,
        "flops_per_second": point.flops_per_second,
        "gpu_busy_percent": point.busy_percent,
        **_standing("measured", placed.measured),
        **_standing("datasheet", placed.datasheet),
    }


def _standing(source: str, standing: Standing) -> dict[str, Any]:
    return {
        f"{source}_roof_percent": standing.roof_percent,
        f"{source}_mfu_percent": standing.mfu_percent,
        f"{source}_side": standing.side.value if standing.side else None,
    }


def _lines(study: Study) -> Iterator[dict[str, Any]]:
    for roofline in study.rooflines:
        for placed in roofline.placed:
            yield {**_point(placed), "ceilings_run": roofline.ceilings.run.run_id if roofline.ceilings else None}
