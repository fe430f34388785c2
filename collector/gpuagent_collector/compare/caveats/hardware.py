"""Warnings about the hardware and software of the sides, slowed and failing GPUs, and other users of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from math import isnan
from statistics import median

import numpy as np

from gpuagent_collector.compare.figures import Evidence, Flags, Observed
from gpuagent_collector.metrics.bounds import LEAST_SAMPLED_SECONDS
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.runs.arguments import differing_arguments
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Facts, Run, distinct
from gpuagent_collector.runs.facets import OF_RANKS
from gpuagent_collector.runs.listing import FOREIGN_SHARE
from gpuagent_collector.runs.settings import settings_of
from gpuagent_collector.runs.specs import ARCHITECTURE, set_by
from gpuagent_collector.runs.words import write_command
from gpuagent_common.text import counted

# Neither hardware nor software; other checks cover these.
_OTHER_SPECS = ("Node", "Platform", "Environment", "Image", "Interference", "Command", "Energy method")

# Throttling for longer than this share of the time deserves a warning.
_THROTTLED_PERCENT = 1.0
CAUSES = {
    "gpu_power_capped_percent": "power cap",
    "gpu_thermal_slowdown_percent": "heat",
    "gpu_power_brake_percent": "power brake",
    "gpu_hardware_slowdown_percent": "hardware slowdown of unknown cause",
}
# Clocks whose ratio is nearer to 1 than this count as the same.
_SAME_CLOCK = 0.95
# A clock that is low for longer than this share of the busy time was set.
_UNEXPLAINED_PERCENT = 50.0


def foreign_load(evidence: Observed) -> Iterator[Caveat]:
    """Warn where others used much of the CPUs that a run had; interference on purpose is no such load."""
    facts, found = evidence.facts, {}
    for runs in evidence.sides.values():
        others = facts.column(runs, "cpu_used_cores") - facts.column(runs, "process_cpu_cores")
        for run, used in compress(zip(runs, others.tolist(), strict=True), others > 0):
            sessions = facts.sessions.get(run.run_id, [])
            cores = sum({session["node_id"]: session["cpu_threads"] or 0 for session in sessions}.values())
            if run.interference in (None, "none") and used >= FOREIGN_SHARE * cores:
                found[run.run_id] = used, cores
    if where := evidence.sides_among(found):
        used, cores = max(found.values())
        yield Caveat(
            code="foreign_load",
            text=f"others used up to {significant(used)} of {significant(cores)} cores during {where}",
            remedy="stop the other programs and run again",
        )


def shared_identity(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where another machine had the identity of a run's node at the same time."""
    twins = evidence.facts.twins
    if where := evidence.sides_among(twins):
        names = sorted({name for runs in evidence.sides.values() for run in runs for name in twins.get(run.run_id, [])})
        yield Caveat(
            code="shared_identity",
            text=f"two machines had one identity during {where}: the other is {', '.join(names)}",
            remedy="they count as one node; on one, `gpuagent start --node-id NAME`, or renew /etc/machine-id",
        )


