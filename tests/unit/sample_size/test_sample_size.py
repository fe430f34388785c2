"""The spread of repeats, and how many of them show a difference; against the verdicts see test_simulations.py."""

from math import exp, expm1, log
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm, wilcoxon

from gpuagent_collector.statistics.repeats import (
    MOST_REPEATS,
    Spread,
    least_deviations,
    matched_spread,
    pooled_spread,
    power_to_differ,
    power_to_equal,
    repeats_to_differ,
    repeats_to_equal,
)
from gpuagent_collector.statistics.shift import least_pairs, least_runs
from gpuagent_collector.statistics.tolerance import chi_squared_quantile

pytestmark = pytest.mark.slow

values = st.floats(1e-3, 1e3)


def spread(*cells: list[float]) -> Spread:
    found = pooled_spread(cells)
    assert found
    return found


@given(st.lists(values, min_size=2, max_size=9, unique=True))
def test_of_one_cell_it_is_the_standard_deviation_of_the_logarithms(cell: list[float]) -> None:
    assert spread(cell).seen == pytest.approx(stdev(map(log, cell)))


def test_levels_of_cells_and_single_runs_do_not_count() -> None:
    scattered = [exp(0.02), exp(-0.02)]
    found = spread(scattered, [1000 * value for value in scattered], [7.0], [])
    assert found.seen == pytest.approx(0.02 * 2**0.5)
    assert found.freedom == 2
    assert pooled_spread([[1.0], [2.0]]) is None


@given(st.lists(values, min_size=4, max_size=9), st.sampled_from([1e-6, 1e6]))
def test_units_do_not_matter(cell: list[float], factor: float) -> None:
    assert spread([factor * value for value in cell]).cautious == pytest.approx(spread(cell).cautious, abs=1e-6)


@pytest.mark.parametrize("freedom", [4, 5, 8, 12, 40, 500])
def test_the_quantile_of_chi_squared_is_scipys(freedom: int) -> None:
    assert chi_squared_quantile(0.2, freedom) == pytest.approx(float(chi2.ppf(0.2, freedom)), rel=0.01)


def test_the_cautious_spread_is_the_upper_end_of_its_interval() -> None:
    found = spread([exp(deviation) for deviation in (-0.03, -0.01, 0.0, 0.01, 0.03)])
    assert found.cautious == pytest.approx(found.seen * (4 / float(chi2.ppf(0.2, 4))) ** 0.5, rel=0.01)


@pytest.mark.parametrize("deviations", [0.5, 0.75, 1.0])
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_many_repeats_are_those_of_noethers_formula(deviations: float, power: float) -> None:
    above = norm.cdf(deviations / 2**0.5)  # how probably a value of one side exceeds one of the other
    noether = (norm.isf(0.025) + norm.isf(1 - power)) ** 2 / (6 * (above - 0.5) ** 2)
    found = repeats_to_differ(1.0, expm1(deviations), power=power, level=0.05)
    assert found == pytest.approx(noether, rel=0.1)


def test_the_matched_spread_ignores_what_a_repeat_and_what_a_cell_has_in_common() -> None:
    chance = np.random.default_rng(4)
    noise, drift = chance.normal(0, 0.01, (2000, 3)), chance.normal(0, 0.5, (2000, 1))
    values = np.exp(noise + drift + [0.0, 1.0, 3.0])
    pooled = pooled_spread(values.T)
    assert pooled
    found = matched_spread([values.tolist()], pooled)
    assert found
    assert found.seen == pytest.approx(0.01, rel=0.05)
    assert found.freedom == 1999 * 2
    assert matched_spread([[], [[1.0, 2.0]], [[1.0], [2.0]]], pooled) is None


def test_pairs_that_have_nothing_in_common_scatter_as_single_runs_do() -> None:
    apart = np.exp([[0.01, -0.01], [-0.01, 0.01]])
    pooled = pooled_spread(apart.T)
    assert pooled
    assert matched_spread([apart.tolist()], pooled) == pooled


@pytest.mark.parametrize("deviations", [0.5, 1.0])
def test_planned_pairs_are_those_of_the_simulated_signed_rank_test(deviations: float) -> None:
    pairs = repeats_to_differ(1.0, expm1(deviations), power=0.9, level=0.05, matched=True)
    assert pairs
    differences = np.random.default_rng(8).normal(deviations, 2**0.5, (4000, pairs))
    found = np.mean(wilcoxon(differences, axis=1, method="exact").pvalue <= 0.05)
    assert found == pytest.approx(0.9, abs=0.02)


def test_planned_pairs_are_as_many_as_the_exact_test_needs() -> None:
    assert repeats_to_differ(0.0, 0.01, power=0.9, level=0.05, matched=True) == least_pairs(1)
    assert repeats_to_equal(0.0, 0.02, power=0.9, level=0.05 / 10, matched=True) == least_pairs(10)


@pytest.mark.parametrize("comparisons", [1, 3, 10])
def test_however_large_the_difference_it_takes_as_many_as_the_exact_test_needs(comparisons: int) -> None:
    level = 0.05 / comparisons
    assert repeats_to_differ(0.01, 10.0, power=0.9, level=level) == least_runs(comparisons)
    assert repeats_to_differ(0.0, 0.01, power=0.9, level=level) == least_runs(comparisons)
    assert repeats_to_equal(0.0, 0.02, power=0.9, level=level) == least_runs(comparisons)


def test_without_a_difference_the_power_is_the_error_rate() -> None:
    assert power_to_differ(0.0, 7, level=0.05) == pytest.approx(0.038, abs=0.01)  # of U up to 8, from the table


def test_what_nobody_could_run_is_not_planned() -> None:
    assert repeats_to_differ(0.5, 0.01, power=0.8, level=0.05) is None
    assert repeats_to_equal(0.5, 0.02, power=0.8, level=0.05) is None


@settings(max_examples=30)
@given(st.floats(0.2, 3.0), st.integers(4, MOST_REPEATS // 2))
def test_more_repeats_show_more(deviations: float, repeats: int) -> None:
    for power in (power_to_differ, power_to_equal):
        assert power(deviations, 2 * repeats, level=0.05) >= power(deviations, repeats, level=0.05) - 0.02


@pytest.mark.parametrize("matched", [False, True])
def test_the_least_difference_that_repeats_show_needs_just_these_repeats(matched: bool) -> None:
    for repeats in (7, 20):
        least = least_deviations(repeats, power=0.8, level=0.05, matched=matched)
        assert least is not None
        for factor, is_enough in ((1.02, True), (0.98, False)):
            needed = repeats_to_differ(0.02, expm1(factor * least * 0.02), power=0.8, level=0.05, matched=matched)
            assert needed is not None
            assert (needed <= repeats) is is_enough
    assert least_deviations(2, power=0.8, level=0.05, matched=matched) is None
