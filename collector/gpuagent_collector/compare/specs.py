"""The nodes of each side, side by side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.facets import CONDITIONS, Facet


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRow:
    """One property: what each side's nodes have, sorted; () where no node tells."""

    title: str
    values: tuple[tuple[str, ...], ...]

    @property
    def differs(self) -> bool:
        """Whether two sides do not have the same values."""
        return len(set(self.values)) > 1


Read = Callable[[Record], object]


def spec_rows(layout: Layout, facts: Facts) -> tuple[SpecRow, ...]:
    """Return every property that some side's nodes tell; the property that is compared is left out."""
    sides = [[run for run in runs_of(layout, side) if run.status == "succeeded"] for side in layout.sides]
    rows = [
        *_rows(sides, lambda run: [{name: getattr(run, name) for name in CONDITIONS}], _of_runs(layout.facet)),
        *_rows(sides, lambda run: facts.sessions.get(run.run_id, []), _SESSION),
        *_rows(sides, lambda run: facts.devices.get(run.run_id, []), _DEVICE),
        *_rows(sides, lambda run: [facts.texts.get(run.run_id, {})], _reported(sides, facts)),
    ]
    return tuple(row for row in rows if any(row.values))


def runs_of(layout: Layout, side: str) -> list[Run]:
    """Return the succeeded runs of a side over all blocks."""
    return [run for block in layout.blocks for cell in block.cells if cell.side == side for run in cell.runs]


def _rows(
    sides: Sequence[Sequence[Run]], records: Callable[[Run], Iterable[Record]], properties: Mapping[str, Read]
) -> list[SpecRow]:
    return [
        SpecRow(title=title, values=tuple(_distinct(read(r) for run in side for r in records(run)) for side in sides))
        for title, read in properties.items()
    ]


def _distinct(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in values if value is not None}))


def _reported(sides: Sequence[Sequence[Run]], facts: Facts) -> dict[str, Read]:
    """Return a property for each text that workloads reported: versions, modes, kinds of data."""
    names = {name for side in sides for run in side for name in facts.texts.get(run.run_id, {})}
    return {_titled(name): _reported_text(name) for name in sorted(names)}


_SPELT = {"cuda": "CUDA", "cudnn": "cuDNN", "mfu": "MFU", "nccl": "NCCL", "tf32": "TF32"}


def _titled(name: str) -> str:
    """Return a result's name as people write it."""
    first, *others = name.split("_")
    return " ".join([_SPELT.get(first, first.capitalize()), *(_SPELT.get(word, word) for word in others)])


def _reported_text(name: str) -> Read:
    return lambda record: record.get(name)


def _of_runs(facet: Facet) -> dict[str, Read]:
    """Return the properties of runs but the one that is compared."""
    return {_TITLES[name]: _plain(name) for name in CONDITIONS if name not in facet.names}


def _amount(column: str, unit: str) -> Read:
    def read(record: Record) -> str | None:
        value = record[column]
        return None if value is None else notation([value], unit).write(value)

    return read


def _plain(column: str) -> Read:
    return lambda record: record[column]


def _cpus(record: Record) -> str | None:
    counts = [(record[f"cpu_{noun}s"], noun) for noun in ("socket", "core", "thread")]
    return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count) or None


def _pcie(record: Record) -> str | None:
    generation, width = record["pcie_generation_max"], record["pcie_width_max"]
    return None if generation is None or width is None else f"generation {generation} × {width}"


def _limit_cores(record: Record) -> str | None:
    value = record["cpu_limit_cores"]
    return None if value is None else f"{significant(value)} cores"


_TITLES = {
    "platform": "Platform",
    "environment": "Environment",
    "image": "Image",
    "interference": "Interference",
    "limits": "Limits",
    "device": "GPU used",
}
_SESSION: Mapping[str, Read] = {
    "Node": _plain("hostname"),
    "Instance type": _plain("instance_type"),
    "CPU": _plain("cpu_model"),
    "CPU count": _cpus,
    "CPU limit": _limit_cores,
    "Memory": _amount("memory_total_bytes", "bytes"),
    "Memory limit": _amount("memory_limit_bytes", "bytes"),
    "Virtualization": _plain("virtualization"),
    "Container": _plain("container"),
    "Orchestrator": _plain("orchestrator"),
    "System": _plain("os"),
    "Kernel": _plain("kernel"),
    "Architecture": _plain("architecture"),
    "GPUs on the node": _plain("gpu_count"),
    "GPU driver": _plain("driver_version"),
    "CUDA of driver": _plain("cuda_driver_version"),
}
# Title → how it is read from a row of session_devices.
_DEVICE: Mapping[str, Read] = {
    "GPU memory": _amount("memory_total_bytes", "bytes"),
    "GPU power limit": _amount("power_limit_watts", "watts"),
    "GPU max SM clock": _amount("sm_clock_max_mhz", "megahertz"),
    "GPU link": _pcie,
    "Compute capability": _plain("compute_capability"),
}
