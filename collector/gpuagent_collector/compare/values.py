"""The values of sides, in words and tables, where nothing is compared, and those of the parts of runs."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from gpuagent_collector.compare.comparison import (
    Comparison,
    cost_row,
)
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row, make_figure
from gpuagent_collector.compare.tables import grouped, shown_rows
from gpuagent_collector.metrics import BY_NAME, METRICS, Metric
from gpuagent_collector.present.answer import in_short
from gpuagent_collector.present.human import Notation, in_unit, notation
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.runs.arguments import in_order, name_commands
from gpuagent_collector.runs.cells import Layout, tell_apart
from gpuagent_collector.runs.words import percent, spoken, statuses
from gpuagent_common.text import counted

_INDENT = " "

ALONE = "There is no other side, so nothing was compared."

# The columns of the overview, as far as some run has them.
_KEY_METRICS = ("throughput", "step_seconds", "gpu_utilization_percent", "gpu_memory_used_bytes")


def describe_sides(comparison: Comparison, *, most: int, place: str = "in the table") -> str:
    """Return the primary metric of each block and side in words, and that nothing was tested."""
    layout, primary = comparison.layout, comparison.figures.primary
    sentences = []
    for block in comparison.figures.blocks:
        priced = cost_row(block)
        of_metrics = {row.metric.name: row for row in block.rows}
        known = of_metrics.get(primary.name) or of_metrics.get("run_seconds")
        rows = [row for row in (known, priced) if row]
        for row, side in product(rows, (cell.side for cell in block.block.cells)):
            figure = row.figures.get(side)
            if figure is None:
                continue
            name = tell_apart(block.block, layout.blocks, briefly=True)
            where = "" if layout.facet.describes or len(layout.sides) == 1 else f" {layout.facet.where(side)}"
            scale = notation([figure.median], row.unit)
            spread = ""
            if figure.runs > 1:
                spread = f", the median of {figure.runs:,} runs from {scale.write_bare(figure.lowest)}"
                spread += f" to {scale.write(figure.highest)}"
            title = spoken(row.metric, comparison.request.stat)
            sentences.append(f"{name}: {title} is {scale.write(figure.median)}{where}{spread}.")
    if not sentences:
        sentences = [f"No run has {primary.name}."]
    if layout.facet.describes and len(sentences) > most:
        return _describe_range(comparison)
    said = in_short(sentences, most=most, place=place)
    if layout.facet.names != {"all"}:
        said.append(ALONE if len(layout.sides) == 1 else "Nothing was tested.")
    return " ".join(said)


def _describe_range(comparison: Comparison) -> str:
    """Return the lowest and highest median of different workloads: of what was asked for, else run duration."""
    layout, primary = comparison.layout, comparison.figures.primary
    metric = primary if comparison.request.metric else BY_NAME["run_seconds"]
    found = []
    for block in comparison.figures.blocks:
        for row in block.rows:
            if row.metric.name == metric.name:
                name = tell_apart(block.block, layout.blocks, briefly=True)
                found += [(figure.median, name, row.unit) for figure in row.figures.values()]
    between = "Workloads are different work, so nothing was tested; a comparison within each is the next."
    if not found:
        return between
    (least, first, unit), (most, last, _) = min(found), max(found)
    write, title = in_unit(unit), spoken(metric, comparison.request.stat)
    return f"The median {title} is {write(least)} ({first}) to {write(most)} ({last}). {between}"


def overview_table(comparison: Comparison) -> Table:
    """Return a row for each side of each block, with the metrics that matter most."""
    layout, stat = comparison.layout, comparison.request.stat
    blocks, primary = comparison.figures.blocks, comparison.figures.primary.name
    present = {row.metric.name: row.metric for block in blocks for row in block.rows}
    costs = [name for name in present if name.startswith("cost_per_")]
    others = () if costs else _KEY_METRICS
    wanted = list(dict.fromkeys((primary, *costs, *others)))[: len(_KEY_METRICS)]
    if not all(any(row.metric.name == primary for row in block.rows) for block in blocks):
        wanted = [*wanted[:-1], "run_seconds"]
    known = Counter(row.metric.name for block in blocks for row in block.rows)
    # A column with figures in less than a quarter of the rows takes the room of their names.
    metrics = [present[name] for name in wanted if 4 * known[name] >= len(blocks) or (name == primary and known[name])]
    several = len(layout.sides) > 1 and not layout.facet.describes
    rows = []
    for block in blocks:
        of_metrics = {row.metric.name: row for row in block.rows}
        name = tell_apart(block.block, layout.blocks, briefly=True)
        for cell in block.block.cells:
            title = f"{name} {cell.side}" if several else name
            # The number of runs that count, and of the others by status.
            runs = [f"{len(cell.runs):,}"] if cell.runs else []
            if len({run.run_id for run in cell.runs}) != sum(cell.others.values()):
                runs.append(statuses(cell.others))
            runs_text = ", ".join(filter(None, runs))
            rows.append({"title": title, "runs": runs_text, "side": cell.side, "metrics": of_metrics})

    def written(metric: Metric, row: Mapping[str, Any]) -> str | None:
        of_metric = row["metrics"].get(metric.name)
        figure = of_metric.figures.get(row["side"]) if of_metric else None
        return figure and in_unit(of_metric.unit)(figure.median)

    columns = [Column(None, "workload", "title", left=True), Column(None, "runs", "runs")]
    columns += [Column(None, metric.titled(stat), partial(written, metric)) for metric in metrics]
    return Table(columns, rows)


def value_table(block: BlockFigures, comparison: Comparison) -> Table:
    """Return each metric of a block with its median, range and number of runs."""
    sides = [cell.side for cell in block.block.cells if cell.runs]
    alone = all(figure.runs == 1 for row in block.rows for figure in row.figures.values())

    def scale(row: Row) -> Notation:
        return notation([figure.median for figure in row.figures.values()], row.unit)

    def written(side: str, row: Row) -> str | None:
        figure = row.figures.get(side)
        return scale(row).write(figure.median) if alone and figure else write_figure(figure, scale(row))

    def bound(name: str, row: Row) -> str | None:
        figure = row.figures.get(sides[0])
        if figure is None:
            return None
        return scale(row).write_bare(getattr(figure, name)) if figure.runs > 1 else ""

    columns = [Column(None, "", lambda row: f"{_INDENT}{row.metric.titled(comparison.request.stat)}", left=True)]
    if alone or len(sides) > 1:
        columns += [Column(None, side, partial(written, side)) for side in sides]
    else:
        columns += [
            Column(None, "median", lambda row: scale(row).write(row.figures[sides[0]].median)),
            Column(None, "lowest", partial(bound, "lowest")),
            Column(None, "highest", partial(bound, "highest")),
            Column(None, "runs", lambda row: row.figures[sides[0]].runs),
        ]
    return Table(columns, grouped(shown_rows(block, comparison)), keys=1)


def write_figure(figure: Figure | None, scale: Notation, *, unit: bool = True) -> str:
    """Return median, range and number of runs: 1,234 images/s [1,200, 1,250] (7); of one run only its value."""
    if figure is None:
        return ABSENT
    middle = (scale.write if unit else scale.write_bare)(figure.median)
    if figure.runs == 1:
        return f"{middle} (1)"
    return f"{middle} [{scale.write_bare(figure.lowest)}, {scale.write_bare(figure.highest)}] ({figure.runs:,})"


def value_legend(comparison: Comparison, block: BlockFigures) -> str:
    """Return the meaning of a block's values."""
    hidden = len(block.rows) - len(shown_rows(block, comparison))
    sentences = []
    if any(row.metric.name == "measure_seconds" for row in block.rows):
        sentences.append("Samples count in each run's measured phase, not in start-up and warm-up.")
    if hidden:
        sentences.append(f"--all shows {counted(hidden, 'more metric')}.")
    return " ".join(sentences)


