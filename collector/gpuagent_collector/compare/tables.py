"""The tables of a comparison: its figures, and the hardware of its sides."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import BlockFigures, Figure, Overall, Row, Test, count
from gpuagent_collector.present.answer import Section, shorten_sides
from gpuagent_collector.present.human import Notation, change, notation, ratio
from gpuagent_collector.present.rendering import Rendering
from gpuagent_collector.present.table import Grid
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.facets import name_sides
from gpuagent_collector.runs.specs import SpecRow, spec_table
from gpuagent_collector.runs.words import is_same, percent, spoken, statuses, write_shift
from gpuagent_collector.statistics.shift import Scale

_INDENT = " "


def verdict_table(comparison: Comparison) -> Grid:
    """Return a row for each test; for several blocks under a heading for each two sides, with the geometric mean."""
    figures = comparison.figures
    unit = _common_unit(comparison)
    title = spoken(figures.primary, comparison.request.stat) + (f", {unit}" if unit else "")
    header = ("workload" if len(figures.blocks) > 1 else "sides", "runs", title, "ratio [interval]", "verdict")
    return Grid(header=header, rows=tuple(cells for cells, _ in verdict_rows(comparison)))


def verdict_rows(comparison: Comparison) -> Iterator[tuple[tuple[str, ...], Test | Overall | None]]:
    """Yield the rows of the table, each with its test or mean; None: a heading."""
    figures = comparison.figures
    several, bare = len(figures.blocks) > 1, _common_unit(comparison) is not None
    groups: dict[tuple[str, str], list[Test]] = defaultdict(list)
    for test in figures.tests:
        groups[test.other.side, test.baseline.side].append(test)
    for (side, baseline), tests in groups.items():
        sides = f"{side} / {baseline}"
        if several:
            yield (sides,), None
        for test in tests:
            name = f"{_INDENT}{tell_apart(test.block, comparison.layout.blocks, briefly=True)}" if several else sides
            scale = _scale(test)
            reference = (scale.write_bare if bare else scale.write)(test.baseline.median)
            cells = (
                name,
                f"{test.pairs:,} pairs" if test.pairs else f"{test.other.runs:,} / {test.baseline.runs:,}",
                f"{scale.write_bare(test.other.median)} / {reference}",
                write_shift(test.judgement.shift, scale),
                test.judgement.verdict.value,
            )
            yield cells, test
        for overall in figures.overall:
            if (overall.side, overall.baseline) == (side, baseline):
                yield _overall_row(overall), overall


def verdict_legend(comparison: Comparison) -> str:
    """Return the meaning of the verdicts, and the level at which they were tested."""
    figures = comparison.figures
    tests = len(figures.tests)
    sentences = [f"Verdicts: differs, = (the same to within {percent(figures.delta)}), ~ (neither shown), n too small."]
    if any(test.pairs for test in figures.tests):
        sentences.append(
            "Pairs: two runs of one repeat on the same node, with the same command where there are several."
        )
    if tests > 1:
        sentences.append(f"All {tests} are tested together (Holm), so intervals are wider than one at 95 %.")
    if figures.overall:
        sentences.append(
            "Geometric mean: of these ratios, each counted once; not tested. It is in its interval at least "
            f"{percent(1 - figures.alpha)} of the time, for these workloads and no others."
        )
    return " ".join(sentences)


def _common_unit(comparison: Comparison) -> str | None:
    """Return the unit for the header; None: the tests have several, or none."""
    symbols = {_scale(test).symbol for test in comparison.figures.tests}
    return (symbols.pop() or None) if len(symbols) == 1 else None


def _scale(test: Test) -> Notation:
    return notation((test.baseline.median, test.other.median), test.unit)


def _overall_row(overall: Overall) -> tuple[str, ...]:
    mean = overall.mean
    bounds = ABSENT if mean.low is None or mean.high is None else f"{ratio(mean.low)}, {ratio(mean.high)}"
    return (f"{_INDENT}geometric mean of {mean.pairs}", "", "", f"{ratio(mean.ratio)} [{bounds}]", "")


def metric_table(block: BlockFigures, side: str, comparison: Comparison, *, wide: bool) -> Grid:
    """Return the runs behind both sides, and a row for each metric under the heading of its group."""
    baseline = block.block.baseline
    header = ["", baseline, side, f"ratio [{percent(1 - comparison.figures.alpha)}]"]
    header += ["change", f"range of {baseline}", f"range of {side}"] if wide else []
    rows: list[tuple[str, ...]] = [
        (*cells, *[""] * (len(header) - len(cells))) for cells in count_rows(block, side, comparison)
    ]
    for group, members in groupby(shown_rows(block, comparison), key=lambda row: row.metric.group):
        rows += [(group,), *(metric_row(row, block, side, comparison, wide=wide) for row in members)]
    return Grid(header=tuple(header), rows=tuple(rows))


def metric_legend(comparison: Comparison, block: BlockFigures) -> str:
    """Return the meaning of a block's figures."""
    shifts = [shift for row in block.rows for shift in row.shifts.values()]
    stat, hidden = comparison.request.stat, len(block.rows) - len(list(shown_rows(block, comparison)))
    differences = any(shift.scale is Scale.DIFFERENCE and not is_same(shift) for shift in shifts)
    tested = any(row.metric.name == comparison.figures.primary.name for row in block.rows)
    sentences = [
        "Steady state only: samples count in each run's measured phase, not in start-up and warm-up."
        if any(row.metric.name == "measure_seconds" for row in block.rows)
        else "",
        f"{stat.value}: of those samples." if stat else "",
        f"Medians over runs; ratios with their {percent(1 - comparison.figures.alpha)} interval (Hodges-Lehmann, "
        "Mann-Whitney).",
        "Δ: a difference, where zeros allow no ratio." if differences else "",
        "[–]: too few runs for an interval." if any(shift.low is None for shift in shifts) else "",
        "*: the tested metric, with the interval of its test." if tested else "",
        f"--all shows {hidden} more." if hidden else "",
    ]
    return " ".join(filter(None, sentences))


