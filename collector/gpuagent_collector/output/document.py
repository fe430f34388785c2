"""The parts of a document, for the terminal, for Markdown and for pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """Points, each with its remedy."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table. A row of one cell is a heading within it; columns from `figures_from` on are numbers.

    Columns after the first `keys` may go to further tables where a terminal is too narrow; None: none may.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures_from: int = 1
    keys: int | None = None

    def right_columns(self) -> list[bool]:
        """Return for each column whether it is aligned to the right."""
        return [column >= self.figures_from for column in range(len(self.header))]

    def full_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows, headings within the table as wide as the others."""
        for row in self.rows:
            yield row if len(row) > 1 else (row[0], *[""] * (len(self.header) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """Text whose lines and blanks count, such as a program's output."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and its content."""

    heading: str
    parts: tuple[Paragraph | Bullets | Grid | Verbatim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One warning and its remedy. `code` is stable for scripts."""

    code: str
    text: str
    remedy: str


def caveat_sections(caveats: Sequence[Caveat], *, heading: str = "Warnings") -> Iterator[Section]:
    """Yield a section with all warnings; nothing without warnings."""
    if caveats:
        points = tuple((caveat.text, caveat.remedy) for caveat in caveats)
        yield Section(heading=heading, parts=(Bullets(points=points),))


def in_short(sentences: Sequence[str], *, most: int, where: str = "tables have") -> list[str]:
    """Return the first `most` sentences, and the number of the others."""
    rest = len(sentences) - most
    return [*sentences[:most], *([f"The {where} {rest} more."] if rest > 0 else [])]


def read_warnings(warnings: int, errors: int = 0) -> list[str]:
    """Return the sentence that points to the warnings and errors below; nothing where there are none."""
    kinds = [
        counted(number, noun) if number > 1 else noun
        for number, noun in ((errors, "error"), (warnings, "warning"))
        if number
    ]
    return [f"Read the {' and '.join(kinds)} below before acting on it."] if kinds else []
