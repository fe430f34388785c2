"""`profile_export_aiperf.json` of aiperf: schema 1.1 and later, as of 0.10.0 and 0.13.0.

Its settings are the conditions under which results are alike. Those that a user did not give are absent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    MILLISECONDS,
    REQUESTS,
    REQUESTS_PER_SECOND,
    SHARE,
    TOKENS,
    TOKENS_PER_SECOND,
    Figures,
    ForeignRun,
    Node,
    ResultError,
    about_lengths,
    as_condition,
    constant,
    local,
    number,
    part,
    present,
    remainder,
    stated,
    text,
    whole,
)

_LIMITS = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"}

# Settings that change nothing that is measured, or say when it ends.
_OF_ENDPOINT = ("urls", "url", "type", "model_names", "api_key", "headers", "timeout", "timeout_seconds", "streaming")
_OF_PHASE = ("name", "kind", "type", "rate", "concurrency", "smoothness", "exclude_from_results")
_ENDS = ("requests", "duration", "sessions", "grace_period")
_OF_DATASET = ("name", "entries", "random_seed", "prompts")

Conditions = dict[str, Any]


def _read_conditions(config: Any) -> Conditions:
    """Return the conditions by the names of parameters of `serve-load`; those that are not stated are left out.

    Raises ResultError: the settings are of an unknown version.
    """
    if not (isinstance(config, Mapping) and ("phases" in config or "models" in config)):
        raise ResultError("its input_config has no phases; results of aiperf 0.10 and later can be read")
    items = part(config, "models", "items")
    names = [text(part(item, "name"), "model") for item in items] if isinstance(items, list) else []
    measured = [phase for phase in config.get("phases") or [] if _is_measured(phase)]
    limits = part(config, "slos") or {}
    return {
        **present({"model": ",".join(filter(None, names)) or None}),
        **(_read_load(measured[0]) if len(measured) == 1 else {}),
        **_endpoint(config.get("endpoint")),
        **_datasets(config.get("datasets")),
        **{f"slo-{name}": number(limits.get(field), field) for field, name in _LIMITS.items() if limits.get(field)},
    }


def _read_load(phase: Any) -> Conditions:
    """Return the level of load; empty: it is unknown."""
    rate, users = number(part(phase, "rate"), "rate"), whole(part(phase, "concurrency"), "concurrency")
    kind = text(part(phase, "type"), "type")
    shape = {"poisson": 1.0, "gamma": number(part(phase, "smoothness"), "smoothness"), "constant": "constant"}
    load: Conditions = {}
    if rate:
        # A cap on an open loop is no level of load of its own.
        load = {"rate": rate, "concurrency": None, "max_concurrency": users, "burstiness": shape.get(kind or "", kind)}
    elif users:
        load = {"rate": None, "concurrency": users}
    elif kind:
        load = {"rate": None, "concurrency": None, "profile": kind}
    load["load"] = as_condition(remainder(phase, (*_OF_PHASE, *_ENDS)))
    return {name: value for name, value in load.items() if value is not None or name in ("rate", "concurrency")}


def _is_measured(phase: Any) -> bool:
    kind = part(phase, "kind")
    return kind == "profiling" if kind is not None else not part(phase, "exclude_from_results")


def _datasets(datasets: Any) -> Conditions:
    found: Conditions = {}
    rest: list[Any] = []
    for dataset in datasets if isinstance(datasets, list) else []:
        prompts = part(dataset, "prompts")
        found |= _lengths(prompts)
        other = remainder(dataset, _OF_DATASET, {"type": "synthetic"})
        rest += [{**other, **remainder(prompts, ("isl", "osl"))}]
    if len(rest) > 1:
        # Prompts of several kinds have no one distribution.
        return {"dataset": as_condition({"datasets": datasets})}
    return {**found, **present({"dataset": as_condition(rest[0]) if rest else None})}


def _endpoint(endpoint: Any) -> Conditions:
    kind = text(part(endpoint, "type"), "type")
    extra = remainder(part(endpoint, "extra"), ("ignore_eos",))
    rest = {**remainder(endpoint, (*_OF_ENDPOINT, "extra")), **({"extra": extra} if extra else {})}
    if part(endpoint, "streaming") is False:
        rest["streaming"] = False
    return present({"api": kind, "request": as_condition(rest)})


def _lengths(prompt: Any) -> Conditions:
    lengths = {}
    for name, field in (("input", "isl"), ("output", "osl")):
        mean, spread = (number(part(prompt, field, each), field) for each in ("mean", "stddev"))
        lengths[name] = constant(mean, spread)
    return present(lengths)


_LENGTHS = {"input": "input_sequence_length", "output": "output_sequence_length"}

_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}

_RATES = (
    ("throughput", "output_token_throughput", "tokens/s", TOKENS_PER_SECOND),
    ("input_tokens_per_second", "input_token_throughput", "tokens/s", TOKENS_PER_SECOND),
    ("requests_per_second", "request_throughput", "requests/s", REQUESTS_PER_SECOND),
    ("goodput", "goodput", "requests/s", REQUESTS_PER_SECOND),
)


def recognise(document: Any) -> bool:
    """Return whether it is JSON of aiperf."""
    needed = ("schema_version", "input_config", "request_throughput")
    return isinstance(document, Mapping) and all(name in document for name in needed)


def read(document: Mapping[str, Any]) -> Sequence[ForeignRun]:
    """Return the run. Raises ResultError."""
    schema = text(document.get("schema_version"), "schema_version")
    if not (schema or "").startswith("1."):
        raise ResultError(f"it has schema {schema or 'null':.20}; schema 1 of aiperf can be read")
    conditions = _read_conditions(document["input_config"])
    figures = Figures()
    failure = _add_figures(figures, document)
    figures.add("model", conditions.get("model"))
    began, ended = (local(document.get(name), None, name) for name in ("start_time", "end_time"))
    if began and ended and ended < began:
        raise ResultError("end_time is before start_time")
    is_cut = document.get("was_cancelled") is True or document.get("is_complete") is False
    why = text(document.get("incomplete_reason"), "incomplete_reason") or "cancelled or incomplete"
    return [
        ForeignRun(
            program="aiperf",
            version=text(document.get("aiperf_version"), "aiperf_version"),
            parameters={**about_lengths(_mean_lengths(document)), **conditions},
            figures=figures.found,
            started_at=began if ended else None,
            ended_at=ended,
            phases=[("measure", began), ("end", ended)] if began and ended else [],
            nodes=_nodes(document),
            reason=why if is_cut else failure,
        )
    ]


def _add_figures(figures: Figures, metrics: Mapping[str, Any]) -> str | None:
    """Add the figures of metrics that each have their unit; return why the run failed, None: it did not.

    Raises ResultError: a metric is no number, in an unknown unit, or contradicts another.
    """
    good, all_of_them = (
        whole(stated(metrics, name, "avg", REQUESTS), name) for name in ("request_count", "completed_request_count")
    )
    if good is not None and all_of_them is not None and all_of_them < good:
        raise ResultError(f"request_count is {good}, more than the {all_of_them} of completed_request_count")
    figures.add("request_errors", None if good is None or all_of_them is None else all_of_them - good)
    if good == 0:
        return "no request succeeded"
    figures.add("requests", good if all_of_them is None else all_of_them)
    for name, field, unit, units in _RATES:
        figures.add(name, stated(metrics, field, "avg", units), unit, measured=True)
    for kind, field in _LATENCIES.items():
        found = {percent: stated(metrics, field, f"p{percent}", MILLISECONDS) for percent in (50, 90, 99)}
        figures.add_latencies(kind, found)
    share = stated(metrics, "good_request_fraction", "avg", SHARE)
    figures.add("goodput_percent", None if share is None else 100 * share, "%")
    lag = stated(metrics, "credit_to_start_latency", "p99", MILLISECONDS)
    figures.add("client_lag_p99_seconds", None if lag is None else lag / 1000, "s")
    for name, mean in _mean_lengths(metrics).items():
        figures.add(f"{name}_tokens_mean", mean)
    return None


def _mean_lengths(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the mean lengths of prompts and answers."""
    return {name: stated(metrics, field, "avg", TOKENS) for name, field in _LENGTHS.items()}


def _nodes(document: Mapping[str, Any]) -> list[Node]:
    gpus: dict[str | None, list[str]] = {}
    for endpoint in (part(document, "telemetry_data", "endpoints") or {}).values():
        for gpu in (part(endpoint, "gpus") or {}).values():
            host = text(part(gpu, "hostname"), "hostname")
            gpus.setdefault(host, []).append(text(part(gpu, "gpu_name"), "gpu_name") or "unknown GPU")
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]
