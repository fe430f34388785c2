"""The nodes, GPUs and software of each side, side by side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.present.table import MARK, Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.runs.arguments import differing_arguments, write_values
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Facts, Record, Run, distinct
from gpuagent_collector.runs.facets import CONDITIONS, Facet
from gpuagent_common.text import counted

# Of a cell.
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRow:
    """One property: its values on each side's nodes, sorted; () where no node reports it."""

    title: str
    values: tuple[tuple[str, ...], ...]

    @property
    def differs(self) -> bool:
        """Return whether two sides have different values."""
        return len(set(self.values)) > 1


Read = Callable[[Record], object]


def spec_rows(layout: Layout, facts: Facts) -> tuple[SpecRow, ...]:
    """Return every property that some side's nodes report, except the one that is compared."""
    sides = [layout.runs_of(side) for side in layout.sides]
    of_runs = {title: _plain(name) for name, title in _TITLES.items() if name not in layout.facet.names}
    # Runs of a side differ in few conditions, and share their texts.
    conditions = [set(map(attrgetter(*CONDITIONS), side)) for side in sides]
    texts = [distinct(facts.texts, side) for side in sides]
    reported = {name for side in texts for each in side for name in each}
    rows = [
        *_command_row(layout),
        *_rows([[dict(zip(CONDITIONS, each, strict=True)) for each in side] for side in conditions], of_runs),
        *_rows([_different(facts.sessions, side) for side in sides], SESSION_PROPERTIES),
        *_rows([_different(facts.devices, side) for side in sides], DEVICE_PROPERTIES),
        *_rows(texts, {_title(name): _plain(name) for name in sorted(reported)}),
    ]
    return tuple(row for row in rows if any(row.values))


def _command_row(layout: Layout) -> list[SpecRow]:
    """Return the arguments in which runs of one program differ; empty: they have the same, or the sides are these."""
    texts: list[list[str]] = [[] for _ in layout.sides]
    for block in layout.blocks if "command" not in layout.facet.names else ():
        commands = {cell.side: [run.command for run in cell.runs] for cell in block.cells}
        for name, values in differing_arguments([commands.get(side, []) for side in layout.sides]):
            for index, found in enumerate(values):
                texts[index] += [f"{name} {write_values(found)}".lstrip()] if found else []
    return [SpecRow(title="Command", values=tuple(map(tuple, texts)))] if any(texts) else []


def spec_table(sides: Sequence[str], specs: Sequence[SpecRow], *, whole: bool = False) -> Table:
    """Return the properties of the sides as a table, `whole` without cuts, with marks where the sides differ."""
    differ = any(row.differs for row in specs)
    rows = []
    for row in specs:
        # Of long values, the parts in which they differ.
        listed = []
        for found in row.values:
            whole_text = ", ".join(found) or ABSENT
            listed.append(whole_text if len(found) <= 4 else f"{', '.join(found[:3])}, … ({len(found)} in all)")
        values = listed if whole else shorten(listed, _MOST_CHARACTERS)
        rows.append({"mark": MARK if row.differs else "", "title": row.title, "values": values})
    columns = [Column(None, "", "mark", left=True)] if differ else []
    columns.append(Column(None, "", "title", left=True))
    shown = sides if differ else ["all sides" if len(sides) > 1 else sides[0]]
    columns += [Column(None, title, f"values.{at}", left=True) for at, title in enumerate(shown)]
    return Table(columns, rows, keys=2 if differ else None)


def _different(records: Mapping[str, Sequence[Record]], runs: Iterable[Run]) -> Iterable[Record]:
    """Return the records of runs, each once: runs share those of their nodes and GPUs."""
    return {id(record): record for of_run in distinct(records, runs) for record in of_run}.values()


def _rows(sides: Sequence[Iterable[Record]], properties: Mapping[str, Read]) -> list[SpecRow]:
    """Return the values of properties in the records of each side."""

    def values(found: Iterable[Record], read: Read) -> tuple[str, ...]:
        return tuple(sorted({str(value) for record in found if (value := read(record)) is not None}))

    return [
        SpecRow(title=title, values=tuple(values(found, read) for found in sides)) for title, read in properties.items()
    ]


_SPELT = {"cuda": "CUDA", "cudnn": "cuDNN", "mfu": "MFU", "nccl": "NCCL", "tf32": "TF32"}


def _title(name: str) -> str:
    """Return a result's name as people write it."""
    first, *others = name.split("_")
    return " ".join([_SPELT.get(first, first.capitalize()), *(_SPELT.get(word, word) for word in others)])


def _amount(column: str, unit: str) -> Read:
    def read(record: Record) -> str | None:
        value = record[column]
        return None if value is None else notation([value], unit).write(value)

    return read


def _plain(column: str) -> Read:
    return lambda record: record.get(column)


def _cpus(record: Record) -> str | None:
    counts = [(record[f"cpu_{noun}s"], noun) for noun in ("socket", "core", "thread")]
    return ", ".join(counted(count, noun) for count, noun in counts if count) or None


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
ARCHITECTURE = "Architecture"
# Title → reader of a row of sessions.
SESSION_PROPERTIES: Mapping[str, Read] = {
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
    ARCHITECTURE: _plain("architecture"),
    "GPUs on the node": _plain("gpu_count"),
    "GPU driver": _plain("driver_version"),
    "CUDA of driver": _plain("cuda_driver_version"),
}
# Title → reader of a row of session_devices.
DEVICE_PROPERTIES: Mapping[str, Read] = {
    "GPU memory": _amount("memory_total_bytes", "bytes"),
    "CUDA cores": _plain("cuda_cores"),
    "GPU power limit": _amount("power_limit_watts", "watts"),
    "GPU max SM clock": _amount("sm_clock_max_mhz", "megahertz"),
    "GPU link": _pcie,
    "Compute capability": _plain("compute_capability"),
}


# What a compared facet or parameter sets: in that its sides differ on purpose.
_SET_BY: Mapping[str, Sequence[str]] = {
    "limits": ("CPU limit", "Memory limit", "Threads"),
    "environment": ("Container", "Orchestrator"),
    "device": ("GPU memory", "CUDA cores", "GPU max SM clock", "Compute capability"),
    "precision": ("Autocast", "MFU peak", "TF32 cuDNN", "TF32 matmul"),
}


def set_by(facet: Facet, differing: Iterable[str] = ()) -> frozenset[str]:
    """Return the titles of the properties that follow from what is compared; `differing`: arguments of commands."""
    given = (*facet.names, *facet.parameters, *facet.arguments, *(name.lstrip("-") for name in differing))
    names = {name.replace("-", "_") for name in given}
    return frozenset(title for name in names for title in (_title(name), *_SET_BY.get(name, ())))


def properties_of(run: Run, facts: Facts) -> dict[str, str]:
    """Return the known properties of the software and hardware that a run used, by title, without its nodes' names."""
    texts = facts.texts.get(run.run_id, {})
    rows = [
        *_rows([facts.sessions.get(run.run_id, [])], SESSION_PROPERTIES),
        *_rows([facts.devices.get(run.run_id, [])], DEVICE_PROPERTIES),
        *_rows([[texts]], {_title(name): _plain(name) for name in sorted(texts)}),
    ]
    return {row.title: ", ".join(row.values[0]) for row in rows if row.values[0] and row.title != "Node"}
