"""Warnings about slowed and failing GPUs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from math import isnan
from statistics import median

from gpuagent_collector.compare.figures import Evidence, Observed
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import significant
from gpuagent_collector.runs.data import distinct
from gpuagent_common.text import counted

# Throttling for longer than this share of the time deserves a warning.
_THROTTLED_PERCENT = 1.0
_CAUSES: Mapping[str, str] = {
    "gpu_power_capped_percent": "power cap",
    "gpu_thermal_slowdown_percent": "heat",
    "gpu_power_brake_percent": "power brake",
    "gpu_hardware_slowdown_percent": "hardware slowdown of unknown cause",
}
# Clocks whose ratio is nearer to 1 than this count as the same.
_SAME_CLOCK = 0.95
# A clock that is low for longer than this share of the busy time was set.
_UNEXPLAINED_PERCENT = 50.0

# Metric → what happened, and the remedy.
_MEMORY_ERRORS: Mapping[str, tuple[str, str]] = {
    "gpu_ecc_errors_uncorrected": ("memory errors occurred that could not be corrected", "do not trust these runs"),
    "gpu_memory_repair_pending": ("bad memory of a GPU is waiting to be replaced", "reset the GPU: `nvidia-smi -r`"),
    "gpu_memory_repair_failed": ("bad memory of a GPU could not be replaced", "have the GPU replaced"),
}


def impossible_readings(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where readings beyond physical limits were dropped, with their sources."""
    dropped = evidence.facts.impossible
    where = evidence.sides_among(dropped)
    if where:
        counts: Counter[str] = Counter()
        for row in (row for run_id in evidence.layout.run_ids for row in dropped.get(run_id, [])):
            counts[f"{row['text']} ({row['name'] or 'message or report'})"] += int(row["number"])
        listed = ", ".join(f"{counted(count, 'reading')} of {quantity}" for quantity, count in counts.most_common(3))
        more = f" and {len(counts) - 3} more" if len(counts) > 3 else ""
        yield Caveat(
            code="impossible_readings",
            text=f"readings beyond physical limits were left out in {where}: {listed}{more}",
            remedy="figures of these quantities rest on the other readings; check the driver. "
            "The table `impossible_readings` has all",
        )


def throttled(evidence: Observed) -> Iterator[Caveat]:
    """Warn where clocks were throttled, with the causes."""
    name = "gpu_throttled_percent"
    where = evidence.sides_above(name, _THROTTLED_PERCENT)
    if where:
        highest = {words: evidence.highest(cause) for cause, words in _CAUSES.items()}
        causes = ", ".join(f"{words} up to {significant(share)} %" for words, share in highest.items() if share)
        several = ", in the mean of a run's GPUs" if evidence.highest("gpus") > 1 else ""
        yield Caveat(
            code="throttled",
            text=f"GPU clocks were throttled in {where}, for up to {significant(evidence.highest(name))} % "
            f"of the measured time{several} ({causes})",
            remedy="check power limit, temperature and sm_clock_mhz; lock the clocks to compare chips",
        )


def different_clocks(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the same GPU model ran at another median SM clock, while busy, on another side."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for side, runs in evidence.sides.items():
        clocks = evidence.facts.column(runs, "sm_clock_busy_percent").tolist()
        for run, clock in zip(runs, clocks, strict=True):
            if run.device and not isnan(clock):
                found[run.device][side].append(clock)
    for gpu, sides in found.items():
        medians = {side: median(values) for side, values in sides.items()}
        if min(medians.values()) < _SAME_CLOCK * max(medians.values()):
            shares = ", ".join(f"{side} {significant(clock)} %" for side, clock in medians.items())
            yield Caveat(
                code="different_clocks",
                text=f"{gpu} ran at different SM clocks while busy, as shares of its maximum: {shares}",
                remedy="check power limits, heat and set clocks: `nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`",
            )


def set_clocks(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where clocks were low without throttling, except where they were so on all sides."""
    name = "gpu_clock_unexplained_percent"
    where = evidence.sides_above(name, _UNEXPLAINED_PERCENT)
    columns = [evidence.facts.column(runs, name) for runs in evidence.sides.values()]
    if where and not all((column > _UNEXPLAINED_PERCENT).all() for column in columns):
        yield Caveat(
            code="set_clocks",
            text=f"the SM clock stayed below {100 * _SAME_CLOCK:.0f} % of its maximum, while busy and not throttled, "
            f"in {where}",
            remedy="application or locked clocks cause that: `nvidia-smi -q -d CLOCK`; use the same on all sides",
        )


def narrow_links(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a GPU's PCIe link has fewer lanes than it could."""
    links = {}
    of_runs = distinct(evidence.facts.devices, chain.from_iterable(evidence.sides.values()))
    for gpu in chain.from_iterable(of_runs):
        width, widest = gpu["pcie_width"], gpu["pcie_width_max"]
        if width and widest and width < widest:
            links[id(gpu)] = f"×{width} of ×{widest}"
    narrow = {run_id for run_id, gpus in evidence.facts.devices.items() if links and links.keys() & map(id, gpus)}
    if where := evidence.sides_among(narrow):
        yield Caveat(
            code="narrow_link",
            text=f"the PCIe link of a GPU is narrower than it could be in {where}: "
            f"{', '.join(sorted(set(links.values())))}",
            remedy="copies to and from the GPU are slower there; check the slot, riser or BIOS setting",
        )


def memory_errors(evidence: Observed) -> Iterator[Caveat]:
    """Warn where a GPU's memory fails."""
    for name, (what, remedy) in _MEMORY_ERRORS.items():
        where = evidence.sides_above(name, 0)
        if where:
            yield Caveat(code=name.removeprefix("gpu_"), text=f"{what} in {where}", remedy=remedy)


def xid_errors(evidence: Observed) -> Iterator[Caveat]:
    """Warn where the driver reported errors of a GPU."""
    happened = evidence.facts.gpu_events
    where = evidence.sides_among(happened)
    if where:
        rows = (row for run_id in evidence.layout.run_ids for row in happened.get(run_id, []))
        errors = {int(row["number"]): row["text"] for row in rows}
        listed = ", ".join(
            f"Xid {number}" + (f" ({words})" if words else "") for number, words in sorted(errors.items())
        )
        yield Caveat(
            code="xid_errors",
            text=f"the driver reported errors of a GPU in {where}: {listed}",
            remedy="13, 31, 43 and 45 are usually a program's own fault; see NVIDIA's Xid catalogue for the others",
        )