def gpu_counts(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides used different numbers of GPUs."""
    devices = evidence.facts.devices
    counts = {}
    for side, runs in evidence.sides.items():
        found = {len({device["device_id"] for device in of_run}) for of_run in distinct(devices, runs)}
        counts[side] = sorted(found if all(run.run_id in devices for run in runs) else found | {0})
    facet = evidence.layout.facet
    if len(set(map(tuple, counts.values()))) > 1 and OF_RANKS not in facet.names:
        numbers = ", ".join(f"{' or '.join(map(str, found))} {facet.where(side)}" for side, found in counts.items())
        yield Caveat(
            code="gpu_counts",
            text=f"the sides used different numbers of GPUs: {numbers}",
            remedy="compare equal numbers, or read the throughput as that of all GPUs of a side",
        )


def different_architectures(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides ran on processors of different architectures."""
    row = next((row for row in evidence.specs if row.title == ARCHITECTURE), None)
    if row and row.differs and all(row.values):
        names = [f"{side} {'/'.join(values)}" for side, values in zip(evidence.layout.sides, row.values, strict=True)]
        yield Caveat(
            code="different_architectures",
            text=f"the sides' CPUs have different architectures: {', '.join(names)}",
            remedy="builds, vector libraries and PyTorch versions differ with them: the difference is of the whole "
            "stack, not of one part",
        )


def find_separation(layout: Layout, facts: Facts, asked: Mapping[str, str | None]) -> str | None:
    """Return the command that plans to separate what can be set of that in which two sides differ; None: nothing."""
    block = layout.blocks[0]
    cells = [cell for cell in block.cells if cell.runs]
    # Between sides that differ in their limits, these are the only settings in which runs of one block differ.
    if len(cells) != 2 or not layout.is_compared or layout.facet.name == "limits":
        return None
    foot, top = (settings_of(cell, facts) for cell in cells)
    if not foot.differs_settably(top):
        return None
    chosen = {name: asked.get(name) for name in ("--experiment", "--where")}
    words = (block.workload, "--why", *(cell.side for cell in cells))
    return write_command("plan", {"--by": layout.facet.name, **chosen}, *words)


def different_specs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where hardware or software differs, with the command that plans to separate what can be set of it."""
    layout, differing = evidence.layout, []
    if layout.facet.name == "command":
        commands = [[run.command for run in layout.runs_of(side)] for side in layout.sides]
        differing = [name for name, _ in differing_arguments(commands)]
    expected = set_by(layout.facet, differing).union(_OTHER_SPECS)
    titles = [row.title for row in evidence.specs if row.differs and row.title not in expected]
    if not titles:
        return
    command = find_separation(evidence.layout, evidence.facts, evidence.asked) if evidence.is_by_facet else None
    separation = f"; `{command}` separates what can be set" if command else ""
    yield Caveat(
        code="different_specs",
        text=f"the sides differ in {', '.join(titles)}",
        remedy=f"none of these is shown to be the cause{separation}",
    )


def shared_gpu(evidence: Observed) -> Iterator[Caveat]:
    """Warn where others computed on a run's GPU."""
    if where := evidence.sides_above("gpu_other_processes", 0):
        memory_bytes = evidence.highest("gpu_other_memory_bytes")
        busy_percent = evidence.highest("gpu_other_utilization_percent")
        taken = [f"{notation([memory_bytes], 'bytes').write(memory_bytes)} of its memory"] if memory_bytes else []
        taken += [f"{significant(busy_percent)} % of its time"] if busy_percent else []
        yield Caveat(
            code="shared_gpu",
            text=f"processes that are not known to be the run's were on its GPU in {where}"
            + (f", with up to {' and '.join(taken)}" if taken else ""),
            remedy="use a GPU of your own; `gpu_energy_share_joules` estimates its own part of the energy",
        )


def unused_gpu(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where no GPU of a node is known to be used."""
    sessions = evidence.facts.sessions
    unused = {
        run.run_id
        for runs in evidence.sides.values()
        for run in runs
        if run.device is None and any(session["gpu_count"] for session in sessions.get(run.run_id, []))
    }
    if where := evidence.sides_among(unused):
        yield Caveat(
            code="unused_gpu",
            text=f"the node has GPUs but none is known to be used in {where}",
            remedy="check that the workload's framework sees the GPU: `gpuagent info`",
        )


def measure_short(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the use of a GPU's parts was sampled too few times."""
    facts = evidence.facts

    def is_short(runs: Sequence[Run]) -> Flags:
        seconds, sampled = (facts.column(runs, name) for name in ("measure_seconds", "dram_active_percent"))
        reported = np.array([run.run_id in facts.short for run in runs], dtype=bool)
        return reported | (~np.isnan(sampled) & (seconds < LEAST_SAMPLED_SECONDS))

    if where := evidence.sides_where(is_short):
        yield Caveat(
            code="measure_short",
            text=f"the measured phase was too short for sensors that average over a second in {where}",
            remedy=f"measure for at least {LEAST_SAMPLED_SECONDS} s before reading utilisation and power",
        )


def impossible_readings(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where readings beyond physical limits were dropped, with their sources."""
    dropped = evidence.facts.impossible
    if where := evidence.sides_among(dropped):
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
    if where := evidence.sides_above(name, _THROTTLED_PERCENT):
        highest = {words: evidence.highest(cause) for cause, words in CAUSES.items()}
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


def xid_errors(evidence: Observed) -> Iterator[Caveat]:
    """Warn where the driver reported errors of a GPU."""
    happened = evidence.facts.gpu_events
    if where := evidence.sides_among(happened):
        rows = (row for run_id in evidence.layout.run_ids for row in happened.get(run_id, []))
        errors = {int(row["number"]): row["text"] for row in rows}
        listed = [f"Xid {number}" + (f" ({words})" if words else "") for number, words in sorted(errors.items())]
        yield Caveat(
            code="xid_errors",
            text=f"the driver reported errors of a GPU in {where}: {', '.join(listed)}",
            remedy="13, 31, 43 and 45 are usually a program's own fault; see NVIDIA's Xid catalogue for the others",
        )
