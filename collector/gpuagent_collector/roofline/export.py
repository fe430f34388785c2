"""A roofline for programs: JSON, CSV and Markdown."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gpuagent_collector.compare.export import write_csv, write_markdown
from gpuagent_collector.roofline.answer import answer
from gpuagent_collector.roofline.caveats import find_caveats, find_errors
from gpuagent_collector.roofline.document import build_document
from gpuagent_collector.roofline.names import marked
from gpuagent_collector.roofline.points import Standing
from gpuagent_collector.roofline.study import Placed, Roofline, Study


def to_json(study: Study) -> str:
    """Return everything that is shown as one JSON object."""
    errors, caveats = find_errors(study), find_caveats(study)
    found = {
        "answer": answer(study, len(errors), len(caveats)),
        "by": study.facet.name,
        "rooflines": [_roofline(roofline) for roofline in study.rooflines],
        "left_out": [run.run_id for run in study.without_figures],
        "unsuccessful": [run.run_id for run in study.unsuccessful],
        "errors": [asdict(error) for error in errors],
        "warnings": [asdict(caveat) for caveat in caveats],
    }
    return json.dumps(found, indent=2)


def to_csv(study: Study) -> str:
    """Return a header and a line for each point."""
    return write_csv(list(_lines(study)))


def to_markdown(study: Study) -> str:
    """Return the document with its tables in GitHub's Markdown; charts are left out."""
    return write_markdown(build_document(study))


def _roofline(roofline: Roofline) -> dict[str, Any]:
    ceilings = roofline.ceilings
    return {
        "device": roofline.device,
        "measured": asdict(roofline.measured),
        "ceilings_run": ceilings.run.run_id if ceilings else None,
        "ceilings_of": ceilings.nearness.name.lower() if ceilings else None,
        "datasheet": asdict(roofline.datasheet),
        "points": [
            {"mark": mark, **_point(placed), "runs": [trial.run.run_id for trial in placed.point.trials]}
            for mark, placed in marked(roofline)
        ],
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
            point = _point(placed)
            nested = {name: json.dumps(point[name]) for name in ("parameters", "arithmetic")}
            yield {**point, **nested, "ceilings_run": roofline.ceilings.run.run_id if roofline.ceilings else None}
