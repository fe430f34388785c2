"""The cost of reading each source on this node."""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent.clock import Clock, Instant
from gpuagent.errors import SourceError
from gpuagent.sources.source import Source

ROUNDS = 10
# Between rounds, so that caches are as cold as when the agent samples.
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one source: means over the readings, some of which do more than others."""

    source: str
    rate_hz: float
    # Both of one reading; CPU time includes the kernel's part.
    wall_seconds: float
    cpu_seconds: float

    @property
    def cpu_percent(self) -> float:
        """Return the share of one core, in percent."""
        return 100 * self.cpu_seconds * self.rate_hz


def measure_costs(sources: Sequence[Source], rate_hz: float, clock: Clock) -> list[Cost]:
    """Read all sources in turn for about a second; `rate_hz` is the agent's, as `--rate` sets it.

    Each reading is dated a period of its source after the one before. So rare work falls on as many readings as in the
    agent. The first reading, which sets things up, does not count.
    """
    rates_hz = {source.name: min(rate_hz, source.max_rate_hz) for source in sources}
    spent: dict[str, list[tuple[int, int]]] = {source.name: [] for source in sources}
    start = clock.now()
    for round_number in range(1 + ROUNDS):
        time.sleep(PAUSE_SECONDS)
        for source in sources:
            nano = round(1e9 * round_number / rates_hz[source.name])
            now = Instant(unix_nano=start.unix_nano + nano, monotonic_nano=start.monotonic_nano + nano)
            wall_nano, cpu_nano = time.perf_counter_ns(), time.thread_time_ns()
            with contextlib.suppress(SourceError):
                list(source.read(now))
            spent[source.name].append((time.perf_counter_ns() - wall_nano, time.thread_time_ns() - cpu_nano))
    costs: list[Cost] = []
    for name, readings in spent.items():
        walls, cpus = zip(*readings[1:], strict=True)
        wall_seconds, cpu_seconds = statistics.mean(walls) / 1e9, statistics.mean(cpus) / 1e9
        costs.append(Cost(source=name, rate_hz=rates_hz[name], wall_seconds=wall_seconds, cpu_seconds=cpu_seconds))
    return costs
