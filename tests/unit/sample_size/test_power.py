"""How many repeats show what: against a published formula, and at its limits. Against the verdicts themselves, see
tests/unit/statistics/test_simulations.py."""

from math import expm1

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from gpuagent_collector.sample_size.power import (
    MOST_REPEATS,
    power_to_differ,
    power_to_equal,
    repeats_to_differ,
    repeats_to_equal,
)
from gpuagent_collector.statistics.shift import least_runs


@pytest.mark.parametrize("deviations", [0.5, 0.75, 1.0])
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_many_repeats_are_those_of_noethers_formula(deviations: float, power: float) -> None:
    above = norm.cdf(deviations / 2**0.5)  # how probably a value of one side exceeds one of the other
    noether = (norm.isf(0.025) + norm.isf(1 - power)) ** 2 / (6 * (above - 0.5) ** 2)
    found = repeats_to_differ(1.0, expm1(deviations), power=power, level=0.05)
    assert found == pytest.approx(noether, rel=0.1)


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


@given(st.floats(0.2, 3.0), st.integers(4, MOST_REPEATS // 2))
def test_more_repeats_show_more(deviations: float, repeats: int) -> None:
    for power in (power_to_differ, power_to_equal):
        assert power(deviations, 2 * repeats, level=0.05) >= power(deviations, repeats, level=0.05) - 0.02
