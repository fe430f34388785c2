"""The parts of a difference as a table, a waterfall, and bars in a terminal; and why there are none."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from gpuagent_collector.compare.because import Because, Part, lacks_samples, write_signed
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import DEFAULT_PRIMARIES
from gpuagent_collector.present.answer import Legend
from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.human import Notation, duration, notation
from gpuagent_collector.present.panel import COLORS, Axis, Bar, Panel, Row
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.words import percent
from gpuagent_common.text import counted


def because_table(because: Because) -> Table:
    """Return a row for each part, its figures in their units."""
    unit = because.unit
    same = [value for part in because.parts for value in (part.baseline, part.other) if part.unit == unit]

    def write(name: str, part: Part) -> str:
        value = getattr(part, name)
        return notation(same if part.unit == unit else [value], part.unit).write(value)

    def with_interval(part: Part) -> str:
        bounds = ", ".join(write_signed(each, scale) for each in part.interval) if part.interval else ABSENT
        return f"{write_signed(part.difference, scale)} [{bounds}]"

    scale = notation(same or [part.difference for part in because.parts], unit)
    share = percent(1 - because.parts[0].shift.alpha)
    symbol = "" if same else f", {scale.symbol}"
    columns = (
        Column("part", f"per {because.of}", lambda part: part.title, left=True),
        *([] if same else [Column("unit")]),
        Column(f"baseline_{unit}" if same else "baseline", value="baseline"),
        Column(None, because.baseline, partial(write, "baseline")),
        Column(f"side_{unit}" if same else "side", value="other"),
        Column(None, because.side, partial(write, "other")),
        Column(f"difference_{unit}", value="difference"),
        Column(None, f"difference{symbol} [{share}]", with_interval),
        Column(f"low_{unit}", value=lambda part: part.interval and part.interval[0]),
        Column(f"high_{unit}", value=lambda part: part.interval and part.interval[1]),
    )
    about = {"side": because.side, "baseline": because.baseline, "of": because.of, "unit": unit}
    return Table(columns, because.parts, about=about)


def because_panels(reasons: Sequence[Because], sides: Sequence[str]) -> Iterator[tuple[Panel, Sequence[Because]]]:
    """Yield panels with the differences in each: those from one baseline, of what is divided alike, are in one.

    Several are a stack of parts for each side. One is a waterfall, as are factors, which do not add up: a bar for the
    baseline, one for each part that leads on from there, one for the side, in the colour of its place among `sides`.
    """
    groups = defaultdict[Hashable, list[Because]](list)
    for because in reasons:
        # The baseline's parts differ a little where other runs of it have no reading; those of the first are drawn.
        names = frozenset(part.name for part in because.parts if part.baseline)
        groups[id(because.block), because.of, because.unit, because.medians[0], names].append(because)
    # Parts have the colours that no side has.
    titles = dict.fromkeys(part.title for because in reasons if not because.is_product for part in because.parts)
    looks = {title: (len(sides) + number, number) for number, title in enumerate(titles)}
    for group in groups.values():
        first = group[0]
        scale = notation([whole for because in group for whole in because.medians], first.unit)
        rows = _stack(group, looks, scale) if group[1:] and not first.is_product else _fall(group, sides, scale)
        what = f"{first.what} per {first.of}"
        to = f"{len(group)} others" if group[1:] else first.side
        # In print, texts are to the right of the bars.
        highest, lowest = max(row.end for row in rows), min(bar.end for row in rows for bar in row.bars)
        panel = Panel(
            title=f"From {first.baseline} to {to}: {what}",
            description=f"Parts of the {what}: {'; '.join(f'{row.name}: {row.text}' for row in rows)}",
            x=Axis(unit=scale.symbol, ends=(min(0, 1.05 * lowest), 1.18 * highest)),
            rows=rows,
            height=60 + 38 * len(rows),
        )
        yield panel, group


def _fall(group: Sequence[Because], sides: Sequence[str], scale: Notation) -> list[Row]:
    def whole(side: str, value: float) -> Row:
        # The first colour is the baseline's alone, also where there are more sides than colours.
        place = sides.index(side)
        return Row(
            side, scale.write(value), [Bar(0.0, value / scale.divisor, place and 1 + (place - 1) % (COLORS - 1))]
        )

    rows = [whole(group[0].baseline, group[0].medians[0])]
    for because in group:
        end = because.medians[0] / scale.divisor
        for part in because.parts:
            begin, end = end, end + part.difference / scale.divisor
            text = f"{write_signed(part.difference, scale, digits=3)} {scale.symbol}"
            rows.append(Row(part.title, text, [Bar(begin, end)]))
        rows.append(whole(because.side, because.medians[1]))
    return rows


def _stack(group: Sequence[Because], looks: Mapping[str, tuple[int, int]], scale: Notation) -> list[Row]:
    first = group[0]
    wholes = [(first.baseline, first.medians[0], {part.title: part.baseline for part in first.parts})]
    wholes += [(one.side, one.medians[1], {part.title: part.other for part in one.parts}) for one in group]
    rows = []
    for side, whole, parts in wholes:
        bars, end = list[Bar](), 0.0
        for title, (index, hatch) in looks.items():
            if value := parts.get(title):
                begin, end = end, end + value / scale.divisor
                bars.append(Bar(begin, end, index, title, f"{title} {scale.write(value)}", hatch))
        rows.append(Row(side, scale.write(whole), bars))
    return rows


# At 10 samples a second, a longer phase has enough of them.
_SHORT_SECONDS = 1.0


def say_undivided(comparison: Comparison) -> str:
    """Return how many of the shown differences have no parts, and why; '' where all have or none could."""
    pairs = _find_undivided(comparison)
    if not pairs:
        return ""
    shown = sum(test.judgement.shift.is_shown for test in comparison.figures.tests)
    why = say_too_short(comparison) or (
        "that takes steps that are timed, and in most runs samples of their GPU or CPU, or waits for data "
        "(`gpuagent run --observe`)"
    )
    return f"not divided: {len(pairs)} of {counted(shown, 'difference')}, because {why}"


def say_too_short(comparison: Comparison) -> str:
    """Return that measured phases are too short for samples, where all differences without parts lack them; else ''."""
    facet, facts = comparison.layout.facet, comparison.facts
    lacking = [[cell for cell in pair if lacks_samples(cell, facts)] for pair in _find_undivided(comparison)]
    cells = list({id(cell): cell for of_pair in lacking for cell in of_pair}.values())
    seconds = [median(times) for cell in cells if (times := facts.values(cell.runs, "measure_seconds"))]
    if not cells or not all(lacking) or len(seconds) < len(cells) or max(seconds) > _SHORT_SECONDS:
        return ""
    sides = list(dict.fromkeys(cell.side for cell in cells))
    where = f"of {len(sides)} {facet.plural}" if sides[2:] else " and ".join(map(facet.where, sides))
    lasts = " to ".join(dict.fromkeys(map(duration, (min(seconds), max(seconds)))))
    return f"too few runs {where} have a sample of their CPU in a measured phase of {lasts}; run more steps"


def _find_undivided(comparison: Comparison) -> list[list[Cell]]:
    """Return both sides of each shown difference in speed or duration that has no parts."""
    if comparison.figures.primary.name not in DEFAULT_PRIMARIES:
        return []
    divided = {(id(because.block), because.side) for because in comparison.reasons if not because.is_product}
    return [
        [test.block.cell(side) for side in (test.block.baseline, test.other.side)]
        for test in comparison.figures.tests
        if test.judgement.shift.is_shown and (id(test.block), test.other.side) not in divided
    ]


# The marks of the largest parts of a bar, and of all others together.
_MARKS, _OTHERS = "█▒░", "·"
# Parts below this share of the longer bar have no mark of their own.
_LEAST_SHARE = 0.02
_MOST_CHARACTERS = 24


def with_bars(because: Because | None, facet: Facet, legend: Legend) -> list[Chart | Legend]:
    """Return a legend below bars of a difference; without bars where no part is shown to be its cause."""
    bars = draw_bars(because, facet) if because and because.lead else None
    if bars is None:
        return [legend]
    below = [*bars.below, *filter(None, [legend.line]), ""]
    return [replace(bars, below=below, is_spare=True), Legend("", legend.text)]


def draw_bars(because: Because, facet: Facet) -> Chart | None:
    """Return both sides as bars of one scale, whose parts add up; None: the parts are factors, which do not."""
    if because.is_product:
        return None
    sides = because.baseline, because.side
    are_words = all(re.search("[a-z]", side, re.IGNORECASE) for side in sides)
    names = shorten(sides if are_words else [*map(facet.name_side, sides)], _MOST_CHARACTERS)
    longest, scale = max(because.medians), notation(because.medians, because.unit)
    marked = [part for part in because.parts if max(part.baseline, part.other) >= _LEAST_SHARE * longest][: len(_MARKS)]
    others = [part for part in because.parts if part not in marked]

    def label(mark: str, title: str, difference: float) -> str:
        return f"{mark} {title} {write_signed(difference, scale, digits=3)} {scale.symbol}"

    key = [label(mark, part.title, part.difference) for mark, part in zip(_MARKS, marked, strict=False)]
    key += [label(_OTHERS, "other", sum(part.difference for part in others))] if others else []
    totals = [scale.write(whole) for whole in because.medians]

    def draw(width: int) -> list[str]:
        before, after = max(map(len, names)), max(map(len, totals))
        cells = (width - before - after - 2) / longest
        drawn = []
        for name, side, total in zip(names, ("baseline", "other"), totals, strict=True):
            # Each part ends where the sum of those before it does.
            bar, end = "", 0.0
            for number, part in enumerate((*marked, *others)):
                end += getattr(part, side) * cells
                bar = bar.ljust(round(end), _MARKS[number] if number < len(marked) else _OTHERS)
            drawn.append(f"{name:<{before}} {bar} {total}")
        return drawn

    return Chart(draw=draw, below=["   ".join(key)])
