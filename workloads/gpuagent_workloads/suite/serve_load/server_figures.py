"""The server's own figures: its /metrics, read once a second while the load is on."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from statistics import fmean
from urllib.request import ProxyHandler, Request, build_opener

from prometheus_client.parser import text_string_to_metric_families

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load.clients import Window
from gpuagent_workloads.suite.serve_load.exchange import Endpoint

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

    Raises:
        ValueError: the text has another form.
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
