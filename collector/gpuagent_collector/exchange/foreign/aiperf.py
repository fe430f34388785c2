"""`profile_export_aiperf.json` of aiperf, and the `.csv` beside it, which has neither the load nor the version.

Fields are those of schemas 1.0 to 1.4, as of aiperf 0.5.0 to 0.13.0. Its inter-token latency is the mean over a
request. Times have no zone: they are the clock of the machine on which aiperf ran. Files of GenAI-Perf, from which
aiperf comes, have the same metrics, other settings and no version; those of aiperf before 0.3 have none either.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.aiperf_config import read_conditions
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
    local,
    part,
    stated,
    text,
    whole,
)
from gpuagent_collector.metrics.result import SERVING

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
            workload=SERVING,
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
            program="aiperf",
            version=None,
            workload=SERVING,
            parameters=about_lengths(mean_lengths(found)),
            figures=figures.found,
            reason=failure,
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
    """Return the nodes whose GPUs aiperf watched."""
    gpus: dict[str | None, list[str]] = {}
    for endpoint in (part(document, "telemetry_data", "endpoints") or {}).values():
        for gpu in (part(endpoint, "gpus") or {}).values():
            host = text(part(gpu, "hostname"), "hostname")
            gpus.setdefault(host, []).append(text(part(gpu, "gpu_name"), "gpu_name") or "unknown GPU")
    return [Node(hostname=hostname, gpus=tuple(names)) for hostname, names in gpus.items()]
