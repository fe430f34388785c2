"""Results of `python -m sglang.bench_serving --output-file`: a JSON object a line.

Fields are those of python/sglang/bench_serving.py from July 2024 to 0.5. The file has no time, and the model only in
what the server said of itself, which early versions did not ask for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    ResultError,
    about,
    as_condition,
    number,
    part,
    remainder,
    text,
    whole,
)
from gpuagent_collector.metrics.result import SERVING

_REQUIRED = ("backend", "request_rate", "random_input_len", "total_output_tokens_retokenized", "completed", "duration")

# The API by SGLang's backend; others have their own.
_SERVED = {
    "sglang-oai": "completions",
    "vllm": "completions",
    "lmdeploy": "completions",
    "sglang-oai-chat": "chat",
    "vllm-chat": "chat",
    "lmdeploy-chat": "chat",
}

_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}

_DATA = ("dataset_name", "sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio")

# Of what the server says of itself: the settings on which its speed depends.
_SERVER = (
    *("tp_size", "dp_size", "pp_size", "ep_size", "quantization", "dtype", "kv_cache_dtype", "attention_backend"),
    *("speculative_algorithm", "disable_radix_cache", "chunked_prefill_size", "max_running_requests"),
)


def recognise(document: Any) -> bool:
    """Return whether it is such a result, or lines of them."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and all(name in first for name in _REQUIRED)


def read(document: Any) -> Sequence[ForeignRun]:
    """Return a run for each result. Raises ResultError."""
    return [_run(result) for result in (document if isinstance(document, list) else [document])]


def _run(result: Any) -> ForeignRun:
    if missing := [name for name in _REQUIRED if not isinstance(result, Mapping) or name not in result]:
        raise ResultError(f"a result lacks {missing[0]}")
    completed = whole(result["completed"], "completed")
    parameters = _parameters(result, completed)
    figures = Figures()
    if completed:
        _add(figures, result, completed)
    figures.add("model", parameters.get("model"))
    figures.add("backend", text(result["backend"], "backend"))
    figures.add("server_version", text(part(result.get("server_info"), "version"), "version"))
    return ForeignRun(
        program="sglang.bench_serving",
        version=None,
        workload=SERVING,
        parameters=parameters,
        figures=figures.found,
        reason=None if completed else "no request succeeded",
    )


def _add(figures: Figures, result: Mapping[str, Any], completed: int) -> None:
    seconds = number(result["duration"], "duration")
    for name, field, unit in (
        ("throughput", "output_throughput", "tokens/s"),
        ("input_tokens_per_second", "input_throughput", "tokens/s"),
    ):
        figures.add(name, number(result.get(field), field), unit, measured=True)
    figures.add("requests_per_second", completed / seconds if seconds else None, "requests/s", measured=True)
    for name in ("input", "output"):
        total = number(result.get(f"total_{name}_tokens"), name)
        figures.add(f"{name}_tokens_mean", None if total is None else total / completed)
    for kind, theirs in _LATENCIES.items():
        rest = {percent: result.get(f"p{percent}_{theirs}_ms") for percent in (90, 99)}
        figures.add_latencies(kind, {50: result.get(f"median_{theirs}_ms"), **rest})
    figures.add("requests", completed)


def _parameters(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
    asked, most = result["request_rate"], whole(result.get("max_concurrency"), "max_concurrency")
    load: dict[str, Any] = {"rate": None, "concurrency": most}
    if asked == "trace":
        load = {"rate": None, "concurrency": None, "profile": "trace", "max_concurrency": most}
    elif asked not in ("inf", math.inf):
        # Pauses are exponential.
        load = {"rate": number(asked, "request_rate"), "concurrency": None, "burstiness": 1.0, "max_concurrency": most}
    elif most is None:
        # All prompts are sent at once, so their number is the load.
        load = {"rate": None, "concurrency": None, "profile": "throughput", "requests": completed}
    backend = text(result["backend"], "backend")
    server = result.get("server_info")
    found = {
        "model": text(part(server, "model_path"), "model_path"),
        "api": _SERVED.get(backend or "", backend),
        **_content(result, completed),
        **remainder({name: part(server, name) for name in _SERVER}, ()),
    }
    return {
        **{name: value for name, value in load.items() if value is not None or name in ("rate", "concurrency")},
        **{name: value for name, value in found.items() if value is not None},
    }


def _content(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
    """Return the lengths of requests: those that were asked for where they are constant, else the means."""
    data = {name: result.get(name) for name in _DATA}
    is_made_up = str(data["dataset_name"]).startswith("random") and data["random_range_ratio"] == 1
    if is_made_up:
        lengths = {name: whole(data[f"random_{name}_len"], name) for name in ("input", "output")}
        return {name: str(length) for name, length in lengths.items() if length is not None}
    totals = {name: number(result.get(f"total_{name}_tokens"), name) for name in ("input", "output")}
    means = {name: about(total / completed) for name, total in totals.items() if total is not None and completed}
    return {**means, "dataset": as_condition(remainder(data, ()))}
