"""The tables of a comparison: its figures, and the hardware of its sides."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import log
from typing import Any

from gpuagent_collector.compare.comparison import Comparison, cost_row, cost_shift, rank_sides
from gpuagent_collector.compare.figures import BlockFigures, Figure, Figures, Overall, Row, Test, count
from gpuagent_collector.metrics import Better
from gpuagent_collector.present.answer import Answer, Legend
from gpuagent_collector.present.human import Notation, change, notation, ratio
from gpuagent_collector.present.table import MOST_ROWS, Column, Table, data_table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import OTHER_VALUES, Block, Layout, tell_apart
from gpuagent_collector.runs.facets import JOINT, Facet, find_facet, name_sides
from gpuagent_collector.runs.specs import SpecRow, spec_table
from gpuagent_collector.runs.words import distinguishing, is_same, percent, spoken, statuses, write_shift
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_collector.statistics.verdicts import Verdict

_INDENT = " "

# Rows that no first screen cuts, in the order of the sides.
_FEW = 2

# For the name of a row and the head of its medians, beside the other columns of a narrow table.
_ROOM = 36


def verdict_table(comparison: Comparison) -> Table:
    """Return a row for each test; for several blocks under a heading for each two sides, with the geometric mean."""
    figures, facet = comparison.figures, comparison.layout.facet
    # One notation for all rows, with its unit in the header; None: the tests have several units.
    units = {test.unit for test in figures.tests}
    values = [side.median for test in figures.tests for side in (test.baseline, test.other)]
    common = notation(values, units.pop()) if len(units) == 1 else None
    unit = common.symbol if common else None
    several = len({id(test.block) for test in figures.tests}) > 1
    groups: dict[tuple[str, str], list[Test]] = defaultdict(list)
    for test in figures.tests:
        groups[test.sides].append(test)
    ranked = rank_sides(comparison)
    rows = list(_verdict_rows(comparison, groups, ranked, several=several))

    options, values_of = comparison.layout.options
    settings = _find_settings([test.block for test in figures.tests]) if several else ()
    named = "workload" if several and not ranked else options or "side / baseline"
    title = JOINT.join(settings) or named
    # The one baseline of several sides is named once.
    is_named = not several and len(groups) > 1 and len({test.baseline.side for test in figures.tests}) == 1
    if is_named:
        title = _name_baseline(figures.tests[0].baseline, comparison.layout, common)
        rows = _order_rows(figures)

    def name(row: Test | Overall) -> str:
        if isinstance(row, Overall):
            return _name_overall(row, comparison.layout.facet if ranked else None)
        if several:
            return _INDENT + _name_block(row.block, comparison, settings)
        other, baseline = row.other.side, row.baseline.side
        if options:
            return values_of[other] if len(groups) > 1 else f"{values_of[other]} / {values_of[baseline]}"
        both = _leave_out_equal(facet, other, baseline)
        return facet.name_side(other) if len(groups) > 1 else _name_both(*both)

    def medians(row: Test | Overall) -> str:
        if isinstance(row, Overall):
            return ""
        scale = common or _scale(row)
        if is_named and common:
            return scale.write_bare(row.other.median)
        reference = (scale.write_bare if unit else scale.write)(row.baseline.median)
        return f"{scale.write_bare(row.other.median)} / {reference}"

    are_pairs = all(test.pairs for test in figures.tests)
    measured = "median" if is_named and common else spoken(figures.primary, comparison.request.stat)
    measured += f", {unit}" if unit else ""
    # Beside long names it would take three lines; the answer names the metric.
    longest = max([len(name(row)) for row in figures.tests] + [len(title)] * bool(settings))
    is_long = not is_named and unit and longest + len(measured) > _ROOM
    columns = [
        Column(None, title, name, left=True),
        Column(None, "pairs", _pairs) if are_pairs else Column(None, "runs", _runs),
        Column(None, measured, medians, wide=True if is_long else None),
        *([Column(None, f"medians, {unit}", medians, wide=False)] if is_long else []),
        Column(None, "ratio [interval]", _ratio),
        Column(None, "verdict", _verdict),
    ]
    return Table(columns, rows, most=len(ranked) or MOST_ROWS, can_shrink=True)


def _order_rows(figures: Figures) -> list[Test | Overall | str]:
    """Return the tests of one block; of many those that differ first, the best of them before the others.

    A first screen without room for all has the first.
    """
    better = figures.primary.better
    if better is None or len(figures.tests) <= _FEW:
        return [*figures.tests]
    sign = -1 if better is Better.HIGHER else 1
    order = [(test.judgement.verdict is not Verdict.DIFFERS, sign * test.other.median) for test in figures.tests]
    return [test for _, test in sorted(zip(order, figures.tests, strict=True), key=lambda each: each[0])]


def _name_overall(row: Overall, facet: Facet | None) -> str:
    """Return the name of a row: of ranked sides, of which there is a `facet`, both sides."""
    if facet:
        return _name_both(facet, row.side, row.baseline)
    name = "geometric mean of" if row.is_far_apart or not row.common else "all"
    return f"{_INDENT}{name} {row.mean.pairs}"


def _name_block(block: Block, comparison: Comparison, settings: Sequence[str]) -> str:
    """Return a block's values of these settings; where there are none, its workload and what distinguishes it."""
    if settings:
        return JOINT.join(str(block.held[name]) for name in settings)
    name = tell_apart(block, comparison.layout.blocks, briefly=True)
    is_one_workload = len({test.block.workload for test in comparison.figures.tests}) == 1
    return name.removeprefix(f"{block.workload} ") if is_one_workload else name


