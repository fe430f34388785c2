"""The settings that aiperf writes into a result: the conditions under which results are alike.

Schema 1.1 and later, as of 0.10.0 and 0.13.0, have `models`, `datasets` and `phases`. Schema 1.0 and the files without
one, as of 0.1 to 0.5, have `endpoint.model_names`, `input` and `loadgen`. Settings that a user did not give are absent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    ResultError,
    as_condition,
    constant,
    number,
    part,
    present,
    remainder,
    text,
    whole,
)

_LIMITS = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"}

# Settings that change nothing that is measured, or say when it ends.
_OF_ENDPOINT = ("urls", "url", "type", "model_names", "api_key", "headers", "timeout", "timeout_seconds", "streaming")
_OF_PHASE = ("name", "kind", "type", "rate", "concurrency", "smoothness", "exclude_from_results")
_ENDS = ("requests", "duration", "sessions", "grace_period")
_OF_LOADGEN = (
    *("concurrency", "request_rate", "request_rate_mode", "arrival_pattern", "arrival_smoothness"),
    *("request_count", "benchmark_duration", "benchmark_grace_period"),
)
_OF_INPUT = ("prompt", "random_seed", "headers", "goodput")
_OF_PROMPT = ("input_tokens", "output_tokens")
_OF_DATASET = ("name", "entries", "random_seed", "prompts")

Conditions = dict[str, Any]


def read_conditions(config: Any) -> Conditions:
    """Return the conditions by the names of parameters of `serve-load`; those that are not stated are left out.

    Raises:
        ResultError: the settings are of an unknown version.
    """
    if isinstance(config, Mapping) and ("phases" in config or "models" in config):
        return _read_phases(config)
    if isinstance(config, Mapping) and ("loadgen" in config or "model_names" in (config.get("endpoint") or {})):
        return _read_loadgen(config)
    raise ResultError("its input_config has neither phases nor loadgen: it is of an unknown version of aiperf")


def make_load(
    rate: float | None, users: int | None, kind: str | None, smoothness: float | None, rest: Mapping[str, Any]
) -> Conditions:
    """Return the level of load; empty: it is unknown. `rest` has settings of it that have no parameter."""
    shape = {"poisson": 1.0, "gamma": smoothness, "constant": "constant"}
    load: Conditions = {}
    if rate:
        # A cap on an open loop is no level of load of its own.
        load = {"rate": rate, "concurrency": None, "max_concurrency": users, "burstiness": shape.get(kind or "", kind)}
    elif users:
        load = {"rate": None, "concurrency": users}
    elif kind:
        load = {"rate": None, "concurrency": None, "profile": kind}
    load["load"] = as_condition(rest)
    return {name: value for name, value in load.items() if value is not None or name in ("rate", "concurrency")}


def _read_phases(config: Mapping[str, Any]) -> Conditions:
    items = part(config, "models", "items")
    names = [text(part(item, "name"), "model") or "" for item in items] if isinstance(items, list) else []
    measured = [phase for phase in config.get("phases") or [] if _is_measured(phase)]
    load: Conditions = {}
    if len(measured) == 1:
        (phase,) = measured
        rate, users = number(part(phase, "rate"), "rate"), whole(part(phase, "concurrency"), "concurrency")
        smoothness = number(part(phase, "smoothness"), "smoothness")
        rest = remainder(phase, (*_OF_PHASE, *_ENDS))
        load = make_load(rate, users, text(part(phase, "type"), "type"), smoothness, rest)
    limits = part(config, "slos") or {}
    return {
        **_model(names),
        **load,
        **_endpoint(config.get("endpoint")),
        **_datasets(config.get("datasets")),
        **{f"slo-{name}": number(limits.get(field), field) for field, name in _LIMITS.items() if limits.get(field)},
    }


def _is_measured(phase: Any) -> bool:
    kind = part(phase, "kind")
    return kind == "profiling" if kind is not None else not part(phase, "exclude_from_results")


def _datasets(datasets: Any) -> Conditions:
    found: Conditions = {}
    rest: list[Any] = []
    for dataset in datasets if isinstance(datasets, list) else []:
        prompts = part(dataset, "prompts")
        found |= _lengths(prompts, "isl", "osl")
        other = remainder(dataset, _OF_DATASET, {"type": "synthetic"})
        rest += [{**other, **remainder(prompts, ("isl", "osl"))}]
    if len(rest) > 1:
        # Prompts of several kinds have no one distribution.
        return {"dataset": as_condition({"datasets": datasets})}
    return {**found, **present({"dataset": as_condition(rest[0]) if rest else None})}


def _read_loadgen(config: Mapping[str, Any]) -> Conditions:
    names, loadgen, given = part(config, "endpoint", "model_names"), config.get("loadgen"), config.get("input")
    rate = number(part(loadgen, "request_rate"), "request_rate")
    users = whole(part(loadgen, "concurrency"), "concurrency")
    kind = part(loadgen, "arrival_pattern") or part(loadgen, "request_rate_mode") or ("poisson" if rate else None)
    smoothness = number(part(loadgen, "arrival_smoothness"), "arrival_smoothness")
    prompt = part(given, "prompt")
    warmup = [name for name in loadgen or {} if str(name).startswith("warmup")]
    settings = remainder(loadgen, (*_OF_LOADGEN, *warmup))
    return {
        **_model(names),
        **make_load(rate, users, text(kind, "arrival_pattern"), smoothness, settings),
        **_endpoint(config.get("endpoint")),
        **_lengths(prompt, "input_tokens", "output_tokens"),
        **present({"dataset": as_condition({**remainder(given, _OF_INPUT), **remainder(prompt, _OF_PROMPT)})}),
        **_goodput(part(given, "goodput")),
    }


def _goodput(given: Any) -> Conditions:
    """Return limits of latencies, from an object or a text such as `request_latency:250 inter_token_latency:10`."""
    if isinstance(given, str):
        given = dict(each.partition(":")[::2] for each in given.split())
    pairs = (given or {}).items()
    return {f"slo-{_LIMITS.get(name, name)}": number(float(most), name) for name, most in pairs}


def _model(names: Any) -> Conditions:
    known = [name for name in names if name] if isinstance(names, Sequence) and not isinstance(names, str) else [names]
    return present({"model": text(",".join(map(str, filter(None, known))), "model")})


def _endpoint(endpoint: Any) -> Conditions:
    kind = text(part(endpoint, "type"), "type")
    extra = remainder(part(endpoint, "extra"), ("ignore_eos",))
    rest = {**remainder(endpoint, (*_OF_ENDPOINT, "extra")), **({"extra": extra} if extra else {})}
    if part(endpoint, "streaming") is False:
        rest["streaming"] = False
    return present({"api": kind, "request": as_condition(rest)})


def _lengths(prompt: Any, given_input: str, given_output: str) -> Conditions:
    lengths = {}
    for name, field in (("input", given_input), ("output", given_output)):
        mean, spread = (number(part(prompt, field, each), field) for each in ("mean", "stddev"))
        lengths[name] = constant(mean, spread)
    return present(lengths)
