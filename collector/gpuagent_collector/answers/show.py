"""`collector show`: one run, or the runs of one side: everything that the store has of them."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from math import ceil
from operator import itemgetter
from typing import Any

from gpuagent_collector.answers import profile as profiling
from gpuagent_collector.answers.profile import Side, study_sides
from gpuagent_collector.answers.profile import Study as Profile
from gpuagent_collector.answers.profile_data import traced_runs
from gpuagent_collector.answers.show_results import (
    LINK,
    Point,
    Stack,
    links_sections,
    load_points,
    load_stacks,
    stacks_section,
)
from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare import document as comparing
from gpuagent_collector.compare.choosing import find_sweep
from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.compare.figures import Row
from gpuagent_collector.compare.values import ALONE, describe_sides, overview_table, say_parts
from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.launching.runs import find_parts, read_stored_output
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import Answer, Section, Verbatim
from gpuagent_collector.present.human import duration, notation, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask, Recorder, literal
from gpuagent_collector.query.named_runs import NamedRun, find_run, find_run_ids
from gpuagent_collector.runs.arguments import SUITE, in_order
from gpuagent_collector.runs.cells import CANCELLED, UNFINISHED, Layout, ended_in_queue, first_few
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.paragraph import describe_runs
from gpuagent_collector.runs.parts import load_parts
from gpuagent_collector.runs.repeating import find_recorded
from gpuagent_collector.runs.series import Course
from gpuagent_collector.runs.stragglers import describe_straggler
from gpuagent_collector.runs.words import spoken, write_command
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The request, the end and the output of one run.

    Attributes:
        row: of the view `runs`, with the node's hostname.
        outputs: the stored end of each stream, by node; without streams that are empty.
        results: what the first rank reported of the whole run or a phase, in its order.
        reporting: number of ranks that reported results.
        logged: the numbers that the first rank logged by step: the last one of each, and how many there are.
    """

    row: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, str]]
    results: Sequence[Mapping[str, Any]]
    reporting: int
    logged: Sequence[Mapping[str, Any]]

    @property
    def has_failed(self) -> bool:
        """True if it ended badly; the output of a run that its user stopped is no news."""
        return self.row["status"] not in ("succeeded", CANCELLED, *UNFINISHED)


def load_details(ask: Ask, layout: Layout) -> Details | None:
    """Return the details of the only run of a layout; None: there are several."""
    run_ids = {run.run_id for run in layout.runs}
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
        reporting=ask(_REPORTING, [run_id])[0]["ranks"],
        logged=ask(_LOGGED, [run_id, run_id]),
    )


def details_table(details: Details) -> Table:
    """Return the run as a table of two columns; without properties that it does not have."""
    row = details.row
    took = (row["ended_at"] - row["started_at"]).total_seconds() if row["started_at"] and row["ended_at"] else 0
    command = read_words(row["command"])
    parameters = read_object(row["parameters"], "parameters")
    labels = read_object(row["labels"], "labels")
    given = " ".join(f"{name}={value}" for name, value in parameters.items() if value is not None)
    # A command has those that were given, and the parameters the defaults too.
    known: dict[str, str | None] = {
        "Command": shlex.join(_as_typed(command)),
        **({} if command else {"Parameters": given}),
        "Started" if row["started_at"] else "Queued": _time(row["started_at"] or row["queued_at"]),
        "Platform": row["platform"],
        "Node": row["hostname"],
        "Nodes": _text(row["nodes"]) if row["nodes"] > 1 else None,
        "Environment": row["environment"],
        "Experiment": row["experiment"],
        "Repeat": _text(row["repeat"]),
        "Labels": " ".join(f"{name}={value}" for name, value in labels.items()),
        "Parameters": given,
        "Workload": row["workload"],
        "Status": row["status"],
        "Exit code": _text(row["exit_code"]),
        "Reason": row["reason"],
        "Queued": _time(row["queued_at"]),
        "Ended": _time(row["ended_at"]),
        "Took": duration(took) if took else None,
    }
    columns = (Column(None, "property", left=True), Column(None, "value", left=True))
    return Table(columns, [(title, text) for title, text in known.items() if text])