# Side → name of a part → metric → figure.
PartFigures = Mapping[str, Mapping[str, Mapping[str, Figure]]]


def part_figures(block: BlockFigures, comparison: Comparison) -> PartFigures:
    """Return the figures of each part of a block's runs: medians over the runs that have that part."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    primary = comparison.figures.primary.name
    for cell in block.block.cells:
        for run in cell.runs:
            parts = comparison.parts.get(run.run_id, {})
            # What is known of a run is known of its only part.
            own = zip([primary], comparison.facts.values([run], primary), strict=False) if len(parts) == 1 else ()
            for part, figures in parts.items():
                for metric, value in {**dict(own), **figures}.items():
                    values[cell.side, part, metric].append(value)
    found: dict[str, dict[str, dict[str, Figure]]] = {}
    for (side, part, metric), of_metric in values.items():
        found.setdefault(side, {}).setdefault(part, {})[metric] = make_figure(side, of_metric)
    return found


# Figures of the parts of runs that an overview has.
_MOST_COLUMNS = 4
# Parts whose figures differ by less are alike: a share of the highest, or of 100 % or a core.
_ALIKE = 0.05
_WHOLES = {"percent": 100.0, "cores": 1.0}


def say_parts(comparison: Comparison, parts: str) -> tuple[str, Table]:
    """Return where the parts of runs differ most, and a row for each with the figures that differ most between them.

    `parts` is their name, such as nodes.
    """
    layout = comparison.layout
    blocks = [setting for each in comparison.figures.blocks for setting in _settings_of(each, layout)]
    if len({block.workload for block in layout.blocks}) == 1:
        blocks.sort(key=lambda setting: in_order(setting[0]))
    of_blocks = [_parts_by_name(block, comparison) for _, block in blocks]
    taken = Counter(part for of_block in of_blocks for part in of_block)
    # By the metrics' names: throughput in steps and in items is one.
    found: dict[str, tuple[float, str, str, list[str]]] = {}
    rows: dict[str, dict[str, str]] = {}
    for (name, block), of_block in zip(blocks, of_blocks, strict=True):
        titles = {part: f"{name}: {part}" if taken[part] > 1 else part for part in of_block}
        rows |= {title: {"title": title} for title in titles.values()}
        for metric, write in ((row.metric, in_unit(row.unit)) for row in shown_rows(block, comparison)):
            medians = ((titles[part], of_part.get(metric.name)) for part, of_part in of_block.items())
            values = {title: figure.median for title, figure in medians if figure}
            if not values:
                continue
            low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
            distance = (values[high] - values[low]) / _WHOLES.get(metric.unit, values[high] or 1)
            ends = " to ".join(f"{write(values[title])} ({title})" for title in (low, high))
            largest = (distance, f"{spoken(metric, None)}: {ends}", metric.title, [*titles.values()])
            found[metric.name] = max(found.get(metric.name, largest), largest)
            for title, value in values.items():
                rows[title][metric.name] = write(value)
    # What is compared comes first, if the parts differ in it.
    primary = comparison.figures.primary.name
    is_first = primary in found and found[primary][0] >= _ALIKE
    metrics = sorted(found, key=lambda metric: (not (is_first and metric == primary), -found[metric][0]))
    metrics = metrics[:_MOST_COLUMNS]
    columns = [Column(None, "", "title", left=True)]
    columns += [Column(None, found[metric][2], metric) for metric in metrics]
    sentence = ""
    if metrics and len(rows) > len(blocks):
        distance, said, _, telling = found[metrics[0]]
        parts = f"{parts} of one setting" if len(blocks) > 1 else parts
        alike = f"No figure of the {parts} differs by more than {percent(_ALIKE)}."
        most = "" if is_first else " most"
        sentence = alike if distance < _ALIKE else f"The {parts} differ{most} in {said}."
        # The setting that the sentence names comes first.
        rows = {title: rows[title] for title in dict.fromkeys([*telling, *rows])}
    return sentence, Table(columns if metrics else [], [*rows.values()])


def _settings_of(figures: BlockFigures, layout: Layout) -> list[tuple[str, BlockFigures]]:
    """Return the name of each setting of a block, and the block with its runs alone: each command is a setting."""
    block = figures.block
    name = tell_apart(block, layout.blocks, briefly=True)
    commands = name_commands(run.command for run in block.runs)
    if len(set(commands.values())) < 2:
        return [(name, figures)]
    settings = []
    # The same commands may be in another block too.
    unit = f" in {block.held['unit']}" if "unit" in block.held else ""
    for of_command in dict.fromkeys(commands.values()):
        cells = []
        for cell in block.cells:
            runs = tuple(run for run in cell.runs if commands[run.command] == of_command)
            cells += [replace(cell, runs=runs)] if runs else []
        settings.append((f"{of_command}{unit}", replace(figures, block=replace(block, cells=tuple(cells)))))
    return settings


def _parts_by_name(block: BlockFigures, comparison: Comparison) -> dict[str, Mapping[str, Figure]]:
    """Return the figures of a block's parts by their names, in order; of several sides with the side's name before."""
    several = len(comparison.layout.sides) > 1
    return {
        f"{side} {part}" if several and side != part else part: figures
        for side, parts in part_figures(block, comparison).items()
        for part, figures in sorted(parts.items(), key=lambda each: in_order(each[0]))
    }


def part_table(block: BlockFigures, comparison: Comparison) -> Table | None:
    """Return each metric of a block with a column for each part of each side; None: no run has figures of parts."""
    found = _parts_by_name(block, comparison)
    shown = {row.metric.name: row for row in shown_rows(block, comparison)}

    def written(figures: Mapping[str, Figure], row: Row) -> str | None:
        name = row.metric.name
        medians = [part[name].median for part in found.values() if name in part]
        return notation(medians, row.unit).write(figures[name].median) if name in figures else None

    columns = [Column(None, "", lambda row: f"{_INDENT}{row.metric.title}", left=True)]
    columns += [Column(None, part, partial(written, figures)) for part, figures in found.items()]
    measured = {name for figures in found.values() for name in figures}
    rows = (shown[metric.name] for metric in METRICS if metric.name in shown and metric.name in measured)
    return Table(columns, grouped(rows), keys=1) if columns[1:] else None
