"""The columns of nodes, GPUs and runs, the same in the terminal and on the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from statistics import fmean
from typing import Generic, Literal, TypeVar

from rich.cells import cell_len
from rich.text import Text

from gpuagent_collector.metrics.throttling import held_back_by
from gpuagent_collector.present.human import SYMBOLS, age, duration, notation, significant
from gpuagent_collector.present.statuses import STATUSES
from gpuagent_collector.present.terminal import GAP
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.watch.snapshot import Figures, GpuNow, NodeNow, RunNow
from gpuagent_common.clocks import describe_offset
from gpuagent_common.quantities import QUANTITIES, Quantity
from gpuagent_common.text import harmless

Row = TypeVar("Row")

SortKey = float | str | None

# Agents send every second, slowed ones every 10 s: an older sample is late.
_LATE_SECONDS = 12.0

# Longer texts are cut, so that a long name does not take the room of all figures.
_WIDEST_TEXT = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """One column of a live list.

    Attributes:
        title: the header; users sort by it.
        show: returns the text of a row's cell; None: no value.
        key: returns the value by which rows are sorted; None comes last.
        rank: columns of lower rank are given room first.
        width: fixed width of a column of figures, so that nothing jumps when they change; None: as wide as its texts.
        is_optional: left out where no row has a value, as a column of texts always is.
        style: returns the style of a row's cell, a colour or `dim`; None: no style.
    """

    title: str
    show: Callable[[Row], str | None]
    key: Callable[[Row], SortKey]
    rank: int
    width: int | None = None
    is_optional: bool = False
    style: Callable[[Row], str | None] | None = None

    @property
    def is_figure(self) -> bool:
        """True for figures: they are aligned to the right and sorted with the largest first."""
        return self.width is not None

    @property
    def alignment(self) -> Literal["left", "right"]:
        """The side to which its cells are aligned."""
        return "right" if self.is_figure else "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A GPU and the node it is in; `trend` is its recent utilisation as bars, where it is followed."""

    node: NodeNow
    gpu: GpuNow
    trend: str | None = None


def cell(column: Column[Row], row: Row, width: int) -> Text:
    """Return the cell of a row for a terminal, cut to a width."""
    shown = column.show(row)
    if shown is None:
        text = Text(ABSENT, style="dim")
    else:
        text = Text(harmless(shown), style=(column.style and column.style(row)) or "")
    text.truncate(width, overflow="ellipsis")
    text.justify = column.alignment
    return text


