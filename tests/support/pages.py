"""Reads a report as a browser would: its elements, their texts, and the data of its charts."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

_WITHOUT_END = frozenset({"meta", "link", "input", "br"})


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    def all(self, tag: str) -> list["Element"]:
        """Return all elements below with that tag, in the order of the page."""
        found: list[Element] = []
        for child in self.children:
            if isinstance(child, Element):
                found += [child] if child.tag == tag else []
                found += child.all(tag)
        return found

    def by_id(self, name: str) -> "Element":
        return next(each for each in self.everything() if each.attributes.get("id") == name)

    def everything(self) -> list["Element"]:
        below = [child for child in self.children if isinstance(child, Element)]
        return [each for child in below for each in (child, *child.everything())]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element(tag="", attributes={})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag=tag, attributes={name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _WITHOUT_END:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _WITHOUT_END:
            assert self._open.pop().tag == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def whole(self) -> Element:
        assert self._open == [self.root], f"not closed: {[each.tag for each in self._open]}"
        return self.root


def parse(html: str) -> Element:
    """Return the tree of a page whose elements are all closed where they should be."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.whole()


def figures(page: Element) -> dict[str, dict[str, Any]]:
    """Return what plotly is given, by the titles of the charts; of equal ones the first."""
    drawn = reversed(page.all("figure"))
    return {figure.all("figcaption")[0].text: json.loads(figure.all("script")[0].text) for figure in drawn}


def cells(table: Element) -> list[list[str]]:
    return [[cell.text for cell in row.everything() if cell.tag in ("th", "td")] for row in table.all("tr")]
