"""A study of scaling for programs: JSON, CSV and Markdown."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gpuagent_collector.compare.export import write_csv, write_markdown
from gpuagent_collector.scaling.answer import answer
from gpuagent_collector.scaling.caveats import find_caveats
from gpuagent_collector.scaling.curves import Curve
from gpuagent_collector.scaling.document import build_document
from gpuagent_collector.scaling.figures import CurveFigures, Measure, RowFigures
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.statistics.shift import Shift


def to_json(study: Study) -> str:
    """Return everything that is shown as one JSON object."""
    caveats = find_caveats(study)
    found = {
        "answer": answer(study, len(caveats)),
        "curves": [_curve(figures, study.measures) for figures in study.curves],
        "left_out": [trial.run.run_id for trial in study.alone],
        "elastic": [run.run_id for run in study.elastic],
        "warnings": [asdict(caveat) for caveat in caveats],
    }
    return json.dumps(found, indent=2)


def to_csv(study: Study) -> str:
    """Return a header and a line for each number of ranks of each curve."""
    return write_csv(list(_lines(study)))


def to_markdown(study: Study) -> str:
    """Return the document with its tables in GitHub's Markdown."""
    return write_markdown(build_document(study, find_caveats(study), wide=True))


def _curve(figures: CurveFigures, measures: Sequence[Measure]) -> dict[str, Any]:
    settings = figures.curve.settings
    return {
        **_place(figures.curve),
        "parameters": json.loads(settings.parameters),
        "held": settings.held.value,
        "amounts": dict(settings.amounts),
        "baseline_ranks": figures.curve.baseline.ranks,
        "rows": [{**_row(row, measures), **_runs(row)} for row in figures.rows],
    }


def _place(curve: Curve) -> dict[str, Any]:
    names = ("workload", "platform", "environment", "image", "interference", "limits")
    return {**{name: getattr(curve.settings, name) for name in names}, "gpu": curve.gpus}


def _row(row: RowFigures, measures: Sequence[Measure]) -> dict[str, Any]:
    return {
        "ranks": row.row.ranks,
        "node_count": row.row.nodes,
        "n": len(row.row.trials),
        "unsuccessful": len(row.row.others),
        "throughput": row.throughput,
        "throughput_low": row.low,
        "throughput_high": row.high,
        **_shift("speed_up", row.speed_up),
        **_shift("efficiency", row.efficiency),
        **{measure.name: row.measures.get(measure.name) for measure in measures},
    }


def _shift(name: str, shift: Shift | None) -> dict[str, float | None]:
    if shift is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: shift.estimate, f"{name}_low": shift.low, f"{name}_high": shift.high}


def _runs(row: RowFigures) -> dict[str, Any]:
    trials = row.row.trials
    return {
        "runs": [trial.run.run_id for trial in trials],
        "others": Counter(trial.standing for trial in row.row.others),
        "nodes": sorted({name for trial in trials for name in trial.nodes}),
        "devices": sorted({trial.run.device for trial in trials if trial.run.device}),
    }


def _lines(study: Study) -> Iterator[dict[str, Any]]:
    for figures in study.curves:
        settings = figures.curve.settings
        amounts = json.dumps(dict(settings.amounts))
        for row in figures.rows:
            yield {
                **_place(figures.curve),
                "parameters": settings.parameters,
                "held": settings.held.value,
                "amounts": amounts,
                "baseline_ranks": figures.curve.baseline.ranks,
                **_row(row, study.measures),
            }
