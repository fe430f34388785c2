"""The figures of a load, latency, goodput and tokens a second, and the server's own: its /metrics while the load is on.

Figures are pooled over all requests of all clients, from the time at which each was to be sent. A percentile is taken
over the measured requests that succeeded, and goodput counts the others as missed. Rates are of what arrived within the
measured time, from whatever request, so that they fit the energy of that time."""

import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path
from statistics import fmean
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.clients import Log, Record, Window
from gpuagent_workloads.suite.serve_load.exchange import Endpoint

_PERCENTILES = (50, 90, 99)

# A client this late, and by more than a tenth of the median time to the first token, measures itself.
_LATE_SECONDS = 0.005
_LATE_SHARE = 0.1

# Of what a server says.
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The times of one request that succeeded, in seconds; times a token, None: it had one token only."""

    ttft: float
    tpot: float | None
    e2e: float
    input_tokens: int
    output_tokens: int

    def is_good(self, config: Config) -> bool:
        """Return whether it keeps all given limits."""
        limits = ((self.ttft, config.slo_ttft), (self.tpot, config.slo_tpot), (self.e2e, config.slo_e2e))
        return all(limit is None or seconds is None or 1000 * seconds <= limit for seconds, limit in limits)


def latency_of(record: Record) -> Latency | None:
    """Return the times of a request; None: it failed."""
    if record.error or record.answer is None:
        return None
    first, last = record.answer.token_seconds[0], record.answer.token_seconds[-1]
    made = record.answer.usage.get("completion_tokens") or len(record.answer.token_seconds)
    return Latency(
        ttft=first - record.intended,
        tpot=(last - first) / (made - 1) if made > 1 else None,
        e2e=last - record.intended,
        input_tokens=record.answer.usage.get("prompt_tokens") or record.asked_input,
        output_tokens=made,
    )


def quantile(values: Iterable[float], percent: float) -> float | None:
    """Return a percentile, by linear interpolation between the two nearest values; None for no values."""
    every = list(values)
    return float(np.percentile(every, percent)) if every else None


def output_rate(records: Sequence[Record], window: Window) -> float:
    """Return the tokens a second that arrived within the window."""
    tokens = 0.0
    for record in records:
        if record.answer and record.answer.token_seconds:
            times = record.answer.token_seconds
            # An event may have several tokens; the server's count is known once an answer is complete.
            each = (record.answer.usage.get("completion_tokens") or len(times)) / len(times)
            tokens += each * sum(1 for at_seconds in times if window.measure_from <= at_seconds < window.measure_to)
    return tokens / (window.measure_to - window.measure_from)


def report_figures(log: Log, window: Window, config: Config, reporter: Reporter, *, was_limited: bool = False) -> bool:
    """Report every figure of a load; return whether the clients were its limit, or that of a search before.

    Raises WorkloadError: no measured request succeeded.
    """
    seconds = window.measure_to - window.measure_from
    measured = [record for record in log.records if record.is_measured]
    latencies = [latency for record in measured if (latency := latency_of(record))]
    errors = Counter(record.error for record in measured if record.error)
    if not latencies:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in errors.most_common())
        said = next((record.answer.error for record in measured if record.answer and record.answer.error), "")
        kinds += f"; the server said: {said[:_MOST_CHARACTERS]}" if said else ""
        raise WorkloadError(f"no measured request succeeded: {kinds or 'none was sent; give more duration or rate'}")
    in_time = [record for record in log.records if window.measure_from <= record.ended < window.measure_to]
    answered = [latency for record in in_time if (latency := latency_of(record))]
    for name, value, unit in (
        ("throughput", output_rate(log.records, window), "tokens/s"),
        ("input_tokens_per_second", sum(each.input_tokens for each in answered) / seconds, "tokens/s"),
        ("requests_per_second", len(answered) / seconds, "requests/s"),
        ("offered_requests_per_second", len(measured) / seconds, "requests/s"),
    ):
        reporter.result(name, value, unit=unit, phase="measure")
    times = {
        "ttft": [each.ttft for each in latencies],
        "tpot": [each.tpot for each in latencies if each.tpot is not None],
        "e2e": [each.e2e for each in latencies],
    }
    for name, values in times.items():
        for percent in _PERCENTILES:
            if (found := quantile(values, percent)) is not None:
                reporter.result(f"{name}_p{percent}_seconds", found, unit="s")
    if any(limit is not None for limit in (config.slo_ttft, config.slo_tpot, config.slo_e2e)):
        good = sum(1 for latency in latencies if latency.is_good(config))
        reporter.result("goodput", good / seconds, unit="requests/s", phase="measure")
        reporter.result("goodput_percent", 100 * good / len(measured), unit="%")
    reporter.result("requests", len(measured))
    reporter.result("request_errors", sum(errors.values()))
    for kind, count in errors.items():
        reporter.result(f"errors_{kind}", count)
    reporter.result("input_tokens_mean", sum(each.input_tokens for each in latencies) / len(latencies))
    reporter.result("output_tokens_mean", sum(each.output_tokens for each in latencies) / len(latencies))
    reporter.result("client_lag_p99_seconds", client_lag(log, config), unit="s")
    is_limited = was_limited or is_client_limited(log, config)
    reporter.result("client_limited", int(is_limited))
    return is_limited


def client_lag(log: Log, config: Config) -> float:
    """Return how late the clients were, in seconds: the 99th percentile of their looks, or of what they sent."""
    # In a closed loop nothing is intended before it is sent.
    sends = [record.sent - record.intended for record in log.records if record.is_measured and not config.concurrency]
    return max(quantile(values, 99) or 0.0 for values in (sends, log.late_seconds))


def is_client_limited(log: Log, config: Config) -> bool:
    """Return whether the clients were the limit: late themselves, or out of files or ports."""
    measured = [record for record in log.records if record.is_measured]
    usual = quantile([latency.ttft for record in measured if (latency := latency_of(record))], 50) or 0.0
    has_failed = any(str(record.error).startswith("client_") for record in measured)
    return has_failed or client_lag(log, config) > max(_LATE_SECONDS, _LATE_SHARE * usual)


def write_records(records: Sequence[Record], window: Window, path: Path) -> None:
    """Write a line of JSON for each measured request; times count from the begin of the measurement."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            if not record.is_measured:
                continue
            latency = latency_of(record)
            line = {"intended": record.intended - window.measure_from, "sent": record.sent - window.measure_from}
            file.write(json.dumps({**line, "error": record.error, **(asdict(latency) if latency else {})}) + "\n")


