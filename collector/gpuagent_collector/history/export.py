"""A history as a document of paragraphs and tables, and in every format."""

import json
import shlex
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from gpuagent_collector.history.study import History, Level, Series
from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import change, notation, significant
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.words import percent, spoken
from gpuagent_collector.statistics.changes import LEAST_PART

# The answer names so many changes; the tables have the others.
_MOST_NAMED = 3


def answer(history: History) -> str:
    """Return the changes that are shown, the newest first, and what was looked at."""
    title = spoken(history.metric, history.request.stat)
    changes = sorted(
        (
            (after.first, series, before, after)
            for series in history.series
            for before, after in pairwise(series.levels)
        ),
        key=lambda found: found[0],
        reverse=True,
    )
    tested = sum(series.is_tested for series in history.series)
    seen = f"Histories tested: {tested}."
    if not changes:
        return f"No change of {title} is shown. {seen}" if tested else f"Too few runs to show a change of {title}."
    sentences = [
        f"{series.workload} on {series.node} since {time:%Y-%m-%d}: {title} {_change(before, after)}{_there(after)}."
        for time, series, before, after in changes[:_MOST_NAMED]
    ]
    rest = len(changes) - len(sentences)
    few = [series for series in history.series if series.may_be_days]
    doubt = f"Runs of fewer than {2 * LEAST_PART} days: a difference between days shows as a change." if few else ""
    more = f"The tables have {rest} more." if rest > 0 else ""
    return " ".join(filter(None, [*sentences, more, doubt, seen]))


def _change(before: Level, after: Level) -> str:
    if before.median > 0 and after.median > 0:
        return change(after.median / before.median)
    return f"{significant(before.median)} → {significant(after.median)}"


def _there(level: Level) -> str:
    return (
        f" ({', '.join(release.words for release in level.releases)})" if level.releases else " (no known fact changed)"
    )


def build_document(history: History) -> list[Section]:
    """Return the document."""
    title = spoken(history.metric, history.request.stat)
    first = Section(heading=f"History of {title}", parts=(Paragraph(text=answer(history)),))
    return [first, *map(partial(_section, history=history), history.series), _legend(history)]


def _section(series: Series, history: History) -> Section:
    scale = notation([level.median for level in series.levels], history.unit)
    what = "days" if series.is_daily else "runs"
    rows = tuple(
        (
            f"{level.first:%Y-%m-%d}",
            f"{level.last:%Y-%m-%d}",
            str(level.values),
            scale.write(level.median),
            ABSENT if number == 0 else _change(series.levels[number - 1], level),
            ABSENT if level.p_value is None else significant(level.p_value, 2),
            ", ".join(release.words for release in level.releases) or ABSENT,
        )
        for number, level in enumerate(series.levels)
    )
    parts: list[Grid | Paragraph] = [
        Grid(header=("from", "to", what, "median", "change", "p", "changed there"), rows=rows, figures_from=7)
    ]
    if series.quiet:
        quiet = [f"{release.words}{f' ({release.time:%Y-%m-%d})' if release.time else ''}" for release in series.quiet]
        parts.append(Paragraph(text=f"Changed without a shown effect: {', '.join(quiet)}."))
    if series.may_be_days:
        text = f"Each run counts, since {series.days} days are too few: what a day has in common shows as a change too."
        parts.append(Paragraph(text=text))
    if not series.is_tested:
        parts.append(Paragraph(text=f"Not tested: fewer than {2 * LEAST_PART} runs."))
    given = {name: value for name, value in json.loads(series.parameters).items() if value is not None}
    named = " ".join([series.workload, *(f"{name}={value}" for name, value in given.items())])
    if series.command:
        named += f": {shlex.join(series.command)}"
    return Section(heading=f"{series.node}: {named} · {series.circumstances}", parts=tuple(parts))


def _legend(history: History) -> Section:
    request = history.request
    text = (
        "A level is a stretch without a shown change. Changes are found by binary segmentation of ranks, with the "
        f"p-value of random orders of the same values; each series is tested at {percent(history.level)}, so that at "
        f"most {percent(request.alpha)} of histories without any change show one. Where there are runs of "
        f"{2 * LEAST_PART} or more days, each day counts once, with its median: runs of a day have much in common. "
        "With fewer days each run counts, and a difference between days shows as a change. Days that resemble their "
        "neighbours give more false changes. A fact that changed at the same time need not be the cause. Changes have "
        "no intervals, because their places were chosen by their size: `collector compare --before EVENT` has."
    )
    return Section(heading="How to read this", parts=(Paragraph(text=text),))


def render(history: History) -> Rendering:
    """Return the forms of a history: CSV has a line for each level."""
    return Rendering(
        sections=partial(build_document, history), record=partial(_record, history), lines=partial(_lines, history)
    )


def _record(history: History) -> dict[str, Any]:
    return {
        "answer": answer(history),
        "metric": history.metric.name,
        "unit": history.unit,
        "alpha": history.request.alpha,
        "level": history.level,
        "series": [
            {
                "workload": series.workload,
                "parameters": json.loads(series.parameters),
                "command": series.command,
                "circumstances": series.circumstances,
                "node": series.node,
                "is_daily": series.is_daily,
                "days": series.days,
                "is_tested": series.is_tested,
                "levels": [_level(level) for level in series.levels],
                "changed_without_effect": [release.words for release in series.quiet],
            }
            for series in history.series
        ],
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "first": level.first.isoformat(),
        "last": level.last.isoformat(),
        "values": level.values,
        "runs": level.runs,
        "median": level.median,
        "p_value": level.p_value,
        "changed": [release.words for release in level.releases],
    }


def _lines(history: History) -> Iterator[dict[str, Any]]:
    for series in history.series:
        for level in series.levels:
            yield {
                "workload": series.workload,
                "node": series.node,
                "parameters": series.parameters,
                "command": json.dumps(series.command),
                "circumstances": series.circumstances,
                **_level(level),
            }
