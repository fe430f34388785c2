"""Verdicts on several comparisons at once: different, equal, not shown, or too few runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, log1p

from gpuagent_collector.statistics.shift import Scale, Shift, Sides, estimate_shift
from gpuagent_collector.statistics.summaries import median


class Verdict(Enum):
    """A conclusion about two sides."""

    DIFFERS = "differs"
    # The whole interval is within the margin that counts as equal.
    EQUAL = "="
    # Neither a difference nor equality is shown.
    NOT_SHOWN = "~"
    # No outcome of so few runs could have shown a difference at the level at which they are tested.
    TOO_FEW = "n too small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A shift, at the level at which Holm's procedure tested it, and the verdict."""

    shift: Shift
    verdict: Verdict


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Return the level at which Holm's step-down procedure tests each hypothesis.

    Those after the first that is not rejected keep its level: none of them is rejected there either. So a test and an
    interval at these levels agree with the procedure. Equal p-values have one level, the strictest of them.
    """
    levels = [alpha] * len(p_values)
    level, rejecting, earlier = alpha, True, -1.0
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if rejecting and p_values[index] > earlier:
            level = alpha / (len(p_values) - done)
            rejecting, earlier = p_values[index] <= level, p_values[index]
        levels[index] = level
    return levels


def judge(pairs: Sequence[Sides], *, delta: float = 0.02, alpha: float = 0.05) -> list[Judgement]:
    """Return a verdict for each pair; at most a share alpha of such families contains a false 'differs'.

    Args:
        pairs: the values of each comparison; all of them together are one family.
        delta: what counts as equal: ratios from 1 / (1 + delta) to 1 + delta, or, where there is no ratio,
            differences up to delta times the smaller median.
        alpha: the family's error rate.
    """
    p_values = [estimate_shift(*pair).p_value for pair in pairs]
    judgements = []
    for pair, level in zip(pairs, holm_levels(p_values, alpha), strict=True):
        shift = estimate_shift(*pair, alpha=level)
        judgements.append(Judgement(shift=shift, verdict=_verdict(shift, pair, delta)))
    return judgements


def _verdict(shift: Shift, pair: Sides, delta: float) -> Verdict:
    if shift.low is None or shift.high is None:
        return Verdict.TOO_FEW
    if shift.scale is Scale.RATIO:
        least, most = exp(-log1p(delta)), exp(log1p(delta))
    else:
        most = delta * min(abs(median(side)) for side in pair[:2])
        least = -most
    if least <= shift.low and shift.high <= most:
        return Verdict.EQUAL
    return Verdict.DIFFERS if shift.is_shown else Verdict.NOT_SHOWN
