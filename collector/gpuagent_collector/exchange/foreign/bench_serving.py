"""Results of `vllm bench serve --save-result` and `python -m sglang.bench_serving --output-file`, which comes from it.

A file has a JSON object, or one a line. Of vLLM, fields are those of benchmarks/benchmark_serving.py of 0.4 to
vllm/benchmarks/serve.py of 0.33.0; it has no version, no time zone and no lengths that were asked for: those that were
measured stand for them. Of SGLang they are those of python/sglang/bench_serving.py from July 2024 to 0.5; it has no
time, and the model only in what the server said of itself, which early versions did not ask for.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    ResultError,
    about_lengths,
    as_condition,
    before,
    local,
    number,
    part,
    present,
    remainder,
    text,
    whole,
)

VLLM = ("date", "model_id", "request_rate", "request_throughput", "duration", "completed")
SGLANG = ("backend", "request_rate", "random_input_len", "total_output_tokens_retokenized", "completed", "duration")

# The API by the program's backend; others serve no text, or their own API.
_VLLM_SERVED = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}
_SGLANG_SERVED = {
    **dict.fromkeys(("sglang-oai", "vllm", "lmdeploy"), "completions"),
    **dict.fromkeys(("sglang-oai-chat", "vllm-chat", "lmdeploy-chat"), "chat"),
}

# Texts of vLLM that are no condition. All others are, such as the server's settings: `--metadata KEY=VALUE`.
_FACTS = frozenset({"date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "request_rate"})

# Settings of vLLM that are no texts, and what they usually are.
_SETTINGS = {"best_of": 1, "use_beam_search": False, "ramp_up_start_rps": None, "ramp_up_end_rps": None}

# Settings of SGLang: of its data, and those of what the server says of itself on which its speed depends.
_DATA = ("dataset_name", "sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio")
_SERVER = (
    *("tp_size", "dp_size", "pp_size", "ep_size", "quantization", "dtype", "kv_cache_dtype", "attention_backend"),
    *("speculative_algorithm", "disable_radix_cache", "chunked_prefill_size", "max_running_requests"),
)


def recognise(required: Sequence[str], document: Any) -> bool:
    """Return whether it is a result with these fields, or lines of them."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and all(name in first for name in required)


def _results(document: Any, required: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], int | None]]:
    for result in document if isinstance(document, list) else [document]:
        if missing := [name for name in required if not isinstance(result, Mapping) or name not in result]:
            raise ResultError(f"a result lacks {missing[0]}")
        yield result, whole(result["completed"], "completed")


def read_vllm(document: Any) -> Sequence[ForeignRun]:
    """Return a run for each result. Raises ResultError."""
    runs = []
    for result, completed in _results(document, VLLM):
        failed, seconds = whole(result.get("failed"), "failed"), number(result["duration"], "duration")
        figures = Figures()
        if completed:
            rates = {"requests_per_second": "request_throughput", "goodput": "request_goodput"}
            _add(figures, result, completed, rates, "e2el")
            tokens = number(result.get("total_input_tokens"), "input")
            if tokens is not None and seconds:
                figures.add("input_tokens_per_second", tokens / seconds, "tokens/s", measured=True)
            figures.add("requests", completed + (failed or 0))
        figures.add("request_errors", failed)
        figures.add("model", text(result["model_id"], "model_id"))
        figures.add("tokenizer", text(result.get("tokenizer_id"), "tokenizer_id"))
        figures.add("backend", text(result.get("backend"), "backend"))
        ended = local(result["date"], "%Y%m%d-%H%M%S", "date")
        began = before(ended, seconds)
        runs.append(
            ForeignRun(
                program="vllm bench serve",
                parameters=_vllm_parameters(result, completed),
                figures=figures.found,
                started_at=began,
                ended_at=ended,
                phases=[("measure", began), ("end", ended)] if began and ended else [],
                reason=None if completed else "no request succeeded",
            )
        )
    return runs


def read_sglang(document: Any) -> Sequence[ForeignRun]:
    """Return a run for each result. Raises ResultError."""
    runs = []
    for result, completed in _results(document, SGLANG):
        parameters = _sglang_parameters(result, completed)
        figures = Figures()
        if completed:
            _add(figures, result, completed, {}, "e2e_latency")
            tokens = number(result.get("input_throughput"), "input_throughput")
            figures.add("input_tokens_per_second", tokens, "tokens/s", measured=True)
            seconds = number(result["duration"], "duration")
            rate = completed / seconds if seconds else None
            figures.add("requests_per_second", rate, "requests/s", measured=True)
            figures.add("requests", completed)
        figures.add("model", parameters.get("model"))
        figures.add("backend", text(result["backend"], "backend"))
        figures.add("server_version", text(part(result.get("server_info"), "version"), "version"))
        runs.append(
            ForeignRun(
                program="sglang.bench_serving",
                parameters=parameters,
                figures=figures.found,
                reason=None if completed else "no request succeeded",
            )
        )
    return runs


