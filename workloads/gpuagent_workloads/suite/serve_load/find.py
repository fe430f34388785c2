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

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from math import comb
from typing import Any

import click

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import MOST_FOUND, Config
from gpuagent_workloads.suite.serve_load.clients import Log
from gpuagent_workloads.suite.serve_load.figures import is_client_limited, latency_of

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
        against: dict[int, float] = {}
        for place in range(lowest, highest + 1):
            # The capital won against a place between the levels `place` and `place + 1`.
            bets = [won for at, sign, won in self.bets if (place < at if sign < 0 else place >= at)]
            against[place] = capital(sum(bets), len(bets) - sum(bets))
        left = [place for place, won in against.items() if won < _SHOWN] or [min(against, key=against.__getitem__)]
        return -1 if left[0] == lowest else left[0], self.levels if left[-1] == highest else left[-1] + 1

    def around(self) -> tuple[int, int]:
        """Return the ends of the interval, or in the place of an end that is open that of the last windows."""
        low, high = self.interval()
        recent = [at for at, _, _ in self.bets[-_RECENT:]]
        return low if low >= 0 else min(recent), high if high < self.levels else max(recent)

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


UNITS = {"rate": "requests/s", "concurrency": "users", "scale": None}

# Requests of a window at the lowest rate: a percentile of fewer says little.
_FEWEST_REQUESTS = 10

# Of windows that contradict, at which a server is called erratic.
_ERRATIC = 0.2

# Windows that are proposed where there were too few, at least.
_LONGER = 40

# The ratio of the first two levels, about.
_FIRST_RATIO = 2.0


def levels_of(config: Config) -> tuple[list[float], int]:
    """Return the ascending levels of load among which is searched, and the place of the one to begin with."""
    kind, factor = str(config.find), 1 + config.find_step / 100
    if kind == "concurrency":
        users = [1]
        while users[-1] < MOST_FOUND:
            users.append(max(users[-1] + 1, round(users[-1] * factor)))
        return [float(each) for each in users], sum(each < (config.concurrency or 1) for each in users)
    first = config.rate or 1.0 if kind == "rate" else config.scale
    fewest = max(1e-3, _FEWEST_REQUESTS / config.duration) if kind == "rate" else max(1e-6, first / 1000)
    least = min(first, fewest)
    below = int(math.log(first / least) / math.log(factor))
    levels = takewhile(
        lambda level: level <= max(first, MOST_FOUND), (first * factor**place for place in count(-below))
    )
    return list(levels), below


def at_level(config: Config, level: float, number: int) -> Config:
    """Return the load of window `number`, with requests of its own."""
    given: dict[str, Any] = {str(config.find): int(level) if config.find == "concurrency" else level}
    return replace(config, seed=(config.seed + 1000 * number) % 2**32, **given)


def keeps_limits(log: Log, config: Config) -> bool:
    """Return whether the wanted percentage of the measured requests kept each limit; one that failed kept none."""
    latencies = [latency_of(record) for record in log.records if record.is_measured]
    for name, limit in (("ttft", config.slo_ttft), ("tpot", config.slo_tpot), ("e2e", config.slo_e2e)):
        if limit is None:
            continue
        known = [getattr(latency, name) if latency else math.inf for latency in latencies]
        missed = sum(seconds is not None and 1000 * seconds > limit for seconds in known)
        if 100 * missed > (100 - config.slo_percent) * len(latencies) + 1e-6:
            return False
    return bool(latencies)


