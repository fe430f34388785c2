"""Metrics that programs report, those of servers among them."""

from collections.abc import Iterator

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import IMAGES, RESULTS, WORK_RATES

# A result in percent, or without unit as a share of 1.
_IN_PERCENT = "value * CASE WHEN unit IS NULL THEN 100 ELSE 1 END"

RESULT_METRICS: tuple[StoredMetric, ...] = (
    reported("accuracy", "Accuracy", "percent", "avg", Better.HIGHER, value=_IN_PERCENT),
    reported("top5_accuracy", "Accuracy, top 5", "percent", "avg", Better.HIGHER, value=_IN_PERCENT),
    reported("loss", "Loss", "", "avg", Better.LOWER),
    reported("parameters", "Parameters", "", "max"),
    reported(
        "communication_percent",
        "Communication, of kernel time",
        "percent",
        "avg",
        Better.LOWER,
        result="communication_share",
        value=_IN_PERCENT,
    ),
    reported(
        "exposed_communication_percent",
        "Communication that computing does not hide",
        "percent",
        "avg",
        Better.LOWER,
        result="exposed_communication_share",
        value=_IN_PERCENT,
    ),
    # As reported, or at least the number of ranks with reports: a plain torchrun script does not report it.
    StoredMetric(
        name="ranks",
        title="Ranks",
        unit="",
        group="Result",
        better=None,
        source=RESULTS,
        reading="greatest(CAST(part AS DOUBLE) + 1, CASE WHEN name = 'ranks' THEN value END)",
        in_part="max({})",
        over_parts="max",
    ),
)


def _rate(name: str, title: str, unit: str) -> StoredMetric:
    """Return the metric that is the work of a step by its time, in the mean over ranks."""
    return StoredMetric(
        name=name,
        title=title,
        unit=unit,
        group="Work",
        better=Better.HIGHER,
        source=WORK_RATES,
        reading=name,
        in_part="max({})",
        over_parts="avg",
    )


# Means over ranks.
WORK_METRICS: tuple[StoredMetric, ...] = (
    reported("model_flops_per_step", "Model FLOPs a step", "FLOP", "avg", group="Work"),
    # Counted in a run of its own, after this one.
    reported("executed_flops_per_step", "Executed FLOPs a step", "FLOP", "avg", Better.LOWER, group="Work"),
    *(
        reported(f"executed_{kind}_flops_per_step", f"Executed FLOPs a step, {words}", "FLOP", "avg", group="Work")
        for kind, words in (("tensor", "tensor cores"), ("fp16", "FP16"), ("fp32", "FP32"), ("fp64", "FP64"))
    ),
    reported("dram_bytes_per_step", "Device memory traffic a step", "bytes", "avg", Better.LOWER, group="Work"),
    _rate("model_flops_per_second", "Model FLOP/s, each rank", "FLOP/s"),
    _rate("executed_flops_per_second", "Executed FLOP/s, each rank", "FLOP/s"),
    _rate("dram_bytes_per_second", "Device memory traffic, counted", "bytes/s"),
    reported("mfu_percent", "Model FLOPs utilisation", "percent", "avg", Better.HIGHER, result="mfu", group="Work"),
    # The same by PaLM's formula, of which only some models know the terms.
    reported(
        "mfu_palm_percent",
        "Model FLOPs utilisation by PaLM's formula",
        "percent",
        "avg",
        Better.HIGHER,
        result="mfu_palm",
        group="Work",
    ),
    reported(
        "data_wait_percent",
        "Host waiting for data",
        "percent",
        "avg",
        Better.LOWER,
        result="data_wait_share",
        group="Work",
    ),
)


def _recovery(name: str, title: str, unit: str, *, detail: bool = False) -> StoredMetric:
    """Return the metric of what a loss of ranks cost, as rank 0 reports it at the end."""
    return reported(name, title, unit, "max", Better.LOWER, group="Recovery", detail=detail)


RECOVERY_METRICS: tuple[StoredMetric, ...] = (
    _recovery("restarts", "Restarts", ""),
    _recovery("recovery_seconds", "Recovery, all together", "seconds"),
    _recovery("work_lost_seconds", "Work lost", "seconds"),
    _recovery("work_lost_steps", "Work lost, in steps", ""),
    _recovery("checkpoint_seconds", "Checkpoints", "seconds", detail=True),
)


def _image(column: str, title: str, unit: str) -> StoredMetric:
    """Return the metric that is a column of the table images, as it was for the run."""
    return StoredMetric(
        name=f"image_{column}",
        title=title,
        unit=unit,
        group="Image",
        better=Better.LOWER,
        source=IMAGES,
        reading=column,
        in_part="max({})",
        over_parts="max",
    )


IMAGE_METRICS: tuple[StoredMetric, ...] = (
    _image("size_bytes", "Image on disk", "bytes"),
    _image("layers", "Image layers", ""),
    _image("build_seconds", "Image build", "seconds"),
    _image("push_seconds", "Image push", "seconds"),
    _image("pull_seconds", "Image pull", "seconds"),
)


# The workload that loads a server.
SERVING = "serve-load"

_GROUP = "Serving"

PERCENTILES = (50, 90, 99)


def _latencies() -> Iterator[StoredMetric]:
    for stem, title in (("ttft", "Time to first token"), ("tpot", "Time a further token"), ("e2e", "Whole answer")):
        for percent in PERCENTILES:
            name = f"{stem}_p{percent}_seconds"
            yield reported(name, f"{title}, p{percent}", "seconds", "max", Better.LOWER, group=_GROUP)


def _served_rate(name: str, title: str, unit: str, *, result: str | None = None, detail: bool = False) -> StoredMetric:
    return reported(name, title, unit, "sum", Better.HIGHER, group=_GROUP, result=result, detail=detail)


# Throughput is that of the tokens of answers; energy and cost of an item are therefore those of such a token.
SERVING_METRICS: tuple[StoredMetric, ...] = (
    *_latencies(),
    _served_rate("goodput_requests_per_second", "Goodput", "requests/s", result="goodput"),
    reported("goodput_percent", "Requests within the limits", "percent", "avg", Better.HIGHER, group=_GROUP),
    _served_rate("requests_per_second", "Requests answered", "requests/s"),
    reported("offered_requests_per_second", "Requests sent", "requests/s", "sum", group=_GROUP, detail=True),
    _served_rate("input_tokens_per_second", "Prompt tokens", "tokens/s", detail=True),
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
