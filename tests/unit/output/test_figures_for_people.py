import math
from datetime import datetime, timedelta

import pytest

from gpuagent_collector.output.human import ago, duration, significant

NOW = datetime(2026, 1, 2, 12)  # noqa: DTZ001 - the store's times have no zone


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(seconds=-5), "now"),
        (timedelta(milliseconds=900), "now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(hours=23), "23 h ago"),
        (timedelta(days=400), "400 d ago"),
    ],
)
def test_a_moment_is_shown_as_its_age(passed: timedelta, text: str) -> None:
    assert ago(NOW - passed, NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0421, "42 ms"), (12.34, "12.3 s"), (83.4, "1 min 23 s"), (3599.6, "1 h 00 min"), (7620, "2 h 07 min")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (1.2345, "1.23"), (12345.6, "12,346"), (7.0, "7"), (math.inf, "inf"), (math.nan, "nan")],
)
def test_a_figure_has_three_significant_digits_unless_it_is_none(value: float, text: str) -> None:
    assert significant(value) == text