def _find_settings(blocks: Sequence[Block]) -> Sequence[str]:
    """Return the arguments that distinguish blocks of one program; empty where something else does, or only one."""
    if len({block.workload for block in blocks}) > 1:
        return ()
    differing = distinguishing(blocks[0].settings, [block.settings for block in blocks])
    given = all(block.held.get(name) not in (None, OTHER_VALUES) for name in differing for block in blocks)
    are_arguments = all(name.startswith("-") for name in differing)
    return tuple(differing) if len(differing) > 1 and given and are_arguments else ()


def _verdict_rows(
    comparison: Comparison,
    groups: Mapping[tuple[str, str], Sequence[Test]],
    ranked: Sequence[Overall],
    *,
    several: bool,
) -> Iterator[Test | Overall | str]:
    """Yield the tests of each two sides, and what all together show; of `several` blocks below the sides' names.

    Where all together rank several sides, these rows are the first; else the sides that differ somewhere.
    """
    yield from reversed(ranked)
    differing = comparison.figures.differing
    for sides in groups if ranked else sorted(groups, key=lambda sides: sides not in differing):
        tests = groups[sides]
        if several:
            yield _name_both(comparison.layout.facet, *sides)
        yield from tests
        yield from (one for one in comparison.figures.overall if not ranked and one.sides == sides)


def _name_baseline(baseline: Figure, layout: Layout, scale: Notation | None) -> str:
    """Return the baseline of all rows with its median, where they have a `scale` in common."""
    options, values_of = layout.options
    against = values_of[baseline.side] if options else layout.facet.name_side(baseline.side)
    name = f"{options} against {against}".lstrip()
    return f"{name} ({scale.write(baseline.median)})" if scale else name


def _leave_out_equal(facet: Facet, other: str, baseline: str) -> tuple[Facet, str, str]:
    """Return a facet and two of its values without the parts in which they are equal."""
    values = list(zip(facet.joined, other.split(JOINT), baseline.split(JOINT), strict=False))
    differing = [each for each in values if each[1] != each[2]]
    if not differing or len(values) != other.count(JOINT) + 1:
        return facet, other, baseline
    parts, others, baselines = zip(*differing, strict=True)
    return find_facet(",".join(part.name for part in parts)), JOINT.join(others), JOINT.join(baselines)


def _name_both(facet: Facet, other: str, baseline: str) -> str:
    """Return a side by its baseline: an option of which both are values is named once, and so are words of commands."""
    second = facet.name_side(baseline) if facet.joined else baseline
    if facet.argument == "":
        words = baseline.split(" ")
        for word in other.split(" "):
            if words[:1] != [word]:
                break
            del words[0]
        second = " ".join(words) or second
    return f"{facet.name_side(other)} / {second}"


