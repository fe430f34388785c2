"""The spread of runs that differ only by chance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, log, sqrt
from statistics import fmean

from gpuagent_collector.statistics.quantiles import chi_squared_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of the runs' logarithms, so that 0.02 is about 2 %.

    Attributes:
        seen: the standard deviation, pooled over cells.
        cautious: the upper end of its one-sided 80 % interval, as Browne (1995) advises for planning: the spread of a
            few runs is below the true one about as often as above.
        freedom: its degrees of freedom.
    """

    seen: float
    cautious: float
    freedom: int


def matched_spread(tables: Iterable[Sequence[Sequence[float]]]) -> Spread | None:
    """Return the spread of positive values without what their row, and what their column, has in common.

    Args:
        tables: rows are repeats, columns are cells that every repeat has.

    Returns: None where no table has two rows and two columns.
    """
    squares, freedom = 0.0, 0
    for rows in tables:
        logs = [[log(value) for value in row] for row in rows]
        columns = list(zip(*logs, strict=True))
        whole = fmean(map(fmean, logs)) if logs else 0.0
        squares += fsum(
            (value - fmean(row) - fmean(column) + whole) ** 2
            for row in logs
            for value, column in zip(row, columns, strict=True)
        )
        freedom += max(len(logs) - 1, 0) * max(len(columns) - 1, 0)
    return _spread(squares, freedom)


def pooled_spread(cells: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread within cells of positive values; None where no cell has two of them."""
    squares, freedom = 0.0, 0
    for values in cells:
        logs = [log(value) for value in values]
        middle = fmean(logs) if logs else 0.0
        squares += fsum((each - middle) ** 2 for each in logs)
        freedom += max(len(logs) - 1, 0)
    return _spread(squares, freedom)


def _spread(squares: float, freedom: int) -> Spread | None:
    if not freedom:
        return None
    seen = sqrt(squares / freedom)
    return Spread(seen=seen, cautious=seen * sqrt(freedom / chi_squared_quantile(0.2, freedom)), freedom=freedom)
