"""The sampler: reads the sources at fixed deadlines that no slow call, disk or network delays.

Each has the agent's `--rate` (`cli/options.py`), or its own `max_rate_hz` where that is lower.
"""

import contextlib
import logging
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuagent.clock import Clock, Instant
from gpuagent.errors import SourceError
from gpuagent.sampling.rows import RecordBuffer, SourceReadings
from gpuagent.sources.source import Reading, Source, Value

_LOG = logging.getLogger(__name__)

# The interval of a sampler's reports about its sources.
REPORT_SECONDS = 10.0

# A wall clock was set if it moved this much more or less than the monotonic one.
CLOCK_STEP_NANO = 500_000_000


@dataclass(slots=True)
class Health:
    """Counts of one source's reads since the last report, or since the agent started."""

    reads: int = 0
    failures: int = 0
    late_ticks: int = 0
    missed_ticks: int = 0
    busy_nano: int = 0
    error: str | None = None

    def add(self, other: "Health") -> None:
        """Add the other counts."""
        self.reads += other.reads
        self.failures += other.failures
        self.late_ticks += other.late_ticks
        self.missed_ticks += other.missed_ticks
        self.busy_nano += other.busy_nano
        self.error = other.error or self.error


@dataclass(slots=True, kw_only=True)
class _Member:
    source: Source
    read: Callable[[Instant], Iterable[Reading]]
    every: int
    health: Health = field(default_factory=Health)
    reported: Health = field(default_factory=Health)
    # Of a source that fails: the start of the gap that is not recorded yet, and the last error.
    failing: tuple[int, str] | None = None


class Sampler:
    """A reader of the sources of one lane at one rate, each as often as it allows, in a thread of its own.

    One sampler of an agent watches the wall clock for being set.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        rate_hz: float,
        clock: Clock,
        buffer: RecordBuffer,
        watches_clock: bool = True,
    ) -> None:
        self.name = f"{sources[0].lane.value} sampler" if sources else "sampler"
        self._watches_clock = watches_clock
        self._rate_hz = min(rate_hz, max((source.max_rate_hz for source in sources), default=rate_hz))
        self._members = [
            _Member(source=source, read=source.read, every=max(1, math.ceil(self._rate_hz / source.max_rate_hz)))
            for source in sources
        ]
        # Between two of these ticks only those are due that follow the lane's own rate.
        self._whole = math.gcd(*(member.every for member in self._members if member.every > 1)) or 1
        self._often = [member for member in self._members if member.every == 1]
        self._clock = clock
        self._buffer = buffer
        self._ticks_a_report = max(1, round(REPORT_SECONDS * self._rate_hz))

    def run(self, stop: threading.Event) -> None:
        """Sample until `stop` is set."""
        period_nano = round(1e9 / self._rate_hz)
        previous = self._clock.now()
        start_nano = ended_nano = previous.monotonic_nano
        tick = 0
        while not stop.wait(max(0, start_nano + tick * period_nano - ended_nano) / 1e9):
            now = self._clock.now()
            if abs(now.unix_nano - previous.unix_nano - now.monotonic_nano + previous.monotonic_nano) > CLOCK_STEP_NANO:
                step = (now.unix_nano - previous.unix_nano) - (now.monotonic_nano - previous.monotonic_nano)
                if self._watches_clock:
                    self._add_gap(
                        now, previous.unix_nano, "clock_step", detail=f"the wall clock moved by {step / 1e9:+.3f} s"
                    )
            due = self._often
            if tick % self._whole == 0:
                due = [member for member in self._members if tick % member.every == 0]
            if now.monotonic_nano - start_nano - tick * period_nano > period_nano // 2:
                for member in due:
                    member.health.late_ticks += 1
            ended_nano = self._tick(due, now)
            if tick and tick % self._ticks_a_report == 0:
                self._report(now)
            # Those that are over already are missed.
            following = max(tick + 1, (ended_nano - start_nano) // period_nano)
            for member in self._members if following > tick + 1 else ():
                missed = range(-(-(tick + 1) // member.every), -(-following // member.every))
                member.health.missed_ticks += len(missed)
            tick = following
            previous = now
        now = self._clock.now()
        for member in self._members:
            self._note_recovery(member, now)
            member.source.close()
        self._report(now)

    def totals(self) -> dict[str, Health]:
        """Return the counts of each source up to the last report."""
        return {member.source.name: member.reported for member in self._members}

    def _tick(self, due: Iterable[_Member], now: Instant) -> int:
        """Read `due` once; return the monotonic time of the end in nanoseconds."""
        readings: list[SourceReadings] = []
        ended_nano = now.monotonic_nano
        for member in due:
            read: list[Reading] = []  # those before a failure count, such as of the GPUs that remain
            try:
                read.extend(member.read(now))
            except Exception as error:  # noqa: BLE001
                message = str(error)
                if not isinstance(error, SourceError):
                    # A bug in one source must not stop the others; it is reported like a failed reading.
                    _LOG.error("source %s", member.source.name, exc_info=error)
                    message = f"{type(error).__name__}: {error}"
                member.health.failures += 1
                member.health.error = message
                if member.failing is None:
                    _LOG.warning("source %s failed: %s", member.source.name, message)
                since_unix_nano, _ = member.failing or (now.unix_nano, "")
                member.failing = (since_unix_nano, message)
            else:
                if member.failing:
                    self._note_recovery(member, now)
            if read:
                readings.append((member.source.name, read))
            started_nano, ended_nano = ended_nano, self._clock.now().monotonic_nano
            health = member.health
            health.reads += 1
            health.busy_nano += ended_nano - started_nano
        if readings:
            self._buffer.add_tick(now.unix_nano, readings)
        return ended_nano

    def _note_recovery(self, member: _Member, now: Instant) -> None:
        self._record_failure(member, now)
        member.failing = None

    def _record_failure(self, member: _Member, now: Instant) -> None:
        """Record the missing time so far as a gap; the next begins now."""
        if member.failing:
            since_unix_nano, error = member.failing
            self._add_gap(now, since_unix_nano, "source_failed", source=member.source.name, detail=error)
            member.failing = (now.unix_nano, error)

    def _add_gap(
        self, now: Instant, from_unix_nano: int, reason: str, *, detail: str | None, source: str | None = None
    ) -> None:
        # A clock that was set back makes now the earlier of the two.
        start, end = sorted((from_unix_nano, now.unix_nano))
        row: dict[str, Value] = {
            "time": now.unix_nano,
            "from_time": start,
            "to_time": end,
            "source": source,
            "reason": reason,
            "detail": detail,
        }
        self._buffer.add_record("gaps", row)

    def _report(self, now: Instant) -> None:
        rows: list[dict[str, Value]] = []
        for member in self._members:
            health = member.health
            rows.append(
                {
                    "time": now.unix_nano,
                    "source": member.source.name,
                    "rate_hz": self._rate_hz / member.every,
                    "reads": health.reads,
                    "failures": health.failures,
                    "late_ticks": health.late_ticks,
                    "missed_ticks": health.missed_ticks,
                    "busy_seconds": health.busy_nano / 1e9,
                    "error": health.error,
                }
            )
            member.reported.add(health)
            member.health = Health()
            # A source may never recover, and a run that ended meanwhile must show its gap.
            self._record_failure(member, now)
        self._buffer.add_samples("source_samples", rows)


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
