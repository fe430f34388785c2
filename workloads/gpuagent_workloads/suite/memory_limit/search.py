"""The search for the most layers that fit, and the division of a stack among devices. Both know nothing of memory."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpuagent_common.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The number of layers of a stack: the convolutions first, then the linear layers."""

    conv: int
    fc: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.conv + self.fc


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The direction of a point of the frontier: convolutions to linear layers."""

    conv: int
    fc: int

    @property
    def name(self) -> str:
        """Its form in the names of results."""
        return f"conv{self.conv}_fc{self.fc}"

    def layers(self, count: int) -> Layers:
        """Return the stack of `count` layers that is closest to the ratio; of two, the one with more convolutions."""
        conv = -(-count * self.conv // (self.conv + self.fc))
        return Layers(conv=conv, fc=count - conv)


def parse_ratios(text: str) -> tuple[Ratio, ...]:
    """Return the ratios in a text such as `1:0,0:1`.

    Raises:
        MisuseError: the text has another form.
    """
    ratios = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", part.strip())
        if found is None or int(found[1]) + int(found[2]) == 0:
            raise MisuseError(f"--ratios needs convolutions to linear layers, such as 1:0,0:1,1:1, not {part!r}")
        ratios.append(Ratio(conv=int(found[1]), fc=int(found[2])))
    return tuple(ratios)


def parse_points(text: str) -> tuple[tuple[Layers, ...], ...]:
    """Return the stacks in a text such as `61:62,84:0+54:62`; more than one part: a stage for each device.

    Raises:
        MisuseError: the text has another form.
    """
    points = []
    for point in text.split(",") if text else ():
        found = [re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", stage.strip()) for stage in point.split("+")]
        stages = tuple(Layers(conv=int(one[1]), fc=int(one[2])) for one in found if one)
        if len(stages) < len(found) or not all(stage.count for stage in stages):
            raise MisuseError(
                f"--points needs convolutions to linear layers, such as 61:62 or 84:0+54:62, not {point!r}"
            )
        points.append(stages)
    return tuple(points)


def largest_that_fits(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest count that fits, 0 if not even 1 does.

    It steps away from the guess, twice as far each time, until it has one count that fits and one that does not; then
    it bisects. A good guess therefore saves most of the trials.

    Args:
        fits: returns whether that many fit; whenever a count fits, all smaller ones are assumed to fit.
        guess: the first count.
    """
    fitting, failing = _bracket(fits, max(guess, 1))
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if fits(middle):
            fitting = middle
        else:
            failing = middle
    return fitting


def _bracket(fits: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """Return a count that fits, or 0, and a larger one that does not."""
    stride = max(guess // 16, 1)
    if fits(guess):
        fitting = guess
        while fits(fitting + stride):
            fitting += stride
            stride *= 2
        return fitting, fitting + stride
    failing = guess
    while failing - stride > 0 and not fits(failing - stride):
        failing -= stride
        stride *= 2
    return max(failing - stride, 0), failing


def plan_stages(layers: Layers, frontiers: Sequence[Layers]) -> list[Layers]:
    """Return one stage for each device, in order, so that the load of the fullest device is least.

    The load of a device is the share of its frontier: with room for 120 convolutions or 150 linear layers, 60 of the
    one and 50 of the other are a load of 60/120 + 50/150. That takes the frontier for a straight line, so it is a plan;
    a trial shows whether a stage really fits.

    Args:
        layers: the stack.
        frontiers: for each device, how many convolutions fit on it alone, and how many linear layers.
    """
    # At the least largest load a stage holds just a whole number of layers. Bisection comes close enough to it: within
    # far less than one layer on any device.
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
    """Give each device the layers that `load` allows, convolutions first; the rest of the stack fits nowhere."""
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
