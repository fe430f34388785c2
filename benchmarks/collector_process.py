"""A collector in a process of its own, and its /metrics."""

import re
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.ingest.ours import Stream
from gpuagent_common.address import Address
from tests.support.http import basic, fetch
from tests.support.servers import Node, until

_COMMITS = "gpuagent_ingest_commit_seconds"
_BOUND = "le"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The collector's histogram of its commits.

    Attributes:
        upper_seconds: bounds of its buckets, the last infinite.
        counts: commits up to each bound.
        total_seconds: of all commits together.
    """

    upper_seconds: tuple[float, ...]
    counts: tuple[float, ...]
    total_seconds: float

    @property
    def count(self) -> int:
        """The number of commits."""
        return int(self.counts[-1])

    def __add__(self, other: "Commits") -> "Commits":
        return Commits(
            upper_seconds=self.upper_seconds,
            counts=tuple(ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)),
            total_seconds=self.total_seconds + other.total_seconds,
        )

    def quantile_seconds(self, share: float) -> float:
        """Return a quantile of the commit times, as Prometheus' histogram_quantile does."""
        wanted = share * self.counts[-1]
        edges = list(zip((0.0, *self.upper_seconds), (0.0, *self.counts), strict=True))
        for (low, before), (high, until_here) in pairwise(edges):
            if until_here >= wanted:
                return low if high == float("inf") else low + (high - low) * (wanted - before) / (until_here - before)
        raise AssertionError("the last bucket holds all")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorProcess:
    """A running collector."""

    address: str
    http: Address
    token_file: Path
    process: "subprocess.Popen[str]"

    def stream(self, node: int) -> Stream:
        """Return a sender of a node's messages."""
        return Stream(address=self.address, token_file=self.token_file, node_uuid=f"node {node}")

    def commits(self) -> Commits:
        """Return its commits so far."""
        token = self.token_file.read_text().split()[0]
        text = fetch(self.http, "/metrics", basic(token)).text
        family = next(each for each in text_string_to_metric_families(text) if each.name == _COMMITS)
        buckets = [sample for sample in family.samples if _BOUND in sample.labels]
        total = next(sample.value for sample in family.samples if sample.name == f"{_COMMITS}_sum")
        return Commits(
            upper_seconds=tuple(float(sample.labels[_BOUND]) for sample in buckets),
            counts=tuple(sample.value for sample in buckets),
            total_seconds=total,
        )


def start_collector(node: Node, *options: str, log: str = "collector.log") -> CollectorProcess:
    """Start `collector serve` in the node's folder, and wait until it listens."""
    command = ("collector", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options)
    process = node.start(*command, log=log)
    file = node.folder / log
    found = until(lambda: _addresses(file, process), "a collector")
    return CollectorProcess(
        address=found[0],
        http=Address.parse(found[1]),
        token_file=Path(node.environment["GPUAGENT_TOKEN_FILE"]),
        process=process,
    )


def _addresses(log: Path, process: "subprocess.Popen[str]") -> list[str] | None:
    text = log.read_text()
    assert process.poll() is None, text
    found = re.findall(r"127\.0\.0\.1:\d+", text)
    return found if len(found) > 1 else None
