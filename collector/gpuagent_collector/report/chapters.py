"""The chapters of a report."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import nan
from typing import NamedTuple

from markupsafe import Markup

from gpuagent_collector import __version__
from gpuagent_collector.answers import profile, roofline, scaling, serving
from gpuagent_collector.answers.show import details_table, output_section
from gpuagent_collector.compare.answer import answer, is_cost_first
from gpuagent_collector.compare.because import Because
from gpuagent_collector.compare.comparison import Comparison, Request
from gpuagent_collector.compare.figures import BlockFigures, Overall, Row, Test
from gpuagent_collector.compare.matrix import matrix_table
from gpuagent_collector.compare.parts import because_panels, because_table, say_undivided
from gpuagent_collector.compare.tables import cost_table, metric_legend, metric_table, verdict_legend, verdict_table
from gpuagent_collector.compare.values import part_table, value_legend, value_table
from gpuagent_collector.json_cells import read_words
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import Bullets
from gpuagent_collector.present.html import Pictures, bullet_list, code, folded, heading, piece, prose, table, warnings
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.prices.price import currencies_of
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.recommend.bottlenecks import bounds_legend, bounds_table, why
from gpuagent_collector.report.figures.base import draw_panel
from gpuagent_collector.report.figures.distributions import runs_figure, steps_figure
from gpuagent_collector.report.figures.frontier import frontier_panels
from gpuagent_collector.report.figures.kernels import kernels_figure
from gpuagent_collector.report.figures.over_time import course_figures, phases_figure
from gpuagent_collector.report.figures.rooflines import number_points, roofline_panel
from gpuagent_collector.report.figures.scaling import scaling_panel
from gpuagent_collector.report.figures.serving import serving_panels
from gpuagent_collector.report.pieces import Axis, anchor_of, answer_pieces, chart, charts, largest, legend
from gpuagent_collector.report.study import MOST_BLOCKS, MOST_SIDES, Missing, Report
from gpuagent_collector.runs.cells import Layout, describe, tell_apart
from gpuagent_collector.runs.series import Course
from gpuagent_collector.runs.specs import spec_table
from gpuagent_collector.runs.words import read_from, write_command
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_common.text import counted, harmless

_PICTURES = (
    "In the pictures: the estimate with its interval around 1, what counts as equal shaded; filled where the interval "
    "excludes 1, hollow where it does not."
)


# One of time and one of cost for each block.
_MOST_PANELS = 2 * MOST_BLOCKS


def write_answer(report: Report) -> Iterator[Markup]:
    """Yield the same sentences as `collector compare`, the table of tests, and what its words mean."""
    comparison = report.comparison
    for paragraph in answer(comparison).splitlines():
        yield prose(paragraph, class_="answer")
    if not comparison.layout.is_compared:
        return
    verdicts = verdict_table(comparison)
    pictures = _ratios([_shift(row) for row in verdicts.rows], comparison, at=len(verdicts.columns) - 1)
    tables = [table(verdicts.grid(), "Verdicts", pictures=pictures)]
    if costs := cost_table(comparison):
        pictures = _ratios([row["shift"] for row in costs.rows], comparison, at=len(costs.columns))
        tables.insert(0 if is_cost_first(comparison) else 1, table(costs.grid(), "Costs", pictures=pictures))
    yield from tables
    yield prose(f"{verdict_legend(comparison).text} {_PICTURES}", class_="quiet")
    headed = ""
    panels = list(because_panels(comparison.reasons, comparison.layout.sides))
    for panel, reasons in panels[:_MOST_PANELS]:
        name = tell_apart(reasons[0].block, comparison.layout.blocks)
        if name != headed:  # the titles of its charts have the sides
            yield heading(f"{name}: where the difference comes from")
        headed = name
        yield chart(draw_panel(panel))
        tables = [table(because_table(because).grid(), f"{name}: parts of the difference") for because in reasons]
        yield folded("Its parts", *tables)
    if others := [reasons[0] for _, reasons in panels[_MOST_PANELS:]]:
        yield prose(read_from(_name_undrawn(others, comparison), report.place), class_="quiet")
    if undivided := say_undivided(comparison):
        yield prose(f"{undivided[0].upper()}{undivided[1:]}.")


def _name_undrawn(reasons: Sequence[Because], comparison: Comparison) -> str:
    """Return which charts of differences are left out, and the command that draws them, if there is one."""
    request, workloads = comparison.request, {because.block.workload for because in reasons}
    names = ", ".join(dict.fromkeys(tell_apart(because.block, comparison.layout.blocks) for because in reasons))
    left_out = f"Not drawn: {counted(len(reasons), 'chart')} of {names}"
    if request.metric:  # which `plot because` does not take
        return f"{left_out}."
    options = {
        **request.choice,
        **({"--workload": workloads.pop()} if len(workloads) == 1 else {}),
        "--baseline": request.baseline,
        "--prices": request.prices.source if request.prices else None,
        "-o": "because.png",
    }
    return f"{left_out}; to draw what is missing: `{write_command('plot', options, 'because', sides=request.values)}`"


def _ratios(shifts: Sequence[Shift | None], comparison: Comparison, *, at: int = 4) -> Pictures:
    """Return a picture of the ratio of each row, all on one axis, for the column `at`."""
    axis = Axis.over([shift for shift in shifts if shift], comparison.figures.delta)
    return Pictures(at=at, header=axis.header(), draw=lambda row: axis.draw(shifts[row]))


def _shift(of: object) -> Shift | None:
    """Return what is drawn in a row of the table; None: it is a heading."""
    if isinstance(of, Test):
        return of.judgement.shift
    if not isinstance(of, Overall):
        return None
    if of.common and not of.is_far_apart:
        return of.common
    mean = of.mean
    # A mean is not tested, and nothing is drawn of a p-value.
    return Shift(scale=Scale.RATIO, estimate=mean.ratio, low=mean.low, high=mean.high, alpha=mean.alpha, p_value=nan)


def _by_block(
    chapter: str, pieces: Sequence[Sequence[Markup]], layout: Layout, *, unfolded: int = MOST_BLOCKS
) -> Iterator[Markup]:
    """Yield the pieces of each block that has some, under its name where there are several; further ones are folded."""
    shown = 0
    for number, of_block in enumerate(pieces):
        if of_block:
            name, anchor = tell_apart(layout.blocks[number], layout.blocks), anchor_of(chapter, number)
            if shown >= unfolded:
                yield folded(name, *of_block, anchor=anchor)
            else:
                if len(layout.blocks) > 1:
                    yield heading(name, anchor=anchor)
                yield from of_block
            shown += 1


def write_bounds(report: Report) -> Iterator[Markup]:
    """Yield for each block what is shown in words, and the figures of all limits."""
    layout = report.comparison.layout
    pieces = []
    for block, reasons in zip(layout.blocks[:MOST_BLOCKS], report.reasons, strict=False):
        figures = table(bounds_table(reasons).grid(), f"What bounds {tell_apart(block, layout.blocks)}")
        shown = figures if any(one.shown for one in reasons) else folded("What was measured", figures)
        pieces.append([prose(" ".join(why(reasons, layout))), shown])
    yield from _by_block("bounds", pieces, layout)
    yield largest(MOST_BLOCKS, len(layout.blocks))
    yield prose(bounds_legend(), class_="quiet")


def write_costs(report: Report) -> Iterator[Markup]:
    """Yield a chart for energy and one for money, where they are known; the metrics have the figures."""
    layout, facts = report.comparison.layout, report.comparison.facts
    blocks = layout.blocks[:MOST_BLOCKS]
    found = [[*map(draw_panel, frontier_panels(block, facts, layout.sides))] for block in blocks]
    if not any(found):
        return
    prices = report.comparison.request.prices
    priced = f"prices are those of {prices.source}" if prices else "without a file of prices nothing has a cost"
    yield prose(
        "Each run is a small mark, the median of a side a large one. Energy is that of the run's GPUs alone; "
        f"{priced}. The tables above have the figures, under Energy and Cost."
    )
    yield from _by_block("costs", [[charts(figures)] if figures else [] for figures in found], layout)
    yield largest(MOST_BLOCKS, len(layout.blocks))


_RUNS = "Runs are compared: each is a dot, from left to right in order of time; the line is their median."
_STEPS = (
    "Steps of a run are not independent of one another and prove nothing, but show how steady it was: by CUDA events "
    "where it has them, else by the clock; the axis ends at the 99th percentile."
)


def write_distributions(report: Report) -> Iterator[Markup]:
    """Yield for each block the dots of its runs and the times of their steps."""
    comparison = report.comparison
    blocks = comparison.layout.blocks
    yield prose(f"{_RUNS} {_STEPS}" if any(report.step_times) else _RUNS)
    pieces = []
    for block, times in zip(blocks[:MOST_BLOCKS], report.step_times, strict=True):
        both = (runs_figure(block, comparison), steps_figure(times, comparison.layout.sides))
        figures = [figure for figure in both if figure]
        pieces.append([charts(figures)] if figures else [])
    yield from _by_block("distributions", pieces, comparison.layout)
    yield largest(MOST_BLOCKS, len(blocks))


_TOP = 15
_MOST_CHARTS = 2


def write_kernels(report: Report) -> Iterator[Markup]:
    """Yield for each two sides what `collector profile` says, a chart of what took longest, and the tables folded."""
    if isinstance(report.profiles, Missing):
        return
    layout = report.comparison.layout
    pieces = [[one for study in studies for one in _kernels_of(study, layout.sides)] for studies in report.profiles]
    yield from _by_block("kernels", pieces, layout, unfolded=1)


def _kernels_of(study: profile.Study, sides: Sequence[str]) -> Iterator[Markup]:
    first, *rest = profile.render(study, top=_TOP).document(brief=True)
    yield heading(first.heading, 4)
    yield piece(first.parts[0], first.heading)
    yield charts(kernels_figure(lane, study, sides) for lane in study.lanes[:_MOST_CHARTS])
    for part in first.parts[1:]:
        yield piece(part, "The runs that were traced")
    for section in rest:
        if section.heading == "Warnings":
            yield heading(section.heading, 4)
            yield from (piece(part, section.heading) for part in section.parts)
        else:
            yield folded(section.heading, *(piece(part, section.heading) for part in section.parts))


def write_matrix(report: Report) -> Iterator[Markup]:
    """Yield the table; nothing for a single run, whose metrics follow."""
    if report.details or isinstance(report.matrix, Missing):
        return
    yield table(matrix_table(report.matrix).grid(), "Workloads by side")
    yield prose("Medians over runs [lowest, highest] (runs).", class_="quiet")


def write_metrics(report: Report) -> Iterator[Markup]:
    """Yield the tables; those of the smaller blocks are folded, and have values alone where they would be too many."""
    comparison = report.comparison
    blocks = comparison.figures.blocks
    tables = 0
    for number, block in enumerate(blocks):
        name = tell_apart(block.block, comparison.layout.blocks)
        tables += len(_others(block))
        pieces = list(_metrics_of(block, name, comparison, briefly=number >= MOST_BLOCKS and tables > _MOST_TABLES))
        if number < MOST_BLOCKS:
            yield heading(name, anchor=anchor_of("metrics", number))
            yield from pieces
        else:
            yield folded(name, *pieces, anchor=anchor_of("metrics", number))


# Of ratios, each of 20 kB.
_MOST_TABLES = 50


def _others(block: BlockFigures) -> list[str]:
    """Return the sides that are compared with the block's baseline."""
    return [cell.side for cell in block.block.cells if cell.runs and cell.side != block.block.baseline]


