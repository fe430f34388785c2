"""Figures that measuring workloads such as `ceilings` report of a device or a node: rates and times, by rank."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.metrics import Better, Metric
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run

# Unit of a result → that of the metric, and the better direction.
_UNITS = {"FLOP/s": ("FLOP/s", Better.HIGHER), "bytes/s": ("bytes/s", Better.HIGHER), "s": ("seconds", Better.LOWER)}
_SPELT = {
    "dram": "DRAM",
    "gemm": "GEMM",
    "fp16": "FP16",
    "fp32": "FP32",
    "fp64": "FP64",
    "bf16": "BF16",
    "tf32": "TF32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One figure of one rank of a run."""

    metric: Metric
    run_id: str
    rank: int
    value: float


def load_reported(ask: Ask, runs: Sequence[Run], facts: Facts) -> list[Reported]:
    """Return the rates and times that runs without throughput reported.

    Those at one size of several are left out, except the bus bandwidths of `collectives`, which differ with the size.
    """
    measuring = [run.run_id for run in runs if facts.value(run, "throughput") is None]
    rows = ask(_REPORTED, [list(_UNITS), measuring]) if measuring else []
    return [
        Reported(
            metric=_metric(row["name"], row["unit"]), run_id=row["run_id"], rank=row["rank"] or 0, value=row["value"]
        )
        for row in rows
    ]


def _metric(name: str, unit: str) -> Metric:
    known, better = _UNITS[unit]
    if match := _AT_SIZE.fullmatch(name):
        what = match["operation"].replace("_", "-").capitalize()
        title = f"{what}, {size_text(int(match['bytes']))}"
        return Metric(name=name, title=title, unit=known, group="Result", better=better)
    words = re.sub(r"_(flops|bytes)_per_second$|_seconds$", "", name).split("_")
    title = " ".join(_SPELT.get(word, word) for word in words)
    return Metric(name=name, title=title[0].upper() + title[1:], unit=known, group="Result", better=better)


def size_text(size_bytes: int) -> str:
    """Return a message's size as it was asked for: 1 KiB, 16 MiB, 1,000 B."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes and size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power:,} {unit}"
    return f"{size_bytes:,} B"


def is_of_node(name: str) -> bool:
    """Return whether a figure is of all GPUs of a node together, whichever rank reports it."""
    match = _AT_SIZE.fullmatch(name)
    return name.startswith("all_reduce") or (match is not None and match["operation"] != "pairs")


def by_run(reported: Iterable[Reported]) -> Mapping[str, Mapping[str, float]]:
    """Return the figures of each run's rank 0, by name."""
    found: dict[str, dict[str, float]] = {}
    for one in reported:
        if one.rank == 0:
            found.setdefault(one.run_id, {})[one.metric.name] = one.value
    return found


# Of a collective over all ranks, or of a rank's exchanges with each other rank.
_AT_SIZE = re.compile(r"(?P<operation>[a-z_]+)_(?P<bytes>[0-9]+)_bytes_bus_bytes_per_second")

# A number between underscores is a size: gemm_bf16_4096_flops_per_second.
_REPORTED = r"""
SELECT run_id, rank, name, unit, arg_max(value, time) AS value
FROM results
WHERE list_contains(CAST(? AS VARCHAR[]), unit) AND value > 0
    AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
    AND (
        NOT regexp_matches(name, '_[0-9]+_|^datasheet_|^(warmup|setup|load)_')
        OR regexp_full_match(name, '[a-z_]+_[0-9]+_bytes_bus_bytes_per_second')
    )
GROUP BY run_id, rank, name, unit
ORDER BY regexp_replace(name, '[0-9]+', ''), try_cast(regexp_extract(name, '_([0-9]+)_bytes_', 1) AS BIGINT), name,
    run_id, rank"""
