"""The statistics of comparisons: against scipy, published values and their own laws. Simulations are beside it."""

from itertools import permutations
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import binom, gmean, mannwhitneyu, wilcoxon

from gpuagent_collector.statistics import shift as shifts
from gpuagent_collector.statistics.shift import (
    Scale,
    Sides,
    estimate_shift,
    least_pairs,
    least_runs,
    matched_rejection_bound,
    rejection_bound,
    smallest_p_value,
    tie_near,
)
from gpuagent_collector.statistics.summaries import geometric_mean, median_interval, outliers
from gpuagent_collector.statistics.verdicts import Verdict, holm_levels, judge

counts = st.lists(st.integers(1, 40), min_size=1, max_size=9)
positive = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9)
anything = st.lists(st.integers(-20, 20), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("sizes", "shift", "method"),
    [
        *((sizes, shift, "exact") for sizes in ((3, 3), (5, 5), (4, 9), (20, 13), (50, 50)) for shift in (0, 0.5, 1.5)),
        *(((80, 60), shift, "asymptotic") for shift in (0.3, 9.0)),
    ],
)
def test_p_values_are_those_of_scipys_exact_test_and_of_many_runs_of_the_normal_approximation(
    sizes: tuple[int, int], shift: float, method: Literal["exact", "asymptotic"]
) -> None:
    chance = np.random.default_rng(1)
    baseline, other = chance.normal(size=sizes[0]), chance.normal(shift, size=sizes[1])
    expected = mannwhitneyu(baseline, other, method=method).pvalue
    assert estimate_shift(baseline.tolist(), other.tolist()).p_value == pytest.approx(expected, rel=1e-9)


def test_few_runs_reach_the_published_smallest_p_values_and_no_smaller_ones() -> None:
    assert [smallest_p_value(runs, runs) for runs in (3, 4, 5)] == pytest.approx([0.1, 2 / 70, 2 / 252])
    assert [least_runs(comparisons) for comparisons in (1, 2, 10)] == [4, 5, 6]
    # A U is rejected up to the published critical value.
    assert [rejection_bound(runs, runs) - 1 for runs in (3, 4, 5, 7, 10)] == [-1, 0, 2, 8, 23]


@pytest.mark.parametrize("pairs", [3, 6, 7, 20, 50])
def test_p_values_of_pairs_are_those_of_scipys_exact_signed_rank_test(pairs: int) -> None:
    chance = np.random.default_rng(pairs)
    baseline, other = chance.normal(size=pairs), chance.normal(0.4, size=pairs)
    expected = wilcoxon(other, baseline, method="exact").pvalue
    found = estimate_shift(baseline.tolist(), other.tolist(), matched=True)
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_the_normal_approximation_of_many_pairs_is_that_of_scipy() -> None:
    chance = np.random.default_rng(1)
    baseline, other = chance.normal(size=250), chance.normal(0.1, size=250)
    expected = wilcoxon(other - baseline, method="approx", correction=True).pvalue
    found = estimate_shift(baseline.tolist(), other.tolist(), matched=True)
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_few_pairs_reach_the_published_critical_values() -> None:
    # Critical values of the signed-rank sum at 0.05 two-sided (Wilcoxon 1945): none for 5, 0, 2, 3, 5 and 8 pairs.
    assert [matched_rejection_bound(pairs) - 1 for pairs in (5, 6, 7, 8, 9, 10)] == [-1, 0, 2, 3, 5, 8]
    assert [least_pairs(comparisons) for comparisons in (1, 2, 10)] == [6, 7, 9]


def test_the_estimate_of_pairs_is_the_median_of_the_walsh_averages() -> None:
    shift = estimate_shift([-1.0, 10.0, 100.0], [0.0, 13.0, 102.0], matched=True)
    assert (shift.scale, shift.estimate) == (Scale.DIFFERENCE, 2.0)
    assert shift.matched


def test_the_interval_is_that_of_the_published_critical_values() -> None:
    # Critical values of U at 0.05 two-sided (Mann and Whitney's table): 2 for 5 and 5, 8 for 7 and 7. The interval then
    # goes from the third, or ninth, smallest difference to its mirror.
    for runs, critical in ((5, 2), (7, 8)):
        baseline = [-float(2**i) for i in range(runs)]
        other = [float(3**i) for i in range(runs)]
        differences = sorted(b - a for a in baseline for b in other)
        shift = estimate_shift(baseline, other)
        assert (shift.low, shift.high) == (differences[critical], differences[-critical - 1])