_PERIOD_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0

# Our name → the names of vLLM, SGLang and our server. Counters are of tokens and of requests.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "server_requests_running": ("vllm:num_requests_running", "sglang:num_running_reqs", "gpuagent:requests_running"),
    "server_requests_waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "gpuagent:requests_waiting"),
    "server_kv_cache_percent": ("vllm:kv_cache_usage_perc", "sglang:token_usage", "gpuagent:kv_cache_usage"),
}
_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "server_prefix_queries": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "server_prefix_hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "server_preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
}
_NAMES = {theirs: ours for ours, names in (*_GAUGES.items(), *_COUNTERS.items()) for theirs in names}

# Gauges that are shares of 1 there: the mean over a server's engines in percent; others are summed.
_SHARES = ("server_kv_cache_percent",)

# The monotonic time of a reading in seconds, and its figures by our name.
Reading = tuple[float, Mapping[str, float]]


def parse_figures(text: str) -> dict[str, float]:
    """Return the figures in the text of a server's /metrics by our names; what it does not have is absent.

    Raises ValueError: the text has another form.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _NAMES and math.isfinite(sample.value):
                found[_NAMES[sample.name]].append(sample.value)
    return {name: 100 * fmean(values) if name in _SHARES else sum(values) for name, values in found.items()}


@contextmanager
def reading_server(endpoint: Endpoint) -> Iterator[list[Reading]]:
    """Yield a list that grows by a reading a second; it stays empty where the server has no such figures."""
    readings: list[Reading] = []
    ends = threading.Event()
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    request = Request(f"{endpoint.url.rstrip('/')}/metrics", headers=headers)  # noqa: S310 - the Config has checked it

    # As the load: without a site's web proxy.
    opener = build_opener(ProxyHandler({}))

    def read() -> None:
        while not ends.wait(_PERIOD_SECONDS):
            # The parser has an IndexError for some texts.
            with suppress(OSError, ValueError, IndexError, HTTPException):
                with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                    text = answer.read().decode(errors="replace")
                if figures := parse_figures(text):
                    readings.append((time.monotonic(), figures))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ends.set()
        thread.join()


def report_readings(readings: Sequence[Reading], window: Window, reporter: Reporter) -> None:
    """Report the curves and means of gauges, and the growth of counters, within the measurement."""
    within = [(at, figures) for at, figures in readings if window.measure_from <= at < window.measure_to]
    for name in _GAUGES:
        curve = [(at, figures[name]) for at, figures in within if name in figures]
        for at_seconds, value in curve:
            reporter.metric(name, value, step=int(at_seconds - window.measure_from))
        if curve:
            unit = "%" if name in _SHARES else None
            reporter.result(name, fmean(value for _, value in curve), unit=unit)
    growth = {}
    for name in _COUNTERS:
        counts = [figures[name] for _, figures in within if name in figures]
        # A counter that fell is that of another server.
        if len(counts) > 1 and counts[-1] >= counts[0]:
            growth[name] = counts[-1] - counts[0]
    if "server_preemptions" in growth:
        reporter.result("server_preemptions", growth["server_preemptions"])
    if growth.get("server_prefix_queries") and "server_prefix_hits" in growth:
        percent = 100 * growth["server_prefix_hits"] / growth["server_prefix_queries"]
        reporter.result("server_prefix_hit_percent", percent, unit="%")
