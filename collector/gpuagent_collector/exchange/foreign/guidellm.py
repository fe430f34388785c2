"""`benchmarks.json` of guidellm: a run for each benchmark, which is a level of load.

Fields are those of report version 2, as guidellm 0.8.1 wrote it. A further token's time is its inter-token latency:
its time per output token counts the first one too. Times are Unix seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    ResultError,
    about_lengths,
    as_condition,
    check_spread,
    constant,
    number,
    part,
    present,
    remainder,
    text,
    utc,
    whole,
)

_VERSION = 2

# Arrivals that are no gamma distribution have their own name instead of its shape.
_BURSTINESS = {"poisson": 1.0, "constant": "constant"}

_SERVED = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}

# Settings of a strategy that have a parameter of their own, or change nothing that is measured.
_OF_STRATEGY = ("type_", "rate", "streams", "random_seed", "worker_count", "max_concurrency", "start_time")

# Settings of the requests.
_OF_REQUEST = ("stream", "extras", "max_tokens")

_LIMITS = ("ttft", "tpot", "e2el")

# guidellm's names of the latencies, with their units in milliseconds.
_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1),
    "tpot": ("inter_token_latency_ms", 1),
    "e2e": ("request_latency", 1000),
}


def recognise(document: Any) -> bool:
    """Return whether it is such a report, of whatever version."""
    if not isinstance(document, Mapping) or not isinstance(document.get("benchmarks"), list):
        return False
    metadata, benchmarks = document.get("metadata"), document["benchmarks"]
    if isinstance(metadata, Mapping):
        return "guidellm_version" in metadata
    # Before 0.4 reports had no version.
    return bool(benchmarks) and isinstance(benchmarks[0], Mapping) and "run_stats" in benchmarks[0]


def read(document: Mapping[str, Any]) -> Sequence[ForeignRun]:
    """Return the run of each benchmark. Raises ResultError."""
    if (version := part(document, "metadata", "version")) != _VERSION:
        raise ResultError(f"its report has version {version!r:.20}; version {_VERSION} of guidellm 0.8 can be read")
    version = text(document["metadata"]["guidellm_version"], "guidellm_version")
    # The distributions of lengths of made-up prompts, and what else is stated of the data.
    data = part(document, "config", "spec", "data")
    content: dict[str, str | None] = {}
    if isinstance(data, list) and len(data) == 1 and part(data[0], "kind") == "synthetic_text":
        known = ["kind"]
        for name, field in (("input", "prompt_tokens"), ("output", "output_tokens")):
            content[name] = constant(number(data[0].get(field), field), number(data[0].get(f"{field}_stdev"), field))
            known += [field, f"{field}_stdev"]
        content["dataset"] = as_condition(remainder(data[0], known, {"turns": 1}))
    elif data:
        content["dataset"] = as_condition({"data": data})
    return [_run(benchmark, version, present(content)) for benchmark in document["benchmarks"]]


def _run(benchmark: Any, version: str | None, content: Mapping[str, str]) -> ForeignRun:
    metrics, config = part(benchmark, "metrics"), part(benchmark, "config")
    made = {kind: whole(part(metrics, "request_totals", kind), kind) for kind in ("successful", "errored")}
    if made["successful"] is None or part(config, "strategy", "type_") is None:
        raise ResultError("a benchmark lacks its requests or its strategy")
    figures = Figures()
    if made["successful"]:
        _add(figures, metrics)
        figures.add("requests", made["successful"] + (made["errored"] or 0))
    figures.add("request_errors", made["errored"])
    figures.add("model", text(part(config, "backend", "model"), "model"))
    began, ended = (utc(part(benchmark, name), name) for name in ("start_time", "end_time"))
    if began is None or ended is None or ended < began:
        raise ResultError("a benchmark lacks its times, or ends before it begins")
    return ForeignRun(
        program="guidellm",
        version=version,
        parameters={**_parameters(config), **about_lengths(_means(metrics)), **content},
        figures=figures.found,
        started_at=began,
        ended_at=ended,
        phases=[("measure", began), ("end", ended)],
        reason=None if made["successful"] else "no request succeeded",
    )


def _add(figures: Figures, metrics: Any) -> None:
    for name, field, requests, unit in (
        # Tokens of requests that were cut off at the end arrived in the measured time too.
        ("throughput", "output_tokens_per_second", "total", "tokens/s"),
        ("input_tokens_per_second", "prompt_tokens_per_second", "successful", "tokens/s"),
        ("requests_per_second", "requests_per_second", "successful", "requests/s"),
        ("goodput", "request_goodput", "successful", "requests/s"),
    ):
        figures.add(name, number(part(metrics, field, requests, "mean"), field), unit, measured=True)
    share = number(part(metrics, "slo_attainment"), "slo_attainment")
    figures.add("goodput_percent", None if share is None else 100 * share, "%")
    for name, mean in _means(metrics).items():
        figures.add(f"{name}_tokens_mean", mean)
    for kind, (field, scale) in _LATENCIES.items():
        spread = part(metrics, field, "successful") or {}
        found = {percent: part(spread, "percentiles", f"p{percent}") for percent in (50, 90, 99)}
        check_spread(field, {**spread, **{f"p{percent}": value for percent, value in found.items()}})
        figures.add_latencies(kind, {percent: value and value * scale for percent, value in found.items()})


def _parameters(config: Any) -> dict[str, Any]:
    kind = text(part(config, "strategy", "type_"), "strategy")
    streams = 1 if kind == "synchronous" else whole(part(config, "strategy", "streams"), "streams")
    rate = number(part(config, "strategy", "rate"), "rate")
    asked = part(config, "backend", "request_format")
    limits = {name: number(part(config, "slo", f"{name}_ms"), name) for name in _LIMITS}
    rest = remainder(part(config, "strategy"), _OF_STRATEGY, {"rampup_duration": 0.0})
    if not rate and not streams:
        # All requests are sent as soon as they may be, so the cap is the load.
        rest["max_concurrency"] = part(config, "strategy", "max_concurrency")
    request = remainder({name: part(config, "backend", name) for name in _OF_REQUEST}, (), {"stream": True})
    conditions = {
        "load": as_condition(rest),
        "request": as_condition(request),
        "api": (asked and _SERVED.get(asked, asked)) or None,
    }
    return {
        "model": text(part(config, "backend", "model"), "model"),
        "rate": rate,
        "concurrency": None if rate else streams,
        **({"burstiness": _BURSTINESS[kind]} if kind in _BURSTINESS else {}),
        **({} if rate or streams else {"profile": kind}),
        **present(conditions),
        **{f"slo-{name.removesuffix('l')}": most for name, most in present(limits).items()},
    }


def _means(metrics: Any) -> dict[str, float | None]:
    fields = {"input": "prompt_token_count", "output": "output_token_count"}
    return {name: number(part(metrics, field, "successful", "mean"), field) for name, field in fields.items()}
