"""The search for the most layers that fit: pure, so that it knows nothing of memory."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpuagent_workloads.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """How many layers of each kind a stack has: the convolutions first, then the linear layers."""

    conv: int
    fc: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.conv + self.fc


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The direction of a point of the frontier: so many convolutions to so many linear layers."""

    conv: int
    fc: int

    @property
    def name(self) -> str:
        """As it stands in the names of results."""
        return f"conv{self.conv}_fc{self.fc}"

    def layers(self, count: int) -> Layers:
        """Return the stack of `count` layers that is closest to the ratio; of two, the one with more convolutions."""
        conv = -(-count * self.conv // (self.conv + self.fc))
        return Layers(conv=conv, fc=count - conv)


def parse_ratios(text: str) -> tuple[Ratio, ...]:
    """Return the ratios that `1:0,0:1` names.

    Raises:
        MisuseError: it names none.
    """
    return tuple(_parse_ratio(part.strip()) for part in text.split(","))


def largest_that_fits(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest count that fits, 0 if not even 1 does.

    It steps away from the guess, twice as far each time, until it has one that fits and one that does not; then it
    halves what is between them. A good guess therefore saves most of the trials.

    Args:
        fits: tells whether so many fit; whenever a count fits, all smaller ones are taken to fit, too.
        guess: where to begin.
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


def _parse_ratio(text: str) -> Ratio:
    parts = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    if parts is None or int(parts[1]) + int(parts[2]) == 0:
        raise MisuseError(f"--ratios wants convolutions to linear layers, as in 1:0,0:1,1:1, not {text!r}")
    return Ratio(conv=int(parts[1]), fc=int(parts[2]))
