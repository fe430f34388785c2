import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.present import html
from gpuagent_collector.present.answer import Bullets
from gpuagent_collector.present.panel import COLORS
from gpuagent_collector.present.table import Grid
from gpuagent_collector.report import pieces
from gpuagent_collector.report.figures.base import Figure, color, dash, pale, safe
from gpuagent_collector.report.pieces import Axis
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_common.text import harmless
from tests.support.pages import cells, figures, parse

DELTA = 0.02


def ratio(estimate: float, low: float | None = None, high: float | None = None) -> Shift:
    return Shift(scale=Scale.RATIO, estimate=estimate, low=low, high=high, alpha=0.05, p_value=0.5)


def numbers(picture: str) -> list[float]:
    return [float(each) for each in re.findall(r'(?:cx="|x="|M)(-?[\d.]+)', picture)]


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8))
def test_greater_ratios_lie_further_right_and_nothing_outside(values: list[float]) -> None:
    axis = Axis.over([ratio(value) for value in values], DELTA)
    places = [axis.place(value) for value in sorted(values)]
    assert all(left <= right for left, right in pairwise(places))
    for value in values:
        assert all(0 <= x <= 140 for x in numbers(axis.draw(ratio(value, value / 2, value * 2))))


def test_one_lies_in_the_middle_and_inverse_ratios_mirror_each_other() -> None:
    axis = Axis(end=2.0, delta=DELTA)
    assert axis.place(1.0) == 70
    assert axis.place(1.5) - 70 == pytest.approx(70 - axis.place(1 / 1.5))


def test_an_axis_has_room_for_most_ratios_and_arrows_for_the_rest() -> None:
    axis = Axis.over([*[ratio(1.3, 1.2, 1.4)] * 9, ratio(50, 40, 60)], DELTA)
    assert axis.end == 1.5
    assert 'class="beyond"' in axis.draw(ratio(50, 40, 60))
    assert 'class="beyond"' not in axis.draw(ratio(1.3, 1.2, 1.4))


def test_dots_are_filled_where_the_interval_excludes_one() -> None:
    axis = Axis(end=2.0, delta=DELTA)
    kinds = [axis.draw(ratio(1.3, low, 1.6)) for low in (1.1, 0.9)]
    assert ['class="shown"' in kinds[0], 'class="open"' in kinds[1]] == [True, True]
    assert 'class="unbounded"' in axis.draw(ratio(1.3))


def test_without_a_ratio_there_is_no_picture_and_the_header_gives_the_ends() -> None:
    axis = Axis.over([], DELTA)
    assert axis.end == 1.05
    shift = Shift(scale=Scale.DIFFERENCE, estimate=0, low=0, high=0, alpha=0.05, p_value=1)
    assert axis.draw(shift) == axis.draw(None) == ""
    header = parse(Axis(end=2.0, delta=DELTA).header())
    assert [text.text for text in header.all("text")] == ["0.500", "1", "2"]


_AWKWARD = [
    "<script>",
    "</script>",
    "<!--",
    "]]>",
    '"',
    "'",
    "&lt;",
    "--side-0",
    "\u202e",
    "\n",
    "\u2028",
    "%{y}",
    "\x00",
    "é",
]

texts = st.lists(st.sampled_from(_AWKWARD) | st.text(max_size=4), max_size=6).map("".join)


@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=4), texts)
def test_cells_of_a_table_are_the_texts_that_were_put_in(rows: list[tuple[str, str, str]], caption: str) -> None:
    page = parse(html.table(Grid(header=("a", "b", "c"), rows=tuple(rows), left=(True, False, False)), caption))
    table = page.all("table")[0]
    assert cells(table)[1:] == [[harmless(cell.strip()) for cell in row] for row in rows]
    assert table.all("caption")[0].text == harmless(caption)
    assert page.all("script") == []


@given(texts, texts)
def test_prose_warnings_and_code_read_as_they_were_written(text: str, remedy: str) -> None:
    told = parse(html.prose(text)).text
    # Backticks become elements around what they hold.
    assert told.replace("`", "") == harmless(text).replace("`", "")
    warning = parse(html.warnings(Bullets(points=((text, remedy),)))).text.replace("`", "")
    assert warning == f"{harmless(text)}What to do: {harmless(remedy)}".replace("`", "")
    assert parse(html.code(text, "SQL")).text == "\n".join(map(harmless, text.split("\n")))


def test_backticks_enclose_code_and_markup_stays_text() -> None:
    assert html.prose("give `--by <x>`, <b>") == "<p>give <code>--by &lt;x&gt;</code>, &lt;b&gt;</p>"


@given(texts)
def test_a_chart_is_given_the_texts_without_a_meaning(text: str) -> None:
    figure = Figure(title=text, description=text, data=[{"name": safe(text), "hovertext": [safe(text)]}], layout={})
    page = parse(pieces.chart(figure))
    assert len(page.all("script")) == 1
    assert page.all("script")[0].attributes == {"type": "application/json"}
    (drawn,) = figures(page).values()
    assert drawn["data"] == [{"name": safe(text), "hovertext": [safe(text)]}]
    assert not set("<>") & set(safe(text))
    assert page.all("div")[0].attributes["aria-label"] == harmless(f"{text}. {text}")


def test_headings_within_a_table_span_it_and_rows_are_named() -> None:
    grid = Grid(header=("", "a", "b"), rows=(("Time",), (" step", "1", "2")), left=(True, False, False))
    page = parse(html.table(grid, "Figures"))
    heading, name = page.all("tbody")[0].all("th")
    assert (heading.text, heading.attributes["colspan"]) == ("Time", "3")
    assert (name.text, name.attributes["scope"]) == ("step", "row")
    assert page.all("div")[0].attributes["tabindex"] == "0"


def test_each_of_many_sides_has_a_look_of_its_own_and_its_colours_are_those_of_the_page() -> None:
    style = (Path(pieces.__file__).parent / "assets" / "report.css").read_text()
    for side in range(COLORS):
        assert [style.count(f" {name(side)}: ") for name in (color, pale)] == [2, 2]  # for light and dark
        assert f".side-{side} {{" in style
    assert len({(color(side), dash(side)) for side in range(2 * COLORS)}) == 2 * COLORS
