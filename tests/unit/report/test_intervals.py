"""Pictures of ratios: everything lies where it should, and what does not fit is marked."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.report.intervals import Axis
from gpuagent_collector.statistics.shift import Scale, Shift
from tests.support.pages import parse

DELTA = 0.02


def ratio(estimate: float, low: float | None = None, high: float | None = None) -> Shift:
    return Shift(scale=Scale.RATIO, estimate=estimate, low=low, high=high, alpha=0.05, p_value=0.5)


def numbers(picture: str) -> list[float]:
    """Return all coordinates along the axis."""
    return [float(each) for each in re.findall(r'(?:cx="|x="|M)(-?[\d.]+)', picture)]


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8))
def test_greater_ratios_lie_further_right_and_nothing_outside(values: list[float]) -> None:
    axis = Axis.over([ratio(value) for value in values], DELTA)
    places = [axis.place(value) for value in sorted(values)]
    assert all(left <= right for left, right in pairwise(places))
    for value in values:
        assert all(0 <= x <= 140 for x in numbers(axis.draw(ratio(value, value / 2, value * 2))))


def test_one_lies_in_the_middle_and_inverse_ratios_mirror_each_other() -> None:
    axis = Axis(end=2.0, delta=DELTA)
    assert axis.place(1.0) == 70
    assert axis.place(1.5) - 70 == pytest.approx(70 - axis.place(1 / 1.5))


def test_an_axis_has_room_for_most_ratios_and_arrows_for_the_rest() -> None:
    axis = Axis.over([*[ratio(1.3, 1.2, 1.4)] * 9, ratio(50, 40, 60)], DELTA)
    assert axis.end == 1.5
    assert 'class="beyond"' in axis.draw(ratio(50, 40, 60))
    assert 'class="beyond"' not in axis.draw(ratio(1.3, 1.2, 1.4))


def test_dots_are_filled_where_the_interval_excludes_one() -> None:
    axis = Axis(end=2.0, delta=DELTA)
    kinds = [axis.draw(ratio(1.3, low, 1.6)) for low in (1.1, 0.9)]
    assert ['class="shown"' in kinds[0], 'class="open"' in kinds[1]] == [True, True]
    assert 'class="unbounded"' in axis.draw(ratio(1.3))


def test_without_a_ratio_there_is_no_picture() -> None:
    axis = Axis.over([], DELTA)
    assert axis.end == 1.05
    shift = Shift(scale=Scale.DIFFERENCE, estimate=0, low=0, high=0, alpha=0.05, p_value=1)
    assert axis.draw(shift) == axis.draw(None) == ""


def test_the_header_tells_the_ends() -> None:
    header = parse(Axis(end=2.0, delta=DELTA).header())
    assert [text.text for text in header.all("text")] == ["0.500", "1", "2"]
