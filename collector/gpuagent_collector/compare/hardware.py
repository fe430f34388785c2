"""The nodes, GPUs and software of each side as an answer of its own, with the peaks of their GPUs' datasheets."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.output.document import Section
from gpuagent_collector.output.human import notation
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.shortening import shorten_sides
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.facets import name_sides
from gpuagent_collector.runs.specs import SpecRow, spec_table

_TITLES = {
    **{
        f"datasheet_{kind}_flops_per_second": f"Peak {kind.upper()}, datasheet"
        for kind in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
    },
    "datasheet_dram_bytes_per_second": "Memory bandwidth, datasheet",
}


def render_hardware(ask: Ask, comparison: Comparison) -> Rendering:
    """Return the forms of the table of properties: CSV has a line for each property and side."""
    layout = comparison.layout
    rows = (*comparison.specs, *_peak_rows(ask, comparison))
    heading = f"Hardware and software by {layout.facet.spoken}: {name_sides(layout.sides, layout.facet)}"
    section = Section(heading=heading, parts=(spec_table(layout.sides, rows),))

    def lines() -> Iterator[dict[str, Any]]:
        for row in rows:
            for side, values in zip(layout.sides, row.values, strict=True):
                yield {"property": row.title, "side": side, "value": ", ".join(values) or None, "differs": row.differs}

    return Rendering(
        sections=lambda: shorten_sides([section], layout.sides),
        record=lambda: {"by": layout.facet.name, "sides": layout.sides, "properties": list(lines())},
        lines=lines,
    )


def _peak_rows(ask: Ask, comparison: Comparison) -> Iterator[SpecRow]:
    layout = comparison.layout
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    sides = {run.run_id: side for side in layout.sides for run in layout.runs_of(side)}
    for row in ask(_PEAKS, [list(sides)]):
        if row["name"] in _TITLES:
            unit = "bytes/s" if "bytes" in row["name"] else "FLOP/s"
            written = notation([row["value"]], unit).write(row["value"])
            found[row["name"]][sides[row["run_id"]]].add(written)
    for name, title in _TITLES.items():
        if name in found:
            yield SpecRow(title=title, values=tuple(tuple(sorted(found[name][side])) for side in layout.sides))


_PEAKS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE name LIKE 'datasheet_%' AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""
