"""What the agent tells of itself, in Prometheus' text format (version 0.0.4)."""

import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent import __version__
from gpuagent.agent import Agent
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.delivery.stream import Tally
from gpuagent.sampling.sampler import Health

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure of a family."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Figures of one name, which ends in `_total` for a counter; without samples it is left out."""

    name: str
    help: str
    samples: Iterable[Sample]


def exposition(families: Iterable[Family]) -> str:
    """Return the text that Prometheus reads."""
    return "".join(_lines(family) for family in families)


def families(agent: Agent) -> Iterator[Family]:
    """Yield everything that the agent tells of itself."""
    about = {"version": __version__, "platform": agent.config.platform, "node_uuid": agent.node_uuid}
    yield Family(name="gpuagent_agent_info", help="Who it is.", samples=[Sample(value=1, labels=about)])
    yield from _of_sources(agent.sources)
    yield from _of_spool(agent)
    yield from _of_delivery(agent.uplink.tally)
    yield _one("connected", "1 if a collector has welcomed it on the present stream, else 0.", agent.uplink.connected)
    yield _one("flushes_total", "How often rows went to the spool.", agent.flushes)
    yield from _of_process()


def _of_sources(sources: Mapping[str, Health]) -> Iterator[Family]:
    def family(name: str, help_text: str, figures: Mapping[str, float]) -> Family:
        samples = [Sample(value=value, labels={"source": source}) for source, value in figures.items()]
        return Family(name=f"gpuagent_agent_source_{name}_total", help=help_text, samples=samples)

    yield family("reads", "Reads.", {name: each.reads for name, each in sources.items()})
    yield family("failures", "Reads that failed.", {name: each.failures for name, each in sources.items()})
    late = {name: each.late_ticks for name, each in sources.items()}
    yield family("late_ticks", "Ticks that began more than half a period late.", late)
    missed = {name: each.missed_ticks for name, each in sources.items()}
    yield family("missed_ticks", "Ticks left out because the one before was not done.", missed)
    busy = {name: each.busy_nano / 1e9 for name, each in sources.items()}
    yield family("busy_seconds", "Wall time spent in reads.", busy)


def _of_spool(agent: Agent) -> Iterator[Family]:
    """Yield nothing where the spool cannot be read: an old figure would be wrong."""
    try:
        extent = agent.spool.extent()
    except SpoolError:
        return
    yield _one("spool_messages", "Messages in the spool.", extent.messages)
    yield _one("spool_bytes", "What they take.", extent.size_bytes)
    yield _one("spool_limit_bytes", "What they may take before the oldest samples go.", extent.limit_bytes)
    if extent.oldest_unix_nano is not None:
        age = time.time() - extent.oldest_unix_nano / 1e9
        yield _one("spool_oldest_age_seconds", "How long ago the oldest of it was sampled.", age)


def _of_delivery(tally: Tally) -> Iterator[Family]:
    yield _one("messages_sent_total", "Messages sent, those that were sent again as well.", tally.sent_messages)
    yield _one("messages_acknowledged_total", "Messages it need not keep any more.", tally.acknowledged_messages)
    yield _one("messages_rejected_total", "Messages that a collector refused.", tally.rejected_messages)
    yield _one("connections_total", "Streams that a collector welcomed.", tally.connections)
    yield _one("connection_failures_total", "Streams that ended with an error, or never began.", tally.failures)


def _of_process() -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    yield Family(name="process_cpu_seconds_total", help="CPU time of the agent.", samples=[Sample(value=cpu)])
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    rss = Sample(value=pages * resource.getpagesize())
    yield Family(name="process_resident_memory_bytes", help="Memory of the agent.", samples=[rss])


def _one(name: str, help_text: str, value: float) -> Family:
    return Family(name=f"gpuagent_agent_{name}", help=help_text, samples=[Sample(value=value)])


def _lines(family: Family) -> str:
    samples = [f"{family.name}{_labels(sample.labels)} {float(sample.value)!r}\n" for sample in family.samples]
    if not samples:
        return ""
    kind = "counter" if family.name.endswith("_total") else "gauge"
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n{''.join(samples)}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
