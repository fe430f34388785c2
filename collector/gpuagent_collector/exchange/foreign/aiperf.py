"""The settings that aiperf writes into a result: the conditions under which results are alike.

Schema 1.1 and later, as of 0.10.0 and 0.13.0, have `models`, `datasets` and `phases`. Schema 1.0 and the files without
one, as of 0.1 to 0.5, have `endpoint.model_names`, `input` and `loadgen`. Settings that a user did not give are absent.
"""

import csv
import re
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


_LENGTHS = {"input": "input_sequence_length", "output": "output_sequence_length"}

_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}

_RATES = (
    ("throughput", "output_token_throughput", "tokens/s", TOKENS_PER_SECOND),
    ("input_tokens_per_second", "input_token_throughput", "tokens/s", TOKENS_PER_SECOND),
    ("requests_per_second", "request_throughput", "requests/s", REQUESTS_PER_SECOND),
    ("goodput", "goodput", "requests/s", REQUESTS_PER_SECOND),
)

# Begin of a line of the CSV, without the unit → the same in the JSON.
_LINES = {
    "Time to First Token": "time_to_first_token",
    "Inter Token Latency": "inter_token_latency",
    "Request Latency": "request_latency",
    "Credit-to-Start Latency": "credit_to_start_latency",
    "Input Sequence Length": "input_sequence_length",
    "Output Sequence Length": "output_sequence_length",
    "Output Token Throughput": "output_token_throughput",
    "Input Token Throughput": "input_token_throughput",
    "Request Throughput": "request_throughput",
    "Goodput": "goodput",
    "GoodRequestFraction": "good_request_fraction",
    "Request Count": "request_count",
    "Completed Requests (Success + Error)": "completed_request_count",
}
_TITLE = re.compile(r"(.+?)(?: \(([^()]+)\))?")


def recognise(document: Any) -> bool:
    """Return whether it is JSON of aiperf."""
    if not (isinstance(document, Mapping) and "input_config" in document and "request_throughput" in document):
        return False
    config = document["input_config"]
    command = config.get("cli_command") if isinstance(config, Mapping) else None
    return "schema_version" in document or "aiperf_version" in document or str(command).startswith("aiperf ")


def recognise_csv(document: Any) -> bool:
    """Return whether it is a CSV of aiperf. That of GenAI-Perf has other units, such as `per sec`."""
    if not (isinstance(document, str) and document.startswith("Metric,avg,")):
        return False
    return "\nRequest Throughput (requests/" in document


def read(document: Mapping[str, Any]) -> Sequence[ForeignRun]:
    """Return the run. Raises ResultError."""
    schema = text(document.get("schema_version"), "schema_version")
    if schema is not None and not schema.startswith("1."):
        raise ResultError(f"it has schema {schema:.20}; schema 1 of aiperf can be read")
    conditions = read_conditions(document["input_config"])
    figures = Figures()
    failure = add_figures(figures, document)
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
            parameters={**about_lengths(mean_lengths(document)), **conditions},
            figures=figures.found,
            started_at=began if ended else None,
            ended_at=ended,
            phases=[("measure", began), ("end", ended)] if began and ended else [],
            nodes=_nodes(document),
            reason=why if is_cut else failure,
        )
    ]


def read_csv(document: str) -> Sequence[ForeignRun]:
    """Return the run, without its load. Raises ResultError."""
    header: list[str] = []
    found: dict[str, Mapping[str, Any]] = {}
    for row in csv.reader(document.splitlines()):
        if row[:1] == ["Metric"]:
            header = ["avg"] if row[1:] == ["Value"] else row[1:]
        elif row and len(row) == 1 + len(header) and (line := _read_title(row[0])):
            name, unit = line
            values = {title: float(value) if value else None for title, value in zip(header, row[1:], strict=True)}
            found[name] = {"unit": unit, **values}
    # The lines are sorted: what comes after the last one says that it is whole.
    if not ("request_throughput" in found and "\nTotal Token Throughput (" in document and document.endswith("\n")):
        raise ResultError("it is cut off")
    figures = Figures()
    failure = add_figures(figures, found)
    return [
        ForeignRun(
            program="aiperf", parameters=about_lengths(mean_lengths(found)), figures=figures.found, reason=failure
        )
    ]


def _read_title(title: str) -> tuple[str, str | None] | None:
    """Return the metric and the unit of a line of the CSV; None: no import reads it."""
    if title in _LINES:
        return _LINES[title], None
    matched = _TITLE.fullmatch(title)
    return (_LINES[matched[1]], matched[2]) if matched and matched[1] in _LINES else None


def add_figures(figures: Figures, metrics: Mapping[str, Any]) -> str | None:
    """Add the figures of metrics that each have their unit; return why the run failed, None: it did not.

    Raises:
        ResultError: a metric is no number, in an unknown unit, or contradicts another.
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
    for name, mean in mean_lengths(metrics).items():
        figures.add(f"{name}_tokens_mean", mean)
    return None


def mean_lengths(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the mean lengths of prompts and answers."""
    return {name: stated(metrics, field, "avg", TOKENS) for name, field in _LENGTHS.items()}


def _nodes(document: Mapping[str, Any]) -> list[Node]:
    gpus: dict[str | None, list[str]] = {}
    for endpoint in (part(document, "telemetry_data", "endpoints") or {}).values():
        for gpu in (part(endpoint, "gpus") or {}).values():
            host = text(part(gpu, "hostname"), "hostname")
            gpus.setdefault(host, []).append(text(part(gpu, "gpu_name"), "gpu_name") or "unknown GPU")
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]
