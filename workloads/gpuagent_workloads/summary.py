"""The table of a workload's layers: as text of 80 columns, or JSON."""

import json
import pkgutil
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.workload import Workload

if TYPE_CHECKING:
    from gpuagent_workloads.training.outline import LayerRow

_WIDTH = 80
_HEADINGS = ("layer", "type", "output", "parameters", "FLOPs", "bytes")
_TYPE_WIDTH = 14


def summarise(workload: Workload[Any], config: Any, *, as_json: bool) -> str:
    """Return the layers of a workload's network as a table, or as JSON.

    Raises:
        MisuseError: it has no network.
    """
    if workload.layers is None:
        raise MisuseError(f"{workload.name} has no network whose layers could be listed")
    rows: Sequence[LayerRow] = pkgutil.resolve_name(workload.layers)(config)
    if as_json:
        return json.dumps([asdict(row) for row in rows], indent=2) + "\n"
    return _as_text([_HEADINGS, *map(_cells, rows), _totals(rows)])


def _cells(row: "LayerRow") -> tuple[str, ...]:
    flops, moved = _scaled(row.flops), "–" if row.moved_bytes is None else _scaled(row.moved_bytes)
    return row.layer, row.type, _shape(row), f"{row.parameters:,}", flops, moved


def _totals(rows: Sequence["LayerRow"]) -> tuple[str, ...]:
    parameters, flops = sum(row.parameters for row in rows), sum(row.flops for row in rows)
    moved = [row.moved_bytes for row in rows if row.moved_bytes is not None]
    return "total", "", "", f"{parameters:,}", _scaled(flops), _scaled(sum(moved)) if moved else "–"


def _shape(row: "LayerRow") -> str:
    return "×".join(map(str, row.output_shape))


def _scaled(value: float) -> str:
    """Return a number of at most three digits with the prefix of its power of a thousand."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.3g} {prefix}".rstrip() if prefix else f"{value:.0f}"
        value /= 1000
    return f"{value:.3g} P"


def _as_text(cells: Sequence[Sequence[str]]) -> str:
    """Return lines of at most 80 columns; long names lose their beginning."""
    cells = [(line[0], _cut(line[1], _TYPE_WIDTH), *line[2:]) for line in cells]
    _, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    name_width = min(max(len(line[0]) for line in cells), _WIDTH - sum(widths) - 2 * len(widths))
    lines = []
    for name, kind, shape, *figures in cells:
        shown = name if len(name) <= name_width else f"…{name[len(name) - name_width + 1 :]}"
        texts = [f"{shown:<{name_width}}", f"{kind:<{widths[0]}}", f"{shape:<{widths[1]}}"]
        texts += [f"{figure:>{width}}" for figure, width in zip(figures, widths[2:], strict=True)]
        lines.append("  ".join(texts))
    ruler = "─" * max(map(len, lines))
    return "\n".join([lines[0], ruler, *lines[1:-1], ruler, lines[-1], "", _NOTE])


# Beneath the table.
_NOTE = """\
A forward pass of one batch. FLOPs: of convolutions and matrix products, a
multiplication and an addition are two. Bytes: input, weights and output once
each, in float32; – where inner layers have them, or they are unknown.
"""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
