"""HTML: templates whose every inserted text is escaped and made harmless, and the pieces of a document."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gpuagent_collector.present.answer import Answer, Bullets, Command, Part, Verbatim
from gpuagent_collector.present.table import MARK, Grid
from gpuagent_common.text import harmless


def templates(folder: Path) -> Environment:
    """Return the templates of a folder. Only Markup is inserted as it is."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=_inert,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def escaped(text: str) -> Markup:
    """Return `text` without a meaning in HTML, and without characters that hide or reorder their neighbours."""
    return escape(harmless(text))


def _inert(value: object) -> object:
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_CODE = re.compile(r"`([^`]+)`")


def _with_code(text: str) -> Markup:
    # As plain text: a pattern's substitution in Markup escapes what it inserts.
    return Markup(_CODE.sub(r"<code>\1</code>", str(escaped(text))))  # noqa: S704 - escaped before


_TEMPLATES = templates(Path(__file__).parent / "templates")
_TEMPLATES.filters["with_code"] = _with_code
_MACROS: Mapping[str, Callable[..., Markup]] = vars(_TEMPLATES.get_template("pieces.html").module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """One more column of a table.

    Attributes:
        at: the column before which it is inserted.
        header: HTML.
        draw: returns the HTML of its cell, by the row's index.
    """

    at: int
    header: Markup
    draw: Callable[[int], Markup]


def to_html(answer: Answer) -> str:
    """Return an answer as HTML without a page around it, as notebooks show it."""
    pieces: list[Markup] = []
    for section in answer.document():
        pieces += [heading(section.heading), *(piece(part, section.heading) for part in section.parts)]
    return "\n".join(pieces)


def prose(text: str, *, class_: str | None = None) -> Markup:
    """Return a paragraph; backticks enclose code."""
    return _MACROS["prose"](text, class_)


def heading(text: str, level: int = 3, *, anchor: str | None = None) -> Markup:
    """Return a heading; `anchor` is its name within the page."""
    return _MACROS["heading"](text, level, anchor)


def warnings(bullets: Bullets) -> Markup:
    """Return points, each with its remedy."""
    return _MACROS["warnings"](bullets.points)


def bullet_list(lines: Sequence[str]) -> Markup:
    """Return a list; backticks enclose code."""
    return _MACROS["bullets"](lines)


def folded(summary: str, *inside: Markup, class_: str | None = None, anchor: str | None = None) -> Markup:
    """Return pieces that are hidden until the reader opens them; `anchor` is their name within the page."""
    return _MACROS["folded"](summary, inside, class_, anchor)


def code(text: str, label: str) -> Markup:
    """Return text as it is, to be copied; long lines scroll."""
    return _MACROS["code"](Markup("\n").join(map(escaped, text.split("\n"))), label)


def piece(part: Part, caption: str) -> Markup:
    """Return one part of a document."""
    match part:
        case str() | Command():
            return prose(str(part))
        case Bullets():
            return warnings(part)
        case Verbatim():
            return prose(f"{part.title}:") + code(part.text, part.title)
        case Grid():
            return table(part, caption)
    return Markup()


def table(grid: Grid, caption: str, *, pictures: Pictures | None = None, class_: str | None = None) -> Markup:
    """Return a table that scrolls within itself where it is too wide; `caption` is for screen readers."""
    marks = max((len(row[0].strip()) for row in grid.rows if len(row) > 1), default=0)
    # The column that names a row is the first, or the second where the first holds marks.
    name_column = 1 if len(grid.header) > 2 and not grid.header[0] and marks <= 1 else 0

    def cells_of(row: Sequence[str], index: int | None) -> list[dict[str, Any]]:
        cells = []
        for column, text in enumerate(row):
            kind = None if grid.left[column] else "figure"
            if index is None:  # a header without words is no header
                cells.append(_cell(text, "col" if text else None, kind))
            else:
                content = text.strip()
                if grid.links and column == 0:
                    content = _MACROS["link"](grid.links[index], content)
                cells.append(_cell(content, "row" if column == name_column else None, kind))
        if pictures:
            picture = pictures.header if index is None else pictures.draw(index)
            cells.insert(pictures.at, _cell(picture, "col" if index is None else None, "plot"))
        return cells

    rows = [
        {"class": "marked" if row[0] == MARK else None, "cells": cells_of(row, index)}
        if len(row) > 1
        else {"class": "group", "cells": [_cell(row[0], "colgroup", None, len(grid.header) + bool(pictures))]}
        for index, row in enumerate(grid.rows)
    ]
    return _MACROS["table"](cells_of(grid.header, None), rows, caption, class_)


def _cell(content: str, scope: str | None, kind: str | None, colspan: int | None = None) -> dict[str, Any]:
    """Return a cell for the template; one with a scope is a header."""
    return {"tag": "th" if scope else "td", "scope": scope, "class": kind, "colspan": colspan, "content": content}
