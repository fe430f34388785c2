"""A single run: its request, its end and its output."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.launching.runs import find_parts, read_stored_output
from gpuagent_collector.output.document import Grid, Section, Verbatim
from gpuagent_collector.output.human import duration
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.named_runs import NamedRun
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.show.links import is_point


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The request, the end and the output of one run.

    Attributes:
        row: of the view `runs`, with the node's hostname.
        outputs: the stored end of each stream, by node; without streams that are empty.
        results: what the first rank reported of the whole run or a phase, in its order.
    """

    row: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, str]]
    results: Sequence[Mapping[str, Any]]


def load_details(ask: Ask, layout: Layout) -> Details | None:
    """Return the details of the only run of a layout; None: there are several."""
    run_ids = {run.run_id for block in layout.blocks for cell in block.cells for run in cell.runs}
    if len(run_ids) != 1:
        return None
    (run_id,) = run_ids
    row, *_ = ask(_RUN, [run_id])  # a hostile agent can ask for a run twice
    parts = find_parts(ask, NamedRun(run_id=run_id, status=row["status"]), None)
    outputs = {part.node: read_stored_output(ask, part) for part in parts}
    return Details(
        row=row,
        outputs={node: streams for node, streams in outputs.items() if streams},
        results=ask(_RESULTS, [run_id, run_id]),
    )


def details_section(details: Details) -> Section:
    """Return the run as a table of two columns; without properties that it does not have."""
    row = details.row
    took = (row["ended_at"] - row["started_at"]).total_seconds() if row["started_at"] and row["ended_at"] else 0
    command = read_words(row["command"])
    parameters = read_object(row["parameters"], "parameters")
    labels = read_object(row["labels"], "labels")
    known: dict[str, str | None] = {
        "Workload": row["workload"],
        "Status": row["status"],
        "Exit code": _text(row["exit_code"]),
        "Reason": row["reason"],
        "Queued": _time(row["queued_at"]),
        "Started": _time(row["started_at"]),
        "Ended": _time(row["ended_at"]),
        "Took": duration(took) if took else None,
        "Experiment": row["experiment"],
        "Repeat": _text(row["repeat"]),
        "Node": row["hostname"],
        "Nodes": _text(row["nodes"]) if row["nodes"] > 1 else None,
        "Parameters": " ".join(f"{name}={value}" for name, value in parameters.items() if value is not None),
        "Command": shlex.join(command),
        "Labels": " ".join(f"{name}={value}" for name, value in labels.items()),
    }
    rows = tuple((title, text) for title, text in known.items() if text)
    return Section(heading=f"Run {row['run_id']}", parts=(Grid(header=("", "value"), rows=rows, figures_from=2),))


def results_section(details: Details) -> Section | None:
    """Return what the program reported: figures of its own, such as a frontier, and texts; None: nothing.

    Collectives by size have a table of their own.
    """
    rows = tuple(
        (row["name"], row["text"] or f"{_figure(row['value'])} {row['unit'] or ''}".rstrip())
        for row in details.results
        if (row["value"] is not None or row["text"] is not None) and not is_point(row["name"])
    )
    grid = Grid(header=("name", "value"), rows=rows, figures_from=2)
    return Section(heading="Results that the program reported", parts=(grid,)) if rows else None


def output_section(details: Details, lines: int) -> Section | None:
    """Return the last lines of each stored stream; None: none is stored."""
    parts = []
    for node, streams in details.outputs.items():
        for stream, text in streams.items():
            name = f"{stream} on {node}" if len(details.outputs) > 1 else stream
            # Of a progress bar only the last state.
            shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\n").split("\n")[-lines:]]
            parts.append(Verbatim(title=name, text="\n".join(shown)))
    return Section(heading=f"Output, the last {lines} lines", parts=tuple(parts)) if parts else None


def record(details: Details) -> dict[str, Any]:
    """Return the details for JSON, with nested values where the store has JSON."""
    row = details.row
    objects = {name: read_object(row[name], name) if row[name] else None for name in ("parameters", "labels")}
    words = {"command": list(read_words(row["command"])) if row["command"] else None}
    return {**row, **objects, **words, "output": details.outputs, "results": list(details.results)}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _figure(value: float) -> str:
    # Counts are whole, and mostly wanted in full.
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:,.6g}"


def _time(value: datetime | None) -> str | None:
    return None if value is None else f"{value:%Y-%m-%d %H:%M:%S} UTC"


_RUN = """
SELECT runs.* REPLACE (
    CAST(runs.command AS VARCHAR) AS command,
    CAST(runs.parameters AS VARCHAR) AS parameters,
    CAST(runs.labels AS VARCHAR) AS labels
), hostname
FROM runs LEFT JOIN sessions USING (session_id)
WHERE run_id = ?"""

_RESULTS = """
SELECT name, arg_max(value, time) AS value, arg_max(value_text, time) AS text, any_value(unit) AS unit FROM results
WHERE run_id = ? AND rank IS NOT DISTINCT FROM (SELECT min(rank) FROM results WHERE run_id = ?)
GROUP BY name ORDER BY min(time), name"""
