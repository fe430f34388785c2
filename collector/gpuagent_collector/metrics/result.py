"""Metrics that programs report, those of servers among them."""

from functools import partial

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import IMAGES, RESULTS, WORK_RATES

_LOWER, _HIGHER = Better.LOWER, Better.HIGHER

# A result in percent, or without unit as a share of 1.
_IN_PERCENT = "value * CASE WHEN unit IS NULL THEN 100 ELSE 1 END"

RESULT_METRICS: tuple[StoredMetric, ...] = (
    reported("accuracy", "Accuracy", "percent", "avg", _HIGHER, value=_IN_PERCENT),
    reported("top5_accuracy", "Accuracy, top 5", "percent", "avg", _HIGHER, value=_IN_PERCENT),
    reported("loss", "Loss", "", "avg", _LOWER),
    reported("parameters", "Parameters", "", "max"),
    *(
        reported(f"{name}_percent", title, "percent", "avg", _LOWER, result=f"{name}_share", value=_IN_PERCENT)
        for name, title in (
            ("communication", "Communication, of kernel time"),
            ("exposed_communication", "Communication that computing does not hide"),
        )
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


_MFU = "Model FLOPs utilisation"
_work = partial(reported, over_parts="avg", group="Work")


def _rate(name: str, title: str, unit: str) -> StoredMetric:
    """Return the metric that is the work of a step by its time, in the mean over ranks."""
    return StoredMetric(name, title, unit, "Work", _HIGHER, WORK_RATES, name, "max({})", "avg")


# Means over ranks.
WORK_METRICS: tuple[StoredMetric, ...] = (
    _work("model_flops_per_step", "Model FLOPs per step", "FLOP"),
    # Counted in a run of its own, after this one.
    _work("executed_flops_per_step", "Executed FLOPs per step", "FLOP", better=_LOWER),
    *(
        _work(f"executed_{kind}_flops_per_step", f"Executed FLOPs per step, {words}", "FLOP")
        for kind, words in (("tensor", "tensor cores"), ("fp16", "FP16"), ("fp32", "FP32"), ("fp64", "FP64"))
    ),
    _work("dram_bytes_per_step", "Device memory traffic per step", "bytes", better=_LOWER),
    _rate("model_flops_per_second", "Model FLOP/s, each rank", "FLOP/s"),
    _rate("executed_flops_per_second", "Executed FLOP/s, each rank", "FLOP/s"),
    _rate("dram_bytes_per_second", "Device memory traffic, counted", "bytes/s"),
    _work("mfu_percent", _MFU, "percent", better=_HIGHER, result="mfu"),
    # The same by PaLM's formula, of which only some models know the terms.
    _work("mfu_palm_percent", f"{_MFU} by PaLM's formula", "percent", better=_HIGHER, result="mfu_palm"),
    _work("data_wait_percent", "Host waiting for data", "percent", better=_LOWER, result="data_wait_share"),
)


# What a loss of ranks cost, as rank 0 reports it at the end.
_recovery = partial(reported, over_parts="max", better=_LOWER, group="Recovery")

RECOVERY_METRICS: tuple[StoredMetric, ...] = (
    _recovery("restarts", "Restarts", ""),
    _recovery("recovery_seconds", "Recovery, all together", "seconds"),
    _recovery("work_lost_seconds", "Work lost", "seconds"),
    _recovery("work_lost_steps", "Work lost, in steps", ""),
    _recovery("checkpoint_seconds", "Checkpoints", "seconds", detail=True),
)

# Columns of the table images, as they were for the run.
IMAGE_METRICS: tuple[StoredMetric, ...] = tuple(
    StoredMetric(f"image_{column}", title, unit, "Image", _LOWER, IMAGES, column, "max({})", "max")
    for column, title, unit in (
        ("size_bytes", "Image on disk", "bytes"),
        ("layers", "Image layers", ""),
        ("build_seconds", "Image build", "seconds"),
        ("push_seconds", "Image push", "seconds"),
        ("pull_seconds", "Image pull", "seconds"),
    )
)


# The workload that loads a server.
SERVING = "serve-load"

PERCENTILES = (50, 90, 99)

# Time to first token, and time per output token after it.
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "Whole answer,"}

_serving = partial(reported, group="Serving")
_served = partial(_serving, over_parts="sum", better=_HIGHER)
_slowest = partial(_serving, unit="seconds", over_parts="max", better=_LOWER)

# Throughput is that of the tokens of answers; energy and cost of an item are therefore those of such a token.
SERVING_METRICS: tuple[StoredMetric, ...] = (
    *(
        _slowest(f"{stem}_p{percent}_seconds", f"{title} p{percent}")
        for stem, title in _LATENCIES.items()
        for percent in PERCENTILES
    ),
    _served("goodput_requests_per_second", "Goodput", "requests/s", result="goodput"),
    _serving("goodput_percent", "Requests within the limits", "percent", "avg", _HIGHER),
    _served("requests_per_second", "Requests answered", "requests/s"),
    _serving("offered_requests_per_second", "Requests sent", "requests/s", "sum", detail=True),
    _served("input_tokens_per_second", "Prompt tokens", "tokens/s", detail=True),
    _serving("requests", "Requests measured", "", "sum", detail=True),
    _serving("request_errors", "Requests that failed", "", "sum", _LOWER),
    *(
        metric
        for kind, unit in (("rate", "requests/s"), ("concurrency", ""), ("scale", ""))
        for metric in (
            _serving(f"highest_{kind}", f"Highest {kind} within the limits", unit, "max", _HIGHER),
            _serving(f"highest_{kind}_low", f"Highest {kind}, lower end of 95 %", unit, "max", _HIGHER, detail=True),
            _serving(f"highest_{kind}_high", f"Highest {kind}, upper end of 95 %", unit, "max", _HIGHER, detail=True),
        )
    ),
    _serving("search_windows", "Windows of the search", "", "max", detail=True),
    _serving("search_bets", "Windows at the ends of its interval", "", "max", detail=True),
    _serving("search_contradictions", "Windows that contradict its interval", "", "max", _LOWER, detail=True),
    _serving("server_requests_running", "Requests running in the server", "", "max"),
    _serving("server_requests_waiting", "Requests waiting in the server", "", "max", _LOWER),
    _serving("server_kv_cache_percent", "KV cache in use", "percent", "max"),
    _serving("server_prefix_hit_percent", "Prompt tokens found in the prefix cache", "percent", "max", _HIGHER),
    _serving("server_preemptions", "Requests preempted by the server", "", "max", _LOWER),
    _slowest("server_listen_seconds", "Server start to open port"),
    _slowest("server_ready_seconds", "Server start to ready"),
    _slowest("first_answer_seconds", "First answer", detail=True),
    _slowest("client_lag_seconds", "Client behind its schedule, p99", result="client_lag_p99_seconds", detail=True),
    _serving("client_limited", "Limited by the client", "", "max", _LOWER, detail=True),
)
