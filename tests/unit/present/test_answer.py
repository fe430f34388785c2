"""Answers as a terminal and other formats show them."""

from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.table import Column, Grid, Table


def test_a_table_of_which_a_terminal_shows_no_row_is_a_line_there() -> None:
    table = Table([Column("name", "name")], [{"name": "a"}], most=0, more=lambda rows: f"{len(rows)} unknown")
    answer = Answer(heading="Answer", text="text", parts=[table], csv=[table])
    assert [part for section in answer.document(brief=True) for part in section.parts] == ["text", "1 unknown"]
    (section,) = answer.document()
    assert isinstance(section.parts[1], Grid)
    assert answer.lines() == [{"name": "a"}]
