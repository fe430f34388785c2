"""Rows of answers are those that Arrow gives itself, and figures by metric are the same by run."""

import pyarrow as pa

from gpuagent_collector.query.ask import rows_of
from gpuagent_collector.runs.columns import Columns


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
    rows = [
        {name: getattr(value, "tolist", lambda value=value: value)() for name, value in row.items()}
        for row in rows_of(table)
    ]
    assert rows == table.to_pylist()
    assert rows_of(table.slice(0, 0)) == []


def test_figures_by_metric_are_the_same_by_run() -> None:
    figures = Columns(["one", "two", "three"], [("power", [0, 1], [1.0, 2.0]), ("loss", [1], [0.5])])
    assert dict(figures) == {"one": {"power": 1.0}, "two": {"power": 2.0, "loss": 0.5}}
    assert ("one" in figures, "three" in figures, figures.get("three")) == (True, False, None)
    assert figures.of("loss")[figures.find_rows(["two", "unknown"])].tolist()[:1] == [0.5]


def test_joined_figures_replace_those_of_the_same_metric() -> None:
    figures = Columns(["one", "two"], [("power", [0, 1], [1.0, 2.0])])
    joined = figures.joined({"two": {"power": 3.0, "loss": 0.5}, "three": {"loss": 1.5}})
    assert dict(joined) == {"one": {"power": 1.0}, "two": {"power": 3.0, "loss": 0.5}, "three": {"loss": 1.5}}
