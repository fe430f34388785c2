"""`profile_export_aiperf.json` of aiperf, and the `.csv` beside it, which has neither the load nor the version.

Fields are those of schema 1.4, as aiperf 0.13.0 wrote it; its inter-token latency is the mean over a request. Times
have no zone: they are the clock of the machine on which aiperf ran.
"""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    Node,
    ResultError,
    constant,
    local,
    number,
    part,
    text,
    whole,
)
from gpuagent_collector.metrics.serving import SERVING

_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}

_RATES = (
    ("throughput", "output_token_throughput", "tokens/s"),
    ("input_tokens_per_second", "input_token_throughput", "tokens/s"),
    ("requests_per_second", "request_throughput", "requests/s"),
    ("goodput", "goodput", "requests/s"),
)

_LIMITS = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"}

# Begin of a line of the CSV → the same in the JSON.
_LINES = {
    "Time to First Token (ms)": "time_to_first_token",
    "Inter Token Latency (ms)": "inter_token_latency",
    "Request Latency (ms)": "request_latency",
    "Credit-to-Start Latency (ms)": "credit_to_start_latency",
    "Input Sequence Length (tokens)": "input_sequence_length",
    "Output Sequence Length (tokens)": "output_sequence_length",
    "Output Token Throughput (tokens/sec)": "output_token_throughput",
    "Input Token Throughput (tokens/sec)": "input_token_throughput",
    "Request Throughput (requests/sec)": "request_throughput",
    "Goodput (requests/sec)": "goodput",
    "GoodRequestFraction (ratio)": "good_request_fraction",
    "Request Count": "request_count",
    "Completed Requests (Success + Error)": "completed_request_count",
}


def recognise(document: Any) -> bool:
    """Return whether it is JSON of aiperf."""
    return isinstance(document, Mapping) and "input_config" in document and "request_throughput" in document


def recognise_csv(document: Any) -> bool:
    """Return whether it is a CSV of aiperf."""
    return isinstance(document, str) and document.startswith("Metric,avg,") and "\nRequest Throughput (" in document


def read(document: Mapping[str, Any]) -> Sequence[ForeignRun]:
    """Return the run. Raises ResultError."""
    schema = text(document.get("schema_version"), "schema_version")
    if schema is not None and not schema.startswith("1."):
        raise ResultError(f"it has schema {schema:.20}; schema 1 of aiperf can be read")
    config = document["input_config"]
    figures = Figures()
    _add(figures, document)
    model = text(part(_first(part(config, "models", "items")), "name"), "model")
    figures.add("model", model)
    began, ended = (local(document.get(name), None, name) for name in ("start_time", "end_time"))
    if began and ended and ended < began:
        raise ResultError("end_time is before start_time")
    is_cut = document.get("was_cancelled") is True or document.get("is_complete") is False
    why = text(document.get("incomplete_reason"), "incomplete_reason") or "cancelled or incomplete"
    return [
        ForeignRun(
            program="aiperf",
            version=text(document.get("aiperf_version"), "aiperf_version"),
            workload=SERVING,
            parameters={**({"model": model} if model else {}), **_load(config), **_content(config)},
            figures=figures.found,
            started_at=began if ended else None,
            ended_at=ended,
            phases=[("measure", began), ("end", ended)] if began and ended else [],
            nodes=_nodes(document),
            reason=why if is_cut else None,
        )
    ]


def read_csv(document: str) -> Sequence[ForeignRun]:
    """Return the run, without its load. Raises ResultError."""
    header: list[str] = []
    found: dict[str, Mapping[str, float | None]] = {}
    for row in csv.reader(document.splitlines()):
        if row[:1] == ["Metric"]:
            header = ["avg"] if row[1:] == ["Value"] else row[1:]
        elif row and row[0] in _LINES and len(row) == 1 + len(header):
            values = {name: float(value) if value else None for name, value in zip(header, row[1:], strict=True)}
            found[_LINES[row[0]]] = values
    # The lines are sorted: what comes after the last one says that it is whole.
    if not ("request_throughput" in found and "\nTotal Token Throughput (" in document and document.endswith("\n")):
        raise ResultError("it is cut off")
    figures = Figures()
    _add(figures, found)
    return [ForeignRun(program="aiperf", version=None, workload=SERVING, parameters={}, figures=figures.found)]


