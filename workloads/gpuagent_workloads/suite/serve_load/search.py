"""The search for the highest load within the limits: a bracket of two levels, which are tried in turns until both hold.

A window of load keeps the limits or misses them. Wanted is the load at which that changes: up to it at least half of
the windows keep them, above it at most half. First the load goes up after a window that keeps them and down after
another, by steps that are halved at each turn, until two neighbouring levels differ. Then the lower and the upper one
are tried in turns. Each such window is a bet: that the lower level keeps the limits, against all loads below it, and
that the upper one misses them, against all loads from it on. An outcome that contradicts moves its level outwards;
three in succession begin a new bracket, so that a slow start or a stall ends no search.

Against the true load such bets are fair or worse, whatever led to them, so that 1 becomes 20 in at most one of 20
searches, whenever they end (Ville's inequality). The loads against which nobody has won that much are a 95 % interval.
"""

from dataclasses import dataclass, field
from math import comb

# 1 / (1 - confidence).
_SHOWN = 20.0

# Contradictions in succession after which the bracket is given up.
_WRONG = 3

# The first step of a new bracket, in levels.
_ANEW = 4

# Windows by which an open end is estimated.
_RECENT = 10

# Windows in succession at the lowest or highest level, with one outcome, after which there is nothing to find.
HOPELESS = 10


def capital(won: int, lost: int) -> float:
    """Return what 1 has become by bets of a share of the capital: the mean over all shares from none to all."""
    bets = won + lost
    return sum(comb(bets + 1, number) for number in range(won + 1)) / ((bets + 1) * comb(bets, won))


@dataclass(slots=True, kw_only=True)
class Arm:
    """One of the two levels of a bracket; `sign` is -1 for the lower one, which is to keep the limits."""

    at: int
    sign: int
    contradictions: int = 0
    in_succession: int = 0


@dataclass(slots=True, kw_only=True)
class Search:
    """A search among `levels` ascending levels of load, which are known here by their number.

    Attributes:
        at: the level of the next window.
        step: number of levels to the one after it, while there is no bracket.
        most: windows after which it ends.
        outcomes: the level of each window, and whether it kept the limits.
        bets: the level of each window of a bracket, the sign of its arm, and whether the bet was won.
    """

    levels: int
    at: int
    step: int
    most: int
    outcomes: list[tuple[int, bool]] = field(default_factory=list)
    bets: list[tuple[int, int, bool]] = field(default_factory=list)
    _arms: list[Arm] = field(default_factory=list)

    def add(self, *, is_kept: bool) -> None:
        """Take the outcome of a window at level `at`, and choose the next level."""
        self.outcomes.append((self.at, is_kept))
        if self._arms:
            # Count a window of the bracket, which an outcome that contradicts widens, or ends.
            arm = self._arms[0]
            has_won = is_kept == (arm.sign < 0)
            self.bets.append((arm.at, arm.sign, has_won))
            if has_won:
                arm.in_succession = 0
            else:
                arm.contradictions += 1
                arm.in_succession += 1
                arm.at = self._within(arm.at + arm.sign * ((arm.contradictions + 1) // 2))
                if arm.in_succession == _WRONG:
                    self._arms, self.step = [], _ANEW
        else:
            # Halve the step where the load turns, and take two neighbouring levels that differ as a bracket.
            (before, was_kept) = self.outcomes[-2] if len(self.outcomes) > 1 else (self.at, is_kept)
            if was_kept is not is_kept and before != self.at:
                if abs(before - self.at) == 1:
                    low, high = sorted((before, self.at))
                    self._arms = [Arm(at=low, sign=-1), Arm(at=high, sign=1)]
                self.step = max(1, self.step // 2)
        if not self._arms:
            self.at = self._within(self.at + (self.step if is_kept else -self.step))
            return
        self._arms.reverse()
        if self._is_shown(self._arms[0]):
            self._arms.reverse()
        self.at = self._arms[0].at

    def _within(self, level: int) -> int:
        return min(self.levels - 1, max(0, level))

    def _is_shown(self, arm: Arm) -> bool:
        low, high = self.interval()
        return low >= arm.at if arm.sign < 0 else high <= arm.at

    def interval(self) -> tuple[int, int]:
        """Return the levels between which the place is; -1 is below the first one, `levels` above the last one."""
        if not self.bets:
            return -1, self.levels
        # Beyond these, all places have the same against them.
        lowest, highest = min(self.bets)[0] - 1, max(self.bets)[0]
        against = {place: self._against(place) for place in range(lowest, highest + 1)}
        left = [place for place, won in against.items() if won < _SHOWN] or [min(against, key=against.__getitem__)]
        return -1 if left[0] == lowest else left[0], self.levels if left[-1] == highest else left[-1] + 1

    def around(self) -> tuple[int, int]:
        """Return the ends of the interval, or in the place of an end that is open that of the last windows."""
        low, high = self.interval()
        recent = [at for at, _, _ in self.bets[-_RECENT:]]
        return low if low >= 0 else min(recent), high if high < self.levels else max(recent)

    def _against(self, place: int) -> float:
        """Return the capital won against a place between the levels `place` and `place + 1`."""
        bets = [won for at, sign, won in self.bets if (place < at if sign < 0 else place >= at)]
        return capital(sum(bets), len(bets) - sum(bets))

    @property
    def is_over(self) -> bool:
        """Return whether both levels hold, one outcome goes on and on, or there were too many windows."""
        if self._arms:
            return len(self.outcomes) >= self.most or all(map(self._is_shown, self._arms))
        return len(self.outcomes) >= self.most or self.is_hopeless

    @property
    def is_hopeless(self) -> bool:
        """Return whether there is no bracket, and the last windows at one level all had one outcome."""
        last = self.outcomes[-HOPELESS:]
        return not self._arms and len(last) == HOPELESS and len(set(last)) == 1
