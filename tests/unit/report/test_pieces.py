"""Whatever the store holds stays text in a page, in its place."""

from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.output.document import Bullets, Grid
from gpuagent_collector.report import pieces
from gpuagent_collector.report.figures.base import Figure, safe
from gpuagent_common.text import harmless
from tests.support.pages import cells, figures, parse

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
    page = parse(pieces.table(Grid(header=("a", "b", "c"), rows=tuple(rows)), caption))
    table = page.all("table")[0]
    assert cells(table)[1:] == [[harmless(cell.strip()) for cell in row] for row in rows]
    assert table.all("caption")[0].text == harmless(caption)
    assert page.all("script") == []


@given(texts, texts)
def test_prose_warnings_and_code_read_as_they_were_written(text: str, remedy: str) -> None:
    told = parse(pieces.prose(text)).text
    # Backticks become elements around what they hold.
    assert told.replace("`", "") == harmless(text).replace("`", "")
    warning = parse(pieces.warnings(Bullets(points=((text, remedy),)))).text.replace("`", "")
    assert warning == f"{harmless(text)}What to do: {harmless(remedy)}".replace("`", "")
    assert parse(pieces.code(text, "SQL")).text == "\n".join(map(harmless, text.split("\n")))


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
    grid = Grid(header=("", "a", "b"), rows=(("Time",), (" step", "1", "2")))
    page = parse(pieces.table(grid, "Figures"))
    heading, name = page.all("tbody")[0].all("th")
    assert (heading.text, heading.attributes["colspan"]) == ("Time", "3")
    assert (name.text, name.attributes["scope"]) == ("step", "row")
    assert page.all("div")[0].attributes["tabindex"] == "0"
