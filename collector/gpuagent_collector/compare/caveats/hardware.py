"""Warnings about the hardware and software of the sides, and about other users of it."""

from collections.abc import Iterator
from itertools import compress

from gpuagent_collector.compare.figures import Evidence, Observed
from gpuagent_collector.present.answer import Caveat
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.runs.data import distinct
from gpuagent_collector.runs.listing import FOREIGN_SHARE
from gpuagent_collector.runs.settings import settings_of
from gpuagent_collector.runs.specs import ARCHITECTURE
from gpuagent_collector.runs.words import write_command

# A GPU without work for longer than this share of the time does not bound the run.
_IDLE_PERCENT = 50.0

# Neither hardware nor software; other checks cover these.
_OTHER_SPECS = ("Node", "Platform", "Environment", "Image", "Interference", "Command", "Energy method")


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
            remedy="stop the other programs on these nodes, and run again",
        )


def shared_identity(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where another machine had the identity of a run's node at the same time."""
    twins = evidence.facts.twins
    where = evidence.sides_among(twins)
    if where:
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
    if len(set(map(tuple, counts.values()))) > 1:
        numbers = ", ".join(f"{side} {' or '.join(map(str, found))}" for side, found in counts.items())
        yield Caveat(
            code="gpu_counts",
            text=f"the sides used different numbers of GPUs: {numbers}",
            remedy="compare equal numbers, or read the throughput as that of all GPUs of a side",
        )


def different_architectures(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides ran on processors of different architectures."""
    row = next((row for row in evidence.specs if row.title == ARCHITECTURE), None)
    if row is None or not row.differs or not all(row.values):
        return
    names = [f"{side} {'/'.join(values)}" for side, values in zip(evidence.layout.sides, row.values, strict=True)]
    yield Caveat(
        code="different_architectures",
        text=f"the sides' CPUs have different architectures: {', '.join(names)}",
        remedy="builds, vector libraries and PyTorch versions differ with them: the difference is of the whole stack, "
        "not of one part",
    )


def different_specs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where hardware or software differs between the sides."""
    titles = [row.title for row in evidence.specs if row.differs and row.title not in _OTHER_SPECS]
    if titles:
        yield Caveat(
            code="different_specs",
            text=f"the sides differ in {', '.join(titles)}",
            remedy=f"none of these is shown to be the cause{_separation(evidence)}",
        )


def _separation(evidence: Evidence) -> str:
    """Return the command that plans to separate what an experiment can set of the difference; '' for nothing."""
    layout, block = evidence.layout, evidence.layout.blocks[0]
    cells = [cell for cell in block.cells if cell.runs]
    if len(cells) != 2 or not layout.is_compared or not evidence.is_by_facet:
        return ""
    foot, top = (settings_of(cell, evidence.facts) for cell in cells)
    if not foot.differs_settably(top):
        return ""
    chosen = {name: evidence.asked[name] for name in ("--experiment", "--where")}
    words = (block.workload, "--why", *(cell.side for cell in cells))
    return f"; `{write_command('plan', {'--by': layout.facet.name, **chosen}, *words)}` separates what can be set"


def shared_gpu(evidence: Observed) -> Iterator[Caveat]:
    """Warn where others computed on a run's GPU."""
    where = evidence.sides_above("gpu_other_processes", 0)
    if where:
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


def idle_gpu(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a GPU had little to do, or no GPU was used."""
    where = evidence.sides_above("gpu_idle_percent", _IDLE_PERCENT)
    if where:
        yield Caveat(
            code="idle_gpu",
            text=f"the GPU had no work for more than {_IDLE_PERCENT:.0f} % of the time in {where}",
            remedy="the GPU is not the limit: check CPU, data loading and batch size",
        )
    sessions = evidence.facts.sessions
    unused = evidence.sides_where(
        lambda runs: [
            run.device is None and any(session["gpu_count"] for session in sessions.get(run.run_id, [])) for run in runs
        ]
    )
    if unused:
        yield Caveat(
            code="unused_gpu",
            text=f"the node has GPUs but none is known to be used in {unused}",
            remedy="check that the workload's framework sees the GPU: `gpuagent info`",
        )