def _metrics_of(block: BlockFigures, name: str, comparison: Comparison, *, briefly: bool) -> Iterator[Markup]:
    yield prose(f"Ran as {describe(block.block)}", class_="quiet")
    parts = part_table(block, comparison) if comparison.request.each else None
    if parts:
        yield table(parts.grid(), f"{name}: parts of the runs")
    if not comparison.layout.is_compared:
        yield table(value_table(block, comparison).grid(), name)
        yield prose(value_legend(comparison, block), class_="quiet")
        return
    if briefly:
        usual = replace(comparison, request=replace(comparison.request, everything=False))
        yield table(value_table(block, usual).grid(), name)
        yield prose(f"Ratios and intervals: collector compare --workload {block.block.workload} --all", class_="quiet")
        return
    primary = comparison.figures.primary
    shown = [row for row in block.rows if not row.metric.detail or row.metric.name == primary.name]
    rest = [row for row in block.rows if row not in shown]
    for side in _others(block):
        title = f"{name}: {side} against {block.block.baseline}"
        for rows, further in ((shown, ""), (rest, ", further metrics")):
            metrics = metric_table(block, side, comparison, rows, counted=not further)
            shifts = [row.shifts.get(side) if isinstance(row, Row) else None for row in metrics.rows]
            ratios = _ratios(shifts, comparison)
            drawn = table(metrics.grid(), f"{title}{further}", pictures=ratios, class_="ranged")
            if not further:
                yield drawn
            elif rest:
                yield folded(f"{len(rest)} more metrics of {side} against {block.block.baseline}", drawn)
    yield prose(metric_legend(comparison, block), class_="quiet")


