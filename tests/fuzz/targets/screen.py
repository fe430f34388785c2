"""Texts of agents on their way to people: nothing moves a terminal's cursor or hides text, nor ends an HTML element."""

import io
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa

from gpuagent_collector.present.data import write_markdown, write_table
from gpuagent_collector.present.html import templates
from gpuagent_common.text import harmless
from tests.fuzz.tally import Attempt

TOKENS = (
    b"\x1b[31m \xc2\x9b2J \xe2\x80\xae [red] <script> &lt; \" ' \r \x07 | ` \xe2\x80\xa8 "
    b"\xf0\x9f\x91\xa9\xe2\x80\x8d </td> <!-- \\"
).split(b" ")


_TEMPLATE = templates(Path()).from_string('<b title="{{ title }}">{{ text }}</b>')


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Show."""
    yield _attempt


def _attempt(data: bytes) -> None:
    name, _, value = data.decode(errors="replace").partition("\n")
    schema = pa.schema([(name, pa.string())])
    batch = pa.record_batch([[value]], schema=schema)
    for write in (write_table, write_markdown):
        out = io.StringIO()
        write(schema, [batch], out)
        _check_shown(out.getvalue())
    _check_shown(harmless(value))
    _check_element(name, value)


def _check_shown(text: str) -> None:
    """Only Unicode's own word counts here, not what the code under test takes for dangerous."""
    for character in set(text) - {"\n"}:
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}, hex(ord(character))


def _check_element(title: str, text: str) -> None:
    page = _Page()
    page.feed(_TEMPLATE.render(title=title, text=text))
    page.close()
    assert page.seen == ["b", "/b"]
    assert "".join(page.texts) == harmless(text)
    assert page.attributes == [("title", harmless(title))]


class _Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.seen.append("comment")