def test_the_estimate_is_the_median_of_all_pairwise_ratios() -> None:
    shift = estimate_shift([1.0, 2.0, 4.0], [2.0, 8.0, 16.0])
    ratios = [b / a for a in (1.0, 2.0, 4.0) for b in (2.0, 8.0, 16.0)]
    assert shift.scale is Scale.RATIO
    assert shift.estimate == pytest.approx(float(np.median(ratios)))


def test_zeros_and_negative_values_are_set_against_each_other_by_difference() -> None:
    assert estimate_shift([0.0, 1.0], [2.0, 3.0]).scale is Scale.DIFFERENCE
    assert estimate_shift([0.0, 1.0], [2.0, 3.0]).estimate == 2.0
    assert estimate_shift([1.0], [-1.0]).estimate == -2.0


def test_holm_stops_at_the_first_hypothesis_that_stands() -> None:
    # Of 0.01, 0.04, 0.03, 0.005 Holm (1979) rejects at 0.05 only 0.005 (level 0.05/4) and 0.01 (0.05/3).
    p_values = [0.01, 0.04, 0.03, 0.005]
    levels = holm_levels(p_values)
    assert levels == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == [True, False, False, True]


QUIET = [100.0, 101.0, 99.0, 100.5, 99.5]


@pytest.mark.parametrize(
    ("baseline", "other", "expected"),
    [
        (QUIET, [70.0, 71.0, 69.0, 70.5, 69.5], Verdict.DIFFERS),
        (QUIET, [100.2, 100.8, 99.2, 100.4, 99.6], Verdict.EQUAL),
        (QUIET, [90.0, 110.0, 95.0, 105.0, 99.0], Verdict.NOT_SHOWN),
        (QUIET[:3], [70.0, 71.0, 69.0], Verdict.TOO_FEW),
        ([0.0] * 5, [0.0] * 5, Verdict.EQUAL),
        ([100.0, 101.0, 102.0, 103.0], [70.0, 71.0, 72.0, 73.0], Verdict.DIFFERS),
    ],
)
def test_four_verdicts(baseline: list[float], other: list[float], expected: Verdict) -> None:
    assert [judgement.verdict for judgement in judge([Sides(baseline, other)])] == [expected]


def test_a_correction_for_several_comparisons_can_leave_too_few_runs_and_no_pairs_have_no_verdicts() -> None:
    pair = Sides([100.0, 101.0, 102.0, 103.0], [70.0, 71.0, 72.0, 73.0])
    assert [judgement.verdict for judgement in judge([pair, pair])] == [Verdict.TOO_FEW] * 2
    assert judge([]) == []


def test_a_geometric_mean_counts_each_pair_once_whatever_its_runs() -> None:
    pairs = [Sides([100.0, 101.0, 99.0, 100.5], [200.0, 202.0, 198.0, 201.0]), Sides([5.0] * 9, [4.0] * 9)]
    mean = geometric_mean(pairs)
    assert mean
    assert mean.ratio == pytest.approx(gmean([estimate_shift(*pair).estimate for pair in pairs]))
    assert (mean.pairs, mean.low) == (2, None)  # four runs bound nothing at half the level
    assert geometric_mean([Sides([1.0] * 5, [2.0] * 5), Sides([0.0] * 5, [1.0] * 5)]) is None


def test_a_geometric_mean_s_interval_is_made_of_intervals_that_hold_together() -> None:
    pairs = [Sides([100.0 + i for i in range(7)], [120.0 + i * k for i in range(7)]) for k in (1, 2, 3)]
    mean = geometric_mean(pairs)
    shifts = [estimate_shift(*pair, alpha=0.05 / 3) for pair in pairs]
    assert mean is not None
    assert mean.low == pytest.approx(gmean([shift.low for shift in shifts if shift.low]))
    assert mean.high == pytest.approx(gmean([shift.high for shift in shifts if shift.high]))


def test_a_run_far_from_the_others_is_an_outlier() -> None:
    assert outliers([100.0, 101.0, 99.0, 100.5, 60.0, 99.5, 100.2]) == [4]
    assert outliers([100.0, 100.0, 100.0, 100.0, 101.0]) == []
    assert outliers([1.0, 100.0, 1.0]) == []


@given(
    st.one_of(
        st.builds(Sides, counts, counts, st.just(False)),
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12).map(
            lambda pairs: Sides([one for one, _ in pairs], [two for _, two in pairs], matched=True)
        ),
    )
)
@example(Sides([1, 1, 1, 1, 1, 1, 6], [2, 2, 2, 2, 2, 2, 3], matched=True))
def test_the_interval_excludes_one_exactly_when_the_test_rejects(sides: Sides) -> None:
    shift = estimate_shift(*sides)
    excludes = shift.low is not None and shift.high is not None and not shift.low <= 1 <= shift.high
    assert excludes == (shift.p_value <= shift.alpha)


