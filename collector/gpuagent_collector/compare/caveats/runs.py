"""Which runs are compared, and what else was different about them."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.compare.specs import runs_of
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.runs.cells import UNFINISHED, Block, Cell, Layout
from gpuagent_collector.runs.facets import CONDITIONS


def unsuccessful(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that ended without success."""
    counts = _others(evidence.layout, lambda status: status not in UNFINISHED)
    if counts:
        yield Caveat(
            code="unsuccessful",
            text=f"runs that are in no figure: {counts}",
            remedy="`collector runs` says why; a side that fails more often is worse than its figures",
        )


def unfinished(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs that have not ended."""
    counts = _others(evidence.layout, lambda status: status in UNFINISHED)
    if counts:
        yield Caveat(
            code="unfinished",
            text=f"runs that have not ended yet: {counts}",
            remedy="compare again when they have",
        )


def _others(layout: Layout, concerns: Callable[[str], bool]) -> str:
    """Return how many runs of each side stand in a status that concerns, in words; '' when none does."""
    numbers: Counter[tuple[str, str]] = Counter()
    for block in layout.blocks:
        for cell in block.cells:
            numbers.update({(cell.side, status): n for status, n in cell.others.items() if concerns(status)})
    return ", ".join(f"{n} {side} {status.replace('_', ' ')}" for (side, status), n in numbers.items())


def left_out(evidence: Evidence) -> Iterator[Caveat]:
    """Warn of runs without a counterpart."""
    for one in evidence.layout.left_out:
        yield Caveat(
            code="left_out",
            text=f"{one.runs} {one.side} left out, without a counterpart on another side: {one.what}",
            remedy="run the same workload with the same parameters on each side",
        )


def one_node(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side is one node."""
    nodes = {side: {run.nodes for run in runs_of(evidence.layout, side)} for side in evidence.layout.sides}
    single = [side for side, names in nodes.items() if len(names) == 1]
    if "node" in evidence.layout.facet.names or not single:
        return
    if len(set().union(*nodes.values())) == 1:
        text = f"all runs are from one node ({next(iter(nodes[single[0]]))}): they say nothing about other nodes"
    else:
        text = f"one node only for {', '.join(single)}: the difference may be this node's and not the side's"
    yield Caveat(code="one_node", text=text, remedy="repeat on other nodes of the same kind")


def not_interleaved(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides did not take turns."""
    if any(_one_after_the_other(block) for block in evidence.layout.blocks):
        yield Caveat(
            code="not_interleaved",
            text="all runs of one side came before all of another: warming up or neighbours may be the difference",
            remedy="take turns: one run of each side, then the next",
        )


def _one_after_the_other(block: Block) -> bool:
    cells = [cell for cell in block.cells if cell.runs]
    spans = sorted(filter(None, map(_span, cells)))
    many = all(len(cell.runs) > 1 for cell in cells)
    return many and any(before[1] <= after[0] for before, after in pairwise(spans))


def _span(cell: Cell) -> tuple[datetime, datetime] | None:
    starts = [run.started_at for run in cell.runs if run.started_at]
    ends = [run.ended_at for run in cell.runs if run.ended_at]
    return (min(starts), max(ends)) if starts and ends else None


def confounded(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where the sides differ in something else than what is compared."""
    facet = evidence.layout.facet
    for name in (name for name in CONDITIONS if name not in {facet.name, *facet.fixes, "device"}):
        values = [{getattr(run, name) or "none" for run in runs_of(evidence.layout, s)} for s in evidence.layout.sides]
        if any(one != values[0] for one in values):
            told = " / ".join(", ".join(sorted(one)) for one in values)
            yield Caveat(
                code="confounded",
                text=f"the sides also differ in {name}: {told}",
                remedy=f"run both sides with the same {name}, or compare `--by {name}`",
            )


def overlapping(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where runs shared their node with other runs."""
    where = evidence.sides_where(lambda run: run.run_id in evidence.facts.neighbours)
    if where:
        yield Caveat(
            code="overlapping",
            text=f"other runs were on the same node at the same time in {where}",
            remedy="run one after the other, or load the node on purpose with `--with`",
        )
