"""The figures of many runs: a column for each metric, a row for each run."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

# A metric, the rows that have it, and their figures.
Piece = tuple[str, Sequence[int] | Rows, Sequence[float] | Floats]


class Columns(Mapping[str, Mapping[str, float]]):
    """Figures by metric, and as a mapping by run.

    Attributes:
        rows: the row of each run.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        figures: Iterable[Piece],
        *,
        first: Collection[str] = (),
        others: Callable[[], Iterable[Piece]] | None = None,
    ) -> None:
        """Take the runs, and figures in pieces of one metric each.

        With `others` the figures are those of the `first` metrics; it reads all others when one of them is asked for.
        """
        self.rows = {run_id: row for row, run_id in enumerate(run_ids)}
        self._absent = np.full(len(self.rows) + 1, np.nan)
        self._known: dict[str, Floats] = {}
        self._first, self._others = frozenset(first), others
        self._add(figures)

    def _add(self, figures: Iterable[Piece]) -> None:
        for metric, rows, values in figures:
            if metric not in self._known:
                self._known[metric] = self._absent.copy()
            self._known[metric][rows] = values
        self._known = dict(sorted(self._known.items()))

    @property
    def by_metric(self) -> Mapping[str, Floats]:
        """A column for each metric that some run has; NaN: absent. A further, last row is of no run."""
        if self._others is not None:
            others, self._others = self._others, None
            self._add(others())
        return self._known

    @cached_property
    def _run_ids(self) -> Mapping[str, None]:
        """The runs with figures."""
        has_any = np.zeros(len(self.rows) + 1, np.bool_)
        for column in self.by_metric.values():
            has_any |= ~np.isnan(column)
        return dict.fromkeys(run_id for run_id, row in self.rows.items() if has_any[row])

    @classmethod
    def of_runs(cls, metrics: Mapping[str, Mapping[str, float]]) -> "Columns":
        """Return columns of the figures of each run."""
        rows = enumerate(metrics.values())
        return cls(list(metrics), ((metric, [row], [each]) for row, of_run in rows for metric, each in of_run.items()))

    def joined(self, metrics: Mapping[str, Mapping[str, float]]) -> "Columns":
        """Return these columns with further figures of runs, which replace those of the same metric."""
        more = Columns.of_runs(metrics)
        run_ids = list(dict.fromkeys([*self.rows, *more.rows]))
        figures = []
        for each in (self, more):
            places = each.find_rows(run_ids)
            for metric, column in each.by_metric.items():
                rows = np.flatnonzero(~np.isnan(column[places]))
                figures.append((metric, rows, column[places][rows]))
        return Columns(run_ids, figures)

    def of(self, metric: str) -> Floats:
        """Return the column of a metric; all NaN where no run has it."""
        known = self._known if metric in self._first else self.by_metric
        return known.get(metric, self._absent)

    def find_rows(self, run_ids: Iterable[str]) -> Rows:
        """Return the rows of runs; -1, the last one, for an unknown run."""
        return np.fromiter(map(self.rows.get, run_ids, repeat(-1)), np.int32)

    def __getitem__(self, run_id: str) -> Mapping[str, float]:
        if run_id not in self._run_ids:
            raise KeyError(run_id)
        return _OfRun(self.by_metric, self.rows[run_id])

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._run_ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._run_ids)

    def __len__(self) -> int:
        return len(self._run_ids)


class _OfRun(Mapping[str, float]):
    """The figures of one run, which are looked up in the columns."""

    def __init__(self, by_metric: Mapping[str, Floats], row: int) -> None:
        self._by_metric = by_metric
        self._row = row

    def __getitem__(self, metric: str) -> float:
        figure = self._by_metric[metric].item(self._row)
        if isnan(figure):
            raise KeyError(metric)
        return figure

    def __iter__(self) -> Iterator[str]:
        return (metric for metric, column in self._by_metric.items() if not isnan(column.item(self._row)))

    def __len__(self) -> int:
        return sum(1 for _ in self)
