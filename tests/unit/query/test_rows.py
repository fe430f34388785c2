"""Rows of answers are those that Arrow gives itself."""

import pyarrow as pa

from gpuagent_collector.query.rows import rows_of
from gpuagent_collector.runs.data import FiguresByRun


def test_lists_of_numbers_become_what_arrow_makes_of_them() -> None:
    lists = pa.array([[9.0], [1.0, float("inf")], [], [0.5]], pa.list_(pa.float64()))
    table = pa.table(
        {
            "name": ["a", None, "c"],
            "sliced": lists.slice(1),
            "chunked": pa.chunked_array([pa.array(part, pa.list_(pa.int64())) for part in ([[1, 2]], [[3], []])]),
            "absent": pa.array([[1, None], None, [2]], pa.list_(pa.int64())),
        }
    )
    assert rows_of(table) == table.to_pylist()
    assert rows_of(table.slice(0, 0)) == []


def test_figures_by_metric_are_the_same_by_run() -> None:
    figures = FiguresByRun({"power": {"one": 1.0, "two": 2.0}, "loss": {"two": 0.5}})
    assert dict(figures) == {"one": {"power": 1.0}, "two": {"power": 2.0, "loss": 0.5}}
    assert ("one" in figures, "three" in figures, figures.get("three")) == (True, False, None)
