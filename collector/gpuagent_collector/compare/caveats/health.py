"""What held GPUs back, and what is wrong with them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.specs import runs_of
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import significant
from gpuagent_collector.runs.data import Run

# Clocks that were held back for longer than this share of the time are worth a word.
_THROTTLED_PERCENT = 1.0
_CAUSES: Mapping[str, str] = {
    "gpu_power_capped_percent": "power cap",
    "gpu_thermal_slowdown_percent": "heat",
    "gpu_power_brake_percent": "power brake",
    "gpu_hardware_slowdown_percent": "hardware slowdown of unknown cause",
}
# Clocks whose ratio is nearer to 1 than this are much the same.
_SAME_CLOCK = 0.95
# A clock that is low for longer than this share of the busy time is set so.
_UNEXPLAINED_PERCENT = 50.0


def throttled(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where clocks were held back, and say by what."""
    name = "gpu_throttled_percent"
    where = _where_above(evidence, name, _THROTTLED_PERCENT)
    if where:
        highest = {words: evidence.highest(cause) for cause, words in _CAUSES.items()}
        causes = ", ".join(f"{words} up to {significant(share)} %" for words, share in highest.items() if share)
        yield Caveat(
            code="throttled",
            text=f"GPU clocks were held back in {where}, for up to {significant(evidence.highest(name))} % "
            f"of the measured time ({causes})",
            remedy="look at power limit, temperature and sm_clock_mhz; lock the clocks to compare chips",
        )


def different_clocks(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the same GPU ran at another clock on another side."""
    for gpu, clocks in _busy_clocks(evidence).items():
        if min(clocks.values()) < _SAME_CLOCK * max(clocks.values()):
            told = ", ".join(f"{side} {significant(clock)} %" for side, clock in clocks.items())
            yield Caveat(
                code="different_clocks",
                text=f"{gpu} ran at different SM clocks while busy, as shares of its maximum: {told}",
                remedy="look for power limits, heat and set clocks: `nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`",
            )


def _busy_clocks(evidence: Evidence) -> dict[str, dict[str, float]]:
    """Return for each kind of GPU the median SM clock while busy, in percent of its maximum, by side."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for side in evidence.layout.sides:
        for run in runs_of(evidence.layout, side):
            clock = evidence.metric(run, "sm_clock_busy_percent")
            if run.device and clock is not None:
                found[run.device][side].append(clock)
    return {gpu: {side: median(clocks) for side, clocks in sides.items()} for gpu, sides in found.items()}


def set_clocks(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where clocks were low though nothing held them back, unless they were so on all sides."""

    def concerns(run: Run) -> bool:
        return (evidence.metric(run, "gpu_clock_unexplained_percent") or 0) > _UNEXPLAINED_PERCENT

    where = evidence.sides_where(concerns)
    if where and not all(all(map(concerns, runs_of(evidence.layout, side))) for side in evidence.layout.sides):
        yield Caveat(
            code="set_clocks",
            text=f"the SM clock stayed below {100 * _SAME_CLOCK:.0f} % of its maximum, while busy and not held back, "
            f"in {where}",
            remedy="application or locked clocks do that: `nvidia-smi -q -d CLOCK`; use the same on all sides",
        )


def narrow_links(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a GPU's PCIe link has fewer lanes than it could."""
    where = evidence.sides_where(lambda run: bool(_narrow(evidence, run)))
    if where:
        runs = [run for side in evidence.layout.sides for run in runs_of(evidence.layout, side)]
        links = sorted({link for run in runs for link in _narrow(evidence, run)})
        yield Caveat(
            code="narrow_link",
            text=f"the PCIe link of a GPU is narrower than it could be in {where}: {', '.join(links)}",
            remedy="copies to and from the GPU are slower there; see to the slot, riser or BIOS setting",
        )


def _narrow(evidence: Evidence, run: Run) -> set[str]:
    """Return the links of a run's GPUs that are narrower than they could be, as ×8 of ×16."""
    links = [(gpu["pcie_width"], gpu["pcie_width_max"]) for gpu in evidence.facts.devices.get(run.run_id, [])]
    return {f"×{width} of ×{widest}" for width, widest in links if width and widest and width < widest}


def memory_errors(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a GPU's memory fails."""
    for name, what, remedy in (
        ("gpu_ecc_errors_uncorrected", "memory errors that could not be corrected came up", "do not trust these runs"),
        ("gpu_memory_repair_pending", "bad memory of a GPU waits to be replaced", "reset the GPU: `nvidia-smi -r`"),
        ("gpu_memory_repair_failed", "bad memory of a GPU could not be replaced", "have the GPU replaced"),
    ):
        where = _where_above(evidence, name, 0)
        if where:
            yield Caveat(code=name.removeprefix("gpu_"), text=f"{what} in {where}", remedy=remedy)


def _where_above(evidence: Evidence, name: str, bound: float) -> str:
    return evidence.sides_where(lambda run: (evidence.metric(run, name) or 0) > bound)


def xid_errors(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the driver told of errors of a GPU."""
    happened = evidence.facts.gpu_events
    where = evidence.sides_where(lambda run: run.run_id in happened)
    if where:
        runs = {run.run_id for side in evidence.layout.sides for run in runs_of(evidence.layout, side)}
        errors = {row["number"]: row["words"] for run_id in runs & happened.keys() for row in happened[run_id]}
        told = ", ".join(f"Xid {number}" + (f" ({words})" if words else "") for number, words in sorted(errors.items()))
        yield Caveat(
            code="xid_errors",
            text=f"the driver told of errors of a GPU in {where}: {told}",
            remedy="13, 31, 43 and 45 are usually a program's own fault; of others NVIDIA's Xid catalogue says more",
        )
