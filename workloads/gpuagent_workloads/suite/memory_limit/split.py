"""Divides a stack into consecutive stages, one for each device, so that the fullest device is as empty as can be.

A device's load is what the stage takes of its frontier: with room for 120 convolutions or for 150 linear layers, 60 of
the one and 50 of the other load it by 60/120 + 50/150. That takes the frontier for a straight line, which is what makes
it a plan; whether a stage really fits, a trial shows.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from gpuagent_workloads.suite.memory_limit.search import Layers


def plan_stages(layers: Layers, frontiers: Sequence[Layers]) -> list[Layers]:
    """Return one stage for each device, in order; together they are the stack.

    Args:
        layers: the stack.
        frontiers: for each device, how many convolutions fit on it alone, and how many linear layers.
    """
    # The best largest load is where a stage just holds a whole number of layers. Bisection comes as close to it as
    # matters: a difference in load of less than one layer on any device by far.
    too_little, enough = Fraction(0), largest_load([layers, *[Layers(conv=0, fc=0)] * (len(frontiers) - 1)], frontiers)
    while enough - too_little > Fraction(1, 1_000_000):
        middle = ((too_little + enough) / 2).limit_denominator(10**9)
        if sum(stage.count for stage in _fill(layers, frontiers, middle)) == layers.count:
            enough = middle
        else:
            too_little = middle
    return _fill(layers, frontiers, enough)


def largest_load(stages: Sequence[Layers], frontiers: Sequence[Layers]) -> Fraction:
    """Return the load of the fullest device; 1: it is at its frontier."""
    return max(
        Fraction(stage.conv, frontier.conv) + Fraction(stage.fc, frontier.fc)
        for stage, frontier in zip(stages, frontiers, strict=True)
    )


def _fill(layers: Layers, frontiers: Sequence[Layers], load: Fraction) -> list[Layers]:
    """Put onto each device what `load` allows, convolutions first; what is left of the stack fits nowhere."""
    stages = []
    conv_left, fc_left = layers.conv, layers.fc
    for frontier in frontiers:
        conv = min(conv_left, math.floor(load * frontier.conv))
        conv_left -= conv
        room = load - Fraction(conv, frontier.conv)
        # Stages are consecutive: linear layers come when no convolution is left.
        fc = min(fc_left, math.floor(room * frontier.fc)) if conv_left == 0 else 0
        fc_left -= fc
        stages.append(Layers(conv=conv, fc=fc))
    return stages
