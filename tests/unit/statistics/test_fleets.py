"""Outliers, false discovery rates, tolerance intervals and changes of level, beside scipy and by small simulations."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import binom, chi2, false_discovery_control, norm, t

from gpuagent_collector.statistics.changes import (
    LEAST_PART,
    _steps,
    find_changes,
    find_least_p_value,
    find_least_size,
    share_level,
)
from gpuagent_collector.statistics.outlying import p_values, q_values, t_two_sided
from gpuagent_collector.statistics.tolerance import Method, percentile, tolerance_interval

# How often a simulation may fail although the statistics are right.
UNLIKELY = 1e-5


@pytest.mark.parametrize("freedom", [1.5, 3.0, 5.0])
@pytest.mark.parametrize("distance", [0.0, 0.3, 2.0, 50.0])
def test_the_tail_of_t_is_scipys(freedom: float, distance: float) -> None:
    assert t_two_sided(distance, freedom) == pytest.approx(float(2 * t.sf(distance, freedom)), rel=1e-5)


@pytest.mark.parametrize("p", [[0.01], [0.04, 0.001, 0.03, 0.5], [0.2, 0.2, 0.2], [0.0, 1.0, 1.0]])
def test_q_values_are_scipys(p: list[float]) -> None:
    assert q_values(p) == pytest.approx(false_discovery_control(p).tolist())


def test_no_q_values_of_no_tests() -> None:
    assert q_values([]) == []


@pytest.mark.parametrize("units", [5, 8, 9, 16, 33])
def test_sound_values_have_small_p_values_at_most_as_often_as_they_say(units: int) -> None:
    trials = 600
    drawn = np.random.default_rng(1).normal(size=(trials, units))
    found = np.array([p_values(row.tolist()) for row in drawn])
    for level in (0.05, 0.01):
        # Values of one set depend on each other a little: one of each set is taken.
        assert (found[:, 0] <= level).sum() <= binom.isf(UNLIKELY, trials, level)


def test_a_clear_change_is_found_among_thousands_of_series() -> None:
    values = np.random.default_rng(4).normal(0, 0.01, 40)
    values[20:] += 1
    (change,) = find_changes(values.tolist(), alpha=0.05 / 5000)
    assert change.index == 20


def test_a_far_value_has_a_small_p_value_whatever_the_scale() -> None:
    values = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 2.0]
    for scaled in (values, [1e6 * value - 5 for value in values]):
        found = p_values(scaled)
        assert found
        assert found[-1] < 1e-5
        assert min(found[:-1]) > 0.1


def test_a_value_that_differs_from_equal_ones_is_certain_and_equal_ones_are_not() -> None:
    assert p_values([16.0] * 7 + [8.0]) == [1.0] * 7 + [0.0]
    assert p_values([3.0] * 6) == [1.0] * 6
    assert p_values([1.0, 2.0, 3.0, 100.0]) is None


def test_from_93_values_on_order_statistics_hold_for_any_distribution() -> None:
    known = np.random.default_rng(2).exponential(size=93).tolist()
    interval = tolerance_interval(known)
    assert interval
    assert (interval.method, interval.low, interval.high) == (Method.ANY, min(known), max(known))
    # 95 % of the population is between the extremes unless at most one of 93 values is beyond it.
    assert binom.cdf(1, 93, 0.05) <= 0.05 < binom.cdf(1, 92, 0.05)


def test_fewer_values_are_taken_as_log_normal_with_howes_factor() -> None:
    logs = np.linspace(-1, 1, 20)
    interval = tolerance_interval(np.exp(logs).tolist())
    assert interval
    factor = norm.ppf(0.975) * np.sqrt(1 + 1 / 20) * np.sqrt(19 / chi2.ppf(0.05, 19))
    assert interval.method is Method.LOG_NORMAL
    assert np.log(interval.high) == pytest.approx(float(factor * np.std(logs, ddof=1)), rel=0.01)
    assert np.log(interval.low) == pytest.approx(-np.log(interval.high))


@pytest.mark.parametrize("values", [[1.0] * 7, [0.0, *[1.0] * 20], []])
def test_too_few_values_or_none_with_a_logarithm_have_no_interval(values: Sequence[float]) -> None:
    assert tolerance_interval(values) is None


def test_ties_count_half_below() -> None:
    assert percentile(2.0, [1.0, 2.0, 2.0, 3.0]) == 50
    assert percentile(0.0, [1.0, 2.0]) == 0


def test_a_change_is_placed_before_the_first_value_of_the_new_level() -> None:
    values = [10.0, 10.1, 9.9, 10.2, 9.8, 10.05, 12.0, 12.1, 11.9, 12.2, 11.8, 12.05]
    (change,) = find_changes(values)
    assert change.index == 6
    assert change.p_value <= 0.05


def test_two_changes_are_found_in_their_order() -> None:
    drawn = np.random.default_rng(3).normal(0, 1, 45)
    drawn[15:30] += 8
    assert [change.index for change in find_changes(drawn.tolist())] == [15, 30]


def test_series_without_a_change_show_one_at_most_as_often_as_stated() -> None:
    trials = 200
    drawn = np.random.default_rng(4).standard_t(2, (trials, 16))
    assert sum(bool(find_changes(row.tolist())) for row in drawn) <= binom.isf(UNLIKELY, trials, 0.05)


@pytest.mark.parametrize("values", [[], [1.0] * (2 * LEAST_PART - 1), [5.0] * 30])
def test_short_or_constant_series_have_no_change(values: Sequence[float]) -> None:
    assert find_changes(values) == []


@pytest.mark.parametrize("size", [8, 9])
def test_the_least_p_value_is_that_of_all_orders(size: int) -> None:
    steps = _steps(np.array([*permutations(range(size))]) - (size - 1) / 2).max(axis=1)
    assert find_least_p_value(size) == pytest.approx((steps == steps.max()).mean())
    (change,) = find_changes([float(value) for value in range(size)])
    assert (change.index, change.p_value) == (size // 2, find_least_p_value(size))


@pytest.mark.parametrize("sizes", [[20, 8], [7] * 4, [10] * 6, [10] * 7, [20] * 3 + [10] * 5 + [9] * 9, [300, 9, 10]])
def test_levels_of_several_series_add_up_and_can_be_reached(sizes: list[int]) -> None:
    levels = share_level(sizes, 0.05)
    assert sum(level or 0 for level in levels) <= 0.05 * (1 + 1e-9)
    for size, level in zip(sizes, levels, strict=True):
        assert level is None or level >= find_least_p_value(size)
    least = find_least_size(sizes, 0.05)
    assert None not in share_level([max(least, size) for size in sizes], 0.05)
    # Whichever of the others have as many.
    short = next((place for place, level in enumerate(levels) if level is None), None)
    if short is not None:
        assert share_level([*sizes[:short], least, *sizes[short + 1 :]], 0.05)[short] is not None
