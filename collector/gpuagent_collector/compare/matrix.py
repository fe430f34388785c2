"""A table of metrics: rows by one facet, columns by another, and in each cell the runs' median and range."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from gpuagent_collector.choices import Stat
from gpuagent_collector.compare.comparison import Comparison, Request, divide_by_unit
from gpuagent_collector.compare.figures import Figure, known_metrics, make_figure
from gpuagent_collector.compare.values import write_figure
from gpuagent_collector.metrics import Metric, hint_at
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.human import Notation, notation
from gpuagent_collector.present.table import Column, Table, data_table
from gpuagent_collector.prices.price import currencies_of
from gpuagent_collector.prices.runs import why_unpriced, with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import NOT_GIVEN, find_argument
from gpuagent_collector.runs.cells import Block, Layout, choose_sides, lay_out, tell_apart
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import Facet, find_facet, name_sides
from gpuagent_collector.runs.find import find_work
from gpuagent_collector.runs.parts import load_parts
from gpuagent_common.errors import GpuAgentError, MisuseError

_INDENT = " "

# Of a report, as far as some run has them.
USUAL_METRICS = (
    "throughput",
    "step_seconds",
    "gpu_busy_seconds_per_step",
    "gpu_utilization_percent",
    "gpu_memory_used_bytes",
    "gpu_energy_per_item_joules",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One metric of one row.

    Attributes:
        row: what the runs of the row have in common.
        part: the part of each run that is meant; None: the run.
        unit: of the figures.
        figures: by column; without columns that have none.
    """

    metric: Metric
    row: str
    part: str | None
    unit: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table of metrics; its lines are in the order of metrics, rows and parts."""

    rows: Facet
    columns: Facet
    sides: tuple[str, ...]
    stat: Stat | None
    lines: tuple[Line, ...]
    missing: tuple[str, ...]
    # Why some cost is missing; '': none is.
    unpriced: str


def tabulate(ask: Ask, request: Request, names: Sequence[str], rows: str, *, known: Comparison | None = None) -> Matrix:
    """Return the metrics of all runs by the facet `rows` and by the request's facet; `known` as in `choose_runs`.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: no run has one of the metrics.
    """
    return tabulate_runs(ask, choose_runs(ask, request, find_facet(rows), stats_in(names), known=known), request, names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Runs in the order of a table, described and not tested.

    Attributes:
        across: separates rows; the layout's facet separates columns.
        runs: all that meet the request's conditions, also those in no block.
    """

    across: Facet
    layout: Layout
    facts: Facts
    runs: Sequence[Run]


def choose_runs(
    ask: Ask, request: Request, across: Facet, stats: Sequence[Stat] = (), *, known: Comparison | None = None
) -> Selection:
    """Return the runs of a request with their facts, by the facet `across` and by the request's facet.

    A comparison that is `known` has runs of these conditions, and facts that need not be loaded again.

    Raises:
        MisuseError: a facet, value, workload or experiment is unknown.
        GpuAgentError: there are no runs.
    """
    columns = find_facet(request.by)
    runs = known.runs if known else find_work(ask, columns, **request.conditions)
    values = None
    if across.name != "workload":
        rows = find_work(ask, across, **request.conditions)
        values = {run.run_id: run.side for run in rows if run.side is not None}
    sides = choose_sides(runs, columns, request.values, request.baseline)
    arguments = [part.argument for facet in (columns, across) for part in facet.parts if part.argument]
    if arguments:
        # Other programs never take them.
        takers = {
            run.workload for run in runs if any(find_argument(run.command, name) != NOT_GIVEN for name in arguments)
        }
        runs = [run for run in runs if run.workload in takers]
    layout = lay_out(
        runs, columns, sides, described=True, rows=values, across=across, every_status=request.every_status
    )
    wanted = list(dict.fromkeys([*request.stats, *stats]))
    if known and known.facts.cover(layout.run_ids, wanted):
        facts = known.facts
    else:
        facts = with_costs(ask, load_facts(ask, layout.run_ids, request.stat, wanted), request.prices)
    return Selection(across=across, layout=layout, facts=facts, runs=runs)