def write_missing(report: Report) -> Iterator[Markup]:
    """Yield a line for each chapter that is not there, and for parts of others."""
    reasons = []
    if not any(course.curves for courses in report.courses for course in courses):
        reasons.append(
            "Over time: no samples of the median runs; an agent on their nodes takes them (`gpuagent start`)"
        )
    if not any(report.step_times):
        how = "built-in workloads do, docs/run-directory.md says how others can"
        reasons.append(f"Times of steps: no run reported steps; {how}")
    parts = {"Roofline": report.roofline, "Kernels and operators": report.profiles, "Scaling": report.scaling}
    reasons += [f"{title}: {part.reason}" for title, part in parts.items() if isinstance(part, Missing)]
    if not currencies_of(report.comparison.facts.derived):
        how = "no prices were given; name a file of them with `--prices` (docs/cost.md says what is in it)"
        reasons.append(f"Cost: {why_unpriced(report.comparison.facts) or how}")
    if reasons:
        yield bullet_list([f"{reason}." for reason in reasons])


def write_over_time(report: Report) -> Iterator[Markup]:
    """Yield the phases, and a chart for each quantity that was read."""
    layout = report.comparison.layout
    blocks = layout.blocks
    pieces = [list(_courses_of(courses, layout)) for courses in report.courses]
    if not any(pieces):
        return
    every = [course for courses in report.courses for course in courses]
    is_measured = any(phase.name == "measure" for course in every for phase in course.phases)
    zero, shaded = (
        ("where its measured phase began", "; shaded is what was measured") if is_measured else ("its start", "")
    )
    yield prose(
        f"The median run of each side, by {report.comparison.figures.primary.title.lower()}. 0 s is {zero}. Lines are "
        f"means over the run's nodes or GPUs, areas what they vary between{shaded}. Drag to zoom all charts of a "
        "workload, double-click to see all again."
    )
    if any(len(block.cells) > MOST_SIDES for block in blocks):
        yield prose(f"The first {MOST_SIDES} sides.", class_="quiet")
    yield from _by_block("over-time", pieces, layout, unfolded=1)
    yield largest(MOST_BLOCKS, len(blocks))


