"""What a document is made of, for the terminal and for Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """Points, each with what to do about it."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table. A row of one cell is a heading within it; columns from `figures_from` on are numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures_from: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    heading: str
    parts: tuple[Paragraph | Bullets | Grid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One warning: what is so, and what to do about it. `code` stays the same for scripts."""

    code: str
    text: str
    remedy: str


def caveat_sections(caveats: Sequence[Caveat], *, heading: str = "Warnings") -> Iterator[Section]:
    """Yield what a reader must know, each with what to do about it; nothing where there is nothing."""
    if caveats:
        points = tuple((caveat.text, caveat.remedy) for caveat in caveats)
        yield Section(heading=heading, parts=(Bullets(points=points),))