def tabulate_runs(ask: Ask, chosen: Selection, request: Request, names: Sequence[str]) -> Matrix:
    """Return the metrics of chosen runs.

    Raises:
        MisuseError: a metric is unknown.
        GpuAgentError: no run has one of the metrics.
    """
    layout, facts = chosen.layout, chosen.facts
    counted = [run for run in chosen.runs if run.run_id in facts.metrics]
    parts = load_parts(ask, counted, facts, request.each) if request.each else {}
    lines = []
    metrics, rows = _find_metrics(names, facts, layout.runs, request.stats), _find_rows(layout)
    by_unit = dict(_divide_rows(rows, facts))
    pairs = ((each, row) for each in metrics for row in (rows if each.name == "run_seconds" else by_unit).items())
    for metric, (row, blocks) in pairs:
        cells = [cell for block in blocks for cell in block.cells]
        unit = facts.unit((run for cell in cells for run in cell.runs), metric)
        # The figures of the runs, and then those of each part.
        values: dict[str | None, dict[str, list[float]]] = {None: defaultdict(list)}
        for cell in cells:
            values[None][cell.side] += facts.values(cell.runs, metric.name)
            for run in cell.runs:
                for part, of_part in parts.get(run.run_id, {}).items():
                    values.setdefault(part, defaultdict(list))
                    if metric.name in of_part:
                        values[part][cell.side].append(of_part[metric.name])
        for name, of_sides in values.items():
            figures = {side: make_figure(side, of_side) for side, of_side in of_sides.items() if of_side}
            if figures:
                lines.append(Line(metric=metric, row=row, part=name, unit=unit, figures=figures))
    found = {line.metric.name for line in lines}
    missing = tuple(name for name in dict.fromkeys(names) if name not in found)
    sides = tuple(side for side in layout.sides if any(side in line.figures for line in lines))
    return Matrix(
        rows=chosen.across,
        columns=layout.facet,
        sides=sides,
        stat=request.stat,
        lines=tuple(lines),
        missing=missing,
        unpriced=why_unpriced(facts) if facts.unpriced and currencies_of(line.metric for line in lines) else "",
    )


def _find_rows(layout: Layout) -> Mapping[str, Sequence[Block]]:
    """Return the blocks of each row, by its label.

    Settings that follow from the side are no reason for rows of their own, such as half the steps on twice the ranks:
    blocks that differ only in these make one row, whose label has the setting of each side.
    """
    alike: dict[tuple[str, str], list[Block]] = defaultdict(list)
    for block in sorted(layout.blocks, key=lambda block: (block.row, block.workload)):
        alike[block.row, block.workload].append(block)
    rows: dict[str, list[Block]] = defaultdict(list)
    for blocks in alike.values():
        settings = _settings_by_side(blocks, layout)
        if settings and len(settings) <= _MOST_SETTINGS:
            name = label_row(blocks[0], replace(layout, blocks=(blocks[0],)))
            rows[" ".join([name, *(f"{key}={' | '.join(values)}" for key, values in settings.items())])] += blocks
        else:
            for block in blocks:
                rows[label_row(block, layout)].append(block)
    return rows


def _divide_rows(rows: Mapping[str, Sequence[Block]], facts: Facts) -> Iterator[tuple[str, Sequence[Block]]]:
    """Yield the rows; of runs with throughputs in several units one for each, as a comparison holds the unit too."""
    for name, blocks in rows.items():
        parts = [part for block in blocks for part in divide_by_unit(block, facts)]
        units = [next(iter(facts.throughput_units(part.runs)), "") for part in parts]
        # Blocks without any throughput are with the first.
        known = list(dict.fromkeys(filter(None, units))) or [""]
        for unit in known:
            of_unit = [part for part, own in zip(parts, units, strict=True) if (own or known[0]) == unit]
            yield f"{name} in {unit}" if known[1:] else name, of_unit


# More differing settings are other work, not a consequence of the side; values of more sides are no label.
_MOST_SETTINGS, _MOST_LISTED = 2, 4


def _settings_by_side(blocks: Sequence[Block], layout: Layout) -> Mapping[str, Sequence[str]] | None:
    """Return the settings in which blocks differ, each with its values by side; None: no such label is possible."""
    places = [
        (side, block)
        for side in layout.sides
        for block in blocks
        if any(cell.runs for cell in block.cells if cell.side == side)
    ]
    if len(blocks) < 2 or len(places) != len(dict(places)) or len(places) > _MOST_LISTED:
        return None
    ordered = [block.settings for _, block in places]
    names = dict.fromkeys(name for settings in ordered for name in settings)
    values = {name: [str(settings.get(name, "none")) for settings in ordered] for name in names}
    return {name: of_sides for name, of_sides in values.items() if len(set(of_sides)) > 1}


def stats_in(names: Sequence[str]) -> list[Stat]:
    """Return the statistics in names such as gpu_utilization_percent:max."""
    found = [name.partition(":")[2] for name in names]
    return [stat for stat in Stat if stat.value in found]


