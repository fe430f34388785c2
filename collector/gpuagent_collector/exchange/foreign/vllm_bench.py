"""Results of `vllm bench serve --save-result`: a JSON object, or one a line.

Fields are those of benchmarks/benchmark_serving.py of 0.4 to vllm/benchmarks/serve.py of 0.33.0. A file has no version,
no time zone and no lengths that were asked for: those that were measured stand for them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    ResultError,
    about_lengths,
    before,
    local,
    number,
    text,
    whole,
)

_REQUIRED = ("date", "model_id", "request_rate", "request_throughput", "duration", "completed")

# The API by the program's backend; others serve no text, or their own API.
_SERVED = {"openai": "completions", "vllm": "completions", "openai-chat": "chat"}

# Texts that are no condition. All others are, such as the server's settings: `--metadata KEY=VALUE`.
_FACTS = frozenset({"date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "request_rate"})

# Settings that are no texts, and what they usually are.
_SETTINGS = {"best_of": 1, "use_beam_search": False, "ramp_up_start_rps": None, "ramp_up_end_rps": None}


def recognise(document: Any) -> bool:
    """Return whether it is a result, or lines of them."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, Mapping) and all(name in first for name in _REQUIRED)


def read(document: Any) -> Sequence[ForeignRun]:
    """Return a run for each result. Raises ResultError."""
    return [_read(result) for result in (document if isinstance(document, list) else [document])]


def _read(result: Any) -> ForeignRun:
    if missing := [name for name in _REQUIRED if not isinstance(result, Mapping) or name not in result]:
        raise ResultError(f"a result lacks {missing[0]}")
    completed, failed = (whole(result.get(name), name) for name in ("completed", "failed"))
    seconds = number(result["duration"], "duration")
    figures = Figures()
    if completed:
        _add(figures, result, completed, seconds)
        figures.add("requests", completed + (failed or 0))
    figures.add("request_errors", failed)
    figures.add("model", text(result["model_id"], "model_id"))
    figures.add("tokenizer", text(result.get("tokenizer_id"), "tokenizer_id"))
    figures.add("backend", text(result.get("backend"), "backend"))
    ended = local(result["date"], "%Y%m%d-%H%M%S", "date")
    began = before(ended, seconds)
    return ForeignRun(
        program="vllm bench serve",
        parameters=_parameters(result, completed),
        figures=figures.found,
        started_at=began,
        ended_at=ended,
        phases=[("measure", began), ("end", ended)] if began and ended else [],
        reason=None if completed else "no request succeeded",
    )


def _add(figures: Figures, result: Mapping[str, Any], completed: int, seconds: float | None) -> None:
    figures.add("throughput", number(result.get("output_throughput"), "output_throughput"), "tokens/s", measured=True)
    for name, field in (("requests_per_second", "request_throughput"), ("goodput", "request_goodput")):
        figures.add(name, number(result.get(field), field), "requests/s", measured=True)
    for name, mean in _means(result, completed).items():
        figures.add(f"{name}_tokens_mean", mean)
    tokens = number(result.get("total_input_tokens"), "input")
    if tokens is not None and seconds:
        figures.add("input_tokens_per_second", tokens / seconds, "tokens/s", measured=True)
    for kind, theirs in {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el"}.items():
        median = result.get(f"p50_{theirs}_ms", result.get(f"median_{theirs}_ms"))
        rest = {percent: result.get(f"p{percent}_{theirs}_ms") for percent in (90, 99)}
        figures.add_latencies(kind, {50: median, **rest})


def _means(result: Mapping[str, Any], completed: int | None) -> dict[str, float | None]:
    totals = {name: number(result.get(f"total_{name}_tokens"), name) for name in ("input", "output")}
    return {name: total / completed if completed and total is not None else None for name, total in totals.items()}


def _parameters(result: Mapping[str, Any], completed: int | None) -> dict[str, Any]:
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
        **({"api": _SERVED.get(backend, backend)} if backend else {}),
        **about_lengths(_means(result, completed)),
        **texts,
        **settings,
    }
