"""Ratios with their intervals as small pictures beside the figures of a table: a dot, a whisker, and what is equal."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log, log1p

from gpuagent_collector.output.html import element
from gpuagent_collector.output.human import significant
from gpuagent_collector.statistics.shift import Scale, Shift

_WIDTH, _HEIGHT = 140.0, 18.0
# So much room on either side is for the arrows of what lies beyond.
_MARGIN = 7.0

# Where an axis may end: at one of these on the right, and at its inverse on the left.
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
        # One ratio of ten times as much would leave no room to tell all others apart.
        wanted = max(exp(far[(4 * len(far)) // 5]) if far else 1.0, 1 + 2 * delta)
        return cls(end=next((end for end in _ENDS if end >= wanted), _ENDS[-1]), delta=delta)

    def place(self, value: float) -> float:
        """Return where a ratio lies, in pixels; at an end where it lies beyond."""
        share = max(-1.0, min(1.0, log(value) / log(self.end)))
        return _WIDTH / 2 + share * (_WIDTH / 2 - _MARGIN)

    def header(self) -> str:
        """Return the axis with its numbers."""
        ends = (("start", 1 / self.end, 0.0), ("middle", 1.0, _WIDTH / 2), ("end", self.end, _WIDTH))
        texts = (
            f'<text x="{x:.1f}" y="13" text-anchor="{anchor}">{significant(value)}</text>' for anchor, value, x in ends
        )
        return _picture("".join(texts), label=f"ratio, from {significant(1 / self.end)} to {significant(self.end)}")

    def draw(self, shift: Shift | None) -> str:
        """Return the picture of a ratio; the figures stand beside it, so that nobody needs it who cannot see it."""
        if shift is None or shift.scale is not Scale.RATIO:
            return ""
        low, high = shift.low, shift.high
        bounded = low is not None and high is not None
        whisker = _line(self.place(low), self.place(high)) if low is not None and high is not None else ""
        shown = low is not None and high is not None and not low <= 1 <= high
        beyond = self._beyond(low if low is not None else shift.estimate, high if high is not None else shift.estimate)
        dot = f'<circle cx="{self.place(shift.estimate):.1f}" cy="9" r="3.2" class="{_dot(bounded, shown)}"/>'
        return _picture(self._background() + whisker + beyond + dot)

    def _background(self) -> str:
        margin = log1p(self.delta)
        left, right = self.place(exp(-margin)), self.place(exp(margin))
        band = f'<rect x="{left:.1f}" y="0" width="{right - left:.1f}" height="{_HEIGHT:.0f}" class="equal"/>'
        return f'{band}<path d="M{_WIDTH / 2:.1f} 0V{_HEIGHT:.0f}" class="one"/>'

    def _beyond(self, low: float, high: float) -> str:
        """Return arrows where something lies beyond an end."""
        left = '<path d="M6 5L1 9L6 13Z" class="beyond"/>' if low < 1 / self.end else ""
        x = _WIDTH
        right = f'<path d="M{x - 6:.0f} 5L{x - 1:.0f} 9L{x - 6:.0f} 13Z" class="beyond"/>' if high > self.end else ""
        return left + right


def _dot(bounded: bool, shown: bool) -> str:
    """Return how a dot is drawn: filled where the interval excludes 1, hollow where it does not, faint without one."""
    if not bounded:
        return "unbounded"
    return "shown" if shown else "open"


def _line(left: float, right: float) -> str:
    return f'<path d="M{left:.1f} 9H{right:.1f}M{left:.1f} 5.5V12.5M{right:.1f} 5.5V12.5" class="whisker"/>'


def _picture(inside: str, *, label: str | None = None) -> str:
    attributes = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return element(
        "svg",
        inside,
        class_="interval",
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        width=f"{_WIDTH:.0f}",
        height=f"{_HEIGHT:.0f}",
        **attributes,
    )
