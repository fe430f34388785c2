"""One test and interval of a ratio over several workloads."""

import numpy as np
import pytest

from gpuagent_collector.statistics.shift import Sides, estimate_shift
from gpuagent_collector.statistics.strata import stratified_shift


def lognormal(
    chance: np.random.Generator, runs: tuple[int, int], *, ratio: float = 1.0, matched: bool = False
) -> Sides:
    """Return runs of a workload of its own scale; pairs share a drift that is larger than their own spread."""
    scale, drift = chance.normal(0, 2), chance.normal(0, 0.2, max(runs)) * matched
    before, after = (np.exp(scale + drift[:each] + chance.normal(0, 0.05, each)) for each in runs)
    return Sides(list(before), list(ratio * after), matched)


def test_workloads_that_are_each_fully_apart_are_so_together_by_the_product_of_their_chances() -> None:
    strata = [
        Sides([100.0, 101, 102, 103], [factor * 77.0, factor * 78, factor * 79, factor * 76]) for factor in (1, 1.01)
    ]
    shift = stratified_shift([*strata, Sides([5.0, 6, 7, 8], [1.0, 2, 3, 4])])
    assert shift is not None
    assert shift.p_value == pytest.approx(2 / 70**3)
    assert shift.high is not None
    assert shift.high < 1


def test_a_chance_of_exactly_alpha_is_shown_and_bounded() -> None:
    shift = stratified_shift([Sides([100.0, 101, 102], [77.0, 78, 79]), Sides([5.0], [4.0])])
    assert shift is not None
    assert shift.p_value == 0.05  # 2 / (20 × 2)
    assert shift.is_shown
    assert shift.low is not None


@pytest.mark.parametrize("matched", [False, True])
def test_one_workload_has_the_test_and_interval_of_its_own(matched: bool) -> None:
    sides = lognormal(np.random.default_rng(1), (7, 7), ratio=1.1, matched=matched)
    assert stratified_shift([sides]) == estimate_shift(*sides)


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("runs", [[(7, 7)] * 3, [(4, 4), (9, 9), (3, 3)], [(60, 60), (7, 7)]])
def test_equal_sides_differ_as_stated_and_ratios_are_in_intervals(runs: list[tuple[int, int]], matched: bool) -> None:
    chance = np.random.default_rng(1)
    false, missed = 0, 0
    for _ in range(200):
        equal = stratified_shift([lognormal(chance, each, matched=matched) for each in runs])
        other = stratified_shift([lognormal(chance, each, ratio=1.1, matched=matched) for each in runs])
        assert equal is not None
        assert other is not None
        false += equal.is_shown
        missed += other.low is None or other.high is None or not other.low <= 1.1 <= other.high
        assert equal.is_shown is (equal.p_value <= 0.05)
    # 5 % of 200, and three standard deviations more.
    assert max(false, missed) <= 19


def test_values_without_a_ratio_and_too_many_runs_have_none() -> None:
    assert stratified_shift([Sides([0.0, 1], [1.0, 2])]) is None
    many = [float(number) for number in range(1, 502)]
    assert stratified_shift([Sides(many, many)]) is None
