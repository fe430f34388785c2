"""Metrics that the agent reports about itself, in Prometheus' text format."""

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuagent import __version__
from gpuagent.agent import Agent
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.sampling.sampler import Health

_PREFIX = "gpuagent_agent_"

# Counters with a label `source`: name, help and figure.
_SOURCE_FIGURES: tuple[tuple[str, str, Callable[[Health], float]], ...] = (
    ("reads", "Reads.", lambda health: health.reads),
    ("failures", "Reads that failed.", lambda health: health.failures),
    ("late_ticks", "Ticks that began more than half a period late.", lambda health: health.late_ticks),
    ("missed_ticks", "Ticks skipped because the one before was not done.", lambda health: health.missed_ticks),
    ("busy_seconds", "Wall time spent in reads.", lambda health: health.busy_nano / 1e9),
)


def registry_of(agent: Agent) -> CollectorRegistry:
    """Return a registry with the figures of `agent` and of its process."""
    registry = CollectorRegistry()
    registry.register(_AgentCollector(agent))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> str:
    """Return the text that Prometheus reads."""
    return generate_latest(registry).decode()


class _AgentCollector(Collector):
    """The figures of one agent, read at each scrape."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """Yield each family with its present figures."""
        agent = self._agent
        about = {"version": __version__, "platform": agent.config.platform, "node_uuid": agent.node_uuid}
        info = GaugeMetricFamily(f"{_PREFIX}info", "Version and identity of the agent.", labels=list(about))
        info.add_metric(list(about.values()), 1)
        yield info
        sources = agent.sources
        for name, help_text, figure in _SOURCE_FIGURES:
            family = CounterMetricFamily(f"{_PREFIX}source_{name}", help_text, labels=["source"])
            for source, health in sources.items():
                family.add_metric([source], figure(health))
            yield family
        yield from self._spool_figures()
        tally = agent.uplink.tally
        yield _counter("messages_sent", "Messages sent, repetitions included.", tally.sent_messages)
        yield _counter("messages_acknowledged", "Messages that a collector has stored.", tally.acknowledged_messages)
        yield _counter("messages_rejected", "Messages that a collector rejected.", tally.rejected_messages)
        yield _counter("connections", "Streams that a collector welcomed.", tally.connections)
        yield _counter("connection_failures", "Streams that ended with an error, or never began.", tally.failures)
        yield _gauge("connected", "1 while a collector has welcomed the agent, else 0.", agent.uplink.connected)
        yield _counter("flushes", "Flushes of rows to the spool.", agent.flushes)

    def _spool_figures(self) -> Iterator[Metric]:
        """Yield nothing if the spool cannot be read: an old figure would be wrong."""
        try:
            extent = self._agent.spool.extent()
        except SpoolError:
            return
        yield _gauge("spool_messages", "Messages in the spool.", extent.messages)
        yield _gauge("spool_bytes", "Size of the messages in the spool.", extent.size_bytes)
        yield _gauge("spool_limit_bytes", "Size at which the oldest samples are dropped.", extent.limit_bytes)
        if extent.oldest_unix_nano is not None:
            age_seconds = time.time() - extent.oldest_unix_nano / 1e9
            yield _gauge("spool_oldest_age_seconds", "Age of the oldest sample in the spool.", age_seconds)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", help_text, value=value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", help_text, value=value)
