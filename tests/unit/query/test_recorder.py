"""What an answer asked, by topic."""

from collections.abc import Sequence
from typing import Any

from gpuagent_collector.query.ask import Recorder
from gpuagent_collector.query.execute import Parameter


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
