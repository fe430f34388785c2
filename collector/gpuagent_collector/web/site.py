"""The pages that a collector serves, and their sources."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client.registry import Collector

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.watch.snapshot import take_snapshot
from gpuagent_collector.web.jobs import Jobs
from gpuagent_collector.web.layout import Page, text
from gpuagent_collector.web.metrics import IDLE_SQL, Metrics
from gpuagent_collector.web.nodes import Nodes
from gpuagent_collector.web.overview import answer_overview
from gpuagent_collector.web.runs import Reports, Runs

Value = TypeVar("Value")


class Cached(Generic[Value]):
    """A value that a function returns, renewed at most once a period; concurrent callers wait for one call."""

    def __init__(
        self, make: Callable[[], Value], *, keep_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the function, and the time for which its value is valid; exceptions are not kept."""
        self._make = make
        self._keep_seconds = keep_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: tuple[float, Value] | None = None

    def get(self) -> Value:
        """Return the value, renewed when it is too old; raise what the function raises."""
        with self._lock:
            if self._made is None or self._monotonic() - self._made[0] >= self._keep_seconds:
                value = self._make()
                self._made = self._monotonic(), value
            return self._made[1]


# Agents send every second: a newer snapshot would hardly differ.
_KEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of the answers.

    Attributes:
        ask: reads the store; any thread may call it.
        store: the store's name for people.
        instruments: metrics of the collector itself; None: they are not shown.
        is_ready: returns whether the collector accepts what agents send.
        trouble: returns why nothing can be stored at present; empty: it can.
    """

    ask: Ask
    store: str
    instruments: Iterable[Collector] | None
    is_ready: Callable[[], bool]
    trouble: Callable[[], str] = str


def pages(sources: Sources) -> Sequence[Page]:
    """Return every page, one line each."""
    snapshot = Cached(lambda: take_snapshot(sources.ask, lambda: sources.trouble() or None), keep_seconds=_KEEP_SECONDS)
    runs, jobs = Runs(sources.ask, source=sources.store), Jobs(sources.ask, source=sources.store)
    metrics = Metrics(snapshot.get, sources.instruments, find_idle=lambda: sources.ask(IDLE_SQL))
    return (
        Page(path="/", answer=lambda query: answer_overview(snapshot.get(), query, source=sources.store)),
        Page(path="/report", answer=Reports(sources.ask, source=sources.store).answer),
        Page(path="/nodes/", answer=Nodes(sources.ask, source=sources.store).answer),
        Page(path="/runs", answer=runs.answer_list),
        Page(path="/runs/", answer=runs.answer),
        Page(path="/jobs", answer=jobs.answer_list),
        Page(path="/jobs/", answer=jobs.answer),
        Page(path="/idle", answer=jobs.answer_idle),
        Page(path="/metrics", answer=metrics.answer),
        Page(path="/healthz", answer=lambda _: text("ok"), needs_token=False),
        Page(
            path="/readyz",
            answer=lambda _: text("ok") if sources.is_ready() else text("not ready", status=503),
            needs_token=False,
        ),
    )
