"""Outliers as a document of paragraphs and tables, and in every format."""

import json
import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpuagent_collector.outliers.facts import Oddity
from gpuagent_collector.outliers.readings import Kind
from gpuagent_collector.outliers.study import Finding, Outliers
from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import change, notation, significant
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.shortening import shorten
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.words import percent
from gpuagent_collector.statistics.outlying import LEAST_VALUES
from gpuagent_common.text import counted

# The answer names so many; the tables have the others.
_MOST_NAMED = 3

# Of what ran, in a table.
_MOST_CHARACTERS = 40


def answer(outliers: Outliers) -> str:
    """Return the units to look at first, and what was looked at."""
    by_unit: dict[str, list[str]] = {}
    for oddity in outliers.oddities:
        usual = f", {oddity.share} have {oddity.usual}" if oddity.usual else ""
        by_unit.setdefault(oddity.unit.name, []).append(f"{oddity.what} {oddity.value}{usual}")
    for finding in outliers.findings:
        by_unit.setdefault(finding.unit.name, []).append(f"{finding.metric.title} {_change(finding)}")
    seen = f"Tested: {counted(outliers.tests, 'figure')} of {counted(outliers.units, 'unit')}."
    if not by_unit:
        return f"No node or GPU is shown to differ from its kind. {seen}"
    named = [f"{unit}: {'; '.join(what[:_MOST_NAMED])}" for unit, what in list(by_unit.items())[:_MOST_NAMED]]
    rest = len(by_unit) - len(named)
    return ". ".join([*named, *([f"The tables have {rest} more"] if rest else []), seen])


def _change(finding: Finding) -> str:
    return change(1 + finding.change) if finding.change > -1 else f"{100 * finding.change:.0f} %"


def build_document(outliers: Outliers) -> list[Section]:
    """Return the document."""
    sections = [Section(heading="Nodes and GPUs unlike their kind", parts=(Paragraph(text=answer(outliers)),))]
    if outliers.findings:
        kinds = shorten([name_kind(finding.kind) for finding in outliers.findings], _MOST_CHARACTERS)
        rows = tuple(
            (
                finding.unit.name,
                kind,
                finding.metric.title,
                notation([finding.value, finding.usual], finding.metric.unit).write(finding.value),
                f"{notation([finding.value, finding.usual], finding.metric.unit).write(finding.usual)} "
                f"({finding.units})",
                _change(finding),
                _rate(finding.q_value),
            )
            for finding, kind in zip(outliers.findings, kinds, strict=True)
        )
        header = ("", "in", "figure", "value", "its kind (n)", "change", "q")
        sections.append(Section(heading="Figures", parts=(Grid(header=header, rows=rows, figures_from=3),)))
    if outliers.oddities:
        facts = tuple((one.unit.name, one.what, one.value, one.usual or ABSENT, one.share) for one in outliers.oddities)
        grid = Grid(header=("", "fact", "value", "others", "how many"), rows=facts, figures_from=5)
        sections.append(Section(heading="Facts, not tested", parts=(grid,)))
    return [*sections, Section(heading="How to read this", parts=(Paragraph(text=_legend(outliers)),))]


def _rate(q_value: float) -> str:
    return "< 0.0001" if q_value < 0.0001 else significant(q_value, 2)


def _legend(outliers: Outliers) -> str:
    request = outliers.request
    lone = (
        f" Not tested: {counted(outliers.lone, 'unit')}, without a figure that {LEAST_VALUES} of a kind have."
        if outliers.lone
        else ""
    )
    return (
        f"A unit is a node or a GPU. Each value is the median of its last {counted(request.last, 'run')} of the same "
        "workload, parameters, GPU model and circumstances, beside the median of its kind. Found: figures further from "
        f"it than chance explains, at a false discovery rate of {percent(request.rate)} over all that were tested (q: "
        f"Benjamini and Hochberg), and by more than {percent(request.delta)}. It assumes that sound "
        f"units scatter with tails no heavier than Student's t with 5 degrees of freedom.{lone}"
    )


def name_kind(kind: Kind) -> str:
    """Return what ran, in one line."""
    if kind.command:
        return f"{kind.workload}: {shlex.join(kind.command)}"
    parameters = json.loads(kind.parameters or "{}")
    given = {name: value for name, value in parameters.items() if name in ("ranks", "batch-size")}
    return " ".join([kind.workload, *(f"{name}={value}" for name, value in given.items() if value is not None)])


def render(outliers: Outliers) -> Rendering:
    """Return the forms of the answer: CSV has a line for each finding and fact."""
    return Rendering(
        sections=partial(build_document, outliers), record=partial(_record, outliers), lines=partial(_lines, outliers)
    )


def _record(outliers: Outliers) -> dict[str, Any]:
    return {
        "answer": answer(outliers),
        "rate": outliers.request.rate,
        "delta": outliers.request.delta,
        "tests": outliers.tests,
        "units": outliers.units,
        "untested_units": outliers.lone,
        "findings": [_finding(finding) for finding in outliers.findings],
        "facts": [_oddity(oddity) for oddity in outliers.oddities],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    kind = finding.kind
    return {
        "unit": finding.unit.name,
        "node_id": finding.unit.node_id,
        "device_id": finding.unit.device_id,
        "figure": finding.metric.name,
        "value": finding.value,
        "usual": finding.usual,
        "metric_unit": finding.metric.unit,
        "change_percent": 100 * finding.change,
        "q_value": finding.q_value,
        "units": finding.units,
        "runs": finding.runs,
        "workload": kind.workload,
        "parameters": json.loads(kind.parameters or "{}"),
        "command": kind.command,
        "device": kind.device,
        "environment": kind.environment,
        "image": kind.image,
        "interference": kind.interference,
        "limits": kind.limits,
    }


def _oddity(oddity: Oddity) -> dict[str, Any]:
    return {
        "unit": oddity.unit.name,
        "node_id": oddity.unit.node_id,
        "device_id": oddity.unit.device_id,
        "fact": oddity.what,
        "value": oddity.value,
        "usual": oddity.usual,
        "share": oddity.share or None,
    }


_LINE = (
    *("unit", "what", "value", "usual", "change_percent", "q_value", "workload", "device"),
    # What tells kinds of one workload apart.
    *("parameters", "command", "environment", "image", "interference", "limits"),
)


def _lines(outliers: Outliers) -> Iterator[dict[str, Any]]:
    found = [
        *({**_finding(one), "what": one.metric.name} for one in outliers.findings),
        *({**_oddity(one), "what": one.what} for one in outliers.oddities),
    ]
    # A table has at least one line.
    for line in found or [{}]:
        yield {name: _text(line.get(name)) for name in _LINE}


def _text(value: object) -> str | None:
    if value is None:
        return None
    return json.dumps(value) if isinstance(value, dict | tuple) else str(value)
