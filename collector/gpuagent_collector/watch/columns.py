"""What is shown of nodes, GPUs and runs: the same columns in the terminal and on the page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from gpuagent_collector.metrics.throttling import held_back_by
from gpuagent_collector.output.human import age, duration, notation, significant
from gpuagent_collector.output.statuses import STATUSES
from gpuagent_collector.watch.snapshot import GpuNow, NodeNow, RunNow

Row = TypeVar("Row")

SortKey = float | str | None

# Agents send every second, slowed ones every 10 s: what is older than this is late.
_LATE_SECONDS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One column of a live list.

    Attributes:
        title: its header, by which users sort.
        show: makes the cell of a row; None: there is no value.
        key: what rows are sorted by; None comes last.
        rank: columns of lower rank are given room first.
        width: of a column of figures, fixed so that nothing jumps when they change; None: as its texts need.
        style: the style of a row's cell, a colour or `dim`; None: none.
    """

    title: str
    show: Callable[[Row], str | None]
    key: Callable[[Row], SortKey]
    rank: int
    width: int | None = None
    style: Callable[[Row], str | None] | None = None

    @property
    def is_figure(self) -> bool:
        """Whether its cells are figures, aligned to the right and sorted with the largest first."""
        return self.width is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A GPU and the node it is in."""

    node: NodeNow
    gpu: GpuNow


def _text(
    title: str,
    value: Callable[[Row], str | None],
    *,
    rank: int,
    style: Callable[[Row], str | None] | None = None,
) -> Column[Row]:
    return Column(title=title, show=value, key=lambda row: value(row) or None, rank=rank, style=style)


def _figure(
    title: str,
    value: Callable[[Row], float | None],
    write: Callable[[float], str],
    *,
    rank: int,
    width: int,
    style: Callable[[Row], str | None] | None = None,
) -> Column[Row]:
    def show(row: Row) -> str | None:
        figure = value(row)
        return None if figure is None else write(figure)

    return Column(title=title, show=show, key=value, rank=rank, width=width, style=style)


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _watts(value: float) -> str:
    return f"{value:,.0f} W"


def _seconds(value: float) -> str:
    return age(timedelta(seconds=value))


def _share(used: int | None, total: int | None) -> str | None:
    """Return bytes in use of all, in one unit: 95/1,145 GB."""
    if used is None:
        return None
    if total is None:
        return notation([used], "bytes").write(used)
    unit = notation([total / 4], "bytes")  # 2 TB in GB: what is used of it is shown by whole units then
    return f"{used / unit.divisor:,.0f}/{total / unit.divisor:,.0f} {unit.symbol}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _age(node: NodeNow) -> float:
    return node.heard_age_seconds if node.sample_age_seconds is None else node.sample_age_seconds


def _age_style(node: NodeNow) -> str | None:
    if node.has_left:
        return "dim"
    if node.is_silent or node.clock_is_wrong:
        return "red"
    return "yellow" if _age(node) > _LATE_SECONDS else None


def _note(node: NodeNow) -> str:
    """Return what is wrong with a node."""
    if node.clock_is_wrong:
        return f"clock {-(node.clock_offset_seconds or 0.0):+,.0f} s"
    if node.has_left:
        return "left"
    return "silent" if node.is_silent else ""


def _held_by(row: GpuRow) -> str | None:
    """Return what holds a GPU's clocks back; None: it does not tell."""
    reasons = row.gpu.throttle_reasons
    return None if reasons is None else held_back_by(reasons) or ""


def gpu_name(gpu: GpuNow) -> str | None:
    """Return a GPU's name without its maker's."""
    return gpu.name and gpu.name.removeprefix("NVIDIA ")


