"""`mlperf_log_summary.txt` of MLPerf Inference's loadgen.

The lines are those of loadgen/results.cc and test_settings_internal.cc of mlcommons/inference, versions 3 to 5.1. The
file has neither the benchmark, the version nor the time; latencies are nanoseconds.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.result import Figures, ForeignRun, ResultError, lines, number

# The workload: one of several benchmarks, which the file does not name.
INFERENCE = "mlperf-inference"

_RECOMMENDATION = re.compile(r" \* (.+)")

# Loadgen's names of percentiles of latencies.
_LATENCIES = {"e2e": "latency", "ttft": "first token latency", "tpot": "time to output token"}

# The rates of the scenarios, the first that is there; those that count completed work first.
_SAMPLES = ("Completed samples per second", "Samples per second", "Scheduled samples per second")
_TOKENS = ("Completed tokens per second", "Tokens per second")


def recognise(document: Any) -> bool:
    """Return whether it is such a summary."""
    return isinstance(document, str) and "MLPerf Results Summary" in document[:10_000]


def read(document: str) -> Sequence[ForeignRun]:
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
    scenario = stated["Scenario"]
    return [
        ForeignRun(
            program="mlperf-inference",
            version=None,
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
            reason=None if stated["Result is"] == "VALID" else _reason(document),
        )
    ]


def _milliseconds(stated: Mapping[str, str], percent: int, latency: str) -> float | None:
    name = f"{percent}.00 percentile {latency} (ns)"
    nanoseconds = number(float(stated[name]), name) if name in stated else None
    return None if nanoseconds is None else nanoseconds / 1e6


def _reason(document: str) -> str:
    after = document.partition("Recommendations:")[2]
    found = _RECOMMENDATION.search(after)
    return f"loadgen: invalid{f'; {found[1]:.200}' if found else ''}"