def cost_table(comparison: Comparison) -> Table | None:
    """Return the cost of each side that is compared, with its interval; None: it is unknown, or is what is tested."""
    blocks, primary, facet = comparison.figures.blocks, comparison.figures.primary, comparison.layout.facet
    rows: list[dict[str, Any]] = []
    for block in blocks:
        cost = cost_row(block)
        for side in cost.shifts if cost and cost.metric.name != primary.name else ():
            shift = cost_shift(block, side, comparison.costs)
            rows.append({"block": block.block, "cost": cost, "side": side, "shift": shift})
    if len({row["cost"].metric.name for row in rows}) != 1:
        return None
    baselines, sides = ({row["block"].baseline for row in rows}, {row["side"] for row in rows})
    title, is_one = "side / baseline", len(baselines) == 1 and len(sides) + len(blocks) > 2
    if is_one:
        baseline = baselines.pop()
        title = (
            f"against {facet.name_side(baseline)}" if len(sides) > 1 else _name_both(facet, rows[0]["side"], baseline)
        )

    def name(row: Mapping[str, Any]) -> str:
        side, block = row["side"], row["block"]
        both = facet.name_side(side) if is_one else _name_both(facet, side, block.baseline)
        if len(blocks) == 1:
            return both
        block_name = tell_apart(block, comparison.layout.blocks, briefly=True)
        return block_name if is_one and len(sides) == 1 else f"{block_name}: {both}"

    metric = comparison.costs.primary if comparison.costs else rows[0]["cost"].metric
    scale = notation([figure.median for row in rows for figure in row["cost"].figures.values()], metric.unit)

    def medians(row: Mapping[str, Any]) -> str:
        figures, write = row["cost"].figures, scale.write_bare
        return f"{write(figures[row['side']].median)} / {write(figures[row['block'].baseline].median)}"

    columns = (
        Column(None, title, name, left=True),
        Column(None, f"{spoken(metric, None)}, {scale.symbol}", medians),
        Column(None, "ratio [interval]", lambda row: write_shift(row["shift"], scale)),
    )
    return Table(columns, rows, most=MOST_ROWS, can_shrink=True)


def _runs(row: Test | Overall) -> str:
    if isinstance(row, Overall):
        return ""
    return f"{row.pairs:,} pairs" if row.pairs else f"{row.other.runs:,} / {row.baseline.runs:,}"


def _pairs(row: Test | Overall) -> str:
    return f"{row.pairs:,}" if isinstance(row, Test) else ""


def _ratio(row: Test | Overall) -> str:
    if isinstance(row, Test):
        return write_shift(row.judgement.shift, _scale(row))
    if row.common and not row.is_far_apart:
        return write_shift(row.common, notation([1], ""))
    mean = row.mean
    bounds = ABSENT if mean.low is None or mean.high is None else f"{ratio(mean.low)}, {ratio(mean.high)}"
    return f"{ratio(mean.ratio)} [{bounds}]"


def _verdict(row: Test | Overall) -> Verdict | str:
    return row.judgement.verdict if isinstance(row, Test) else row.verdict or ""


def verdict_legend(comparison: Comparison) -> Legend:
    """Return the meaning of the verdicts, and the level at which they were tested."""
    figures = comparison.figures
    tests = len(figures.tests)
    sentences = [f"Verdicts: differs, = (the same to within {percent(figures.delta)}), ~ (neither shown), n too small."]
    if any(test.pairs for test in figures.tests):
        sentences.append(
            "Pairs: two runs of one repeat on the same node, with the same command where there are several."
        )
    if tests > 1:
        levels = [test.judgement.shift.alpha for test in figures.tests]
        ends = " to ".join(dict.fromkeys(percent(1 - level) for level in (max(levels), min(levels))))
        sentences.append(f"All {tests} are tested together (Holm), so their intervals are of {ends}.")
    far = [each for each in figures.tests if is_far_from_medians(each.judgement.shift, *_medians(each))]
    if far:
        sentences.append(OF_RATIOS)
    means = [overall for overall in figures.overall if overall.is_far_apart or not overall.common]
    if len(means) < len(figures.overall):
        sentences.append("All: one test of all workloads together, and the ratio that they have in common.")
    if means:
        sentences.append(
            "Geometric mean: of these ratios, each counted once. It is in its interval at least "
            f"{percent(1 - figures.alpha)} of the time, for these workloads and no others. A verdict beside it is of "
            "one test of all together."
        )
    verdicts = {test.judgement.verdict for test in figures.tests}
    brief = []
    if Verdict.EQUAL in verdicts:
        brief.append(f"=: the same to within {percent(figures.delta)}.")
    if Verdict.NOT_SHOWN in verdicts:
        brief.append("~: neither a difference nor equality is shown.")
    if far and (brief or any(map(_says_the_opposite, far))):
        # Else, alone, it is not worth a line of the first screen.
        brief.append(OF_RATIOS)
    return Legend(" ".join(brief), " ".join(sentences), is_spare=True)