def _courses_of(of_block: Sequence[Course], layout: Layout) -> Iterator[Markup]:
    """Yield a legend, the phases and the charts of a block; nothing without curves."""
    # A part has a colour of its own, after those of the sides.
    shown = [course for course in of_block if course.curves or course.phases]
    named = [*layout.sides, *(course.side for course in shown if course.side not in layout.sides)]
    courses = {named.index(course.side): course for course in shown}
    figures = list(course_figures(courses))
    if not figures:
        return
    names = {
        course.side: course.side if course.run.run_id in course.side else f"{course.side}, {course.run.run_id}"
        for course in courses.values()
    }
    yield legend(names, named)
    phases = phases_figure(courses)
    if phases:
        yield chart(phases)
    yield charts(figures)


def commands(report: Report) -> Iterator[str]:
    """Yield the commands as a shell takes them, those first that print the same."""
    request, layout = report.comparison.request, report.comparison.layout
    usual, sides = Request(), request.values
    asked = {
        "--by": request.by if request.by != usual.by else None,
        "--baseline": request.baseline,
        **request.words,
        "--metric": request.metric,
        "--stat": request.stat and request.stat.value,
        "--each": request.each and request.each.value,
        "--delta": significant(100 * request.delta) if request.delta != usual.delta else None,
        "--prices": request.prices.source if request.prices else None,
    }
    workload, by = layout.blocks[0].workload, {"--by": request.by}
    chosen = by | {name: asked[name] for name in ("--experiment", "--where", "--prices")}
    yield write_command("report", {"-o": "report.html", **asked}, sides=sides)
    yield write_command("compare", asked, sides=sides)
    if workload != SERVING:
        yield write_command("recommend", chosen, workload)
    if not isinstance(report.roofline, Missing):
        yield write_command("roofline", by, *dict.fromkeys(block.workload for block in layout.blocks))
    if not isinstance(report.profiles, Missing):
        for profile in chain.from_iterable(report.profiles):
            yield write_command("profile", {}, *(side.run.run_id for side in profile.sides))
    if not isinstance(report.scaling, Missing):
        for name in dict.fromkeys(curve.curve.settings.workload for curve in report.scaling.curves):
            yield write_command("scaling", {}, name)
    if report.serving:
        yield write_command("serving", chosen)


