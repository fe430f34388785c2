"""Results of MLPerf: of Training, lines `:::MLLOG {…}` as mlcommons/logging writes them, and the summary of Inference.

Keys of Training are those of mlperf_logging/mllog/constants.py, versions 1 to 5, its times Unix milliseconds. The lines
of `mlperf_log_summary.txt` are those of loadgen/results.cc and test_settings_internal.cc of mlcommons/inference,
versions 3 to 5.1; the file has neither the benchmark, the version nor the time, and its latencies are nanoseconds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import Figures, ForeignRun, ResultError, lines, number, part, text, utc

_MARK = ":::MLLOG"

# Facts of a submission; its hyperparameters are no condition of a comparison: each system has its own.
_TEXTS = ("submission_org", "submission_division", "submission_status", "submission_poc_name")
_NUMBERS = (
    *("global_batch_size", "train_samples", "eval_samples", "seed", "max_steps", "gradient_accumulation_steps"),
    *("number_of_nodes", "accelerators_per_node"),
)

# Figures over time: the quality that training aims at.
_EVALUATIONS = ("eval_accuracy", "eval_loss", "eval_error")


def recognise_training(document: Any) -> bool:
    """Return whether there are such lines."""
    return isinstance(document, str) and _MARK in document


def read_training(document: str) -> Sequence[ForeignRun]:
    """Return the run of a log; one whose run_stop is not a success has failed. Raises ResultError."""
    events = [_event(line) for line in lines(document) if _MARK in line]
    last = {str(event.get("key")): event for event in events}
    first = {str(event.get("key")): event for event in reversed(events)}
    for key in ("submission_benchmark", "run_start", "run_stop"):
        if key not in last:
            raise ResultError(f"damaged or truncated: it has no {key}")
    if (starts := sum(event.get("key") == "run_start" for event in events)) > 1:
        raise ResultError(f"it has {starts} runs; import the result file of each run")
    benchmark = text(part(last, "submission_benchmark", "value"), "submission_benchmark")
    if benchmark is None:
        raise ResultError("submission_benchmark has no value")
    began, ended = _time(first["run_start"]), _time(last["run_stop"])
    if ended < began:
        raise ResultError("run_stop is before run_start")
    init = first.get("init_start")
    phases = [("setup", _time(init))] if init and _time(init) <= began else []
    figures = Figures()
    figures.add("time_to_train_seconds", (ended - began).total_seconds(), "s")
    evaluations = [
        (_time(event), str(event["key"]), _detail(event)) for event in events if event.get("key") in _EVALUATIONS
    ]
    for _, name, detail in evaluations[-1:]:
        figures.add(name, detail["value"])
    for key in _TEXTS:
        figures.add(key, text(part(last, key, "value"), key))
    for key in _NUMBERS:
        figures.add(key, number(part(last, key, "value"), key))
    figures.add("ranks", number(part(last, "number_of_ranks", "value"), "number_of_ranks"))
    status = text(part(last["run_stop"], "metadata", "status"), "status")
    return [
        ForeignRun(
            program="mlperf-training",
            workload=f"mlperf-{benchmark}",
            parameters={"benchmark": benchmark},
            figures=figures.found,
            started_at=phases[0][1] if phases else began,
            ended_at=ended,
            phases=[*phases, ("measure", began), ("end", ended)],
            evaluations=evaluations,
            platform=text(part(last, "submission_platform", "value"), "submission_platform"),
            reason=None if status == "success" else f"run_stop: {status or 'no status'}",
        )
    ]


def _event(line: str) -> Mapping[str, Any]:
    written = line.partition(_MARK)[2].strip()
    try:
        event = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"a line {_MARK} is damaged or truncated: {error!s:.80}") from error
    if not isinstance(event, dict):
        raise ResultError(f"a line {_MARK} has {written:.40}, which is no object")
    return event


def _time(event: Mapping[str, Any]) -> Any:
    milliseconds = number(event.get("time_ms"), "time_ms")
    moment = utc(None if milliseconds is None else milliseconds / 1000, "time_ms")
    if moment is None:
        raise ResultError(f"{event.get('key')} has no time_ms")
    return moment


def _detail(event: Mapping[str, Any]) -> dict[str, Any]:
    metadata = event.get("metadata")
    stated = metadata if isinstance(metadata, dict) else {}
    places = {name: number(stated.get(name), name) for name in ("samples_count", "epoch_num", "step_num")}
    value = event.get("value")
    known = None
    # A loss can be negative. JSON has neither NaN nor infinity.
    if isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300:
        known = float(value)
    return {"step": places["step_num"] or places["samples_count"] or places["epoch_num"], "value": known, **places}


# The workload: one of several benchmarks, which the file does not name.
INFERENCE = "mlperf-inference"

_RECOMMENDATION = re.compile(r" \* (.+)")

# Loadgen's names of percentiles of latencies.
_LATENCIES = {"e2e": "latency", "ttft": "first token latency", "tpot": "time to output token"}

# The rates of the scenarios, the first that is there; those that count completed work first.
_SAMPLES = ("Completed samples per second", "Samples per second", "Scheduled samples per second")
_TOKENS = ("Completed tokens per second", "Tokens per second")


def recognise_inference(document: Any) -> bool:
    """Return whether it is such a summary."""
    return isinstance(document, str) and "MLPerf Results Summary" in document[:10_000]


def read_inference(document: str) -> Sequence[ForeignRun]:
    """Return the run of a summary; one that loadgen calls invalid has failed. Raises ResultError."""
    pairs = (line.partition(":") for line in lines(document))
    stated = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    for name in ("SUT name", "Scenario", "Mode", "Result is", "performance_sample_count"):
        if name not in stated:
            raise ResultError(f"damaged or truncated: it has no line {name!r}")
    figures = Figures()
    samples, tokens = (
        next((number(float(stated[name]), name) for name in names if name in stated), None)
        for names in (_SAMPLES, _TOKENS)
    )
    figures.add("throughput", tokens or samples, "tokens/s" if tokens else "samples/s", measured=True)
    figures.add("requests_per_second", samples, "requests/s", measured=True)
    for kind, theirs in _LATENCIES.items():
        figures.add_latencies(kind, {percent: _milliseconds(stated, percent, theirs) for percent in (50, 90, 99)})
    figures.add("sut_name", stated["SUT name"])
    figures.add("result", stated["Result is"])
    scenario, reason = stated["Scenario"], None
    if stated["Result is"] != "VALID":
        found = _RECOMMENDATION.search(document.partition("Recommendations:")[2])
        reason = f"loadgen: invalid{f'; {found[1]:.200}' if found else ''}"
    return [
        ForeignRun(
            program="mlperf-inference",
            workload=INFERENCE,
            parameters={
                "scenario": scenario,
                "mode": stated["Mode"],
                # An aim elsewhere, the load of a server.
                "rate": number(float(stated["target_qps"]), "target_qps")
                if scenario == "Server" and "target_qps" in stated
                else None,
            },
            figures=figures.found,
            reason=reason,
        )
    ]


def _milliseconds(stated: Mapping[str, str], percent: int, latency: str) -> float | None:
    name = f"{percent}.00 percentile {latency} (ns)"
    nanoseconds = number(float(stated[name]), name) if name in stated else None
    return None if nanoseconds is None else nanoseconds / 1e6
