"""Panels: charts of an answer, made once for the page and for print, which each draw them in their own way."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# So many colours there are for sides.
COLORS = 12


class Look(Enum):
    """A way to draw a series."""

    # A side's points, joined by its own kind of line.
    CURVE = "curve"
    # A side's points, of ordinary size, small where there are many, and large where they are medians of others.
    POINTS = "points"
    SMALL = "small"
    LARGE = "large"
    # Lines that points are compared with.
    SOLID = "solid"
    BROKEN = "broken"
    DOTTED = "dotted"
    # Labels alone.
    NOTHING = "nothing"


LINES = (Look.CURVE, Look.SOLID, Look.BROKEN, Look.DOTTED)


class Place(Enum):
    """The place of a label above its point."""

    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points or a line.

    Attributes:
        index: the place of its side, which has one colour and mark in all charts; None: it is no side's.
        name: in the legend; empty: it is not there.
        up, down: how far the interval of each point reaches; empty: there are none.
        labels: beside the points.
        hover: texts that a page shows under the pointer.
    """

    look: Look
    xs: Sequence[float]
    ys: Sequence[float]
    index: int | None = None
    name: str = ""
    up: Sequence[float] = ()
    down: Sequence[float] = ()
    labels: Sequence[str] = ()
    place: Place = Place.CENTER
    hover: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from one value to another; `index` as of a series. Of a stack, `part` is in the legend, with its hatch."""

    begin: float
    end: float
    index: int | None = None
    part: str = ""
    text: str = ""
    hatch: int = 0

    @property
    def is_hollow(self) -> bool:
        """True of what takes away: it is drawn as an outline."""
        return self.end < self.begin


@dataclass(frozen=True, slots=True)
class Row:
    """Bars side by side, with their name before them and a text behind them."""

    name: str
    text: str
    bars: Sequence[Bar]

    @property
    def end(self) -> float:
        """The place at which the text begins."""
        return max(max(bar.begin, bar.end) for bar in self.bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis; without ends or ticks those that fit the values. `names` are the texts of the ticks."""

    title: str = ""
    unit: str = ""
    is_logarithmic: bool = False
    ends: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    names: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The title with the unit."""
        return f"{self.title} ({self.unit})" if self.title and self.unit else self.title or self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A chart of series, or of rows of bars from above.

    Attributes:
        description: what can be seen, for those who cannot see it.
        height: pixels on a page; print is in proportion.
    """

    title: str
    x: Axis
    y: Axis = Axis()
    description: str = ""
    series: Sequence[Series] = ()
    rows: Sequence[Row] = ()
    height: int = 340
