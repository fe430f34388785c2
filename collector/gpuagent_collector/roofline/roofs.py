"""Runs with their reports, and the peak performance of their devices: by datasheet, and as `ceilings` measured it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite
from typing import Any

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run

# Name → figure of a run, mean over its ranks; above 0.
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that succeeded, with its reports.

    Attributes:
        device: name of the GPU, as each rank has one, or of the processor and its threads.
        device_ids: keys of its GPUs; empty: no known GPU.
        node_ids: keys of its nodes.
        figures: results of the workload, `step_seconds` and `steps` of its measured steps.
        metrics: its figures, by metric.
        texts: its results that are texts.
        is_short: whether it reported that it measured for too short a time.
        part: the rank or GPU that is meant; None: the run.
    """

    run: Run
    device: str
    device_ids: frozenset[int]
    node_ids: frozenset[int]
    figures: Figures
    metrics: Mapping[str, float]
    texts: Mapping[str, str]
    is_short: bool
    part: str | None = None


def load_trials(ask: Ask, runs: Iterable[Run], facts: Facts) -> list[Trial]:
    """Return the runs with their reports on steps and on their devices' roofs."""
    runs = list(runs)
    figures = load_figures(ask, [run.run_id for run in runs], rank="NULL")
    return [_trial(run, facts, figures[run.run_id, None]) for run in runs]


def load_figures(ask: Ask, run_ids: Sequence[str], rank: str) -> Mapping[tuple[str, int | None], Figures]:
    """Return results and steps by run and by this expression of the rank; NULL: means over the ranks."""
    figures: dict[tuple[str, int | None], dict[str, float]] = defaultdict(dict)
    for query in (_RESULTS, _STEPS):
        for row in ask(query.format(rank=rank), [list(run_ids)]):
            if isfinite(row["value"]) and row["value"] > 0:
                figures[row["run_id"], row["rank"]][row["name"]] = row["value"]
    return figures


def _trial(run: Run, facts: Facts, figures: Figures) -> Trial:
    sessions, devices = facts.sessions.get(run.run_id, []), facts.devices.get(run.run_id, [])
    texts = facts.texts.get(run.run_id, {})
    return Trial(
        run=run,
        device=_device(texts, sessions, devices),
        device_ids=frozenset(device["device_id"] for device in devices),
        node_ids=frozenset(session["node_id"] for session in sessions),
        figures=figures,
        metrics=facts.metrics.get(run.run_id, {}),
        texts=texts,
        is_short=run.run_id in facts.short,
    )


def _device(
    texts: Mapping[str, str], sessions: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]]
) -> str:
    """Return the device as named by the workload, else by NVML; for a processor with the number of its threads."""
    named = texts.get("device") or ", ".join(sorted({device["name"] or "unknown GPU" for device in devices}))
    if named and named != "cpu":
        return named
    processors = ", ".join(sorted({session["cpu_model"] or "unknown CPU" for session in sessions}))
    threads = texts.get("threads")
    return f"{processors or 'unknown CPU'}{f', {threads} threads' if threads else ''}"


_RESULTS = """
SELECT run_id, {rank} AS rank, name, avg(value) AS value  -- of the last report of each rank
FROM (
    SELECT run_id, rank, name, arg_max(value, time) AS value
    FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
        AND (ends_with(name, '_per_step') OR ends_with(name, '_per_second') OR name = 'quick')
    GROUP BY ALL
)
WHERE value IS NOT NULL
GROUP BY ALL"""

_STEPS = """
WITH of_ranks AS (
    -- The wall time of a step on a GPU is that of its launch.
    SELECT run_id, rank, avg(coalesce(gpu_seconds, wall_seconds)) AS seconds, count(*) AS steps
    FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND phase = 'measure'
    GROUP BY ALL
)
SELECT run_id, {rank} AS rank, 'step_seconds' AS name, avg(seconds) AS value
FROM of_ranks WHERE seconds IS NOT NULL GROUP BY ALL
UNION ALL
SELECT run_id, {rank}, 'steps', avg(steps) FROM of_ranks GROUP BY ALL"""


# Each has its own peak, and this name in the results of runs.
ARITHMETICS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")

