"""A comparison as a document, and in every format."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.answer import answer, headline_reasons, is_cost_first
from gpuagent_collector.compare.caveats.hardware import find_separation
from gpuagent_collector.compare.caveats.runs import find_differing
from gpuagent_collector.compare.choosing import compare_what_differs, say_choice
from gpuagent_collector.compare.comparison import AT_TIME, Comparison, Request, compare
from gpuagent_collector.compare.figures import BlockFigures, Figure, Overall, Row, count
from gpuagent_collector.compare.parts import because_table, say_undivided, with_bars
from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.compare.tables import (
    cost_table,
    metric_legend,
    metric_table,
    render_hardware,
    shown_rows,
    verdict_legend,
    verdict_table,
)
from gpuagent_collector.compare.values import (
    overview_table,
    part_figures,
    part_table,
    say_parts,
    value_legend,
    value_table,
)
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import Answer, Part, Section, add_sentence, plain
from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import parse_arguments
from gpuagent_collector.runs.cells import CANCELLED, Cell, Layout, describe, tell_apart
from gpuagent_collector.runs.facets import FACETS, OF_RANKS, can_name, name_sides
from gpuagent_collector.runs.job_runs import name_of_job, take_jobs
from gpuagent_collector.runs.specs import spec_table
from gpuagent_collector.runs.words import distinguishing, name_file, write_command
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted


def answer_compare(
    ask: Ask,
    *,
    table: str | None,
    rows: str | None,
    columns: str | None,
    specs: bool,
    no_series: bool,
    max_regression: float | None,
    junit: Path | None,
    brief: bool = False,
    **asked: Any,
) -> Answer:
    """Answer the command, or its first screen; `asked` are fields of a request. It fails for a shown regression."""
    asked = take_jobs(ask, asked)
    if specs and table:
        raise MisuseError("--specs and --table are two answers; give one of them")
    if junit and max_regression is None:
        raise MisuseError("--junit writes conclusions of --max-regression; give that too")
    if asked["event"] and (table or asked["values"] or asked["baseline"] or asked["by"] != "platform"):
        raise MisuseError("--before has two sides of its own: leave out names of sides, --by, --baseline and --table")
    if (rows or columns) and not table:
        raise MisuseError("--rows and --columns arrange --table; name its metrics: --table throughput")
    if table:
        from gpuagent_collector.compare import matrix

        request = Request(**{**asked, "by": columns or asked["by"], "series": False})
        names = [name.strip() for name in table.split(",")]
        return matrix.render(matrix.tabulate(ask, request, names, rows or "workload"))
    if specs:
        return render_hardware(ask, compare(ask, Request(series=False, **asked)))
    request = Request(series=asked["everything"] and not no_series, brief=brief, **asked)
    comparison = compare_what_differs(ask, request)
    answer = render(comparison)
    if reason := say_choice(comparison, request):
        answer = add_sentence(answer, reason)
    if max_regression is None:
        return answer
    from gpuagent_collector.compare.regression import REGRESSED, check_regressions, write_junit

    checks = check_regressions(comparison, max_regression / 100)
    if junit:
        write_junit(checks, junit)
    return replace(
        answer,
        notes=[f"{outcome}: {name} ({evidence})" for name, outcome, evidence in checks],
        failed=any(outcome == REGRESSED for _, outcome, _ in checks),
    )


def render(comparison: Comparison) -> Answer:
    """Return the answer; CSV has a line for each metric of each cell, JSON all but the series."""
    layout, figures = comparison.layout, comparison.figures
    heading, parts = first_parts(comparison)
    return Answer(
        heading=heading,
        text=answer(comparison),
        parts=parts,
        sections=list(part_sections(comparison)),
        details=partial(_details, comparison),
        caveats=comparison.caveats,
        next=_next_of_jobs(comparison) if comparison.request.jobs else find_next(comparison),
        short=answer(comparison, most=1),
        more="metrics, hardware and charts",
        facts={
            "by": layout.facet.name,
            "sides": layout.sides,
            "where": comparison.request.where,
            "primary_metric": figures.primary.name,
            "stat": comparison.request.stat,
            "delta": figures.delta,
            "alpha": figures.alpha,
            "tests": Table([*_of_block("block"), *_of_test("")], figures.tests),
            "options": Table(
                [Column("option"), *_of_test("test.")],
                [{"option": facet.option, "test": test} for facet, tests in comparison.options for test in tests],
            ),
            "dependences": [
                {
                    "option": each.option.option,
                    "baseline": each.baseline,
                    "side": each.side,
                    "other": each.other.option,
                    "ratios": each.ratios,
                    "undecided": sorted(each.undecided),
                }
                for each in comparison.dependences
            ],
            "because": [{**(table.about or {}), "parts": table} for table in map(because_table, comparison.reasons)],
            "undivided": say_undivided(comparison) or None,
            "geometric_means": [{**_both(one), **plain(one.mean)} for one in figures.overall],
            "together": [{**_both(one), "runs": one.runs, **plain(one.shift)} for one in figures.overall if one.shift],
            "blocks": _blocks(comparison),
            "specs": Table(
                (
                    Column("property", value="title"),
                    Column("differs"),
                    Column("values", value=lambda row: dict(zip(layout.sides, row.values, strict=True))),
                ),
                comparison.specs,
            ),
            "left_out": layout.left_out,
        },
        csv=lambda: [_cells(comparison)],
        sides=layout.sides,
    )


def _both(overall: Overall) -> dict[str, str]:
    return {"side": overall.side, "baseline": overall.baseline}


def find_next(comparison: Comparison, *, reported: bool = False) -> str | None:
    """Return the command that shows a difference, what causes it, or all of it; None: nothing is known.

    After a report, which is `reported`, it is the choice between the sides, or of settings a figure: the comparison
    itself names the best of them.
    """
    request, layout = comparison.request, comparison.layout
    verdicts = {test.judgement.verdict for test in comparison.figures.tests}
    differing = [test.block.workload for test in comparison.figures.tests if test.judgement.verdict is Verdict.DIFFERS]
    workload = differing[0] if differing else layout.blocks[0].workload
    if layout.facet.describes and len(layout.sides) > 1:
        runs = Counter(run.workload for run in layout.runs)
        return write_command("compare", {**request.choice, "--by": None, "--workload": max(runs, key=runs.__getitem__)})
    if answer := _next_of_own_kind(comparison):
        return answer
    if not comparison.figures.differs and verdicts != {Verdict.EQUAL}:
        return _next_of_undecided(comparison)
    if layout.facet.name == AT_TIME:
        # From a history, so that other nodes say more.
        after = layout.runs_of(layout.sides[-1])
        has_others = len({run.nodes for run in comparison.runs if run.workload == workload}) > 1
        return write_command("peers", {}, sides=[after[-1].run_id]) if has_others else None
    if request.event:
        return write_command("history", {"--experiment": request.experiment, "--where": request.where}, workload)
    prices = {"--prices": request.prices.source if request.prices else None}
    are_settings = all(part.argument is not None or part.parameters for part in layout.facet.parts)
    if reported and are_settings:
        metric = comparison.figures.primary.name
        drawn = {**request.choice, "--baseline": request.baseline, **prices, "-o": name_file(f"{metric}.png")}
        return write_command("plot", drawn, metric, sides=request.values)
    if reported or (len(layout.sides) > 2 and not are_settings):
        chosen = write_command("recommend", {**request.choice, **prices, "--workload": None}, workload)
        return _next_of_nodes(comparison) or chosen
    if separation := _compare_other_argument(comparison) or _find_separation(comparison, "different_specs"):
        return separation
    is_traced = any(part.name == "kernels" for because in comparison.reasons for part in because.parts)
    if is_traced and request.where is None:
        named = {**request.choice, "--by": request.by, "--workload": workload}
        return write_command("profile", named, sides=layout.sides)
    asked = {**request.choice, "--baseline": request.baseline, "--metric": request.metric, **prices}
    return write_command("report", asked, name_file("report.html"), sides=request.values)


def _next_of_own_kind(comparison: Comparison) -> str | None:
    """Return the command for such runs alone: of uncounted steps, equal medians, servers or ranks; or None."""
    request, workload = comparison.request, comparison.layout.blocks[0].workload
    if comparison.is_uncounted:
        return comparison.again
    if comparison.figures.are_level:  # more runs would be as equal
        return write_command("show", {}, workload)
    if workload == SERVING:
        return write_command("serving", request.choice)
    if comparison.layout.facet.name == OF_RANKS:
        return write_command("scaling", {"--experiment": request.experiment, "--where": request.where}, workload)
    return None


def _next_of_nodes(comparison: Comparison) -> str | None:
    """Return the command that shows the node that differs most among the others; None: none does."""
    differing = [test for test in comparison.figures.tests if test.judgement.verdict is Verdict.DIFFERS]
    if comparison.layout.facet.name != "node" or not differing:
        return None
    farthest = max(differing, key=lambda test: abs(log(max(test.judgement.shift.estimate, 1e-300))))
    chosen = {"--workload": farthest.block.workload, "--experiment": comparison.request.experiment}
    return write_command("peers", chosen, sides=[farthest.other.side])


def _compare_other_argument(comparison: Comparison) -> str | None:
    """Return the command that compares the next argument in which the sides differ; None: they differ in no other."""
    layout, choice = comparison.layout, comparison.request.choice
    for block in layout.blocks if layout.facet.is_of_arguments and layout.facet.argument != "" else ():
        names = [name for name, _ in find_differing(block, layout.facet) if can_name(name)]
        if names:
            return write_command("compare", {**choice, "--by": f"argument:{names[0]}", "--workload": block.workload})
    return None


def _find_separation(comparison: Comparison, code: str) -> str | None:
    """Return the command that separates facts in which the sides differ, where a warning, and no reason, says so."""
    if comparison.request.event or comparison.reasons or all(caveat.code != code for caveat in comparison.caveats):
        return None
    return find_separation(comparison.layout, comparison.facts, comparison.request.choice)


def _next_of_undecided(comparison: Comparison) -> str:
    """Return the command that makes or plans more runs of what is not decided, or compares what the runs share.

    Of one side it compares the commands or conditions in which its runs differ. Where the sides differ in more than is
    compared, it separates these facts first.
    """
    request, layout = comparison.request, comparison.layout
    commands = {run.command for run in layout.blocks[0].runs}
    if len(layout.sides) == 1 and len(commands) > 1:
        is_one = len({block.workload for block in layout.blocks}) == 1
        named = request.workload if is_one else layout.blocks[0].workload
        return write_command("compare", {**request.choice, "--by": "command", "--workload": named})
    if len(layout.sides) == 1:
        first = layout.blocks[0]
        others = [block.held for block in layout.blocks if block.workload == first.workload]
        for name in distinguishing(first.held, others):
            if name in {facet.name for facet in FACETS}:
                return write_command("compare", {**request.choice, "--by": name, "--workload": first.workload})
    by = None if comparison.options or comparison.dependences else _shared_facet(layout, commands)
    has_repeats = any(len(cell.runs) > 1 for block in layout.blocks for cell in block.cells)
    if by and (has_repeats or not comparison.again):
        return write_command("compare", {**request.choice, "--by": by})
    return plan_more(comparison)


def plan_more(comparison: Comparison) -> str:
    """Return the command that makes as many more runs as show what is open, or else plans them.

    Where the sides differ in more than is compared, it separates these facts first.
    """
    # More runs would not tell the sides from what else differs.
    if separation := _find_separation(comparison, "confounded"):
        return separation
    if comparison.again:
        return comparison.again
    request = comparison.request
    options = {"--experiment": request.experiment, "--where": request.where}
    options["--metric"] = request.metric if request.metric in BY_NAME else None
    workload = comparison.layout.blocks[0].workload
    if needed := comparison.needed:
        workload = needed.test.block.workload
        # The plan itself divides by the looks of these runs.
        several = len(comparison.figures.tests)
        options |= {"--effect": f"{needed.percent:g}", "--comparisons": str(several) if several > 1 else None}
    return write_command("plan", options, workload)


def _next_of_jobs(comparison: Comparison) -> str:
    """Return the command that shows one of two jobs among those like it, or all of a name over time."""
    request, layout = comparison.request, comparison.layout
    if layout.facet.name == "run":
        return write_command("peers", {}, sides=[name_of_job(layout.sides[-1])])
    names = [request.workload] if request.workload else []
    return write_command("history", {"--where": request.where, "--jobs": ""}, *names)


def _shared_facet(layout: Layout, commands: Set[Sequence[str]]) -> str | None:
    """Return the facet of a sweep whose values the most runs share; None: each side has a value of its own."""
    if layout.facet.joined:
        return layout.facet.joined[0].name
    if layout.facet.name != "command":
        return None
    values: dict[str, set[str]] = defaultdict(set)
    for command in commands:
        for name, value in parse_arguments(command).items():
            values[name].add(value)
    shared = [name for name, found in values.items() if 1 < len(found) < len(commands)]
    return f"argument:{min(shared, key=lambda name: len(values[name])).lstrip('-')}" if shared else None


# Rows of workloads side by side that a terminal shows.
_MOST_WORKLOADS = 8
# Sides that leave room for bars.
_FEW_SIDES = 4
# Of a heading, which a terminal would cut.
_MOST_CHARACTERS = 76


def first_parts(comparison: Comparison) -> tuple[str, list[Part]]:
    """Return the heading of the answer, and its table: verdicts, or values where nothing is compared."""
    layout = comparison.layout
    sides = name_sides(layout.sides, layout.facet)
    if layout.is_compared:
        verdicts = verdict_table(comparison)
        costs = None if comparison.figures.primary.group == "Cost" else cost_table(comparison)
        # Bars of one workload among several would need its name; with costs or many sides, the screen is full.
        has_room = len(layout.blocks) == 1 and costs is None and len(layout.sides) <= _FEW_SIDES
        reasons = headline_reasons(comparison) if has_room else []
        because = reasons[0] if reasons else None
        tables = [verdicts]
        if costs is not None and is_cost_first(comparison):
            tables = [costs, verdicts]
        elif costs is not None and len(costs.rows) > 1:  # the sentence has all of a single one
            tables = [verdicts, replace(costs, spare="costs")]
        parts: list[Part] = [*tables, *with_bars(because, layout.facet, verdict_legend(comparison))]
        by = f"Comparison by {layout.facet.spoken}"
        # The table has long names whole.
        is_short = len(by) + len(sides) < _MOST_CHARACTERS
        return f"{by}: {sides if is_short else f'{len(layout.sides)} {layout.facet.plural}'}", parts
    heading = f"Values of {sides}" if len(layout.sides) == 1 else f"Values by {layout.facet.spoken}: {sides}"
    # Of different work fewer rows leave the sentence on the screen.
    most = _MOST_WORKLOADS if comparison.layout.facet.describes else None
    return heading, [replace(overview_table(comparison), most=most, can_shrink=True)]


def part_sections(comparison: Comparison, *, most: int = 0) -> Iterator[Section]:
    """Yield the figures in which the parts of the runs differ most, and as details all of them, block by block.

    A first screen has `most` of the parts.
    """
    each = comparison.request.each
    if each is None:
        return
    kind = "GPU" if each is PartKind.GPU else each.value
    sentence, overview = say_parts(comparison, f"{kind}s")
    missing = "These runs were summarised before their parts had figures; run them again."
    if overview.columns and not (sentence or most):
        sentence = f"No setting has more than one {kind}, so there is nothing to compare here."
    shown: list[Part] = [sentence, replace(overview, most=most, can_shrink=True)]
    yield Section(f"Each {kind}", shown if overview.columns else [missing])
    for block in comparison.figures.blocks:
        table = part_table(block, comparison)
        name = tell_apart(block.block, comparison.layout.blocks)
        yield Section(f"{name}: each {kind}", [table or missing], is_detail=True)


def _details(comparison: Comparison) -> Iterator[Section]:
    """Yield the parts of each shown difference, hardware, metrics and charts."""
    for because in comparison.reasons:
        name = tell_apart(because.block, comparison.layout.blocks)
        yield Section(f"{name}: where the difference comes from", [because_table(because)])
    if undivided := say_undivided(comparison):
        yield Section("Differences without parts", [f"{undivided[0].upper()}{undivided[1:]}."])
    yield from detail_sections(comparison)
    yield from course_sections(comparison, phases=True)


def detail_sections(comparison: Comparison, *, most: int | None = None) -> Iterator[Section]:
    """Yield the hardware of the sides, and the metrics of each block, or of the `most` largest ones."""
    layout, blocks = comparison.layout, comparison.figures.blocks
    differs = any(row.differs for row in comparison.specs)
    same = "" if differs or len(layout.sides) == 1 else ": the same on all sides"
    yield Section(f"Where{same}", [spec_table(layout.sides, comparison.specs)])
    for block in blocks[:most]:
        legend, tables = partial(value_legend, comparison, block), [value_table(block, comparison)]
        if layout.is_compared:
            legend = partial(metric_legend, comparison, block)
            # The baseline beside each other side.
            sides = [cell.side for cell in block.block.cells if cell.runs and cell.side != block.block.baseline]
            tables = [metric_table(block, side, comparison, shown_rows(block, comparison)) for side in sides]
        yield Section(tell_apart(block.block, layout.blocks), [f"Ran as {describe(block.block)}", *tables, legend])
    hidden = len(blocks) - (most or len(blocks))
    if hidden > 0:
        yield Section(f"--all shows the metrics of {counted(hidden, 'more setting')}", [])


def course_sections(comparison: Comparison, *, phases: bool) -> Iterator[Section]:
    """Yield the charts over time, with the begin of all phases on request; nothing without samples."""
    courses = [course for course in comparison.courses if course.curves]
    if not courses:
        return
    measured = any(phase.name == "measure" for course in courses for phase in course.phases)
    zero = "where its measured phase began" if measured else "at its start"
    several = len({course.run.run_id for course in courses}) > 1
    whose = "the median run of each side" if several else courses[0].run.run_id
    chart = Chart(
        draw=lambda width: draw_charts(courses, width - 2),
        above=legend(courses),
        below=phase_lines(courses) if phases else (),
        paired=True,
    )
    yield Section(f"Over time: {whose}, 0 s {zero}", [chart])


def _blocks(comparison: Comparison) -> Table:
    """Return the blocks for JSON."""
    primary, stat = comparison.figures.primary, comparison.request.stat

    def of_cells(read: Callable[[Cell], Any], one: BlockFigures) -> dict[str, Any]:
        return {cell.side: read(cell) for cell in one.block.cells}

    def unsuccessful(one: BlockFigures) -> dict[str, dict[str, int]]:
        found = of_cells(lambda cell: {name: n for name, n in cell.others.items() if name != CANCELLED}, one)
        return {side: others for side, others in found.items() if others}

    def metrics(one: BlockFigures) -> Table:
        columns = (
            Column("metric", value="metric.name"),
            Column("unit"),
            Column("stat", value=lambda row: stat if row.metric.quantity else None),
            Column("better", value="metric.better"),
            Column("sides", value=_sides),
        )
        return Table(columns, one.rows)

    def parts(one: BlockFigures) -> dict[str, dict[str, dict[str, Any]]]:
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for side, of_side in part_figures(one, comparison).items():
            for part, of_part in of_side.items():
                figures = {metric: _figure(figure) for metric, figure in of_part.items()}
                found.setdefault(side, {})[part] = figures
        return found

    columns = (
        *_of_block("block"),
        Column("baseline", value="block.baseline"),
        Column("runs", value=partial(of_cells, lambda cell: [run.run_id for run in cell.runs])),
        Column("unsuccessful", value=unsuccessful),
        Column("counts", value=partial(of_cells, lambda cell: count(cell, comparison.facts, primary))),
        Column("metrics", value=metrics),
        Column("parts", value=parts),
    )
    return Table(columns, comparison.figures.blocks)


def _of_block(path: str) -> list[Column]:
    return [Column(name, value=f"{path}.{name}") for name in ("workload", "parameters", "held")]


def _of_test(path: str) -> list[Column]:
    return [
        Column("baseline", value=f"{path}baseline.side"),
        Column("side", value=f"{path}other.side"),
        Column("pairs", value=f"{path}pairs"),
        Column("verdict", value=f"{path}judgement.verdict"),
        *(
            Column(name, value=f"{path}judgement.shift.{name}")
            for name in ("scale", "estimate", "low", "high", "p_value")
        ),
        Column("level", value=f"{path}judgement.shift.alpha"),
    ]


def _sides(row: Row) -> dict[str, dict[str, Any]]:
    found = {}
    for side, figure in row.figures.items():
        shift = row.shifts.get(side)
        known = {name: getattr(shift, name) for name in ("scale", "estimate", "low", "high")} if shift else {}
        found[side] = {**_figure(figure), **known}
    return found


def _figure(figure: Figure) -> dict[str, Any]:
    return {"n": figure.runs, "median": figure.median, "lowest": figure.lowest, "highest": figure.highest}


def _cells(comparison: Comparison) -> Table:
    """Return a line for each metric of each side, and for each part of its runs."""
    primary, stat = comparison.figures.primary, comparison.request.stat
    verdicts = {(id(test.block), test.other.side): test.judgement.verdict for test in comparison.figures.tests}
    lines: list[dict[str, Any]] = []
    for block in comparison.figures.blocks:
        about = {name: getattr(block.block, name) for name in ("workload", "parameters", "held", "baseline")}
        rows = {row.metric.name: row for row in block.rows}
        for row in block.rows:
            for side, figure in row.figures.items():
                verdict = verdicts.get((id(block.block), side)) if row.metric.name == primary.name else None
                lines.append({**about, "row": row, "side": side, "figure": figure, "verdict": verdict})
        for side, parts in part_figures(block, comparison).items():
            for part, of_part in parts.items():
                for name in (name for name in of_part if name in rows):
                    lines.append({**about, "row": rows[name], "side": side, "part": part, "figure": of_part[name]})

    def of_shift(name: str, line: dict[str, Any]) -> object:
        # Of the runs, and only where it is written: most shifts are of rows that nothing shows.
        return None if "part" in line else getattr(line["row"].shifts.get(line["side"]), name, None)

    columns = [
        *(Column(name) for name in ("workload", "parameters", "held")),
        Column("by", value=lambda _line: comparison.layout.facet.name),
        Column("side"),
        *([Column("part")] if comparison.request.each else []),
        Column("baseline"),
        Column("metric", value="row.metric.name"),
        Column("unit", value="row.unit"),
        Column("stat", value=lambda line: stat if line["row"].metric.quantity else None),
        Column("n", value="figure.runs"),
        *(Column(name, value=f"figure.{name}") for name in ("median", "lowest", "highest")),
        *(Column(name, value=partial(of_shift, name)) for name in ("scale", "estimate", "low", "high")),
        Column("verdict"),
    ]
    return Table(columns, lines)
