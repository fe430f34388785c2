"""What stands behind the figures of a cell: how many runs, nodes and GPUs, and how many runs are in no figure."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuagent_collector.compare.figures import values_of
from gpuagent_collector.metrics import Metric
from gpuagent_collector.runs.cells import UNFINISHED, Cell
from gpuagent_collector.runs.data import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many there are.

    Attributes:
        succeeded: runs that did.
        missing: those of them that do not have the primary metric.
        failed: runs that ended otherwise, by status.
        unfinished: runs that have not ended.
        nodes, devices: different ones that the succeeded runs used.
    """

    succeeded: int
    missing: int
    failed: Mapping[str, int]
    unfinished: int
    nodes: int
    devices: int


def count(cell: Cell, facts: Facts, primary: Metric) -> Counts:
    """Count what stands behind a cell."""
    return Counts(
        succeeded=len(cell.runs),
        missing=len(cell.runs) - len(values_of(cell, facts, primary)),
        failed={status: number for status, number in cell.others.items() if status not in UNFINISHED},
        unfinished=sum(number for status, number in cell.others.items() if status in UNFINISHED),
        nodes=_different(cell, facts.sessions, "node_id"),
        devices=_different(cell, facts.devices, "device_id"),
    )


def _different(cell: Cell, records: Mapping[str, list[Mapping[str, object]]], key: str) -> int:
    return len({record[key] for run in cell.runs for record in records.get(run.run_id, [])})