# FLOPs of a step by arithmetic; only those above 0.
Mix = Mapping[str, float]

# The arithmetic outside tensor cores.
CUDA_CORES = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The peaks of one device, from one source.

    Attributes:
        flops_per_second: the known ones, by arithmetic.
        bytes_per_second: of the device's memory, both directions; None: unknown.
    """

    flops_per_second: Mapping[str, float]
    bytes_per_second: float | None

    def peak(self, mix: Mix) -> float | None:
        """Return the FLOP/s of a mix at its peaks, one arithmetic after the other; None: a peak is unknown."""
        if not mix or not self.flops_per_second.keys() >= mix.keys():
            return None
        return sum(mix.values()) / sum(flops / self.flops_per_second[name] for name, flops in mix.items())

    def at(self, mix: Mix, intensity: float) -> float | None:
        """Return the roof in FLOP/s at an intensity: the lesser of the peak and of bandwidth × FLOPs by byte."""
        peak = self.peak(mix)
        if peak is None or self.bytes_per_second is None:
            return None
        return min(peak, intensity * self.bytes_per_second)

    def ridge(self, mix: Mix) -> float | None:
        """Return the FLOPs by byte from which on arithmetic is the bound, not memory."""
        peak = self.peak(mix)
        return None if peak is None or self.bytes_per_second is None else peak / self.bytes_per_second


def measured_roofs(figures: Mapping[str, float]) -> Roofs:
    """Return the roofs from a run of `ceilings`: its best matrix products, and the better of copy and triad."""
    bandwidths = [figures.get(f"dram_{way}_bytes_per_second") for way in ("copy", "triad")]
    return Roofs(
        flops_per_second=_by_arithmetic(figures, "gemm_{}_flops_per_second"),
        bytes_per_second=max((each for each in bandwidths if each), default=None),
    )


def datasheet_roofs(runs: Iterable[Mapping[str, float]]) -> Roofs:
    """Return the datasheet's roofs from the results of runs on one device."""
    known = {name: value for figures in runs for name, value in figures.items()}
    return Roofs(
        flops_per_second=_by_arithmetic(known, "datasheet_{}_flops_per_second"),
        bytes_per_second=known.get("datasheet_dram_bytes_per_second"),
    )


def _by_arithmetic(figures: Mapping[str, float], name: str) -> dict[str, float]:
    found = {arithmetic: figures.get(name.format(arithmetic)) for arithmetic in ARITHMETICS}
    return {arithmetic: value for arithmetic, value in found.items() if value}


class Nearness(IntEnum):
    """The relation of the device whose roofs were measured to those of the runs, the nearest last."""

    OTHER_NODE = 0
    SAME_NODE = 1
    SAME_DEVICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The roofs from a run of `ceilings`."""

    run: Run
    roofs: Roofs
    nearness: Nearness


def find_ceilings(trials: Sequence[Trial], measured: Iterable[Trial]) -> Ceilings | None:
    """Return the newest roofs of the nearest device of the model that the trials ran on; None: no roofs were measured.

    Args:
        trials: runs on one model of device; at least one.
        measured: runs of `ceilings`, oldest first. Quick tests are left out.
    """
    alike = [one for one in measured if one.device == trials[0].device and "quick" not in one.figures]
    ranked = sorted(
        ((_nearness(one, trials), number, one) for number, one in enumerate(alike)), key=lambda one: one[:2]
    )
    if not ranked:
        return None
    nearness, _, nearest = ranked[-1]
    return Ceilings(run=nearest.run, roofs=measured_roofs(nearest.figures), nearness=nearness)


def _nearness(measured: Trial, trials: Sequence[Trial]) -> Nearness:
    if any(measured.device_ids & trial.device_ids for trial in trials):
        return Nearness.SAME_DEVICE
    if not any(measured.node_ids & trial.node_ids for trial in trials):
        return Nearness.OTHER_NODE
    # A node has processors of one kind, and threads of either run may be on any of them.
    on_processor = not measured.device_ids and not any(trial.device_ids for trial in trials)
    return Nearness.SAME_DEVICE if on_processor else Nearness.SAME_NODE