def _add(figures: Figures, metrics: Mapping[str, Any]) -> None:
    for name, field, unit in _RATES:
        figures.add(name, number(part(metrics, field, "avg"), field), unit, measured=True)
    for kind, field in _LATENCIES.items():
        figures.add_latencies(kind, {percent: part(metrics, field, f"p{percent}") for percent in (50, 90, 99)})
    share = number(part(metrics, "good_request_fraction", "avg"), "good_request_fraction")
    figures.add("goodput_percent", None if share is None else 100 * share, "%")
    lag = number(part(metrics, "credit_to_start_latency", "p99"), "credit_to_start_latency")
    figures.add("client_lag_p99_seconds", None if lag is None else lag / 1000, "s")
    good, all_of_them = (
        whole(part(metrics, name, "avg"), name) for name in ("request_count", "completed_request_count")
    )
    if good is not None and all_of_them is not None and all_of_them < good:
        raise ResultError(f"request_count is {good}, more than the {all_of_them} of completed_request_count")
    figures.add("requests", good if all_of_them is None else all_of_them)
    figures.add("request_errors", None if good is None or all_of_them is None else all_of_them - good)
    for name, field in (
        ("input_tokens_mean", "input_sequence_length"),
        ("output_tokens_mean", "output_sequence_length"),
    ):
        figures.add(name, number(part(metrics, field, "avg"), field))


def _load(config: Any) -> dict[str, Any]:
    """Return the level of load; empty: it is not one phase of it."""
    phases = part(config, "phases")
    measured = [phase for phase in phases or [] if part(phase, "kind") == "profiling"]
    if len(measured) != 1:
        return {}
    (phase,) = measured
    kind = text(part(phase, "type"), "type")
    rate, users = number(part(phase, "rate"), "rate"), whole(part(phase, "concurrency"), "concurrency")
    shape = {"poisson": 1.0, "gamma": number(part(phase, "smoothness"), "smoothness"), "constant": "constant"}
    return {
        "rate": rate,
        "concurrency": None if rate else users,
        **({"burstiness": shape[kind]} if kind in shape else {}),
        **({} if rate or users else {"profile": kind}),
    }


def _content(config: Any) -> dict[str, Any]:
    served = {"completions": "completions", "chat": "chat"}.get(str(part(config, "endpoint", "type")))
    datasets = part(config, "datasets")
    prompts = part(datasets[0], "prompts") if isinstance(datasets, list) and len(datasets) == 1 else None
    lengths = {
        name: constant(number(part(prompts, field, "mean"), field), number(part(prompts, field, "stddev"), field))
        for name, field in (("input", "isl"), ("output", "osl"))
    }
    limits = part(config, "slos") or {}
    return {
        **({"api": served} if served else {}),
        **{name: length for name, length in lengths.items() if length},
        **{f"slo-{name}": number(limits.get(field), field) for field, name in _LIMITS.items() if limits.get(field)},
    }


def _nodes(document: Mapping[str, Any]) -> list[Node]:
    """Return the nodes whose GPUs aiperf watched."""
    gpus: dict[str | None, list[str]] = {}
    for endpoint in (part(document, "telemetry_data", "endpoints") or {}).values():
        for gpu in (part(endpoint, "gpus") or {}).values():
            host = text(part(gpu, "hostname"), "hostname")
            gpus.setdefault(host, []).append(text(part(gpu, "gpu_name"), "gpu_name") or "unknown GPU")
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]


def _first(items: Any) -> Any:
    return items[0] if isinstance(items, list) and items else None