@given(st.lists(st.builds(Sides, counts, counts, st.just(False)), min_size=1, max_size=4), st.floats(0.001, 0.5))
def test_verdicts_and_their_intervals_never_disagree(pairs: list[Sides], delta: float) -> None:
    for pair, judgement in zip(pairs, judge(pairs, delta=delta), strict=True):
        shift = judgement.shift
        bounded = shift.low is not None and shift.high is not None
        excludes = bounded and not (shift.low or 0) <= 1 <= (shift.high or 0)
        within = bounded and 1 / (1 + delta) <= (shift.low or 0) and (shift.high or 0) <= 1 + delta
        assert (judgement.verdict is Verdict.DIFFERS) == (excludes and not within)
        assert (judgement.verdict is Verdict.EQUAL) == within
        assert (judgement.verdict is Verdict.TOO_FEW) == (not bounded)
        assert (judgement.verdict is Verdict.TOO_FEW) == (smallest_p_value(*map(len, pair[:2])) > shift.alpha)


@given(anything, anything)
def test_the_estimate_is_in_its_interval(baseline: list[int], other: list[int]) -> None:
    shift = estimate_shift(baseline, other)
    if shift.low is not None and shift.high is not None:
        assert shift.low <= shift.estimate <= shift.high


@given(positive, positive)
def test_swapping_the_sides_inverts_the_ratio_and_keeps_the_verdict(baseline: list[float], other: list[float]) -> None:
    there, back = judge([Sides(baseline, other)])[0], judge([Sides(other, baseline)])[0]
    assert there.verdict is back.verdict
    assert there.shift.p_value == back.shift.p_value
    assert there.shift.estimate * back.shift.estimate == pytest.approx(1)
    assert (there.shift.low is None) == (back.shift.high is None)
    if there.shift.low is not None and back.shift.high is not None:
        assert there.shift.low * back.shift.high == pytest.approx(1)


@given(positive, positive, st.sampled_from([2.0**-10, 0.5, 4.0, 2.0**20]))
def test_units_do_not_matter(baseline: list[float], other: list[float], factor: float) -> None:
    values = [*baseline, *other]
    assume(all(a == b or abs(a / b - 1) > 1e-9 for a, b in permutations(values, 2)))
    plain = estimate_shift(baseline, other)
    scaled = estimate_shift([factor * v for v in baseline], [factor * v for v in other])
    assert scaled.p_value == plain.p_value
    assert scaled.estimate == pytest.approx(plain.estimate)


@given(st.integers(min_value=0, max_value=60))
def test_a_median_s_interval_is_the_narrowest_that_leaves_at_most_five_percent_outside(runs: int) -> None:
    found = median_interval([float(rank) for rank in range(1, runs + 1)])
    low = 0 if found is None else int(found[0])
    assert found is None or found[0] + found[1] == runs + 1
    assert low == 0 or 2 * binom.cdf(low - 1, runs, 0.5) <= 0.05
    assert 2 * binom.cdf(low, runs, 0.5) > 0.05


def test_a_median_of_thousands_has_an_interval() -> None:
    low, high = median_interval([float(rank) for rank in range(3000)]) or (0, 0)
    assert 1400 < low < 1500 < high < 1600


@pytest.mark.parametrize("digits", [12, 0], ids=["all different", "many equal"])
@pytest.mark.parametrize("centre", [100.0, 0.0], ids=["ratio", "difference"])
def test_thousands_of_runs_give_the_same(digits: int, centre: float, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    baseline, other = (chance.normal(centre + side, 5, 600 + side).round(digits).tolist() for side in (0, 1))
    selected = estimate_shift(baseline, other)
    monkeypatch.setattr(shifts, "_MOST_DIFFERENCES", 10**6)
    assert selected == estimate_shift(baseline, other)


def test_thousands_of_equal_runs_have_no_shift() -> None:
    assert estimate_shift([3.0] * 600, [3.0] * 600).p_value == 1.0


def test_values_that_differ_by_rounding_are_equal() -> None:
    before, after = [37.500000703] * 4, [37.500000938] * 4
    shift = estimate_shift(before, after)
    assert (shift.estimate, shift.p_value) == (1.0, 1.0)
    assert not shift.is_shown
    # Of many values that lie close, none is moved further than that.
    close = np.linspace(1.0, 1.001, 100_000)
    assert np.abs(tie_near(close) / close - 1).max() < 2e-6


def test_equal_p_values_are_tested_at_one_level() -> None:
    assert holm_levels([0.001, 0.02, 0.001, 0.9]) == [0.0125, 0.025, 0.0125, 0.05]
    # The first that is not rejected has the level of all that follow.
    assert holm_levels([0.03, 0.03, 0.9]) == [0.05 / 3] * 3
