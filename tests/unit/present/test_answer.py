"""Answers as a terminal and other formats show them."""

import io
import shlex
import subprocess

import pytest
from rich.console import Console

from gpuagent_collector.present.answer import Answer, Bullets, Caveat, Legend, Section
from gpuagent_collector.present.table import Column, Grid, Table
from gpuagent_collector.present.terminal import print_answer
from gpuagent_common.connection import WHOLE_ANSWER_VARIABLE


def test_a_table_of_which_a_terminal_shows_no_row_is_a_line_there() -> None:
    table = Table([Column("name", "name")], [{"name": "a"}], most=0, more=lambda rows: f"{len(rows)} unknown")
    answer = Answer(heading="Answer", text="text", parts=[table], csv=[table])
    assert [part for section in answer.document(brief=True) for part in section.parts] == ["text", "1 unknown"]
    (section,) = answer.document()
    assert isinstance(section.parts[1], Grid)
    assert answer.lines() == [{"name": "a"}]


def test_the_first_screen_has_no_details_and_names_what_else_there_is() -> None:
    caveats = [Caveat(code=f"c{number}", text=f"warning {number}", remedy="do") for number in range(5)]
    rows = [{"name": str(number)} for number in range(20)]
    answer = Answer(
        heading="Answer",
        text="whole",
        short="short",
        parts=[Table([Column("name", "name")], rows, most=12), Legend("line", "long legend")],
        sections=[Section("Details", ["detail"], is_detail=True), Section("Seen", ["seen"])],
        caveats=caveats,
        next="collector show",
        more="the details",
    )
    first, seen = answer.document(brief=True)
    text, grid, rest, legend = first.parts
    assert (text, legend, seen.heading) == ("short", "line", "Seen")
    assert isinstance(grid, Grid) and len(grid.rows) == 12
    assert "8 more rows" in str(rest)
    _, bullets, last = seen.parts
    assert isinstance(bullets, Bullets) and [len(bullets.points), bullets.points[0][1]] == [2, ""]
    assert "`collector show`" in str(last)
    assert "--all shows 3 more warnings, the details" in str(last)
    whole = answer.document()
    assert [section.heading for section in whole] == ["Answer", "Details", "Seen", "Warnings"]
    assert whole[0].parts[0] == "whole" and whole[0].parts[-1] == "long legend"
    assert "--all" not in str(whole[-1].parts)


def test_a_text_of_a_detail_is_worked_out_where_it_is_shown_alone() -> None:
    asked: list[str] = []

    def legend() -> str:
        asked.append("legend")
        return "of the table"

    answer = Answer(heading="Answer", text="text", sections=[Section("Details", [legend], is_detail=True)])
    assert str(answer.document(brief=True)) and not asked
    assert answer.document()[-1].parts == ["of the table"] and asked


def test_a_first_screen_without_room_lacks_a_warning_a_spare_legend_and_the_command_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WHOLE_ANSWER_VARIABLE, "collector compare --all")
    caveats = [Caveat(code=f"c{number}", text=f"warning {number}", remedy="do") for number in range(2)]
    told = []
    for number in (4, 11, 13, 15, 17):
        table = Table([Column("name", "name")], [{"name": str(row)} for row in range(number)])
        legends = [Legend("spare line", "", is_spare=True), Legend("other line", "")]
        answer = Answer(
            heading="Answer", text="text", parts=[table, *legends], caveats=caveats, next="collector show", more="more"
        )
        out = io.StringIO()
        print_answer(Console(file=out, width=40), answer)
        told.append([word in out.getvalue() for word in ("warning 1", "spare line", "compare --all", "warning 0")])
        assert "other line" in out.getvalue() and "collector show" in out.getvalue()
    assert told[0] == [True, True, True, True]
    assert told[-1] == [False, False, False, True]
    assert told == sorted(told, reverse=True)


@pytest.mark.parametrize(("rows", "shown"), [(7, 7), (30, 6)])
def test_a_first_screen_without_room_has_fewer_rows_of_a_table_that_can_shrink(rows: int, shown: int) -> None:
    table = Table([Column("name", "name")], [{"name": f"row {row}"} for row in range(rows)], most=20, can_shrink=True)
    out = io.StringIO()
    quoted = "collector show --where 'a condition that is longer than two lines of a terminal of forty columns'"
    print_answer(Console(file=out, width=40), Answer(heading="Answer", text="text\n" * 6, parts=[table], next=quoted))
    assert out.getvalue().count("row ") == shown
    assert "collector show" in out.getvalue()


@pytest.mark.parametrize(("lines", "expected"), [(4, (3, False)), (9, (0, True))])
def test_a_first_screen_without_room_names_a_spare_table_among_the_rest(lines: int, expected: tuple[int, bool]) -> None:
    columns, cells = [Column("name", "name")], [{"name": f"row {row}"} for row in range(6)]
    tables = [Table(columns, cells, most=20, can_shrink=True), Table(columns, [{"name": "spare"}] * 3, spare="costs")]
    answer = Answer(heading="Answer", text="text\n" * lines, parts=tables, more="metrics", next="collector show")
    out = io.StringIO()
    print_answer(Console(file=out, width=80), answer)
    assert (out.getvalue().count("spare"), "--all shows costs, metrics." in out.getvalue()) == expected


def test_a_command_of_several_lines_can_be_pasted_into_a_shell() -> None:
    words = ["printf", "%s\\n", "--pattern", "step {step} of 'many' words that no line holds at once", "a b", ""]
    command = shlex.join(words)
    answer = Answer(heading="Answer", text="text", next=command, more="the details, which are many")
    out = io.StringIO()
    print_answer(Console(file=out, width=40), answer)
    *_, last = out.getvalue().partition("Next:\n")
    assert last.count("\\\n") == 2
    assert subprocess.check_output(["bash", "-c", last], text=True).split("\n")[:-1] == words[2:]


def test_a_first_screen_without_room_has_warnings_without_their_remedies() -> None:
    caveat = Caveat(code="x", text="a cause of it", remedy="a remedy")
    for lines, is_told in ((3, True), (20, False)):
        out = io.StringIO()
        print_answer(Console(file=out, width=80), Answer(heading="Answer", text="text\n" * lines, caveats=[caveat]))
        assert "a cause of it" in out.getvalue()
        assert ("a remedy" in out.getvalue()) is is_told
        assert ("--all shows remedies" in out.getvalue()) is not is_told