def _add(
    figures: Figures, result: Mapping[str, Any], completed: int, request_rates: Mapping[str, str], e2e: str
) -> None:
    """Add the figures that both programs state alike; `e2e` is the program's name of the latency of a whole answer."""
    figures.add("throughput", number(result.get("output_throughput"), "output_throughput"), "tokens/s", measured=True)
    for name, field in request_rates.items():
        figures.add(name, number(result.get(field), field), "requests/s", measured=True)
    for name, mean in _means(result, completed).items():
        figures.add(f"{name}_tokens_mean", mean)
    for kind, theirs in {"ttft": "ttft", "tpot": "tpot", "e2e": e2e}.items():
        median = result.get(f"p50_{theirs}_ms", result.get(f"median_{theirs}_ms"))
        rest = {percent: result.get(f"p{percent}_{theirs}_ms") for percent in (90, 99)}
        figures.add_latencies(kind, {50: median, **rest})


def _means(result: Mapping[str, Any], completed: int | None) -> dict[str, float | None]:
    totals = {name: number(result.get(f"total_{name}_tokens"), name) for name in ("input", "output")}
    return {name: total / completed if completed and total is not None else None for name, total in totals.items()}


def _vllm_parameters(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
    rate = None if result["request_rate"] in ("inf", math.inf) else number(result["request_rate"], "request_rate")
    most = whole(result.get("max_concurrency"), "max_concurrency")
    backend = text(result.get("backend") or result.get("endpoint_type"), "backend")
    load: dict[str, Any] = {"rate": rate, "concurrency": None if rate else most}
    if rate and most:
        # A cap on an open loop is no level of load of its own.
        load["max_concurrency"] = most
    if rate and "burstiness" in result:
        load["burstiness"] = number(result["burstiness"], "burstiness")
    if not rate and not most:
        # All prompts are sent at once, so their number is the load.
        load |= {"profile": "throughput", "requests": whole(result.get("num_prompts"), "num_prompts")}
    texts = {name: text(value, name) for name, value in result.items() if isinstance(value, str) and name not in _FACTS}
    settings = {name: result[name] for name, usual in _SETTINGS.items() if result.get(name, usual) != usual}
    return {
        "model": text(result["model_id"], "model_id"),
        **load,
        **({"api": _VLLM_SERVED.get(backend, backend)} if backend else {}),
        **about_lengths(_means(result, completed)),
        **texts,
        **settings,
    }


def _sglang_parameters(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
    asked, most = result["request_rate"], whole(result.get("max_concurrency"), "max_concurrency")
    load: dict[str, Any] = {"rate": None, "concurrency": None}
    if asked == "trace":
        load |= present({"profile": "trace", "max_concurrency": most})
    elif asked not in ("inf", math.inf):
        # Pauses are exponential.
        load["rate"] = number(asked, "request_rate")
        load |= present({"burstiness": 1.0, "max_concurrency": most})
    elif most is not None:
        load["concurrency"] = most
    else:
        # All prompts are sent at once, so their number is the load.
        load |= present({"profile": "throughput", "requests": completed})
    backend = text(result["backend"], "backend")
    server = result.get("server_info")
    found = {
        "model": text(part(server, "model_path"), "model_path"),
        "api": _SGLANG_SERVED.get(backend or "", backend),
        **_sglang_content(result, completed),
        **remainder({name: part(server, name) for name in _SERVER}, ()),
    }
    return {**load, **present(found)}


def _sglang_content(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
    """Return the lengths of requests: those that were asked for where they are constant, else the means."""
    data = {name: result.get(name) for name in _DATA}
    is_made_up = str(data["dataset_name"]).startswith("random") and data["random_range_ratio"] == 1
    if is_made_up:
        lengths = {name: whole(data[f"random_{name}_len"], name) for name in ("input", "output")}
        return {name: str(length) for name, length in present(lengths).items()}
    return {**about_lengths(_means(result, completed)), "dataset": as_condition(remainder(data, ()))}
