"""Metrics of ingest. The writer's thread counts; other threads may read at any time."""

from collections.abc import Callable, Sequence

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from gpuagent_collector.ingest.committer import Receipt
from gpuagent_collector.ingest.messages import Verdict

# Bounds of the histograms: commits take milliseconds, and 30 s is the longest pause after a failed one.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class IngestInstruments:
    """Counters since the start of the process, in no registry of their own."""

    def __init__(self, *, queued_bytes: Callable[[], int], queue_limit_bytes: int) -> None:
        """Take a function for the bytes that wait for the writer, and their limit."""
        self._messages = Counter(
            "gpuagent_ingest_messages",
            "Messages from agents by what became of them: committed, duplicate (had been committed before), rejected, "
            "disowned (their agent had gone to another collector).",
            ["outcome"],
            registry=None,
        )
        self._rows = Counter(
            "gpuagent_ingest_rows", "Rows that agents sent and that were committed.", ["table"], registry=None
        )
        self._commit_seconds = Histogram(
            "gpuagent_ingest_commit_seconds",
            "Time to decode and commit one group of messages, failed attempts included.",
            buckets=_SECONDS,
            registry=None,
        )
        self._lag_seconds = Histogram(
            "gpuagent_ingest_lag_seconds",
            "Time from the arrival of a group's oldest message to its commit.",
            buckets=_SECONDS,
            registry=None,
        )
        self._failures = Counter(
            "gpuagent_ingest_commit_failures", "Commits that failed and were tried again.", registry=None
        )
        self._queued = Gauge("gpuagent_ingest_queued_bytes", "Records that wait for the writer.", registry=None)
        self._queued.set_function(queued_bytes)
        self._limit = Gauge(
            "gpuagent_ingest_queue_limit_bytes", "Queued records beyond which agents have to wait.", registry=None
        )
        self._limit.set(queue_limit_bytes)
        for verdict in Verdict:  # so that a rate exists before the first message of its kind
            self._messages.labels(verdict.value)

    def collectors(self) -> Sequence[Collector]:
        """Return all metrics, for a registry."""
        return (
            self._messages,
            self._rows,
            self._commit_seconds,
            self._lag_seconds,
            self._failures,
            self._queued,
            self._limit,
        )

    def committed(self, receipt: Receipt, *, commit_seconds: float, lag_seconds: float) -> None:
        """Count a group of messages that is done."""
        for outcome in receipt.outcomes:
            self._messages.labels(outcome.verdict.value).inc()
        for table, rows in receipt.rows.items():
            self._rows.labels(table).inc(rows)
        self._commit_seconds.observe(commit_seconds)
        self._lag_seconds.observe(lag_seconds)

    def failed(self) -> None:
        """Count a commit that failed."""
        self._failures.inc()
