"""What it costs to read each source on this node."""

import contextlib
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent.clock import Clock, Instant
from gpuagent.errors import SourceError
from gpuagent.sources.source import Source

ROUNDS = 10
# Between rounds, so that caches are as cold as they are when the agent samples.
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one source costs: means over the readings, of which some do more than others."""

    source: str
    rate_hz: float
    # Of one reading.
    wall_seconds: float
    # Of one reading, the kernel's part included.
    cpu_seconds: float

    @property
    def cpu_percent(self) -> float:
        """Of one core."""
        return 100 * self.cpu_seconds * self.rate_hz


def measure_costs(sources: Sequence[Source], rate_hz: float, clock: Clock) -> list[Cost]:
    """Read all sources in turn for about a second; `rate_hz` is the agent's, as `--rate` gives it.

    A source is told that its own period has passed since the reading before, so that what it does only every few
    seconds falls on as many readings as it does in the agent. The first reading, which sets things up, does not count.
    """
    rates_hz = {source.name: min(rate_hz, source.max_rate_hz) for source in sources}
    spent: dict[str, list[tuple[int, int]]] = {source.name: [] for source in sources}
    start = clock.now()
    for round_number in range(1 + ROUNDS):
        time.sleep(PAUSE_SECONDS)
        for source in sources:
            spent[source.name].append(_read(source, _later(start, round_number / rates_hz[source.name])))
    return [_cost(source, rates_hz[source.name], spent[source.name][1:]) for source in sources]


def _later(start: Instant, seconds: float) -> Instant:
    nano = round(1e9 * seconds)
    return Instant(unix_nano=start.unix_nano + nano, monotonic_nano=start.monotonic_nano + nano)


def _read(source: Source, now: Instant) -> tuple[int, int]:
    """Return the wall time and the CPU time of one reading in nanoseconds; a failed one costs as well."""
    wall_nano, cpu_nano = time.perf_counter_ns(), time.thread_time_ns()
    with contextlib.suppress(SourceError):
        list(source.read(now))
    return time.perf_counter_ns() - wall_nano, time.thread_time_ns() - cpu_nano


def _cost(source: Source, rate_hz: float, spent: Iterable[tuple[int, int]]) -> Cost:
    walls, cpus = zip(*spent, strict=True)
    return Cost(
        source=source.name,
        rate_hz=rate_hz,
        wall_seconds=statistics.mean(walls) / 1e9,
        cpu_seconds=statistics.mean(cpus) / 1e9,
    )