def fitting(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[tuple[Column[Row], int]]:
    """Return the columns that fit on lines of `width` cells, each with its own width, in their order.

    The first by rank is always among them. Empty columns of texts, and optional ones of figures, are left out.
    """
    widths = {column.title: _width(column, rows) for column in columns}
    room = width + GAP
    chosen: set[str] = set()
    for column in sorted((each for each in columns if widths[each.title]), key=lambda each: each.rank):
        room -= GAP + widths[column.title]
        if room < 0 and chosen:
            break
        chosen.add(column.title)
    return [(column, widths[column.title]) for column in columns if column.title in chosen]


def _width(column: Column[Row], rows: Sequence[Row]) -> int:
    if column.is_optional and all(column.show(row) is None for row in rows):
        return 0
    if column.width is not None:
        return max(column.width, len(column.title))
    widest = max((cell_len(harmless(column.show(row) or "")) for row in rows), default=0)
    return min(max(widest, len(column.title)), _WIDEST_TEXT) if widest else 0


def _text(
    title: str, value: Callable[[Row], str | None], *, rank: int, style: Callable[[Row], str | None] | None = None
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


def _sampled(table: str, figures_of: Callable[[Row], Figures], **after: Column[Row]) -> Iterator[Column[Row]]:
    """Yield the columns of a table's quantities, each followed by that of `after` its column."""
    for quantity in QUANTITIES[table]:
        if quantity.live:
            title, rank, width = quantity.live
            show, key = partial(_show, quantity, figures_of), partial(_read, quantity.column, figures_of)
            yield Column(title=title, show=show, key=key, rank=rank, width=width)
            if quantity.column in after:
                yield after[quantity.column]


def _read(column: str, figures_of: Callable[[Row], Figures], row: Row) -> float | None:
    return figures_of(row)[column]


def _show(quantity: Quantity, figures_of: Callable[[Row], Figures], row: Row) -> str | None:
    figures = figures_of(row)
    value, total = figures[quantity.column], figures.get(quantity.part_of)
    if value is None:
        return None
    if total is not None:
        unit = notation([total / 4], "bytes")  # 2 TB in GB, so that whole units show the used part
        return f"{value / unit.divisor:,.0f}/{total / unit.divisor:,.0f} {unit.symbol}"
    return notation([value], "bytes").write(value) if quantity.unit == "bytes" else _write(value, quantity.unit)


def _write(value: float, unit: str) -> str:
    """Return a figure in a unit that never changes: with a decimal where it is a number that is no count."""
    decimals = 0 if unit or isinstance(value, int) else 1
    return f"{value:,.{decimals}f} {SYMBOLS.get(unit, unit)}".rstrip()


_percent = partial(_write, unit="percent")


def _seconds(value: float) -> str:
    return age(timedelta(seconds=value))


def _of_gpus(node: NodeNow, column: str, combine: Callable[[list[float]], float]) -> float | None:
    known = [value for gpu in node.gpus if (value := gpu.figures[column]) is not None]
    return combine(known) if known else None


def _age(node: NodeNow) -> float:
    return node.heard_age_seconds if node.sample_age_seconds is None else node.sample_age_seconds


def _age_style(node: NodeNow) -> str | None:
    if node.has_left:
        return "dim"
    if node.is_silent or node.clock_is_wrong:
        return "red"
    return "yellow" if _age(node) > _LATE_SECONDS else None


def _note(node: NodeNow) -> str:
    """Return the faults of a node, or that it has left; empty: all is well."""
    notes = []
    if node.clock_offset_seconds is not None and node.clock_is_wrong:
        notes.append(f"clock {describe_offset(node.clock_offset_seconds)}")
    if node.same_identity:
        notes.append(f"identity also on {', '.join(node.same_identity)}")
    if node.has_left:
        notes.append("gone")
    elif node.is_silent:
        notes.append("silent")
    return ", ".join(notes)


def _held_by(row: GpuRow) -> str | None:
    """Return the reason that holds a GPU's clocks back, empty for no reason; None: the GPU does not report it."""
    reasons = row.gpu.throttle_reasons
    return None if reasons is None else held_back_by(reasons) or ""


# Of a node with several GPUs, `GPU` and `SM` are means over them, and `power` is their sum.
NODE_COLUMNS: tuple[Column[NodeNow], ...] = (
    _text("node", lambda node: node.hostname, rank=0),
    _text("platform", lambda node: node.platform, rank=5),
    _figure("age", _age, _seconds, rank=1, width=6, style=_age_style),
    *_sampled(
        "host_samples",
        lambda node: node.figures,
        cpu_percent=_figure("CPUs", lambda node: node.cpu_threads, str, rank=10, width=4),
    ),
    _figure("GPUs", lambda node: sum(gpu.is_whole for gpu in node.gpus) or None, str, rank=8, width=4),
    _figure("GPU", lambda node: _of_gpus(node, "utilization_percent", fmean), _percent, rank=4, width=5),
    _figure("SM", lambda node: _of_gpus(node, "sm_active_percent", fmean), _percent, rank=9, width=5),
    _figure("power", lambda node: _of_gpus(node, "power_watts", sum), partial(_write, unit="watts"), rank=7, width=7),
    _text("note", _note, rank=2, style=lambda node: "dim" if _note(node) == "gone" else "red"),
)

# Filled in the live view alone, which remembers earlier snapshots.
TREND_COLUMN: Column[GpuRow] = _text("trend", lambda row: row.trend, rank=8, style=lambda _: "cyan")

GPU_COLUMNS: tuple[Column[GpuRow], ...] = (
    _text("node", lambda row: row.node.hostname, rank=1),
    Column(title="#", show=lambda row: row.gpu.place, key=lambda row: row.gpu.device_index, rank=0),
    _text("platform", lambda row: row.node.platform, rank=14),
    _text("name", lambda row: row.gpu.name and row.gpu.name.removeprefix("NVIDIA "), rank=9),
    *_sampled("gpu_samples", lambda row: row.gpu.figures, utilization_percent=TREND_COLUMN),
    _text("held by", _held_by, rank=7, style=lambda _: "yellow"),
    _text("uuid", lambda row: row.gpu.uuid, rank=15),
)

RUN_COLUMNS: tuple[Column[RunNow], ...] = (
    _text("run", lambda run: run.run_id, rank=0),
    _text("workload", lambda run: run.workload, rank=12),
    _text("node", lambda run: run.hostname, rank=3),
    _text("platform", lambda run: run.platform, rank=10),
    _text("status", lambda run: run.status, rank=1, style=lambda run: STATUSES.get(run.status or "")),
    _figure("took", lambda run: run.elapsed_seconds, duration, rank=2, width=11),
    replace(_figure("left", lambda run: run.left_seconds, _seconds, rank=4, width=6), is_optional=True),
    _text("phase", lambda run: run.phase if run.is_open else None, rank=6),
    replace(_figure("steps", lambda run: run.steps, lambda steps: f"{steps:,.0f}", rank=5, width=7), is_optional=True),
    replace(_figure("steps/s", lambda run: run.steps_per_second, significant, rank=8, width=7), is_optional=True),
    replace(_figure("items/s", lambda run: run.items_per_second, significant, rank=7, width=8), is_optional=True),
    _figure("ended", lambda run: run.ended_age_seconds, lambda seconds: f"{_seconds(seconds)} ago", rank=9, width=10),
    _text("beside it", lambda run: run.interference, rank=11),
    _text("why", lambda run: run.reason, rank=13),
)
