"""A comparison as a document: the answer, where it ran, the metrics of each block, the warnings."""

from collections.abc import Iterator, Sequence

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.metric_table import metric_legend, metric_table
from gpuagent_collector.compare.verdict_table import verdict_legend, verdict_table
from gpuagent_collector.output.document import Grid, Paragraph, Section, caveat_sections
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import describe, tell_apart

# Marks a property in which the sides differ.
MARK = "≠"


def build_document(comparison: Comparison, *, wide: bool) -> list[Section]:
    """Return the document; `wide` adds columns for which a narrow terminal has no room."""
    return [
        Section(
            heading=f"Comparison by {comparison.layout.facet.spoken}: {', '.join(comparison.layout.sides)}",
            parts=(
                Paragraph(text=answer(comparison)),
                verdict_table(comparison),
                Paragraph(text=verdict_legend(comparison)),
            ),
        ),
        Section(heading=_spec_heading(comparison), parts=(spec_table(comparison),)),
        *_blocks(comparison, wide),
        *caveat_sections(comparison.caveats),
    ]


def _spec_heading(comparison: Comparison) -> str:
    return "Where" if _differing(comparison) else "Where: the same on all sides"


def _differing(comparison: Comparison) -> bool:
    return any(row.differs for row in comparison.specs)


def spec_table(comparison: Comparison) -> Grid:
    """Return the nodes, GPUs and software of the sides; those in which they differ are marked."""
    if not _differing(comparison):
        rows = tuple((row.title, _joined(row.values[0])) for row in comparison.specs)
        return Grid(header=("", "all sides"), rows=rows, figures_from=2)
    return Grid(
        header=("", "", *comparison.layout.sides),
        rows=tuple((MARK if row.differs else "", row.title, *map(_joined, row.values)) for row in comparison.specs),
        figures_from=2 + len(comparison.layout.sides),
    )


def _joined(values: Sequence[str]) -> str:
    if len(values) > 4:
        return f"{', '.join(values[:3])}, … ({len(values)} in all)"
    return ", ".join(values) or ABSENT


def _blocks(comparison: Comparison, wide: bool) -> Iterator[Section]:
    for block in comparison.figures.blocks:
        others = [cell.side for cell in block.block.cells if cell.runs and cell.side != block.block.baseline]
        yield Section(
            heading=tell_apart(block.block, comparison.layout.blocks),
            parts=(
                Paragraph(text=f"Ran as {describe(block.block)}"),
                *(metric_table(block, side, comparison, wide=wide) for side in others),
                Paragraph(text=metric_legend(comparison, block)),
            ),
        )