_LISTED = 10


def write_reproduce(report: Report) -> Iterator[Markup]:
    """Yield the commands, what the runs were started with, and every statement that the store was asked."""
    yield prose("These commands show the same, and more of it:")
    yield code("\n".join(read_from(line, report.place) for line in commands(report)), "Commands")
    sessions, listed, every = report.comparison.facts.sessions, [], report.comparison.layout.runs
    for side in report.comparison.layout.sides:
        run_ids = [run.run_id for run in every if run.side == side]
        more = f", … ({len(run_ids)} in all)" if len(run_ids) > _LISTED else ""
        listed.append((f"Runs of {side}", f"{', '.join(run_ids[:_LISTED])}{more}"))
    first = min((run.started_at for run in every if run.started_at), default=None)
    last = max((run.ended_at for run in every if run.ended_at), default=None)
    times = [ABSENT if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (first, last)]
    versions = {record["agent_version"] for run in every for record in sessions.get(run.run_id, [])}
    agents = sorted(filter(None, versions))
    rows = [
        ("Read", report.source),
        ("Runs between", " and ".join(times)),
        *listed,
        ("Collector", f"gpuagent {__version__}"),
        ("Agents", f"gpuagent {', '.join(agents)}" if agents else ABSENT),
        ("Written", f"{report.written_at:%Y-%m-%d %H:%M:%S} UTC"),
    ]
    columns = (Column(None, "", left=True), Column(None, "what", left=True))
    yield table(Table(columns, rows).grid(), "What this report was made of")
    if report.started:
        lines = [
            f"# {harmless(side)}, {counted(number, 'run')}\n{harmless(shlex.join(read_words(command)))}"
            for (side, command), number in report.started.items()
        ]
        title = f"What was started: {counted(len(report.started), 'command')}"
        yield folded(title, code("\n".join(lines), "Commands of the runs"))
    yield heading("Queries")
    rest = ", of curves those of the first workload or setting" if len(report.courses) > 1 else ""
    yield prose(f"All that the store was asked for this report{rest}; `collector query` takes each of them.")
    shown: set[str] = set()
    for topic, statements in report.statements.items():
        # The same runs are asked about for several topics, and their names are long.
        fresh = [statement for statement in dict.fromkeys(statements) if statement not in shown]
        shown.update(fresh)
        above = f", {len(statements) - len(fresh)} of them above" if len(fresh) < len(statements) else ""
        heading_of = f"{topic}: {counted(len(statements), 'statement')}{above}"
        yield folded(heading_of, code("\n\n".join(fresh), f"SQL of {topic}"), class_="sql")


