"""What is asked of a store in SQL, by topic, and the rows and figures that come of it."""

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from gpuagent_collector.query.ask import Recorder, list_text, rows_of
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.runs.columns import Columns, Piece


@pytest.mark.parametrize(
    "texts", [[], [""], ["run-1", "run-2"], ["a, b", "[c]", "NULL", "'"], ['"', "\\n", "d\n", 'e\\"'], ["ü", "f"]]
)
def test_a_list_as_a_text_is_the_same_list_to_duckdb(texts: list[str]) -> None:
    with duckdb.connect() as connection:
        assert connection.execute("SELECT CAST(? AS VARCHAR[])", [list_text(texts)]).fetchone() == (texts,)


def test_a_statement_of_two_topics_is_recorded_in_both_and_asked_once() -> None:
    asked: list[tuple[str, Sequence[Parameter]]] = []

    def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        asked.append((sql, parameters))
        return [{"asked": len(asked)}]

    recorder = Recorder(ask)
    first, second = (recorder.about(topic)("SELECT ?", ["x"]) for topic in ("Runs", "Costs"))
    assert first == second == [{"asked": 1}]
    # Shown alike, but not the same.
    assert recorder.about("Runs")("SELECT ?", ["x\n"]) != recorder.about("Runs")("SELECT ?", ["x\\n"])
    assert recorder.statements["Costs"] == ["SELECT 'x';"]
    assert len(recorder.statements["Runs"]) == len(asked) == 3


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


def test_figures_of_other_metrics_are_read_once_and_only_when_one_is_asked_for() -> None:
    read: list[str] = []

    def others() -> Iterator[Piece]:
        read.append("others")
        yield "loss", [1], [0.5]

    figures = Columns(["one", "two"], [("power", [0], [1.0])], first=["power", "absent"], others=others)
    assert [figures.of(metric).tolist()[0] for metric in ("power", "absent")] == pytest.approx([1.0, nan], nan_ok=True)
    assert read == []
    assert (figures.of("loss").tolist()[1], list(figures.by_metric), dict(figures)["two"]) == (
        0.5,
        ["loss", "power"],
        {"loss": 0.5},
    )
    assert read == ["others"]
