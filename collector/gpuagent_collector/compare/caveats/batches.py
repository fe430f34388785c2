"""Sets of runs that were made in several goes. Whether somebody looked in between, no data tells."""

from collections import Counter
from collections.abc import Iterator

from gpuagent_collector.compare.evidence import Evidence
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.output.human import significant
from gpuagent_collector.runs.cells import Cell


def joined(evidence: Evidence) -> Iterator[Caveat]:
    """Warn where a side has the same repeat of a node more than once: then several experiments are joined."""
    cells = [cell for block in evidence.layout.blocks for cell in block.cells]
    sides = dict.fromkeys(cell.side for cell in cells if _again(cell))
    if sides:
        runs, percent = sum(map(_again, cells)), significant(100 * evidence.figures.alpha)
        yield Caveat(
            code="joined",
            text=f"{runs} run{'s' * (runs != 1)} of {', '.join(sides)} repeat what was run before: if that was after a "
            f"look at the others, a false 'differs' comes more often than in {percent} % of cases",
            remedy="compare one experiment alone (--experiment, --where), or run a new one (`collector plan`)",
        )


def _again(cell: Cell) -> int:
    """Return how many runs of a cell have the number of another repeat on the same nodes."""
    numbers = Counter((run.nodes, run.repeat) for run in cell.runs if run.repeat is not None)
    return sum(number - 1 for number in numbers.values())
