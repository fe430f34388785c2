"""A study of scaling in every format."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.sections import is_wide, print_sections
from gpuagent_collector.scaling.answer import answer
from gpuagent_collector.scaling.caveats import find_caveats
from gpuagent_collector.scaling.document import build_document
from gpuagent_collector.scaling.figures import CurveFigures, Measure, RowFigures
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.statistics.shift import Shift


def render(study: Study) -> Rendering:
    """Return the forms of a study: CSV has a line for each number of ranks of each curve."""
    sections = partial(build_document, study, find_caveats(study))
    return Rendering(
        sections=partial(sections, wide=True),
        record=partial(_record, study),
        lines=partial(_lines, study),
        show=lambda console: print_sections(console, sections(wide=is_wide(console))),
    )


def _record(study: Study) -> dict[str, Any]:
    caveats = find_caveats(study)
    return {
        "answer": answer(study, len(caveats)),
        "curves": [
            {**_curve(figures), "rows": [{**_row(row, study.measures), **_runs(row)} for row in figures.rows]}
            for figures in study.curves
        ],
        "left_out": [trial.run.run_id for trial in study.alone],
        "elastic": [run.run_id for run in study.elastic],
        "cancelled": [run.run_id for run in study.cancelled],
        "warnings": [asdict(caveat) for caveat in caveats],
    }


def _curve(figures: CurveFigures) -> dict[str, Any]:
    settings = figures.curve.settings
    names = ("workload", "platform", "environment", "image", "interference", "limits")
    return {
        **{name: getattr(settings, name) for name in names},
        "gpu": figures.curve.gpus,
        "parameters": json.loads(settings.parameters),
        "held": settings.held.value,
        "amounts": dict(settings.amounts),
        "baseline_ranks": figures.curve.baseline.ranks,
    }


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
    return ({**_curve(each), **_row(row, study.measures)} for each in study.curves for row in each.rows)
