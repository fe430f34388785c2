"""The figures of a server of a language model under load, as the workload `serve-load` reports them."""

from collections.abc import Iterator

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported

# The workload that loads a server.
SERVING = "serve-load"

_GROUP = "Serving"

PERCENTILES = (50, 90, 99)


def _latencies() -> Iterator[StoredMetric]:
    for stem, title in (("ttft", "Time to first token"), ("tpot", "Time a further token"), ("e2e", "Whole answer")):
        for percent in PERCENTILES:
            name = f"{stem}_p{percent}_seconds"
            yield reported(name, f"{title}, p{percent}", "seconds", "max", Better.LOWER, group=_GROUP)


def _rate(name: str, title: str, unit: str, *, result: str | None = None, detail: bool = False) -> StoredMetric:
    return reported(name, title, unit, "sum", Better.HIGHER, group=_GROUP, result=result, detail=detail)


# Throughput is that of the tokens of answers; energy and cost of an item are therefore those of such a token.
SERVING_METRICS: tuple[StoredMetric, ...] = (
    *_latencies(),
    _rate("goodput_requests_per_second", "Goodput", "requests/s", result="goodput"),
    reported("goodput_percent", "Requests within the limits", "percent", "avg", Better.HIGHER, group=_GROUP),
    _rate("requests_per_second", "Requests answered", "requests/s"),
    reported("offered_requests_per_second", "Requests sent", "requests/s", "sum", group=_GROUP, detail=True),
    _rate("input_tokens_per_second", "Prompt tokens", "tokens/s", detail=True),
    reported("requests", "Requests measured", "", "sum", group=_GROUP, detail=True),
    reported("request_errors", "Requests that failed", "", "sum", Better.LOWER, group=_GROUP),
    reported("server_listen_seconds", "Server start to open port", "seconds", "max", Better.LOWER, group=_GROUP),
    reported("server_ready_seconds", "Server start to ready", "seconds", "max", Better.LOWER, group=_GROUP),
    reported("first_answer_seconds", "First answer", "seconds", "max", Better.LOWER, group=_GROUP, detail=True),
    reported(
        "client_lag_seconds",
        "Client behind its schedule, p99",
        "seconds",
        "max",
        Better.LOWER,
        group=_GROUP,
        result="client_lag_p99_seconds",
        detail=True,
    ),
    reported("client_limited", "Limited by the client", "", "max", Better.LOWER, group=_GROUP, detail=True),
)
