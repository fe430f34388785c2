"""Documents and tables in GitHub's Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from gpuagent_collector.present.answer import Bullets, Command, Section, Verbatim, without_charts
from gpuagent_collector.present.table import Grid
from gpuagent_common.text import harmless


def to_markdown(sections: Iterable[Section]) -> str:
    """Return a document; charts are not in it."""
    blocks: list[str] = []
    for section in without_charts(sections):
        blocks += [f"## {escaped(section.heading)}", *_blocks(section)]
    return "\n\n".join(blocks)


def _blocks(section: Section) -> Iterator[str]:
    for part in section.parts:
        match part:
            case Command() if set("`<|[").isdisjoint(part.command):
                yield f"{escaped(part.lead)} `{harmless(part.command)}`."
            case str() | Command():
                yield escaped(str(part))
            case Verbatim():
                # Indented, so that no line of the text can end it.
                lines = (f"    {harmless(line.expandtabs())}" for line in part.text.split("\n"))
                yield "\n".join([f"{escaped(part.title)}:", "", *lines])
            case Bullets():
                yield "\n".join(f"- {escaped(text)}  \n  → {remedy}" for text, remedy in part.points)
            case Grid():
                yield "\n".join(markdown_table(part.header, part.right_columns(), part.full_rows()))


def markdown_table(names: Sequence[str], right: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; `right` marks the columns aligned to the right."""
    rule = ["---:" if each else "---" for each in right]
    yield f"| {' | '.join(map(escaped, names))} |"
    yield f"| {' | '.join(rule)} |"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def escaped(text: str) -> str:
    """Return `text` on one line, without a meaning in Markdown, in HTML or to a terminal."""
    return "".join(f"\\{each}" if each in "\\`*_|<>[]#" else each for each in harmless(text))