def _medians(test: Test) -> tuple[float, float]:
    return test.other.median, test.baseline.median


def _says_the_opposite(test: Test) -> bool:
    """Return whether a ratio is of the other direction than its medians."""
    other, baseline = _medians(test)
    return (test.judgement.shift.estimate > 1) is not (other > baseline)


OF_RATIOS = "Ratios compare single runs, not the medians."
# Between the two, from here on a reader sees it.
_VISIBLE = 0.1


def is_far_from_medians(shift: Shift, other: float, baseline: float) -> bool:
    """Return whether a ratio is not that of the medians beside it, as a reader would see."""
    if shift.scale is not Scale.RATIO or min(other, baseline, shift.estimate) <= 0:
        return False
    return abs(log(shift.estimate * baseline / other)) > _VISIBLE


def _scale(test: Test) -> Notation:
    return notation((test.baseline.median, test.other.median), test.unit)


def metric_table(
    block: BlockFigures, side: str, comparison: Comparison, rows: Iterable[Row], *, counted: bool = True
) -> Table:
    """Return a row for each metric under the heading of its group; `counted` adds the runs behind both sides."""
    primary, stat, baseline = comparison.figures.primary, comparison.request.stat, block.block.baseline
    runs = {cell.side: len(cell.runs) for cell in block.block.cells}

    def scale(row: Row) -> Notation:
        figures = (row.figures.get(name) for name in (baseline, side))
        return notation([figure.median for figure in figures if figure], row.unit)

    def title(row: Row) -> str:
        return f"{_INDENT}{row.metric.titled(stat)}{' *' if row.metric.name == primary.name else ''}"

    def middle(name: str, row: Row) -> str | None:
        figure = row.figures.get(name)
        if figure is None:
            return None
        fewer = f" (n {figure.runs:,})" if figure.runs != runs[name] else ""
        return scale(row).write(figure.median) + fewer

    def estimate(row: Row) -> str | None:
        return write_shift(row.shifts[side], scale(row)) if side in row.shifts else None

    def changed(row: Row) -> str | None:
        shift = row.shifts.get(side)
        return change(shift.estimate) if shift and shift.scale is Scale.RATIO else None

    def reach(name: str, row: Row) -> str | None:
        figure = row.figures.get(name)
        if figure is None:
            return None
        return f"{scale(row).write_bare(figure.lowest)} to {scale(row).write_bare(figure.highest)}"

    columns = (
        Column(None, "", title, left=True),
        *(Column(None, name, partial(middle, name)) for name in (baseline, side)),
        Column(None, f"ratio [{percent(1 - comparison.figures.alpha)}]", estimate),
        Column(None, "change", changed, wide=True),
        *(Column(None, f"range of {name}", partial(reach, name), wide=True) for name in (baseline, side)),
    )
    return Table(columns, [*(count_rows(block, side, comparison) if counted else ()), *grouped(rows)])


def grouped(rows: Iterable[Row]) -> list[Row | str]:
    """Return rows under the headings of their groups."""
    listed: list[Row | str] = []
    for group, members in groupby(rows, key=lambda row: row.metric.group):
        listed += [group, *members]
    return listed