def _as_typed(command: Sequence[str]) -> Sequence[str]:
    """Return a command of gpuagent's own workloads as a user types it: without the interpreter that ran it."""
    return ["gpuagent", "run", *command[4:]] if tuple(command[2:4]) == SUITE else command


def results_section(details: Details) -> Section | None:
    """Return what the program reported: figures of its own, such as a frontier, and texts; None: nothing.

    Collectives by size have a table of their own.
    """
    rows = [
        (row["name"], row["text"] or f"{_figure(row['value'])} {row['unit'] or ''}".rstrip())
        for row in details.results
        if (row["value"] is not None or row["text"] is not None) and not LINK.fullmatch(row["name"])
    ]
    columns = (Column(None, "name", left=True), Column(None, "value", left=True))
    heading = "Results that the program reported"
    if details.reporting > 1:
        heading = f"Results that the first of {details.reporting} ranks reported"
    return Section(heading, [Table(columns, rows)]) if rows else None


def logged_section(details: Details) -> Section | None:
    """Return the numbers that the program logged by step, whose curves `collector plot` draws; None: nothing."""
    columns = (
        Column(None, "logged by step", "name", left=True),
        Column(None, "values", "number"),
        Column(None, "last", "value", show=significant),
        Column(None, "at step", "step"),
    )
    if not details.logged:
        return None
    curve = "`collector plot NAME --kind steps` draws the curves of a name."
    return Section("Numbers that the program logged", [Table(columns, details.logged), curve])


def output_section(details: Details, lines: int) -> Section | None:
    """Return the last lines of each stored stream; None: none is stored."""
    return _write_output(details.outputs, lines)


def _write_output(outputs: Mapping[str, Mapping[str, str]], lines: int, width: int | None = None) -> Section | None:
    """Return the last lines of each stream; with a `width`, as many as fit when wrapped to it, or the last one."""
    parts = []
    for node, streams in outputs.items():
        for stream, text in streams.items():
            name = f"{stream} on {node}" if len(outputs) > 1 else stream
            # Of a progress bar only the last state.
            shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\n").split("\n")[-lines:]]
            wrapped = accumulate(ceil(len(line) / width) or 1 if width else 1 for line in reversed(shown))
            fitting = max(1, sum(total <= lines for total in wrapped))
            parts.append(Verbatim(title=name, text="\n".join(shown[-fitting:])))
    return Section(heading=f"Output, the last {lines} lines", parts=tuple(parts)) if parts else None