def write_roofline(report: Report) -> Iterator[Markup]:
    """Yield the answer of `collector roofline`, and for each device the roofs, a chart and tables."""
    study = report.roofline
    if isinstance(study, Missing):
        return
    drawn = [one for one in study.rooflines if one.is_drawn]
    indexes = number_points(drawn, report.comparison.layout.sides)
    figures = [draw_panel(roofline_panel(one, indexes)) for one in drawn]
    yield from answer_pieces(roofline.render(study), figures)


_LINES = 200


def write_run(report: Report) -> Iterator[Markup]:
    """Yield the run as a table; nothing of several runs."""
    if report.details:
        yield table(details_table(report.details).grid(), "The run")


def write_output(report: Report) -> Iterator[Markup]:
    """Yield the last lines of each stream that the store has."""
    section = output_section(report.details, _LINES) if report.details else None
    for part in section.parts if section else ():
        yield piece(part, "Output")


def write_scaling(report: Report) -> Iterator[Markup]:
    """Yield what `collector scaling` says, with a chart of all curves."""
    study = report.scaling
    if isinstance(study, Missing):
        return
    yield from answer_pieces(scaling.render(study), [draw_panel(scaling_panel(study))])


def write_serving(report: Report) -> Iterator[Markup]:
    """Yield what `collector serving` says, with a chart of all curves."""
    study = report.serving
    if study is None:
        return
    yield from answer_pieces(serving.render(study), map(draw_panel, serving_panels(study)))


def write_warnings(report: Report) -> Iterator[Markup]:
    """Yield every warning with what to do about it."""
    caveats = report.comparison.caveats
    if not caveats:
        yield prose("None: nothing in the data speaks against acting on it.")
        return
    yield warnings(Bullets(points=tuple((caveat.text, read_from(caveat.remedy, report.place)) for caveat in caveats)))


def write_where(report: Report) -> Iterator[Markup]:
    """Yield the specifications of all sides, those in which they differ marked."""
    sides, specs = report.comparison.layout.sides, report.comparison.specs
    differing = sum(row.differs for row in specs)
    if len(sides) > 1:
        marked = f"{differing} differences" if differing > 1 else "one difference"
        yield prose(f"≠ marks the {marked}." if differing else "The same on all sides.")
    yield table(spec_table(sides, specs, whole=True).grid(), "Nodes, GPUs and software of each side")


class Chapter(NamedTuple):
    """A chapter: its name within the page, its title, and what yields its HTML; nothing where there is none."""

    anchor: str
    title: str
    write: Callable[[Report], Iterator[Markup]]


# Every chapter, in the order of the page.
CHAPTERS: tuple[Chapter, ...] = (
    Chapter("run", "Run", write_run),
    Chapter("answer", "Answer", write_answer),
    Chapter("table", "Workloads by side", write_matrix),
    Chapter("where", "Where it ran", write_where),
    Chapter("metrics", "Figures side by side", write_metrics),
    Chapter("over-time", "Over time", write_over_time),
    Chapter("distributions", "Distributions", write_distributions),
    Chapter("roofline", "Roofline", write_roofline),
    Chapter("kernels", "Kernels and operators", write_kernels),
    Chapter("scaling", "Scaling", write_scaling),
    Chapter("serving", "Serving", write_serving),
    Chapter("bounds", "What bounds it", write_bounds),
    Chapter("costs", "Energy and cost", write_costs),
    Chapter("output", "Output", write_output),
    Chapter("warnings", "Warnings", write_warnings),
    Chapter("missing", "Not shown", write_missing),
    Chapter("reproduce", "How to reproduce it", write_reproduce),
)
