"""The highest load that a server carries within its limits: windows of load, as search.py chooses them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import click

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import MOST_FOUND, Config
from gpuagent_workloads.suite.serve_load.clients import Log
from gpuagent_workloads.suite.serve_load.figures import is_client_limited, latency_of
from gpuagent_workloads.suite.serve_load.search import HOPELESS, Search

UNITS = {"rate": "requests/s", "concurrency": "users", "scale": None}

# Requests of a window at the lowest rate: a percentile of fewer says little.
_FEWEST_REQUESTS = 10

# Of windows that contradict, at which a server is called erratic.
_ERRATIC = 0.2

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
    while not search.is_over:
        level, number = levels[search.at], len(search.outcomes) + 1
        load = at_level(config, level, number)
        log = measure(load)
        is_kept = keeps_limits(log, config)
        search.add(is_kept=is_kept)
        is_limited |= not is_kept and is_client_limited(log, load)
        outcome = "keeps" if is_kept else "misses"
        click.echo(f"serve-load: window {number}: {kind} {level:.5g} {outcome} the limits", err=True)
    return _report(search, levels, config, reporter), is_limited


def _report(search: Search, levels: Sequence[float], config: Config, reporter: Reporter) -> Config:
    """Report the interval as far as it is known, and return the load at its lower end."""
    kind, unit = str(config.find), UNITS[str(config.find)]
    if not search.bets or search.is_hopeless:
        tried = [levels[level] for level, _ in search.outcomes]
        kept = sum(is_kept for _, is_kept in search.outcomes)
        raise WorkloadError(
            f"{kept} of {len(tried)} windows from {kind} {min(tried):.5g} to {max(tried):.5g} keep the limits, and the "
            f"last {HOPELESS} of one kind: begin elsewhere, give more --find-windows, or look at the server"
        )
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


def _end(levels: Sequence[float], place: int) -> str:
    return f"{levels[place]:.5g}" if 0 <= place < len(levels) else "not shown"