def metric_legend(comparison: Comparison, block: BlockFigures) -> str:
    """Return the meaning of a block's figures."""
    shown = shown_rows(block, comparison)
    shifts = [shift for row in shown for shift in row.shifts.values()]
    stat, hidden = comparison.request.stat, len(block.rows) - len(shown)
    differences = any(shift.scale is Scale.DIFFERENCE and not is_same(shift) for shift in shifts)
    tested = any(row.metric.name == comparison.figures.primary.name for row in block.rows)
    measured = any(row.metric.name == "measure_seconds" for row in block.rows)
    steady = "Steady state only: samples count in each run's measured phase, not in start-up and warm-up."
    sentences = [
        steady if measured else "",
        f"{stat.value}: of those samples." if stat else "",
        f"Medians over runs; ratios with their {percent(1 - comparison.figures.alpha)} interval (Hodges-Lehmann, "
        "Mann-Whitney).",
        "Δ: a difference, where zeros allow no ratio." if differences else "",
        "[–]: too few runs for an interval." if any(shift.low is None for shift in shifts) else "",
        "*: the tested metric, with the interval of its test." if tested else "",
        f"--all shows {hidden} more." if hidden else "",
    ]
    return " ".join(filter(None, sentences))


def shown_rows(block: BlockFigures, comparison: Comparison) -> list[Row]:
    """Return the rows that are shown: those that matter most, or all where everything is requested."""
    everything, primary = comparison.request.everything, comparison.figures.primary.name
    return [row for row in block.rows if everything or not row.metric.detail or row.metric.name == primary]


def count_rows(block: BlockFigures, side: str, comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the numbers behind the figures of the baseline and of another side, a row for each kind."""
    cells = {cell.side: cell for cell in block.block.cells}
    primary = comparison.figures.primary
    both = [count(cells[name], comparison.facts, primary) for name in (block.block.baseline, side)]
    titles = {
        "succeeded": "Runs that succeeded",
        "missing": f"{_INDENT}without {spoken(primary, comparison.request.stat)}",
        "failed": "Failed",
        "cancelled": "Cancelled",
        "unfinished": "Not ended",
        "nodes": "Nodes",
        "devices": "Different GPUs",
    }
    for key, title in titles.items():
        if key == "failed":
            written = [statuses(counts[key]) or ABSENT for counts in both]
        else:
            written = [
                f"{counts[key]:,}" if counts[key] or key in ("succeeded", "nodes") else ABSENT for counts in both
            ]
        if set(written) != {ABSENT}:
            yield (title, *written)


_TITLES = {
    **{
        f"datasheet_{kind}_flops_per_second": f"Peak {kind.upper()}, datasheet"
        for kind in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
    },
    "datasheet_dram_bytes_per_second": "Memory bandwidth, datasheet",
}


def render_hardware(ask: Ask, comparison: Comparison) -> Answer:
    """Return the table of properties; CSV has a line for each property and side."""
    layout = comparison.layout
    peaks: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    side_of = {run.run_id: side for side in layout.sides for run in layout.runs_of(side)}
    for row in ask(_PEAKS, [list(side_of)]):
        unit = "bytes/s" if "bytes" in row["name"] else "FLOP/s"
        peaks[row["name"]][side_of[row["run_id"]]].add(notation([row["value"]], unit).write(row["value"]))
    specs = list(comparison.specs)
    for name, title in _TITLES.items():
        if name in peaks:
            of_sides = tuple(tuple(sorted(peaks[name][side])) for side in layout.sides)
            specs.append(SpecRow(title=title, values=of_sides))
    rows = []
    for spec in specs:
        for side, values in zip(layout.sides, spec.values, strict=True):
            value = ", ".join(values) or None
            rows.append({"property": spec.title, "side": side, "value": value, "differs": spec.differs})
    properties = data_table(rows)
    return Answer(
        heading=f"Hardware and software by {layout.facet.spoken}: {name_sides(layout.sides, layout.facet)}",
        text=f"{sum(spec.differs for spec in specs)} of {len(specs)} properties differ.",
        parts=[spec_table(layout.sides, specs)],
        facts={"by": layout.facet.name, "sides": layout.sides, "properties": properties},
        csv=[properties],
        sides=layout.sides,
    )


_PEAKS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE name LIKE 'datasheet_%' AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""
