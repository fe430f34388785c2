"""`collector show`: one run, or the runs of one side: everything that the store has of them."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from statistics import median
from typing import Any

from gpuagent_collector.answers import profile as profiling
from gpuagent_collector.answers.profile import Side, study_sides
from gpuagent_collector.answers.profile import Study as Profile
from gpuagent_collector.answers.profile_data import traced_runs
from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare import document as comparing
from gpuagent_collector.compare.answer import ALONE, describe_sides, overview_table
from gpuagent_collector.compare.comparison import Comparison, Request, compare, find_sweep
from gpuagent_collector.compare.figures import Row
from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.launching.runs import find_parts, read_stored_output
from gpuagent_collector.present.answer import Answer, Section, Verbatim
from gpuagent_collector.present.human import duration, in_unit, notation
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask, Recorder, literal
from gpuagent_collector.query.named_runs import NamedRun, find_run
from gpuagent_collector.runs.arguments import in_order
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.find import median_run
from gpuagent_collector.runs.paragraph import describe_runs
from gpuagent_collector.runs.parts import load_parts
from gpuagent_collector.runs.reported import size_text
from gpuagent_collector.runs.series import Course
from gpuagent_collector.runs.stragglers import describe_straggler
from gpuagent_collector.runs.words import spoken, write_command
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An operation at one size.

    Attributes:
        operation: all-reduce, …, or pair.
        pair: the two ranks of a pair; None: all ranks.
        ranks: of the run.
        seconds, algorithm_bytes_per_second, bus_bytes_per_second: of each run.
    """

    operation: str
    pair: tuple[int, int] | None
    ranks: int | None
    size_bytes: int
    seconds: tuple[float, ...]
    algorithm_bytes_per_second: tuple[float, ...]
    bus_bytes_per_second: tuple[float, ...]


_Series = tuple[str, tuple[int, int] | None, int | None, int]


