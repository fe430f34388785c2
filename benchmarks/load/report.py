"""The report of a load run, as a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.load.agents import Tally
from benchmarks.load.peer import SECONDS, Peer
from benchmarks.load.plan import Kind, SimulatedNode, Timeline
from benchmarks.load.site import Reading
from benchmarks.load.verify import Verdict


@dataclass(slots=True, kw_only=True)
class Measured:
    """The measurements of a load run; times are of the monotonic clock."""

    timeline: Timeline
    nodes: Sequence[SimulatedNode]
    # From the agents' start until all were connected, for the first time.
    connected_seconds: float = 0.0
    # When the agents began to sample.
    began_seconds: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    # From the collector's end until all agents that were not stalled had come back.
    reconnected_seconds: float = 0.0
    # From the last sample until everything was acknowledged.
    drained_seconds: float = 0.0
    tallies: Mapping[int, Tally] = field(default_factory=dict)

    def of_kind(self, *kinds: Kind) -> Sequence[Tally]:
        """Return the fates of the agents of these kinds."""
        return [self.tallies[node.index] for node in self.nodes if node.kind in kinds]

    def paces(self, start: float, stop: float) -> Sequence[float]:
        """Return the flush intervals set in a stretch of time, in seconds after the start."""
        return [pace for tally in self.tallies.values() for at, pace in tally.paces if start <= self._at(at) < stop]

    def readings_in(self, start: float, stop: float) -> Sequence[Reading]:
        """Return the readings of a stretch of time."""
        return [each for each in self.readings if start <= self._at(each.at_seconds) < stop]

    def _at(self, monotonic_seconds: float) -> float:
        return monotonic_seconds - self.began_seconds

    def latencies(self, tallies: Iterable[Tally], start: float, stop: float) -> NDArray[Any]:
        """Return the seconds to the acknowledgement of what was sent in a stretch of time, sorted."""
        pairs = [(np.frombuffer(each.sent_at_seconds), np.frombuffer(each.latency_seconds)) for each in tallies]
        within = [
            latencies[(sent >= self.began_seconds + start) & (sent < self.began_seconds + stop)]
            for sent, latencies in pairs
        ]
        return np.sort(np.concatenate(within)) if within else np.empty(0)

    def rows_per_second(self, start: float, stop: float) -> float:
        """Return the acknowledged rows of all agents, by time of sending."""
        total = 0
        for each in self.tallies.values():
            sent = np.frombuffer(each.sent_at_seconds) - self.began_seconds
            total += int(np.frombuffer(each.rows, np.int64)[(sent >= start) & (sent < stop)].sum())
        return total / (stop - start)


# The goals of 1,000 agents with a message a second each, on two quiet cores.
MOST_CPU_PERCENT = 70.0
_GOALS = {
    "messages a second": "one of each agent",
    "collector: CPU, of one core": f"at most {MOST_CPU_PERCENT:.0f} %",
    "collector: memory a minute": "0",
}


def table(measured: Measured, peer: Peer | None) -> Table:
    """Return the table: goals, a column for each stretch, and VictoriaMetrics at a message a second of each agent."""
    theirs = (
        {
            "messages a second": f"{peer.messages_per_second:,.0f}",
            "collector: CPU, of one core": f"{peer.cpu_percent:.0f} %",
            "collector: memory, median": f"{peer.rss_mib:,.0f} MiB",
            "seconds": f"{SECONDS}",
        }
        if peer
        else {"seconds": "not installed"}
    )
    stretches = measured.timeline.stretches
    shown = Table(show_edge=False)
    titles = (_title(measured), "goal of 1,000 agents", *stretches, "VictoriaMetrics")
    for name in titles:
        shown.add_column(name, justify="left" if name == titles[0] else "right")
    columns = [_column(measured, *stretch) for stretch in stretches.values()]
    for name in columns[0]:
        shown.add_row(name, _GOALS.get(name, "–"), *(column[name] for column in columns), theirs.get(name, "–"))
    return shown


def _title(measured: Measured) -> str:
    period_micros = measured.nodes[0].period_micros
    gpus = sum(node.gpus for node in measured.nodes)
    return f"{len(measured.nodes):,} agents, {gpus:,} GPUs, {1e6 / period_micros:g} Hz"


def _column(measured: Measured, start: float, stop: float) -> dict[str, str]:
    healthy = measured.latencies(measured.of_kind(Kind.HEALTHY), start, stop)
    troubled = measured.latencies(measured.of_kind(Kind.SLOW, Kind.STALLED), start, stop)
    readings = measured.readings_in(start, stop)
    everybody = len(healthy) + len(troubled)
    return {
        "seconds": f"{start:,.0f} to {stop:,.0f}",
        "messages a second": f"{everybody / (stop - start):,.0f}",
        "rows a second": f"{measured.rows_per_second(start, stop):,.0f}",
        "healthy: sent to acknowledged, median": _seconds(healthy, 0.5),
        "healthy: 99th percentile": _seconds(healthy, 0.99),
        "healthy: longest": _seconds(healthy, 1.0),
        "the others: median": _seconds(troubled, 0.5),
        "the others: 99th percentile": _seconds(troubled, 0.99),
        "collector: CPU, of one core": _cpu(readings),
        "collector: memory, median": f"{median(each.rss_mib for each in readings):,.0f} MiB" if readings else "–",
        "collector: memory, mean": f"{fmean(each.rss_mib for each in readings):,.1f} MiB" if readings else "–",
        "collector: memory a minute": _slope(readings),
        "collector: files open, most": f"{max((each.files for each in readings), default=0):,}",
        "told to flush more seldom": f"{sum(pace > 1 for pace in measured.paces(start, stop)):,} times",
    }


def _seconds(latencies: NDArray[Any], share: float) -> str:
    return f"{np.quantile(latencies, share):.3f} s" if len(latencies) else "–"


def _cpu(readings: Sequence[Reading]) -> str:
    if len(readings) < 2:
        return "–"
    first, last = readings[0], readings[-1]
    percent = 100 * (last.cpu_seconds - first.cpu_seconds) / (last.at_seconds - first.at_seconds)
    return f"{percent:.0f} %{', **missed**' if percent > MOST_CPU_PERCENT else ''}"


def _slope(readings: Sequence[Reading]) -> str:
    """Return the growth of memory, by least squares."""
    if len(readings) < 2:
        return "–"
    minutes = [each.at_seconds / 60 for each in readings]
    slope = np.polyfit(np.array(minutes) - minutes[0], [each.rss_mib for each in readings], 1)[0]
    return f"{slope:+.2f} MiB"


def remarks(measured: Measured, verdict: Verdict) -> Sequence[str]:
    """Return the figures of the whole run, one per line."""
    rejected = sum(len(each.rejections) for each in measured.tallies.values())
    return [
        f"All agents connected in {measured.connected_seconds:.1f} s"
        + ("." if measured.timeline.calm else f", and again {measured.reconnected_seconds:.1f} s after the kill."),
        f"Everything was acknowledged {measured.drained_seconds:.1f} s after the last sample.",
        f"{verdict.rows:,} rows acknowledged: {verdict.lost:,} lost, {verdict.duplicated:,} duplicated, "
        f"{verdict.gaps:,} gaps, {rejected:,} rejected.",
        f"Store: {verdict.store_bytes / 2**20:,.0f} MiB.",
    ]
