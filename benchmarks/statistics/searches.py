"""Searches of `serve-load --find` for the highest rate, on servers whose law is known."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log
from statistics import median

import numpy as np

from benchmarks.statistics.tables import Table, share
from gpuagent_workloads.suite.serve_load.find import Search

_TRIALS = 200
_FACTOR = 1.05
_LEVELS = 240
_MOST = 60

# A queue with as many servers, and the time that a request takes on average, in seconds.
_SERVERS, _SERVICE_SECONDS = 8, 0.4
_WARMUP_SECONDS = 5.0
# On the wait of nine requests of ten.
_LIMIT_SECONDS = 0.2


def waits_in_queue(chance: np.random.Generator, rate: float, seconds: float, speed: float = 1.0) -> list[float]:
    """Return the waits of a window of Poisson arrivals at an empty queue of servers, without those of its warm-up."""
    number = int(chance.poisson(rate * (_WARMUP_SECONDS + seconds)))
    arrivals = np.sort(chance.uniform(0, _WARMUP_SECONDS + seconds, number))
    services = chance.exponential(_SERVICE_SECONDS / speed, number)
    free_at = [0.0] * _SERVERS
    waits = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        begins = max(arrival, free_at[0])
        heapq.heapreplace(free_at, begins + service)
        if arrival >= _WARMUP_SECONDS:
            waits.append(begins - arrival)
    return waits


def limit_of_theory() -> float:
    """Return the rate at which nine requests of ten wait no longer than the limit in the long run, by Erlang's C."""
    low, high = 0.0, _SERVERS / _SERVICE_SECONDS
    for _ in range(60):
        rate = (low + high) / 2
        offered = rate * _SERVICE_SECONDS
        blocked = 1.0
        for servers in range(1, _SERVERS + 1):
            blocked = offered * blocked / (servers + offered * blocked)
        waiting = blocked / (1 - offered / _SERVERS * (1 - blocked))
        over = waiting * exp(-(_SERVERS / _SERVICE_SECONDS - rate) * _LIMIT_SECONDS)
        low, high = (rate, high) if over <= 0.1 else (low, rate)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A server: whether a window keeps the limit, by its rate, and the rate to which half of the windows do."""

    keeps: Callable[[np.random.Generator, float], bool]
    truth: float
    seconds: float = 30.0
    slow_start: int = 0
    stall: int = 0


def queue(seconds: float, spread: float = 0.0) -> Callable[[np.random.Generator, float], bool]:
    """Return the law of a queue whose speed varies from window to window."""

    def keeps(chance: np.random.Generator, rate: float) -> bool:
        waits = waits_in_queue(chance, rate, seconds, exp(spread * chance.normal()))
        return sum(wait > _LIMIT_SECONDS for wait in waits) <= 0.1 * len(waits)

    return keeps


def threshold(rate: float, width: float, missing: float = 0.0) -> Callable[[np.random.Generator, float], bool]:
    """Return a law that changes at a rate, over a width relative to it; some windows miss the limit for no reason."""
    return lambda chance, at: bool(
        chance.random() >= missing and chance.random() < 1 / (1 + exp(min(500, log(at / rate) / width)))
    )


def searches() -> Table:
    """Searches from a rate of 1, by the server's law: coverage of the interval, and what they took."""
    short, truth = queue(30.0), limit_of_theory()
    laws = {
        "queue, windows of 30 s": Law(keeps=short, truth=truth),
        "queue, windows of 120 s": Law(keeps=queue(120.0), truth=truth, seconds=120.0),
        "queue, the first 5 windows miss": Law(keeps=short, truth=truth, slow_start=5),
        "queue, a stall of 3 windows": Law(keeps=short, truth=truth, stall=3),
        "queue, its speed varies by 10 %": Law(keeps=queue(30.0, 0.1), truth=truth),
        "threshold, sharp": Law(keeps=threshold(15.0, 0.002), truth=15.0),
        "threshold, 3 % wide": Law(keeps=threshold(15.0, 0.03), truth=15.0),
        "threshold, 1 of 5 windows misses at any rate": Law(keeps=threshold(15.0, 0.002, 0.2), truth=15.0),
    }
    rows = []
    for label, law in laws.items():
        chance = np.random.default_rng(32)
        held, windows, requests, widths, off = 0, [], [], [], []
        for _ in range(_TRIALS):
            low, high, middle, rates = _search(law, chance)
            held += low <= law.truth <= high
            windows.append(len(rates))
            requests.append(sum(rates) * law.seconds)
            widths.append(high / low - 1 if low else inf)
            off.append(abs(middle / law.truth - 1))
        is_open = share(sum(width == inf for width in widths), _TRIALS)
        ends = [f"{median(windows):.0f}", f"{np.quantile(windows, 0.9):.0f}", f"{median(requests):,.0f}"]
        width = f"{100 * median(widths):.0f}" if median(widths) < inf else "–"
        rows.append([label, share(held, _TRIALS), *ends, width, is_open, f"{100 * median(off):.1f}"])
    header = ["server", "coverage, %", "windows, median", "9 of 10 below", "requests, median", "width, %"]
    header += ["an end open, %", "estimate off by, %"]
    return Table(header=header, rows=rows)


def _search(law: Law, chance: np.random.Generator) -> tuple[float, float, float, list[float]]:
    """Return the interval of a search, its estimate, and the rates of its windows."""
    first = 24  # the level of rate 1
    search = Search(levels=_LEVELS, at=first, step=14, most=_MOST)
    stalls_at = int(chance.integers(3, 25))
    rates: list[float] = []
    while not search.is_over:
        number, rate = len(rates), _FACTOR ** (search.at - first)
        is_stalled = number < law.slow_start or stalls_at <= number < stalls_at + law.stall
        search.add(is_kept=law.keeps(chance, rate) and not is_stalled)
        rates.append(rate)
    low, high = search.interval()
    upper = _FACTOR ** (high - first) if high < _LEVELS else inf
    middle = _FACTOR ** (sum(search.around()) / 2 - first)
    return (_FACTOR ** (low - first) if low >= 0 else 0.0), upper, middle, rates