# Of a node with several GPUs, `GPU` and `SM` are means over them, and `power` is their sum.
NODE_COLUMNS: tuple[Column[NodeNow], ...] = (
    _text("node", lambda node: node.hostname, rank=0),
    _text("platform", lambda node: node.platform, rank=5),
    _figure("age", _age, _seconds, rank=1, width=6, style=_age_style),
    _figure("CPU", lambda node: node.cpu_percent, _percent, rank=3, width=5),
    _figure("CPUs", lambda node: node.cpu_threads, str, rank=10, width=4),
    _figure("load", lambda node: node.load_1m, lambda load: f"{load:.1f}", rank=11, width=6),
    Column(
        title="memory",
        show=lambda node: _share(node.memory_used_bytes, node.memory_total_bytes),
        key=lambda node: node.memory_used_bytes,
        rank=6,
        width=12,
    ),
    _figure("GPUs", lambda node: sum(gpu.is_whole for gpu in node.gpus) or None, str, rank=8, width=4),
    _figure("GPU", lambda node: _mean([gpu.utilization_percent for gpu in node.gpus]), _percent, rank=4, width=5),
    _figure("SM", lambda node: _mean([gpu.sm_active_percent for gpu in node.gpus]), _percent, rank=9, width=5),
    _figure("power", lambda node: _sum([gpu.power_watts for gpu in node.gpus]), _watts, rank=7, width=7),
    _text("note", _note, rank=2, style=lambda node: "dim" if node.has_left else "red"),
)

GPU_COLUMNS: tuple[Column[GpuRow], ...] = (
    _text("node", lambda row: row.node.hostname, rank=1),
    Column(title="#", show=lambda row: row.gpu.place, key=lambda row: row.gpu.device_index, rank=0),
    _text("platform", lambda row: row.node.platform, rank=13),
    _text("name", lambda row: gpu_name(row.gpu), rank=8),
    _figure("GPU", lambda row: row.gpu.utilization_percent, _percent, rank=2, width=5),
    _figure("SM", lambda row: row.gpu.sm_active_percent, _percent, rank=3, width=5),
    _figure("tensor", lambda row: row.gpu.tensor_active_percent, _percent, rank=9, width=6),
    _figure("DRAM", lambda row: row.gpu.dram_active_percent, _percent, rank=10, width=5),
    Column(
        title="memory",
        show=lambda row: _share(row.gpu.memory_used_bytes, row.gpu.memory_total_bytes),
        key=lambda row: row.gpu.memory_used_bytes,
        rank=4,
        width=11,
    ),
    _figure("power", lambda row: row.gpu.power_watts, _watts, rank=5, width=6),
    _figure("temp", lambda row: row.gpu.temperature_celsius, lambda degrees: f"{degrees:.0f} °C", rank=6, width=6),
    _figure("clock", lambda row: row.gpu.sm_clock_mhz, lambda clock: f"{clock:,.0f} MHz", rank=11, width=9),
    _figure("procs", lambda row: row.gpu.process_count, str, rank=12, width=5),
    _text("held by", _held_by, rank=7, style=lambda _: "yellow"),
    _text("uuid", lambda row: row.gpu.uuid, rank=14),
)

RUN_COLUMNS: tuple[Column[RunNow], ...] = (
    _text("run", lambda run: run.run_id, rank=0),
    _text("workload", lambda run: run.workload, rank=9),
    _text("node", lambda run: run.hostname, rank=4),
    _text("platform", lambda run: run.platform, rank=7),
    _text("status", lambda run: run.status, rank=1, style=lambda run: STATUSES.get(run.status or "")),
    _figure("took", lambda run: run.elapsed_seconds, duration, rank=2, width=11),
    _text("phase", lambda run: run.phase if run.is_open else None, rank=3),
    _figure("items/s", lambda run: run.items_per_second, significant, rank=5, width=8),
    _figure("ended", lambda run: run.ended_age_seconds, lambda seconds: f"{_seconds(seconds)} ago", rank=6, width=10),
    _text("beside it", lambda run: run.interference, rank=8),
    _text("why", lambda run: run.reason, rank=10),
)
