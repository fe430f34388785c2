"""Figures as people read them."""

import math
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.present.human import ago, change, duration, notation, per, ratio, significant

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


@pytest.mark.parametrize(
    ("values", "unit", "written"),
    [
        ([12_100_000_000.0], "bytes", ["12.1 GB"]),
        ([900e6, 1.2e9], "bytes", ["0.900 GB", "1.20 GB"]),
        ([0.0356, 0.0541], "seconds", ["35.6 ms", "54.1 ms"]),
        ([0.0], "seconds", ["0 s"]),
        ([3e-6], "seconds", ["3 µs"]),
        ([97.25], "percent", ["97.2 %"]),
        ([1811.6], "items/s", ["1,812 items/s"]),
        ([1_199_882.0], "", ["1,199,882"]),
        ([61.0], "celsius", ["61 °C"]),
        ([0.0000857, 0.000128], "USD/run", ["0.0857 USD per 1,000 runs", "0.128 USD per 1,000 runs"]),
        ([0.0000857, 0.0128], "USD/run", ["0.0000857 USD", "0.0128 USD"]),
        ([0.0000857], "USD", ["0.0000857 USD"]),
    ],
)
def test_figures_of_a_row_have_the_unit_of_the_largest(values: list[float], unit: str, written: list[str]) -> None:
    row = notation(values, unit)
    assert [row.write(value) for value in values] == written


def test_little_money_is_written_for_a_thousand() -> None:
    assert per("0.0857 USD per 1,000 runs", "run") == "0.0857 USD per 1,000 runs"
    assert per("0.0194 USD", "million items") == "0.0194 USD per million items"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.659, "−34 %"),
        (1.003, "+0.3 %"),
        (1.0, "0 %"),
        (0.99999, "0.0 %"),
        (1.94, "+94 %"),
        (3.14, "3.1 ×"),
        (0.00012, "−99.988 %"),
    ],
)
def test_changes_are_percent_and_from_two_upwards_multiples(value: float, written: str) -> None:
    assert change(value) == written


def test_rounding_up_to_the_next_power_of_ten_adds_no_digit() -> None:
    assert [significant(value) for value in (99.96, 9.996, 0.9996)] == ["100", "10.0", "1.00"]


def test_ratios_have_three_decimals_until_they_are_large() -> None:
    assert [ratio(value) for value in (0.6588, 1.0, 12.34, 1234.5)] == ["0.659", "1.000", "12.3", "1,234"]
    assert [ratio(value) for value in (0.000123456, 0.05, 0.0)] == ["0.000123", "0.0500", "0"]


@given(st.floats(-1e15, 1e15, allow_nan=False))
def test_three_significant_digits_are_within_half_a_percent(value: float) -> None:
    written = float(significant(value).replace(",", "").replace("−", "-"))
    assert written == pytest.approx(value, rel=5e-3, abs=1e-300)