def find_load(config: Config, measure: Callable[[Config], Log], reporter: Reporter) -> tuple[Config, bool]:
    """Report the highest load that is shown to keep the limits, with its interval.

    Args:
        config: the kind of load, and where to begin.
        measure: puts a load on the server.

    Returns: the load at the interval's lower end, to be measured, and whether the clients were the limit in a window
        that missed the limits.

    Raises:
        WorkloadError: no level of load, or each of them, keeps the limits, or the server stopped to keep any.
    """
    levels, first = levels_of(config)
    step = max(1, round(math.log(_FIRST_RATIO) / math.log(1 + config.find_step / 100)))
    search = Search(levels=len(levels), at=first, step=step, most=config.find_windows)
    kind, is_limited = str(config.find), False
    began = time.monotonic()
    while not search.is_over:
        level, number = levels[search.at], len(search.outcomes) + 1
        load = at_level(config, level, number)
        log = measure(load)
        is_kept = keeps_limits(log, config)
        search.add(is_kept=is_kept)
        is_limited |= not is_kept and is_client_limited(log, load)
        outcome = "keeps" if is_kept else "misses"
        click.echo(f"serve-load: window {number}: {kind} {level:.5g} {outcome} the limits", err=True)
        # At most: most searches end before that.
        left_seconds = (config.find_windows - number) * (time.monotonic() - began) / number
        tried = f"window {number}: {kind} {level:.4g} {outcome} limits"
        reporter.event("tried", {"name": tried, "most_left_seconds": left_seconds})
    return _report(search, levels, config, reporter), is_limited


def _report(search: Search, levels: Sequence[float], config: Config, reporter: Reporter) -> Config:
    """Report the interval as far as it is known, and return the load at its lower end."""
    kind, unit = str(config.find), UNITS[str(config.find)]
    if not search.bets or search.is_hopeless:
        raise WorkloadError(_explain(search, levels, config))
    low, high = search.interval()
    below, above = search.around()
    for name, place, is_known in (("low", low, low >= 0), ("high", high, high < len(levels))):
        if is_known:
            reporter.result(f"highest_{kind}_{name}", levels[place], unit=unit)
    middle = math.sqrt(levels[below] * levels[above])
    contradicting = sum(not has_won for _, _, has_won in search.bets)
    reporter.result(f"highest_{kind}", middle, unit=unit)
    reporter.result("search_windows", len(search.outcomes))
    reporter.result("search_bets", len(search.bets))
    reporter.result("search_contradictions", contradicting)
    ends = f"{_end(levels, low)} to {_end(levels, high)}"
    erratic = "; the server is erratic" if contradicting > _ERRATIC * len(search.bets) else ""
    click.echo(f"serve-load: highest {kind} {middle:.5g} (95 % interval {ends}{erratic})", err=True)
    return at_level(config, levels[below], 0)


def _explain(search: Search, levels: Sequence[float], config: Config) -> str:
    """Return why no highest load was found, and what is known of it."""
    windows, unit = len(search.outcomes), UNITS[str(config.find)] or "times the trace"
    kept = [levels[level] for level, is_kept in search.outcomes if is_kept]
    missed = [levels[level] for level, is_kept in search.outcomes if not is_kept]
    if not missed:
        known = f"the limits are kept up to {max(kept):.3g} {unit}, the highest load of {windows} windows"
    elif not kept:
        known = f"the limits are missed from {min(missed):.3g} {unit} on, the lowest load of {windows} windows"
    elif max(kept) < min(missed):
        known = f"the highest load is between {max(kept):.3g} and {min(missed):.3g} {unit}"
    elif not search.is_hopeless:
        about = " to ".join(dict.fromkeys(f"{level:.3g}" for level in (min(missed), max(kept)))) + f" {unit}"
        known = f"the highest load is about {about}, where windows contradict one another"
    else:
        known = f"the limits are kept at {max(kept):.3g} {unit} and missed at {min(missed):.3g}"
    if search.is_hopeless:
        return f"{known}; begin elsewhere, or look at the server"
    longer = max(_LONGER, 2 * windows)
    return f"{known}; {windows} windows are too few for an interval: give --find-windows {longer}"


def _end(levels: Sequence[float], place: int) -> str:
    return f"{levels[place]:.5g}" if 0 <= place < len(levels) else "not shown"
