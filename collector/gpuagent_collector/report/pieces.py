"""Documents as pieces of HTML: paragraphs, warnings and tables, as the terminal shows them too."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section
from gpuagent_collector.output.html import element, escaped
from gpuagent_collector.runs.specs import MARK

_CODE = re.compile(r"`([^`]+)`")

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """One more column of a table.

    Attributes:
        at: before which column it stands.
        header: HTML.
        draw: returns the HTML of its cell, by the row's index.
    """

    at: int
    header: str
    draw: Callable[[int], str]


def prose(text: str, *, class_: str | None = None) -> str:
    """Return a paragraph; what stands between backticks is code."""
    return element("p", inline(text), class_=class_)


def inline(text: str) -> str:
    """Return running text; what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escaped(text))


def warnings(bullets: Bullets) -> str:
    """Return points with what to do about each."""
    points = (
        element("li", element("p", inline(text)), element("p", "What to do: ", inline(remedy), class_="quiet"))
        for text, remedy in bullets.points
    )
    return element("ul", *points, class_="warnings")


def table(grid: Grid, caption: str, *, pictures: Pictures | None = None, class_: str | None = None) -> str:
    """Return a table that scrolls within itself where it is too wide; `caption` is for all who do not see it."""
    inner = element(
        "table",
        element("caption", escaped(caption), class_="unseen"),
        element("thead", element("tr", *_header(grid, pictures))),
        element("tbody", *(_row(row, index, grid, pictures) for index, row in enumerate(grid.rows))),
        class_=class_,
    )
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _header(grid: Grid, pictures: Pictures | None) -> list[str]:
    # A header without words is no header.
    cells = [
        element("th" if name else "td", escaped(name), scope="col" if name else None, class_=_kind(column, grid))
        for column, name in enumerate(grid.header)
    ]
    return _with(cells, pictures, lambda one: element("th", one.header, scope="col", class_="plot"))


def _row(row: Row, index: int, grid: Grid, pictures: Pictures | None) -> str:
    if len(row) == 1:
        columns = len(grid.header) + bool(pictures)
        return element("tr", element("th", escaped(row[0]), scope="colgroup", colspan=str(columns)), class_="group")
    name = _name_column(grid)
    cells = [_cell(text, column, name, grid) for column, text in enumerate(row)]
    cells = _with(cells, pictures, lambda one: element("td", one.draw(index), class_="plot"))
    return element("tr", *cells, class_="marked" if row[0] == MARK else None)


def _cell(text: str, column: int, name: int, grid: Grid) -> str:
    """Return a cell; the one that says what the row is, is its header."""
    kind = _kind(column, grid)
    if column == name:
        return element("th", escaped(text.strip()), scope="row", class_=kind)
    return element("td", escaped(text.strip()), class_=kind)


def _with(cells: list[str], pictures: Pictures | None, make: Callable[[Pictures], str]) -> list[str]:
    return [*cells[: pictures.at], make(pictures), *cells[pictures.at :]] if pictures else cells


def _name_column(grid: Grid) -> int:
    """Return which column says what a row is: the first, or the second where the first holds marks."""
    marks = max((len(row[0].strip()) for row in grid.rows if len(row) > 1), default=0)
    return 1 if len(grid.header) > 2 and not grid.header[0] and marks <= 1 else 0


def _kind(column: int, grid: Grid) -> str | None:
    return "figure" if column >= grid.figures_from else None


def document(sections: Sequence[Section], *, level: int) -> Iterator[str]:
    """Yield sections with headings of that level."""
    for section in sections:
        yield element(f"h{level}", escaped(section.heading))
        for part in section.parts:
            yield piece(part, section.heading)


def piece(part: Paragraph | Bullets | Grid, caption: str) -> str:
    """Return one part of a document."""
    match part:
        case Paragraph():
            return prose(part.text)
        case Bullets():
            return warnings(part)
        case Grid():
            return table(part, caption)


def largest(shown: int, number: int) -> str:
    """Return that only so many of the settings are shown; nothing where that is all."""
    return prose(f"The {shown} largest of {number} settings.", class_="quiet") if number > shown else ""


def folded(summary: str, *inside: str, class_: str | None = None) -> str:
    """Return pieces that are shown when somebody asks for them."""
    return element("details", element("summary", escaped(summary)), *inside, class_=class_)


def code(text: str, label: str) -> str:
    """Return text as it is, to be copied; long lines scroll."""
    # On one line of its own each: `escaped` would write line ends out.
    lines = "\n".join(map(escaped, text.split("\n")))
    return element("pre", element("code", lines), tabindex="0", role="region", aria_label=label)
