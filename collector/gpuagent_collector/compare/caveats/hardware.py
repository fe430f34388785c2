"""What the sides ran on, and who else did."""

from collections.abc import Iterator

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.specs import runs_of
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.runs.data import Run

# A GPU without work for longer than this share of the time does not bound the run.
_IDLE_PERCENT = 50.0


def gpu_counts(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides used different numbers of GPUs."""
    counts = [
        sorted({_gpus_of(evidence, run) for run in runs_of(evidence.layout, side)}) for side in evidence.layout.sides
    ]
    if any(one != counts[0] for one in counts):
        told = ", ".join(
            f"{side} {' or '.join(map(str, one))}" for side, one in zip(evidence.layout.sides, counts, strict=True)
        )
        yield Caveat(
            code="gpu_counts",
            text=f"the sides used different numbers of GPUs: {told}",
            remedy="compare equal numbers, or read the throughput as a price for all the GPUs of a side",
        )


def _gpus_of(evidence: Evidence, run: Run) -> int:
    return len({device["device_id"] for device in evidence.facts.devices.get(run.run_id, [])})


# What is neither hardware nor software; other checks tell of these.
_OTHER_SPECS = ("Node", "Platform", "Environment", "Image", "Interference", "Energy method")


def different_specs(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where hardware or software differs between the sides."""
    titles = [row.title for row in evidence.specs if row.differs and row.title not in _OTHER_SPECS]
    if titles:
        yield Caveat(
            code="different_specs",
            text=f"hardware or software differs between the sides: {', '.join(titles)}",
            remedy="no single one of these is shown to be the cause; change one at a time to find it",
        )


def shared_gpu(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where others computed on a run's GPU."""
    where = evidence.sides_where(lambda run: (evidence.metric(run, "gpu_other_processes") or 0) > 0)
    if where:
        yield Caveat(
            code="shared_gpu",
            text=f"processes that are not known to be the run's were on its GPU in {where}{_taken(evidence)}",
            remedy="use a GPU of your own; `gpu_process_samples` has the processes",
        )


def _taken(evidence: Evidence) -> str:
    """Return what others had of the run's GPUs at most, in words; '' where that is not known."""
    memory_bytes = evidence.highest("gpu_other_memory_bytes")
    busy_percent = evidence.highest("gpu_other_utilization_percent")
    taken = [f"{notation([memory_bytes], 'bytes').write(memory_bytes)} of its memory"] if memory_bytes else []
    taken += [f"{significant(busy_percent)} % of its time"] if busy_percent else []
    return f", with up to {' and '.join(taken)}" if taken else ""


def idle_gpu(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a GPU had little to do, or none was used."""
    where = evidence.sides_where(lambda run: (evidence.metric(run, "gpu_idle_percent") or 0) > _IDLE_PERCENT)
    if where:
        yield Caveat(
            code="idle_gpu",
            text=f"the GPU had no work for more than {_IDLE_PERCENT:.0f} % of the time in {where}",
            remedy="the GPU is not the limit: look at CPU, data loading and batch size",
        )
    unused = evidence.sides_where(lambda run: run.device is None and _has_gpu(evidence, run))
    if unused:
        yield Caveat(
            code="unused_gpu",
            text=f"the node has GPUs but none is known to be used in {unused}",
            remedy="check that the workload's framework sees the GPU: `gpuagent info`",
        )


def _has_gpu(evidence: Evidence, run: Run) -> bool:
    return any(session["gpu_count"] for session in evidence.facts.sessions.get(run.run_id, []))