def _find_metrics(names: Sequence[str], facts: Facts, runs: Sequence[Run], stats: Sequence[Stat]) -> list[Metric]:
    """Return the named metrics of the runs, each followed by its further statistics."""
    known = {metric.name: metric for metric in known_metrics(runs, facts)}
    for name in names:
        if name not in known:
            is_cost = facts.prices is None and name.startswith("cost_per_")
            why = "needs prices: add --prices FILE (docs/cost.md)" if is_cost else f"is unknown; {hint_at(name, known)}"
            raise MisuseError(f"the metric {name} {why}")
    wanted = [name for base in names for name in (base, *(f"{base}:{stat.value}" for stat in stats)) if name in known]
    metrics = [known[name] for name in dict.fromkeys(wanted)]
    if not any(metric.name in facts.columns.by_metric for metric in metrics):
        raise GpuAgentError(f"no run that succeeded has {' or '.join(names)}")
    return metrics


def label_row(block: Block, layout: Layout) -> str:
    """Return what distinguishes a row: its facet's value, and settings where rows of that value differ in them."""
    alike = [other for other in layout.blocks if other.row == block.row]
    name = tell_apart(block, alike, briefly=True)
    if not block.row:
        return name
    # Where workloads are the columns, blocks of several workloads share a row.
    several = not layout.facet.describes and len({other.workload for other in layout.blocks}) > 1
    settings = name.removeprefix(block.workload).strip()
    return " ".join(filter(None, (block.row, block.workload if several else "", settings)))


def matrix_table(matrix: Matrix) -> Table:
    """Return the table; each metric has a heading with its unit where all its rows have one."""
    rows: list[Line | str] = []
    metrics = list(dict.fromkeys(line.metric for line in matrix.lines))
    common: dict[str, str | None] = {}
    scales: dict[int, Notation] = {}
    for metric in metrics:
        lines = [line for line in matrix.lines if line.metric is metric]
        of_lines = [_scale(line) for line in lines]
        if metric.group == "Cost":  # all for one run, or all for a thousand
            of_lines = [min(of_lines, key=attrgetter("divisor"))] * len(lines)
        scales |= zip(map(id, lines), of_lines, strict=True)
        symbols = {scale.symbol for scale in of_lines}
        common[metric.name] = symbols.pop() if len(symbols) == 1 else None
        unit = common[metric.name]
        rows += [metric.titled(matrix.stat) + (f", {unit}" if unit else ""), *lines]

    def name(line: Line) -> str:
        return f"{_INDENT}{line.row}" if line.part is None else f"{_INDENT}{line.row}, {line.part}"

    def written(side: str, line: Line) -> str:
        return write_figure(line.figures.get(side), scales[id(line)], unit=common[line.metric.name] is None)

    first = matrix.rows.spoken
    if len(metrics) == 1:
        first = str(rows.pop(0))
    columns = [Column(None, first, name, left=True)]
    columns += [Column(None, side, partial(written, side)) for side in matrix.sides]
    return Table(columns, rows, keys=1)


def _scale(line: Line) -> Notation:
    return notation([figure.median for figure in line.figures.values()], line.unit)


_LEGEND = "Medians over runs [lowest, highest] (runs); no test. `collector compare` without --table tests one metric."


def render(matrix: Matrix) -> Answer:
    """Return the answer; CSV has a line for each metric, row, part and column."""
    sides = name_sides(matrix.sides, matrix.columns)
    joint = " A setting with | has one value for each side." if any(" | " in line.row for line in matrix.lines) else ""
    absent = f" Not in the table, because no run has it: {', '.join(matrix.missing)}." if matrix.missing else ""
    cells = data_table(
        [
            {
                "metric": line.metric.name,
                "unit": line.unit,
                "row": line.row,
                "part": line.part,
                "column": side,
                "n": figure.runs,
                "median": figure.median,
                "lowest": figure.lowest,
                "highest": figure.highest,
            }
            for line in matrix.lines
            for side, figure in line.figures.items()
        ]
    )
    return Answer(
        heading=f"{matrix.rows.spoken.capitalize()} by {matrix.columns.spoken}: {sides}",
        text=_LEGEND + joint + absent + (f" Some cost is unknown: {matrix.unpriced}." if matrix.unpriced else ""),
        parts=[matrix_table(matrix)],
        facts={
            "rows": matrix.rows.name,
            "columns": matrix.columns.name,
            "sides": matrix.sides,
            "stat": matrix.stat,
            "missing": matrix.missing,
            "cells": cells,
        },
        csv=[cells],
        sides=[*matrix.sides, *dict.fromkeys(line.row for line in matrix.lines)],
    )
