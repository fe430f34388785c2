"""Documents as pieces of HTML: paragraphs, warnings, tables and charts, made by the macros of templates/pieces.html."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, log1p
from pathlib import Path

from markupsafe import Markup

from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.html import heading, piece, prose, templates
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.panel import COLORS
from gpuagent_collector.report.figures.base import Figure, dash
from gpuagent_collector.statistics.shift import Scale, Shift

# As in templates/pieces.html.
_WIDTH = 140.0
# Room on either side for the arrows of ratios beyond the axis.
_MARGIN = 7.0

# An axis ends at one of these on the right, and at its inverse on the left.
_ENDS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis of ratios around 1, the same for all rows of a table.

    Attributes:
        end: the highest ratio on it.
        delta: the share that counts as equal, which is shaded.
    """

    end: float
    delta: float

    @classmethod
    def over(cls, shifts: Iterable[Shift], delta: float) -> "Axis":
        """Return the axis on which most of the ratios find room that differ from 1 by more than delta."""
        ratios = [shift for shift in shifts if shift.scale is Scale.RATIO]
        reaches = (
            max(abs(log(value)) for value in (shift.estimate, shift.low, shift.high) if value) for shift in ratios
        )
        far = sorted(reach for reach in reaches if reach > log1p(delta))
        # One ratio of ten times as much would leave no room for all others.
        wanted = max(exp(far[(4 * len(far)) // 5]) if far else 1.0, 1 + 2 * delta)
        return cls(end=next((end for end in _ENDS if end >= wanted), _ENDS[-1]), delta=delta)

    def place(self, value: float) -> float:
        """Return the place of a ratio in pixels; that of an end for a ratio beyond it."""
        share = max(-1.0, min(1.0, log(value) / log(self.end)))
        return _WIDTH / 2 + share * (_WIDTH / 2 - _MARGIN)

    def header(self) -> Markup:
        """Return the axis with its numbers."""
        low, high = significant(1 / self.end), significant(self.end)
        ends = ((low, "start", 0.0), ("1", "middle", _WIDTH / 2), (high, "end", _WIDTH))
        return _MACROS["axis"](f"ratio, from {low} to {high}", ends)

    def draw(self, shift: Shift | None) -> Markup:
        """Return the picture of a ratio; the table has the figures for readers who cannot see it."""
        if shift is None or shift.scale is not Scale.RATIO:
            return Markup()
        low, high = shift.low, shift.high
        bounds = None if low is None or high is None else (low, high)
        # A dot is filled where the interval excludes 1, hollow where it does not, faint without one.
        kind = "unbounded" if bounds is None else "open" if bounds[0] <= 1 <= bounds[1] else "shown"
        margin = log1p(self.delta)
        return _MACROS["ratio"](
            equal=(self.place(exp(-margin)), self.place(exp(margin))),
            whisker=bounds and tuple(map(self.place, bounds)),
            dot=self.place(shift.estimate),
            kind=kind,
            beyond_left=(shift.estimate if low is None else low) < 1 / self.end,
            beyond_right=(shift.estimate if high is None else high) > self.end,
        )


TEMPLATES = templates(Path(__file__).parent / "templates")
_MACROS: Mapping[str, Callable[..., Markup]] = vars(TEMPLATES.get_template("charts.html").module)

# plotly's names of broken lines → those of SVG.
_PATTERNS = {
    "solid": None,
    "dash": "7 5",
    "dot": "2 4",
    "dashdot": "8 4 2 4",
    "longdash": "12 6",
    "longdashdot": "12 5 2 5",
}

# Characters that an HTML parser or JavaScript would act on, as JSON's escapes.
_MEANINGFUL = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def anchor_of(chapter: str, block: int) -> str:
    """Return the name of a block within a chapter, for the table of contents."""
    return f"{chapter}-{block}"


def largest(shown: int, number: int) -> Markup:
    """Return a note that only the largest settings are shown; nothing where all are."""
    return prose(f"The {shown} largest of {number} settings.", class_="quiet") if number > shown else Markup()


def answer_pieces(answer: Answer, figures: Iterable[Figure | None]) -> Iterator[Markup]:
    """Yield an answer without its heading. Each of its charts is a figure; those without a place are below the text."""
    first, *rest = answer.document()
    rest_of = iter(figures)
    has_places = any(isinstance(part, Chart) for section in rest for part in section.parts)
    for part in first.parts:
        yield piece(part, first.heading)
    if not has_places:
        yield from (chart(figure) for figure in rest_of if figure)
    for section in rest:
        yield heading(section.heading, 3)
        for part in section.parts:
            figure = next(rest_of, None) if isinstance(part, Chart) else None
            yield chart(figure) if figure else piece(part, section.heading)


def chart(figure: Figure) -> Markup:
    """Return a chart with its title, and beside it the data that the page's script draws."""
    data = json.dumps(_finite(figure.as_plotly()), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return _MACROS["chart"](figure, Markup(data.translate(_MEANINGFUL)))  # noqa: S704 - inert by its escapes


def charts(figures: Iterable[Figure]) -> Markup:
    """Return charts beside one another, as far as there is room; nothing for none."""
    return _MACROS["charts"]([*map(chart, figures)])


def _finite(data: object) -> object:
    """Return data with None for infinities and NaN: workloads may report them, and JSON has no word for them."""
    match data:
        case dict():
            return {name: _finite(each) for name, each in data.items()}
        case list() | tuple():
            return [_finite(each) for each in data]
        case float() if not isfinite(data):
            return None
    return data


def legend(names: Mapping[str, str], sides: Sequence[str]) -> Markup:
    """Return the colour and line of each side with its name."""
    items = [
        {"color": index % COLORS, "pattern": _PATTERNS[dash(index)], "name": name}
        for side, name in names.items()
        for index in (sides.index(side),)
    ]
    return _MACROS["legend"](items)