def _first_output(details: Details) -> Section | None:
    """Return the ends of the first nodes' stderr, or of stdout where that is empty, as they fit on the first screen."""
    nodes = list(details.outputs.items())[:_FIRST_NODES]
    first = {node: dict([min(streams.items())]) for node, streams in nodes}  # stderr is before stdout
    return _write_output(first, _FIRST_LINES // max(1, len(first)), _FIRST_WIDTH)


def record(details: Details) -> dict[str, Any]:
    """Return the details for JSON, with nested values where the store has JSON."""
    row = details.row
    objects = {name: read_object(row[name], name) if row[name] else None for name in ("parameters", "labels")}
    words = {"command": list(read_words(row["command"])) if row["command"] else None}
    return {
        **row,
        **objects,
        **words,
        "output": details.outputs,
        "results": list(details.results),
        "logged": list(details.logged),
    }


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

# A loss that is NaN is logged too.
_LOGGED = """
WITH of_run AS (
    SELECT name, rank, TRY_CAST(detail->>'step' AS BIGINT) AS step, TRY_CAST(detail->>'value' AS DOUBLE) AS value
    FROM run_events WHERE event = 'metric' AND name IS NOT NULL AND run_id = ?
)
SELECT name, count(*) AS number, arg_max(value, step) AS value, max(step) AS step FROM of_run
WHERE step IS NOT NULL AND value IS NOT NULL AND rank IS NOT DISTINCT FROM
    (SELECT min(rank) FROM run_events WHERE event = 'metric' AND run_id = ?)
GROUP BY name ORDER BY name"""

_REPORTING = "SELECT count(DISTINCT rank) AS ranks FROM results WHERE run_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """Runs with everything that is shown of them.

    Attributes:
        comparison: of one side, so without a test.
        paragraph: on the runs of a single workload; '' for several. Its last line is the next command, if there is one.
        details: of the only run; None: there are several.
        further: of the only run, the command that repeats it, or shows all runs of its workload; None: neither.
        straggler: the rank or GPU that is late, in words; '' where runs have no such parts.
        by_command: likewise of the first workload's commands, side by side; None: it has one.
        profile: the kernels of the median traced run of the first block; None: no run has a trace.
        stacks: what `memory-limit` found; empty: these are no runs of it.
        points: what `collectives` measured; empty likewise.
        statements: what the store was asked.
    """

    comparison: Comparison
    paragraph: str
    details: Details | None
    further: str | None
    straggler: str
    by_command: Comparison | None
    profile: Profile | None
    stacks: tuple[Stack, ...]
    points: tuple[Point, ...]
    statements: Sequence[str]


def study_show(ask: Ask, name: str | None, request: Request) -> Showing:
    """Return everything about a run, about the runs of a platform, experiment or workload, or about all of the request.

    Args:
        ask: runs a query on the store.
        name: a platform, an experiment, a workload, a run or its unique beginning; None: all runs.
        request: the other conditions.

    Raises:
        MisuseError: nothing has this name, or a condition is invalid.
        GpuAgentError: the store has no runs, or none that succeeded.
    """
    recorder = Recorder(ask)
    asking = recorder.about("show")
    comparison = compare(asking, _choose(asking, name, replace(request, described=True)))
    runs = [run for side in comparison.layout.sides for run in comparison.layout.runs_of(side)]
    is_one = len({run.workload for run in runs}) == 1
    others = Counter[str]()
    # With every status, the others are among the runs.
    for block in () if comparison.request.every_status else comparison.layout.blocks:
        for cell in block.cells:
            others.update(cell.others)
    details = load_details(asking, comparison.layout)
    parts = comparison.parts
    if details and request.each is None:
        parts = load_parts(asking, runs, comparison.facts, PartKind.RANK)
    return Showing(
        comparison=comparison,
        paragraph=describe_runs(asking, runs, comparison.facts, others, experiment=comparison.request.experiment)
        if is_one
        else "",
        details=details,
        further=_go_further(asking, runs[0]) if details else None,
        straggler=describe_straggler(parts.values()) if is_one else "",
        by_command=_by_command(asking, comparison) if is_one else None,
        profile=_profile(asking, comparison),
        stacks=load_stacks(asking, comparison.layout.run_ids),
        points=load_points(asking, comparison.layout.run_ids),
        statements=recorder.statements["show"],
    )


def _go_further(ask: Ask, run: Run) -> str | None:
    """Return the command that launches a run that never started, repeats the only one of a workload, or shows all.

    None: it has not ended, or another tool made it.
    """
    if run.status in UNFINISHED or run.imported:
        return None
    if ended_in_queue(run):
        launch = find_recorded(ask, [run.run_id]).launch_command(run.command, run.workload, 1)
        if launch:
            return launch
    if len(ask("SELECT 1 FROM runs WHERE workload = ? LIMIT 2", [run.workload])) > 1:
        return write_command("show", {}, run.workload)
    return find_recorded(ask, [run.run_id]).repeat_command([run.command], run.workload)


def _choose(ask: Ask, name: str | None, request: Request) -> Request:
    if name is None:
        return replace(request, by="all")
    if ask("SELECT 1 FROM runs WHERE platform = ? LIMIT 1", [name]):
        return replace(request, by="platform", values=(name,))
    if ask("SELECT 1 FROM runs WHERE experiment = ? LIMIT 1", [name]):
        return replace(request, by="all", experiment=name)
    if ask("SELECT 1 FROM runs WHERE workload = ? LIMIT 1", [name]):
        return replace(request, by="all", workload=name)
    run = find_run(ask, name)
    if run.status is None:
        known = "`collector runs` lists the runs"
        if ask("SELECT 1 FROM nodes WHERE hostname = ? LIMIT 1", [name]):
            known = f"it is a node: `{write_command('peers', {}, name)}`"
        raise MisuseError(f"no run, platform, experiment or workload is named {name}; {known}")
    return replace(request, by="run", values=(run.run_id,), every_status=True)


def _by_command(ask: Ask, comparison: Comparison) -> Comparison | None:
    layout = comparison.layout
    is_of_units = "unit" in layout.blocks[0].held and len({run.command for run in layout.runs}) > 1
    if find_sweep(layout) != "command" and not is_of_units:
        return None
    request = replace(comparison.request, by="command", values=(), series=False)
    if comparison.request.values:
        request = replace(request, also=f"platform = {literal(comparison.request.values[0])}")
    by_command = compare(ask, request)
    # Programs without a command are in no row of it.
    return by_command if len(by_command.layout.runs) == len(layout.runs) else None


def _profile(ask: Ask, comparison: Comparison) -> Profile | None:
    each = comparison.request.each
    traced = traced_runs(ask)
    (cell,) = [cell for cell in comparison.layout.blocks[0].cells if cell.runs][:1]
    runs = [run for run in cell.runs if run.run_id in traced]
    if not runs:
        return None
    run = median_run(runs, comparison.facts, comparison.figures.primary.name)
    try:
        return study_sides(ask, [Side(name=cell.side, run=run, runs=len(runs))], comparison.facts, each)
    except GpuAgentError:  # a trace without any operation
        return None


# Operations of a table, lines of all streams, of a stream at least; properties of a run, settings on the first screen.
_TOP = 10
_LINES, _LEAST_LINES = 10, 3
# On the first screen of a run that failed.
_FIRST_LINES, _FIRST_WIDTH, _FIRST_NODES, _PROPERTIES_OF_FAILED = 6, 80, 2, 4
_FIRST_SETTINGS = 8
_FIRST_PROPERTIES = 6
_FIRST_PARTS = 6
# Of more settings than these only the largest are detailed without --all.
_MOST_BLOCKS = 6
# Sentences on settings of several workloads; the table has the others.
_MOST_SAID = 2


def answer_show(ask: Ask, *, names: Sequence[str], **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a comparison's request.

    Raises MisuseError: there is more than one name, or as for `study_show`.
    """
    if names[1:]:
        runs = {run.run_id for run in find_runs(ask, find_facet("platform"), workload=None, experiment=None)}
        with suppress(MisuseError):  # the runs of a workload begin with its name
            names = find_run_ids(ask, names)
        by = {"--by": "run"} if runs.issuperset(names) else {}
        raise MisuseError(f"one name at a time; to compare them: `{write_command('compare', by, sides=names)}`")
    name = names[0] if names else None
    return render(study_show(ask, name, Request(**asked, every_chart=asked["everything"])))


def render(showing: Showing) -> Answer:
    """Return the answer; CSV has a line for each metric of each setting."""
    comparison, details = showing.comparison, showing.details
    of_comparison = comparing.render(comparison)
    heading, _ = comparing.first_parts(comparison)
    request, table = comparison.request, overview_table(showing.by_command or comparison)
    among = ""
    if showing.paragraph and table.rows[1:]:
        table = _settings_table(table, (showing.by_command or comparison).layout)
        among = _describe_range(table, comparison)
    parts = [replace(table, most=_FIRST_SETTINGS, can_shrink=True)]
    if comparison.layout.facet.names == {"all"} and (request.experiment or request.workload):
        named = [request.workload] if request.workload else []
        named += [f"the experiment {request.experiment}"] if request.experiment else []
        heading = f"Values of {' in '.join(named)}"
    text, _, line = showing.paragraph.partition("\n")
    shown_anyway = _OF_SIDES if details else ("different_commands",) if showing.by_command else ()
    if details:
        heading = f"Run {details.row['run_id']}"
        table = details_table(details)
        most = _PROPERTIES_OF_FAILED if details.has_failed else _FIRST_PROPERTIES
        parts = [replace(table, most=most, more=lambda _rows: None)]
    if request.each:  # then their table has the room
        parts = [replace(table, most=0)]
    return Answer(
        heading=heading,
        text=" ".join(
            filter(None, [text or _describe_workloads(comparison), among, showing.straggler]),
        ),
        parts=parts,
        sections=list(_sections(showing)),
        caveats=[caveat for caveat in comparison.caveats if caveat.code not in shown_anyway],
        next=_next(showing, text, line),
        more="every property, metric, chart and kernel",
        facts={
            **of_comparison.facts,
            "run": record(details) if details else None,
            "courses": [_course(course) for course in comparison.courses],
            "profile": profiling.render(showing.profile, top=_TOP).record() if showing.profile else None,
            "stacks": showing.stacks,
            "collectives": showing.points,
        },
        csv=of_comparison.csv,
        statements=showing.statements,
    )


def _next(showing: Showing, text: str, line: str) -> str:
    """Return the command to go on with: that of the paragraph's last `line`, if it has one; its `text` may be empty."""
    comparison, request = showing.comparison, showing.comparison.request
    match = _COMMAND.search(line)
    command = match[1] if match else showing.further
    if command is None:
        of_these = {"--workload": comparison.layout.blocks[0].workload, "--experiment": request.experiment}
        command = write_command("runs", of_these)
    if {block.workload for block in comparison.layout.blocks} == {SERVING} and not showing.details:
        command = write_command("serving", {})
    if not text:  # several workloads: the one with most runs
        block = max(comparison.layout.blocks, key=lambda block: sum(len(cell.runs) for cell in block.cells))
        command = write_command("show", {**request.words, "--workload": None}, block.workload)
        if request.each is PartKind.NODE:
            # The workload that the sentence on the nodes names.
            first = next(iter(say_parts(comparison, "nodes")[1].rows), {"title": ""})["title"]
            workload = next(
                (each.workload for each in comparison.layout.blocks if first.startswith(each.workload)), None
            )
            command = write_command("compare", {**request.words, "--by": "node", "--workload": workload})
    if request.prices and command.startswith("collector compare "):
        command += f" {shlex.join(['--prices', request.prices.source])}"
    return command


def _describe_workloads(comparison: Comparison) -> str:
    """Return the figures of two settings, or how many runs there are of each workload."""
    blocks = comparison.layout.blocks
    if len(blocks) <= _MOST_SAID:
        return describe_sides(comparison, most=_MOST_SAID).removesuffix(ALONE).rstrip()
    runs = Counter(block.workload for block in blocks for cell in block.cells for _ in cell.runs)
    listed = first_few([f"{number} of {workload}" for workload, number in runs.most_common()], most=4)
    return f"{counted(runs.total(), 'run')} of {counted(len(runs), 'workload')} succeeded: {listed}."


def _settings_table(table: Table, layout: Layout) -> Table:
    """Return the rows of an only workload by its settings, which need its name no more, in their order.

    Values of several options are below the options. A row has its unit of throughput in another column, and at its end
    only where another has the same settings. Sentences have its `name`.
    """
    workload, (options, values_of) = layout.blocks[0].workload, layout.options
    rates = [row["metrics"].get("throughput") for row in table.rows]
    units = [f" in {rate.unit}" if rate else "" for rate in rates]
    names = [row["title"].replace(unit, "", 1) for row, unit in zip(table.rows, units, strict=True)]
    titles = _without_common_words([name.removeprefix(f"{workload} ") for name in names])
    of_title = Counter(titles)
    named = zip(table.rows, titles, units, strict=True)
    rows = []
    for row, title, unit in named:
        name, side = f"{title}{unit}" if of_title[title] > 1 else title, row["side"]
        rows.append({**row, "name": name, "title": name.replace(side, values_of.get(side, side), 1)})
    first, *others = table.columns
    return replace(
        table,
        columns=(replace(first, title=options or "settings"), *others),
        rows=sorted(rows, key=lambda row: in_order(row["title"])),
    )


def _without_common_words(titles: Sequence[str]) -> Sequence[str]:
    """Return titles without the words with which all begin, such as `python train.py`; options and quotes stay."""
    while all(" " in title for title in titles) and len({title.partition(" ")[0] for title in titles}) == 1:
        word = titles[0].partition(" ")[0]
        if word.startswith("-") or {"'", '"'} & set(word):
            break
        titles = [title.partition(" ")[2] for title in titles]
    return titles


def _describe_range(table: Table, comparison: Comparison) -> str:
    """Return between which settings the primary metric, or else the duration, ranges; '' where neither is of all.

    Throughputs in several units have no range.
    """
    found: list[tuple[float, str, Row]] = []
    for name in (comparison.figures.primary.name, "run_seconds"):
        found = []
        for row in table.rows:
            of_metric = row["metrics"].get(name)
            figure = of_metric.figures.get(row["side"]) if of_metric else None
            if figure is not None:
                found.append((figure.median, row["name"], of_metric))
        if len(found) == len(table.rows) and len({of_metric.unit for *_, of_metric in found}) == 1:
            break
    if len(found) < len(table.rows):
        return ""
    (least, of_least, of_metric), (most, of_most, _) = min(found, key=itemgetter(0)), max(found, key=itemgetter(0))
    title, scale = spoken(of_metric.metric, comparison.request.stat), notation([least, most], of_metric.unit)
    return f"The median {title} is {scale.write(least)} ({of_least}) to {scale.write(most)} ({of_most})."


# Warnings that a single run is one node's, and that it failed or was cancelled, are no news.
_OF_SIDES = ("one_node", "unsuccessful", "cancelled")

# The command at the end of a paragraph, unless it is this answer.
_COMMAND = re.compile(r"^(?:Next|Its output): (collector (?!show ).*)")


def _course(course: Course) -> dict[str, Any]:
    curves = []
    for chart, curve in course.curves.items():
        points = [[reading.seconds, reading.mean] for stretch in curve for reading in stretch]
        curves.append({"title": chart.title, "unit": chart.unit, "points": points})
    return {"course": course.side, "run_id": course.run.run_id, "phases": course.phases, "curves": curves}


def _sections(showing: Showing) -> Iterator[Section]:
    """Yield everything; on the first screen is the output of a run that failed."""
    comparison, details = showing.comparison, showing.details
    has_failed = details is not None and details.has_failed
    streams = sum(len(of_node) for of_node in details.outputs.values()) if details else 0
    lines = max(_LEAST_LINES, _LINES // max(1, streams))
    output = [section] if details and (section := output_section(details, lines)) else []
    if details and has_failed and not comparison.request.everything:
        output = [section] if (section := _first_output(details)) else []
    yield from output if has_failed else ()
    # When each phase began, from the measured phase's begin, and how long it lasted.
    columns = (
        Column(None, "phase", "name", left=True),
        Column(None, "from", lambda phase: f"{round(phase.from_seconds, 1) + 0.0:.1f} s".replace("-", "−")),
        Column(None, "took", lambda phase: duration(phase.to_seconds - phase.from_seconds)),
    )
    for course in [course for course in comparison.courses if course.phases][:1]:
        table = Table(columns, course.phases)
        yield Section(f"Phases of {course.run.run_id}", [table], is_detail=True)
    yield from comparing.part_sections(comparison, most=_FIRST_PARTS)
    if showing.stacks:
        yield stacks_section(showing.stacks)
    yield from links_sections(showing.points)
    for section in (*_details(showing), *(() if has_failed else output)):
        yield replace(section, is_detail=True)


def _details(showing: Showing) -> Iterator[Section]:
    """Yield the hardware, the metrics, charts over time, kernels, and what the program reported."""
    comparison = showing.comparison
    if comparison.specs:
        most = None if comparison.request.everything else _MOST_BLOCKS
        yield from comparing.detail_sections(comparison, most=most)
    yield from comparing.course_sections(comparison, phases=False)
    if showing.profile:
        of_kernels = profiling.render(showing.profile, top=_TOP)
        yield Section(f"Kernels: {of_kernels.heading}", [of_kernels.text])
        yield from of_kernels.sections
    if showing.details and (results := results_section(showing.details)):
        yield results
    if showing.details and (logged := logged_section(showing.details)):
        yield logged
