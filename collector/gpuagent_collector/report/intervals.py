"""Ratios with their intervals, as small pictures beside the figures of a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log, log1p

from markupsafe import Markup

from gpuagent_collector.output.human import significant
from gpuagent_collector.report.pieces import axis_picture, ratio_picture
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
        return axis_picture(f"ratio, from {low} to {high}", ends)

    def draw(self, shift: Shift | None) -> Markup:
        """Return the picture of a ratio; the table has the figures for readers who cannot see it."""
        if shift is None or shift.scale is not Scale.RATIO:
            return Markup()
        low, high = shift.low, shift.high
        bounds = None if low is None or high is None else (low, high)
        # A dot is filled where the interval excludes 1, hollow where it does not, faint without one.
        kind = "unbounded" if bounds is None else "open" if bounds[0] <= 1 <= bounds[1] else "shown"
        margin = log1p(self.delta)
        return ratio_picture(
            equal=(self.place(exp(-margin)), self.place(exp(margin))),
            whisker=bounds and tuple(map(self.place, bounds)),
            dot=self.place(shift.estimate),
            kind=kind,
            beyond_left=(shift.estimate if low is None else low) < 1 / self.end,
            beyond_right=(shift.estimate if high is None else high) > self.end,
        )
