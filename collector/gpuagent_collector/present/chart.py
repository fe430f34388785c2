"""Charts of an answer, drawn with a terminal's characters; pages and files for print have panels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Drawings below one another.

    Attributes:
        draw: makes the drawings, each so many columns wide: lines of text with ANSI colours.
        above: lines with what the marks mean.
        below: lines with what else a reader needs.
        paired: whether two of them go beside one another where there is much room.
        is_spare: whether a first screen that is too long leaves it out.
    """

    draw: Callable[[int], Sequence[str]]
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    paired: bool = False
    is_spare: bool = False