def load_points(ask: Ask, run_ids: Sequence[str]) -> tuple[Point, ...]:
    """Return the points of runs, by operation in the order of their reports, then by ranks and size."""
    rows = ask(_LINK_RESULTS, [list(run_ids)])
    ranks = {row["run_id"]: int(row["value"]) for row in rows if row["name"] == "ranks"}
    found: dict[_Series, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if match := _LINK.fullmatch(row["name"]):
            pair = (int(match["first"]), int(match["second"])) if match["first"] else None
            operation = "pair" if pair else match["operation"].replace("_", "-")
            key = (operation, pair, ranks.get(row["run_id"]), int(match["bytes"]))
            found[key][match["figure"]].append(row["value"])
    order = {operation: number for number, operation in enumerate(dict.fromkeys(key[0] for key in found))}
    return tuple(
        Point(
            operation=operation,
            pair=pair,
            ranks=number,
            size_bytes=size_bytes,
            seconds=tuple(figures["seconds"]),
            algorithm_bytes_per_second=tuple(figures["algorithm_bytes_per_second"]),
            bus_bytes_per_second=tuple(figures["bus_bytes_per_second"]),
        )
        for (operation, pair, number, size_bytes), figures in sorted(
            found.items(), key=lambda item: (order[item[0][0]], item[0][2] or 0, item[0][3], item[0][1] or ())
        )
    )


def links_sections(points: Sequence[Point]) -> Iterator[Section]:
    """Yield a table of the operations, and one of the pairs for each size."""
    whole = [point for point in points if point.pair is None]
    if whole:
        note = "Medians over runs. Algorithm bandwidth: size / time; bus bandwidth: as nccl-tests defines it."
        yield Section("Collectives", [Table(_COLLECTIVES, whole), note])
    by_size: dict[tuple[int | None, int], list[Point]] = defaultdict(list)
    for point in points:
        if point.pair is not None and point.bus_bytes_per_second:
            by_size[point.ranks, point.size_bytes].append(point)
    for of_size in by_size.values():
        yield _pairs_section(of_size)


def _pairs_section(points: Sequence[Point]) -> Section:
    rates = {point.pair: median(point.bus_bytes_per_second) for point in points}
    ranks = sorted({rank for pair in rates if pair for rank in pair})
    scale = notation(list(rates.values()), "bytes/s")

    def rate(other: int, rank: int) -> str | None:
        found = rates.get((min(rank, other), max(rank, other)))
        return scale.write_bare(found) if found else None

    columns = [Column(None, "rank", left=True), *(Column(None, str(other), partial(rate, other)) for other in ranks)]
    heading = f"Pairs of ranks, {size_text(points[0].size_bytes)} in each direction, {scale.symbol}"
    return Section(heading, [Table(columns, ranks)])


def _median(title: str, name: str, unit: str) -> Column:
    return Column(None, title, name, lambda values: in_unit(unit)(median(values)) if values else None)


_COLLECTIVES = (
    Column(None, "operation", "operation", left=True),
    Column(None, "ranks", "ranks"),
    Column(None, "size", "size_bytes", size_text),
    _median("time", "seconds", "seconds"),
    _median("algorithm bandwidth", "algorithm_bytes_per_second", "bytes/s"),
    _median("bus bandwidth", "bus_bytes_per_second", "bytes/s"),
    Column(
        None, "runs", lambda one: max(map(len, (one.seconds, one.algorithm_bytes_per_second, one.bus_bytes_per_second)))
    ),
)

_LINK = re.compile(
    r"(?:pair_(?P<first>[0-9]+)_(?P<second>[0-9]+)|(?P<operation>(?!pairs_)[a-z_]+))_(?P<bytes>[0-9]+)_bytes_"
    r"(?P<figure>seconds|algorithm_bytes_per_second|bus_bytes_per_second)"
)

_LINK_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value, min(time) AS first FROM results
WHERE (name = 'ranks' OR regexp_matches(name, '_[0-9]+_bytes_(seconds|(algorithm|bus)_bytes_per_second)$'))
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY run_id, name ORDER BY first, name, run_id"""


# Name, GPU, convolutions, linear layers, whether it fits.
_Trial = tuple[str, int | None, int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of layers, or the part of it on one GPU.

    Attributes:
        name: of the point, as the run reported it.
        gpu: index of the GPU that has this part; None: the whole stack.
        conv, fc: numbers of layers.
        fits: False: it is out of memory.
        step_seconds, peak_bytes: of the runs that report them.
    """

    name: str
    gpu: int | None
    conv: int
    fc: int
    fits: bool
    step_seconds: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    runs: int


def load_stacks(ask: Ask, run_ids: Sequence[str]) -> tuple[Stack, ...]:
    """Return the stacks that runs report, each with its parts behind it; runs that agree in one are put together."""
    reported: dict[tuple[str, str, int | None], dict[str, float]] = defaultdict(dict)
    for row in ask(_STACK_RESULTS, [list(run_ids)]):
        if match := _STACK.fullmatch(row["name"]):
            gpu = None if match["gpu"] is None else int(match["gpu"])
            reported[row["run_id"], match["stack"], gpu][match["field"]] = row["value"]
    stacks: dict[_Trial, list[Mapping[str, float]]] = defaultdict(list)
    for (run_id, name, gpu), fields in reported.items():
        if {"conv_layers", "fc_layers"} <= fields.keys():
            whole = reported.get((run_id, name, None), {})
            fits = bool(whole.get("fits", 1))
            stacks[name, gpu, int(fields["conv_layers"]), int(fields["fc_layers"]), fits].append(fields)
    return tuple(
        Stack(
            name=name,
            gpu=gpu,
            conv=conv,
            fc=fc,
            fits=fits,
            step_seconds=_values(found, "step_seconds"),
            peak_bytes=_values(found, "peak_reserved_bytes"),
            runs=len(found),
        )
        for (name, gpu, conv, fc, fits), found in sorted(stacks.items(), key=lambda item: _order(item[0]))
    )


def stacks_section(stacks: Sequence[Stack]) -> Section:
    """Return the stacks as a table."""
    columns = (
        Column(None, "stack", _title, left=True),
        Column(None, "memory", _outcome, left=True),
        _median("step", "step_seconds", "seconds"),
        _median("GPU memory, peak", "peak_bytes", "bytes"),
        Column(None, "runs", "runs"),
    )
    note = "Medians over runs; convolutions and linear layers in training, forward and backward."
    return Section("Stacks of layers", [Table(columns, stacks), note])


def _title(stack: Stack) -> str:
    if stack.gpu is None:
        return f"{stack.conv} conv + {stack.fc} fc"
    return f"  GPU {stack.gpu}: {stack.conv} + {stack.fc}"


def _outcome(stack: Stack) -> str:
    if stack.gpu is not None:
        return ""
    if not stack.fits:
        return "out of memory"
    return "fits" if stack.name.startswith("point") else "largest that fits"


def _values(found: Iterable[Mapping[str, float]], field: str) -> tuple[float, ...]:
    return tuple(fields[field] for fields in found if field in fields)


def _order(key: _Trial) -> tuple[list[str | int], int, int, int, bool]:
    name, gpu, conv, fc, fits = key
    # Numbers in names count as numbers: 6 convolutions before 30.
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    return (parts, -1 if gpu is None else gpu, conv, fc, fits)


# Such as frontier_conv1_fc1_step_seconds, and of one GPU's part point_conv84_fc0_conv54_fc62_gpu0_conv_layers.
_STACK = re.compile(
    r"(?P<stack>(?:frontier|point|gpu\d+)_.+?)(?:_gpu(?P<gpu>\d+))?"
    r"_(?P<field>conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)"
)

_STACK_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE regexp_matches(name, '_(conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)$')
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""


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
        "Started": _time(row["started_at"]),
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
    _, *rest = command or [""]
    own = ["-m", "gpuagent_workloads", "run"]
    return ["gpuagent", "run", *rest[len(own) :]] if rest[: len(own)] == own else command


def results_section(details: Details) -> Section | None:
    """Return what the program reported: figures of its own, such as a frontier, and texts; None: nothing.

    Collectives by size have a table of their own.
    """
    rows = [
        (row["name"], row["text"] or f"{_figure(row['value'])} {row['unit'] or ''}".rstrip())
        for row in details.results
        if (row["value"] is not None or row["text"] is not None) and not _LINK.fullmatch(row["name"])
    ]
    columns = (Column(None, "name", left=True), Column(None, "value", left=True))
    return Section("Results that the program reported", [Table(columns, rows)]) if rows else None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """Runs with everything that is shown of them.

    Attributes:
        comparison: of one side, so without a test.
        paragraph: on the runs of a single workload; '' for several. Its last line is the next command, if there is one.
        details: of the only run; None: there are several.
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
    comparison = compare(asking, _choose(asking, name, request))
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
        paragraph=describe_runs(asking, runs, comparison.facts, others) if is_one else "",
        details=details,
        straggler=describe_straggler(parts.values()) if is_one else "",
        by_command=_by_command(asking, comparison) if is_one else None,
        profile=_profile(asking, comparison),
        stacks=load_stacks(asking, comparison.layout.run_ids),
        points=load_points(asking, comparison.layout.run_ids),
        statements=recorder.statements["show"],
    )


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
        raise MisuseError(f"no run, platform, experiment or workload is named {name}; `collector runs` lists the runs")
    return replace(request, by="run", values=(run.run_id,), every_status=True)


def _by_command(ask: Ask, comparison: Comparison) -> Comparison | None:
    if find_sweep(comparison.layout) != "command":
        return None
    request = replace(comparison.request, by="command", values=(), series=False)
    if comparison.request.values:
        request = replace(request, also=f"platform = {literal(comparison.request.values[0])}")
    return compare(ask, request)


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


# Operations of a table, lines of a stream; properties of a run and settings on the first screen.
_TOP = 10
_LINES = 10
_FIRST_SETTINGS = 8
_FIRST_PROPERTIES = 6
# Of more settings than these only the largest are detailed without --all.
_MOST_BLOCKS = 6
# Sentences on settings of several workloads; the table has the others.
_MOST_SAID = 2


def answer_show(ask: Ask, *, names: Sequence[str], **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a comparison's request.

    Raises MisuseError: there is more than one name, or as for `study_show`.
    """
    if names[1:]:
        several = write_command("compare", {"--by": "run"}, sides=names)
        raise MisuseError(f"one name at a time; two runs: `{several}`")
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
        table = _settings_table(table, comparison.layout.blocks[0].workload)
        among = _describe_range(table, comparison)
    parts = [replace(table, most=_FIRST_SETTINGS)]
    if comparison.layout.facet.names == {"all"} and (request.experiment or request.workload):
        named = [request.workload] if request.workload else []
        named += [f"the experiment {request.experiment}"] if request.experiment else []
        heading = f"Values of {' in '.join(named)}"
    text, _, line = showing.paragraph.partition("\n")
    match = _COMMAND.search(line)
    command = match[1] if match else write_command("runs", {"--workload": comparison.layout.blocks[0].workload})
    if not text:  # several workloads: the one with most runs
        block = max(comparison.layout.blocks, key=lambda block: sum(len(cell.runs) for cell in block.cells))
        command = write_command("show", {}, block.workload)
    if details:
        heading = f"Run {details.row['run_id']}"
        parts = [replace(details_table(details), most=_FIRST_PROPERTIES, more=lambda _rows: None)]
    return Answer(
        heading=heading,
        text=" ".join(
            filter(None, [text or describe_sides(comparison, most=_MOST_SAID).removesuffix(ALONE).rstrip(), among, showing.straggler]),
        ),
        parts=parts,
        sections=list(_sections(showing)),
        caveats=[caveat for caveat in comparison.caveats if not details or caveat.code not in _OF_SIDES],
        next=command,
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


def _settings_table(table: Table, workload: str) -> Table:
    """Return the rows of an only workload by its settings, which need its name no more, in their order."""
    titles = _without_common_words([row["title"].removeprefix(f"{workload} ") for row in table.rows])
    rows = [{**row, "title": title} for row, title in zip(table.rows, titles, strict=True)]
    title, *others = table.columns
    return replace(
        table,
        columns=(replace(title, title="settings"), *others),
        rows=sorted(rows, key=lambda row: in_order(row["title"])),
    )


def _without_common_words(titles: Sequence[str]) -> Sequence[str]:
    """Return titles without the words with which all begin, such as `python train.py`; words in quotes stay."""
    while all(" " in title for title in titles) and len({title.partition(" ")[0] for title in titles}) == 1:
        if {"'", '"'} & set(titles[0].partition(" ")[0]):
            break
        titles = [title.partition(" ")[2] for title in titles]
    return titles


def _describe_range(table: Table, comparison: Comparison) -> str:
    """Return between which settings the primary metric ranges; '' where fewer than two have it."""
    found: list[tuple[float, str, Row]] = []
    for row in table.rows:
        of_metric = row["metrics"].get(comparison.figures.primary.name) or row["metrics"].get("run_seconds")
        figure = of_metric.figures.get(row["side"]) if of_metric else None
        if figure is not None:
            found.append((figure.median, row["title"], of_metric))
    if len({of_metric.metric.name for *_, of_metric in found}) != 1 or not found[1:]:
        return ""
    (least, of_least, of_metric), (most, of_most, _) = min(found, key=itemgetter(0)), max(found, key=itemgetter(0))
    title, scale = spoken(of_metric.metric, comparison.request.stat), notation([least, most], of_metric.unit)
    return f"Their {title} ranges from {scale.write_bare(least)} ({of_least}) to {scale.write(most)} ({of_most})."


# Warnings that a single run is one node's, and that it failed, are no news.
_OF_SIDES = ("one_node", "unsuccessful")

# The command at the end of a paragraph, if it can be typed at once.
_COMMAND = re.compile(r"^(?:Next|Its output): (collector .*)")


def _course(course: Course) -> dict[str, Any]:
    curves = []
    for chart, curve in course.curves.items():
        points = [[reading.seconds, reading.mean] for stretch in curve for reading in stretch]
        curves.append({"title": chart.title, "unit": chart.unit, "points": points})
    return {"course": course.side, "run_id": course.run.run_id, "phases": course.phases, "curves": curves}


def _sections(showing: Showing) -> Iterator[Section]:
    """Yield everything; on the first screen is the output of a run that failed."""
    comparison, details = showing.comparison, showing.details
    has_failed = details is not None and details.row["status"] not in ("succeeded", "running", "queued")
    output = [section] if details and (section := output_section(details, _LINES)) else []
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
    yield from comparing.part_sections(comparison)
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
