"""The promises of comparisons, simulated: the number of wrong verdicts is held against what chance allows."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, mannwhitneyu, norm

from gpuagent_collector.statistics.repeats import repeats_to_differ, repeats_to_equal
from gpuagent_collector.statistics.shift import Sides, estimate_shift, matched_rejection_bound, rejection_bound
from gpuagent_collector.statistics.summaries import geometric_mean
from gpuagent_collector.statistics.verdicts import Verdict, judge

pytestmark = pytest.mark.slow

COMPARISONS = 4000
# How often a simulation may fail although the statistics are right.
UNLIKELY = 1e-5

# A margin within which nothing is equal, so that the test alone speaks.
TINY = 1e-6

Floats = NDArray[np.float64]
CHANCE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "log-normal": lambda chance, size: np.exp(chance.normal(0, 0.05, size)),
    "skewed": lambda chance, size: 1 + chance.gamma(1.0, 0.05, size),
    "heavy tails": lambda chance, size: np.exp(0.02 * chance.standard_t(2, size)),
}


# Each kind once or more: the tests are of ranks, which are distributed alike whatever the kind.
@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("log-normal", (4, 4)),
        ("skewed", (5, 5)),
        ("heavy tails", (7, 7)),
        ("log-normal", (5, 12)),
        ("heavy tails", (20, 20)),
    ],
)
def test_equal_sides_differ_as_often_as_the_test_allows(kind: str, runs: tuple[int, int]) -> None:
    chance = np.random.default_rng(1)
    pairs = zip(*(CHANCE[kind](chance, (COMPARISONS, number)) for number in runs), strict=True)
    false = verdicts(pairs, delta=TINY).count(Verdict.DIFFERS)
    allowed = mannwhitneyu(*with_pairs_below(rejection_bound(*runs) - 1, *runs), method="exact").pvalue
    assert allowed <= 0.05
    assert binom.ppf(UNLIKELY, COMPARISONS, allowed) <= false <= binom.isf(UNLIKELY, COMPARISONS, allowed)


def test_rounded_values_with_many_ties_do_not_make_false_findings_more_frequent() -> None:
    pairs = np.random.default_rng(5).poisson(3, size=(COMPARISONS, 2, 7)) + 1
    assert verdicts(pairs, delta=0.02).count(Verdict.DIFFERS) <= at_most(0.05)


@pytest.mark.parametrize("ratio", [1.02, 1 / 1.02])
@pytest.mark.parametrize("spread", [0.003, 0.01])
def test_a_difference_of_the_margin_is_called_equal_at_most_once_in_twenty(ratio: float, spread: float) -> None:
    pairs = lognormal_pairs(runs=7, ratio=ratio, spread=spread)
    assert verdicts(pairs, delta=0.02).count(Verdict.EQUAL) <= at_most(0.05)


def test_the_interval_contains_the_true_ratio_at_least_as_often_as_stated() -> None:
    shifts = [estimate_shift(a, b) for a, b in lognormal_pairs(runs=6, ratio=1.3)]
    missed = sum(not (shift.low or 0) <= 1.3 <= (shift.high or np.inf) for shift in shifts)
    assert missed <= at_most(0.05)


def test_a_family_of_comparisons_holds_a_false_finding_at_most_once_in_twenty() -> None:
    families = lognormal_pairs(runs=7, ratio=1.0).reshape(-1, 4, 2, 7)
    false = sum(any(j.verdict is Verdict.DIFFERS for j in judge(list(family), delta=TINY)) for family in families)
    assert false <= at_most(0.05, len(families))


def test_true_differences_in_a_family_do_not_make_false_ones_more_frequent() -> None:
    families = lognormal_pairs(runs=7, ratio=1.0).reshape(-1, 4, 2, 7)
    families[:, :2, 1] *= 1.5
    judged = [[judgement.verdict for judgement in judge(list(family), delta=TINY)] for family in families]
    assert all(Verdict.DIFFERS in found[:2] for found in judged)
    assert sum(Verdict.DIFFERS in found[2:] for found in judged) <= at_most(0.05, len(families))


def test_sides_that_share_their_baseline_hold_a_false_finding_at_most_once_in_twenty() -> None:
    sides = np.exp(np.random.default_rng(7).normal(0, 0.05, size=(COMPARISONS // 4, 4, 7)))
    judged = [judge([Sides(baseline, other) for other in others], delta=TINY) for baseline, *others in sides]
    false = sum(any(judgement.verdict is Verdict.DIFFERS for judgement in family) for family in judged)
    assert false <= at_most(0.05, len(sides))


def test_the_geometric_mean_is_in_its_interval_at_least_as_often_as_stated() -> None:
    families = lognormal_pairs(runs=7, ratio=1.0).reshape(-1, 4, 2, 7)
    ratios = np.array([0.8, 1.0, 1.1, 2.0])
    families[:, :, 1] *= ratios[:, None]
    means = [geometric_mean(list(family)) for family in families]
    truth = float(np.exp(np.log(ratios).mean()))
    missed = sum(not (mean.low or 0) <= truth <= (mean.high or np.inf) for mean in means if mean)
    assert missed <= at_most(0.05, len(families))


def test_a_real_difference_is_found_about_as_often_as_theory_says() -> None:
    runs, ratio, spread = 15, 1.05, 0.05
    found = verdicts(lognormal_pairs(runs=runs, ratio=ratio, spread=spread), delta=TINY).count(Verdict.DIFFERS)
    # Against the t-test the Mann-Whitney test has an asymptotic relative efficiency of 3 / pi on normal data.
    noncentrality = np.log(ratio) / spread * np.sqrt(runs / 2 * 3 / np.pi)
    expected = norm.sf(norm.isf(0.025) - noncentrality)
    assert found / COMPARISONS == pytest.approx(float(expected), abs=0.06)


@pytest.mark.parametrize(
    ("spread", "effect", "expected"),
    [
        (0.01, 0.02, Verdict.DIFFERS),
        (0.02, 0.05, Verdict.DIFFERS),
        (0.02, 0.02, Verdict.DIFFERS),
        (0.01, 0.02, Verdict.EQUAL),
    ],
)
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_the_repeats_that_are_planned_find_the_difference_or_equality_and_fewer_do_not(
    spread: float, effect: float, expected: Verdict, power: float
) -> None:
    differs = expected is Verdict.DIFFERS
    runs = (repeats_to_differ if differs else repeats_to_equal)(spread, effect, power=power, level=0.05)
    assert runs
    ratio, delta = (1 + effect, TINY) if differs else (1.0, effect)
    enough, fewer = (
        verdicts(lognormal_pairs(runs=number, ratio=ratio, spread=spread), delta=delta).count(expected)
        for number in (runs, runs - 1)
    )
    assert enough >= at_least(power - PLANNED_WITHIN)
    assert fewer <= at_most(power + PLANNED_WITHIN)


# Planning is a simulation of 4,000 experiments itself: three standard deviations of its power.
PLANNED_WITHIN = 0.02


@pytest.mark.parametrize(("kind", "number"), [("log-normal", 6), ("skewed", 7), ("heavy tails", 12)])
def test_pairs_without_a_difference_differ_exactly_as_often_as_their_test_allows(kind: str, number: int) -> None:
    chance = np.random.default_rng(1)
    drift = np.exp(np.cumsum(chance.normal(0, 0.2, (COMPARISONS, number)), axis=1))
    pairs = (drift * CHANCE[kind](chance, (COMPARISONS, number)) for _ in range(2))
    found = [judge([Sides(one, other, matched=True)], delta=TINY)[0].verdict for one, other in zip(*pairs, strict=True)]
    allowed = rank_sums_up_to(matched_rejection_bound(number) - 1, number)
    assert allowed <= 0.05
    low, high = (binom.ppf(UNLIKELY, COMPARISONS, allowed), binom.isf(UNLIKELY, COMPARISONS, allowed))
    assert low <= found.count(Verdict.DIFFERS) <= high


@pytest.mark.parametrize("drift", [0.0, 1.0, 4.0])
def test_the_interval_of_pairs_contains_the_ratio_and_does_not_widen_with_drift(drift: float) -> None:
    noise, pairs = 0.01, 7
    chance = np.random.default_rng(2)
    shared = np.cumsum(chance.normal(0, drift * noise, (COMPARISONS, pairs)), axis=1)
    baseline, other = (np.exp(shared + chance.normal(0, noise, shared.shape)) for _ in range(2))
    shifts = [estimate_shift(*sides, matched=True) for sides in zip(baseline, 1.3 * other, strict=True)]
    missed = sum(not (shift.low or 0) <= 1.3 <= (shift.high or np.inf) for shift in shifts)
    assert missed <= at_most(0.05)
    width = np.median([np.log((shift.high or np.inf) / (shift.low or 0.0)) for shift in shifts])
    # The differences of pairs have the spread of two runs, whatever both share.
    assert width < 3 * np.sqrt(2) * noise


def rank_sums_up_to(bound: int, pairs: int) -> float:
    """Return the two-sided probability of a signed-rank sum up to a bound, by counting all signs."""
    signs = (np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1
    return 2 * float(np.mean(signs @ np.arange(1, pairs + 1) <= bound))


def verdicts(pairs: Iterable[Any], *, delta: float) -> list[Verdict]:
    """Return the verdict on each pair alone."""
    return [judge([Sides(baseline, other)], delta=delta)[0].verdict for baseline, other in pairs]


def at_most(probability: float, comparisons: int = COMPARISONS) -> int:
    """Return how many of the comparisons may go so if each does with at most that probability."""
    return int(binom.isf(UNLIKELY, comparisons, probability))


def at_least(probability: float) -> int:
    """Return how many of the comparisons must go so if each does with at least that probability."""
    return int(binom.ppf(UNLIKELY, COMPARISONS, probability))


def with_pairs_below(number: int, baseline_runs: int, other_runs: int) -> tuple[list[float], list[float]]:
    """Return sides of which `other` lies below `baseline` in that many of all pairs."""
    other, left = [], number
    for _ in range(other_runs):
        below = min(left, baseline_runs)
        other.append(baseline_runs - below - 0.5)
        left -= below
    return [float(rank) for rank in range(baseline_runs)], other


def lognormal_pairs(*, runs: int, ratio: float, spread: float = 0.05) -> Floats:
    """Return pairs of sides whose true ratio is `ratio`, shape (COMPARISONS, 2, runs)."""
    pairs = np.exp(np.random.default_rng(3).normal(0, spread, size=(COMPARISONS, 2, runs)))
    pairs[:, 1] *= ratio
    return pairs