def shown_rows(block: BlockFigures, comparison: Comparison) -> Iterator[Row]:
    """Yield the rows that are shown: those that matter most, or all where everything is requested."""
    for row in block.rows:
        if comparison.request.everything or not row.metric.detail or row.metric.name == comparison.figures.primary.name:
            yield row


def count_rows(block: BlockFigures, side: str, comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the numbers behind the figures of the baseline and of another side, a row for each kind."""
    cells = {cell.side: cell for cell in block.block.cells}
    primary = comparison.figures.primary
    both = [count(cells[name], comparison.facts, primary) for name in (block.block.baseline, side)]
    for title, written in (
        ("Runs that succeeded", [f"{counts.succeeded:,}" for counts in both]),
        (
            f"{_INDENT}without {spoken(primary, comparison.request.stat)}",
            [f"{each.missing:,}" if each.missing else "" for each in both],
        ),
        ("Failed", [statuses(counts.failed) for counts in both]),
        ("Cancelled", [f"{counts.cancelled:,}" if counts.cancelled else "" for counts in both]),
        ("Not ended", [f"{counts.unfinished:,}" if counts.unfinished else "" for counts in both]),
        ("Nodes", [f"{counts.nodes:,}" for counts in both]),
        ("Different GPUs", [str(counts.devices or "") for counts in both]),
    ):
        if any(written):
            yield (title, *(text or ABSENT for text in written))


def metric_row(row: Row, block: BlockFigures, side: str, comparison: Comparison, *, wide: bool) -> tuple[str, ...]:
    """Return the cells of a metric: its title, both medians, the ratio; `wide` adds the change and both ranges."""
    figures = [row.figures.get(name) for name in (block.block.baseline, side)]
    scale = notation([figure.median for figure in figures if figure], row.unit)
    shift = row.shifts.get(side)
    tested = " *" if row.metric.name == comparison.figures.primary.name else ""
    cells = [f"{_INDENT}{row.metric.titled(comparison.request.stat)}{tested}"]
    cells += [_median(figure, scale, block) for figure in figures]
    cells += [write_shift(shift, scale) if shift else ABSENT]
    if wide:
        cells += [change(shift.estimate) if shift and shift.scale is Scale.RATIO else ABSENT]
        cells += [_range(figure, scale) for figure in figures]
    return tuple(cells)


def _median(figure: Figure | None, scale: Notation, block: BlockFigures) -> str:
    if figure is None:
        return ABSENT
    runs = next(len(cell.runs) for cell in block.block.cells if cell.side == figure.side)
    fewer = f" (n {figure.runs:,})" if figure.runs != runs else ""
    return scale.write(figure.median) + fewer


def _range(figure: Figure | None, scale: Notation) -> str:
    return ABSENT if figure is None else f"{scale.write_bare(figure.lowest)} to {scale.write(figure.highest)}"


_TITLES = {
    **{
        f"datasheet_{kind}_flops_per_second": f"Peak {kind.upper()}, datasheet"
        for kind in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
    },
    "datasheet_dram_bytes_per_second": "Memory bandwidth, datasheet",
}


def render_hardware(ask: Ask, comparison: Comparison) -> Rendering:
    """Return the forms of the table of properties: CSV has a line for each property and side."""
    layout = comparison.layout
    rows = (*comparison.specs, *_peak_rows(ask, comparison))
    heading = f"Hardware and software by {layout.facet.spoken}: {name_sides(layout.sides, layout.facet)}"
    section = Section(heading=heading, parts=(spec_table(layout.sides, rows),))

    def lines() -> Iterator[dict[str, Any]]:
        for row in rows:
            for side, values in zip(layout.sides, row.values, strict=True):
                yield {"property": row.title, "side": side, "value": ", ".join(values) or None, "differs": row.differs}

    return Rendering(
        sections=lambda: shorten_sides([section], layout.sides),
        record=lambda: {"by": layout.facet.name, "sides": layout.sides, "properties": list(lines())},
        lines=lines,
    )


def _peak_rows(ask: Ask, comparison: Comparison) -> Iterator[SpecRow]:
    layout = comparison.layout
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    sides = {run.run_id: side for side in layout.sides for run in layout.runs_of(side)}
    for row in ask(_PEAKS, [list(sides)]):
        if row["name"] in _TITLES:
            unit = "bytes/s" if "bytes" in row["name"] else "FLOP/s"
            written = notation([row["value"]], unit).write(row["value"])
            found[row["name"]][sides[row["run_id"]]].add(written)
    for name, title in _TITLES.items():
        if name in found:
            yield SpecRow(title=title, values=tuple(tuple(sorted(found[name][side])) for side in layout.sides))


_PEAKS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE name LIKE 'datasheet_%' AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""
