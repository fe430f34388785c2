"""Rows of the store as tables, lists and files."""

import csv
import io
import json
from collections.abc import Iterator
from operator import itemgetter

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.data import MAX_BLOCKS, MAX_ROWS, WRITERS, print_rows, print_table
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.table import Grid
from gpuagent_collector.present.terminal import ListColumn, print_answer, print_list
from tests.support.commands import HOSTILE, csv_rows

LINE = f"{HOSTILE}\n"


class Screen(io.TextIOWrapper):
    """A standard output that keeps what was written, and may be a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        self.seek(0)
        return self.read()


def printed(table: pa.Table, output_format: OutputFormat, *, terminal: bool = False) -> str:
    screen = Screen(terminal=terminal)
    print_table(table, output_format, screen)
    return screen.text()


def ask(sql: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(sql).to_arrow_table()


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


KINDS = [
    ("NULL::DOUBLE", None, ""),
    ("1.5::DOUBLE", 1.5, "1.5"),
    ("'nan'::DOUBLE", "nan", "nan"),
    ("'inf'::DOUBLE", "inf", "inf"),
    ("true", True, "true"),
    ("9007199254740991::BIGINT", 9007199254740991, "9007199254740991"),
    ("-6620726065751043373::BIGINT", "-6620726065751043373", "-6620726065751043373"),
    ("18446744073709551615::UBIGINT", "18446744073709551615", "18446744073709551615"),
    ("sum(5::BIGINT)", 5, "5"),
    ("12.50::DECIMAL(9, 2)", 12.5, "12.5"),
    ("''", "", ""),
    ("'a,\"b'", 'a,"b', 'a,"b'),
    ("TIMESTAMP '2026-01-02 03:04:05.678'", "2026-01-02T03:04:05.678000Z", "2026-01-02T03:04:05.678000Z"),
    ("TIMESTAMPTZ '2026-01-02 03:04:05+02'", "2026-01-02T01:04:05.000000Z", "2026-01-02T01:04:05.000000Z"),
    ("DATE '2026-01-02'", "2026-01-02", "2026-01-02"),
    ("TIME '03:04:05'", "03:04:05", "03:04:05"),
    ("INTERVAL '83.5 seconds'", "PT83.5S", "PT83.5S"),
    ("INTERVAL '1 month 2 days'", "P1M2D", "P1M2D"),
    ("'\\xAB\\x01'::BLOB", "ab01", "ab01"),
    ("'b'::ENUM('a', 'b')", "b", "b"),
    ("[1, NULL, 3]", [1, None, 3], "[1, null, 3]"),
    ("[TIMESTAMP '2026-01-02 03:04:05']", ["2026-01-02T03:04:05Z"], '["2026-01-02T03:04:05Z"]'),
    (
        "{'a': 'x', 'b': [9007199254740993]}",
        {"a": "x", "b": ["9007199254740993"]},
        '{"a": "x", "b": ["9007199254740993"]}',
    ),
    ("MAP {'a': 1}", {"a": 1}, '{"a": 1}'),
    ("union_value(a := 1)", 1, "1"),
    ("DATE '-5000-01-01'", "-5000-01-01", "-5000-01-01"),
    ("[DATE '-5000-01-01']", ["-5000-01-01"], '["-5000-01-01"]'),
    ("{'a': TIMESTAMP '-5000-01-01'}", {"a": "-5000-01-01 00:00:00.000000"}, '{"a": "-5000-01-01 00:00:00.000000"}'),
]


@pytest.mark.parametrize(("expression", "value", "text"), KINDS, ids=[kind[0] for kind in KINDS])
def test_every_kind_of_value_has_its_form_in_json_and_csv(expression: str, value: object, text: str) -> None:
    table = ask(f"SELECT {expression} AS x, 1 AS y")
    assert json.loads(printed(table, OutputFormat.JSON)) == [{"x": value, "y": 1}]
    assert list(csv.reader(io.StringIO(printed(table, OutputFormat.CSV)))) == [["x", "y"], [text, "1"]]


@pytest.mark.parametrize("output_format", list(OutputFormat))
def test_every_kind_of_value_can_be_printed_in_every_format(output_format: OutputFormat) -> None:
    assert set(WRITERS) == set(OutputFormat)
    sql = ", ".join(f"{expression} AS c{number}" for number, (expression, *_) in enumerate(KINDS))
    assert printed(ask(f"SELECT {sql}"), output_format)


LATEX = r"""\begin{adjustbox}{max width=\linewidth}
\begin{tabular}{rl}
\toprule
a & b \\
\midrule
\bottomrule
\end{tabular}
\end{adjustbox}
"""


@pytest.mark.parametrize(
    ("output_format", "text"),
    [
        (OutputFormat.JSON, "[]\n"),
        (OutputFormat.CSV, '"a","b"\n'),
        (OutputFormat.MARKDOWN, "| a | b |\n| ---: | --- |\n"),
        (OutputFormat.TABLE, "a  b\n────\nno rows\n"),
        (OutputFormat.LATEX, LATEX),
    ],
)
def test_no_rows_still_have_a_header(output_format: OutputFormat, text: str) -> None:
    assert printed(ask("SELECT 1 AS a, 'x' AS b WHERE false"), output_format) == text


def test_columns_of_one_name_get_numbers() -> None:
    assert json.loads(printed(ask("SELECT 1 AS a, 2 AS a, 3 AS a"), OutputFormat.JSON)) == [
        {"a": 1, "a_1": 2, "a_2": 3}
    ]


@pytest.mark.parametrize("output_format", list(OutputFormat))
def test_nothing_from_the_store_acts_on_a_terminal(output_format: OutputFormat) -> None:
    table = pa.table({LINE: [LINE], "list": [[LINE]]})
    text = printed(table, output_format, terminal=True).replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert not set(text) & set("\x1b\x9b\u202e")
    assert "[red]" in text.replace("\\[", "[").replace("\\]", "]")


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+A1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "--a1", "--x cmd|'/C'!A0"]
)
def test_a_text_in_csv_is_no_formula_of_a_spreadsheet(text: str) -> None:
    table = pa.table({text: [text, None, "plain"], "n": [-1, -2, -3]})
    first, empty, plain = csv_rows(printed(table, OutputFormat.CSV))
    assert first == {f"'{text}": f"'{text}", "n": "-1"}
    assert (empty[f"'{text}"], plain[f"'{text}"]) == ("", "plain")
    assert json.loads(printed(table, OutputFormat.JSON))[0][text] == text


EXACT = ["-5", "--flag", "--batch-size 32", "--lr 1e-3 --dtype=bf16", "+1.5e-3", "-", ".5", "-.5", "+3.2 %", "a=1", "—"]


@pytest.mark.parametrize("text", [*EXACT, "'quoted'", "x\n=1"])
def test_other_texts_in_csv_are_exact(text: str) -> None:
    assert csv_rows(printed(pa.table({"a": [text]}), OutputFormat.CSV)) == [{"a": text}]


def test_csv_in_a_file_has_texts_as_they_are_and_distinguishes_an_empty_one_from_no_value() -> None:
    assert csv_rows(printed(pa.table({"a": [LINE]}), OutputFormat.CSV)) == [{"a": LINE}]
    assert printed(ask("SELECT '' AS a, NULL::VARCHAR AS b"), OutputFormat.CSV) == '"a","b"\n"",\n'


@pytest.mark.parametrize("text", [LINE, "\x7f", "\U000e0020"], ids=["many", "delete", "beyond four digits"])
def test_json_means_the_text_as_it_is(text: str) -> None:
    written = printed(pa.table({"a": [text]}), OutputFormat.JSON)
    assert json.loads(written) == [{"a": text}]
    assert written.replace("\n", "").isprintable()


@given(st.lists(st.tuples(st.none() | st.floats(allow_nan=False, allow_infinity=False), st.none() | st.text())))
def test_json_gives_back_what_went_in(rows: list[tuple[float | None, str | None]]) -> None:
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    table = pa.table({"n": pa.array(numbers, pa.float64()), "t": pa.array(texts, pa.string())})
    assert [(row["n"], row["t"]) for row in json.loads(printed(table, OutputFormat.JSON))] == rows


def test_a_latex_cell_cannot_run_a_command() -> None:
    written = printed(pa.table({"a": ["\\input{x} & 100 % $x_1^2$ #~", "a --prices"]}), OutputFormat.LATEX)
    assert r"\textbackslash{}input\{x\} \& 100 \% \$x\_1\textasciicircum{}2\$ \#$\sim$" in written
    assert "a -{}-prices" in written


def test_long_names_are_broken_in_latex() -> None:
    long = "--batch-size 128 --optimizer adam [x]"
    heading, _, row = printed(pa.table({f"range of {long}": [long]}), OutputFormat.LATEX).splitlines()[3:6]
    assert heading.count(r" \\ ") == 3
    assert row == r"\begin{tabular}[t]{@{}l@{}}-{}-batch-size 128 -{}-optimizer \\ adam [x]\end{tabular} \\"


@pytest.mark.parametrize("text", ["[1em] x", "*"])
def test_a_latex_cell_is_no_option_of_the_line_before_it(text: str) -> None:
    assert f"{{}}{text}" in printed(pa.table({"a": ["1", text]}), OutputFormat.LATEX)


def test_a_markdown_cell_cannot_break_its_table() -> None:
    lines = printed(pa.table({"a|b": ["x|y", "<script>\n"]}), OutputFormat.MARKDOWN).splitlines()
    assert lines == [r"| a\|b |", "| --- |", r"| x\|y |", r"| \<script\>\\n |"]


def test_a_table_rounds_figures_and_times_and_shows_a_dash_for_none() -> None:
    table = ask(
        "SELECT 1234.56789::DOUBLE AS f, 12345678.9::DOUBLE AS g, NULL AS n, TIMESTAMP '2026-01-02 03:04:05.6789' AS t"
    )
    header, _, row = printed(table, OutputFormat.TABLE).splitlines()
    assert header.split() == ["f", "g", "n", "t"]
    assert row.split() == ["1234.57", "12345679", "–", "2026-01-02T03:04:05.678Z"]


def test_long_texts_are_folded_and_a_row_that_is_still_too_wide_for_the_terminal_becomes_a_block() -> None:
    lines = printed(ask("SELECT 1 AS a, repeat('word ', 100) AS text"), OutputFormat.TABLE).splitlines()
    assert lines[0].split() == ["a", "text"]
    assert max(map(len, lines)) <= 80
    table = ask("SELECT " + ", ".join(f"{number} AS a_long_column_name_{number}" for number in range(10)))
    lines = printed(table, OutputFormat.TABLE).splitlines()
    assert lines[0].strip() == "row 1"
    assert lines[1].split() == ["a_long_column_name_0", "0"]
    assert max(map(len, lines)) <= 80


def test_a_long_table_shows_its_beginning_and_takes_no_more_than_that() -> None:
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        while True:
            taken += 1
            yield pa.record_batch({"a": list(range(100))})

    screen = Screen()
    print_rows(pa.schema([("a", pa.int64())]), batches(), OutputFormat.TABLE, screen)
    assert f"the first {MAX_ROWS:,} rows" in screen.text()
    assert taken == MAX_ROWS // 100 + 1


def test_of_many_wide_rows_the_first_are_blocks() -> None:
    wide = ", ".join(f"{number} AS a_long_column_name_{number}" for number in range(10))
    text = printed(ask(f"SELECT {wide} FROM range({MAX_BLOCKS + 70})"), OutputFormat.TABLE)
    assert text.count("row ") == MAX_BLOCKS
    assert f"the first {MAX_BLOCKS:,} rows" in text


def test_a_plan_is_printed_as_duckdb_draws_it() -> None:
    text = printed(ask("EXPLAIN SELECT 1"), OutputFormat.TABLE)
    assert text.startswith("┌──")
    assert "explain_key" not in text


LISTED = [
    ListColumn(title="name", show=lambda row: row["name"], rank=0),
    ListColumn(title="least", show=lambda _: "x" * 30, rank=3),
    ListColumn(title="why", show=lambda row: row["why"], rank=2, max_width=20),
    ListColumn(title="second", show=lambda _: "y" * 10, rank=1, right=True),
]


def listed(width: int) -> list[str]:
    rows: list[dict[str, str | None]] = [
        {"name": "n" * 20, "why": None},
        {"name": "[red]\x1b", "why": "because of many words that fold"},
    ]
    out = io.StringIO()
    print_list(LISTED, rows, Console(file=out, width=width, markup=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (10, ["name"]),
        (31, ["name"]),
        (32, ["name", "second"]),
        (53, ["name", "second"]),
        (54, ["name", "why", "second"]),
        (85, ["name", "why", "second"]),
        (86, ["name", "least", "why", "second"]),
    ],
)
def test_columns_are_shown_by_importance_as_far_as_they_fit(width: int, titles: list[str]) -> None:
    lines = listed(width)
    assert lines[0].split() == titles
    assert max(map(len, lines)) <= width


def test_cells_are_harmless_and_a_missing_one_is_a_dash() -> None:
    text = "\n".join(listed(100))
    assert r"[red]\x1b" in text
    assert "–" in text
    assert "\x1b" not in text


WIDE = Grid(
    header=("sides", "runs", "throughput, steps/s", "ratio [interval]", "verdict"),
    rows=(("--batch-size 128 / --batch-size 32", "7 pairs", "84.0 / 326", "0.257 [0.202, 0.327]", "differs"),),
    left=(True, False, False, False, False),
)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_figure_is_broken_over_lines(columns: int) -> None:
    out = io.StringIO()
    print_answer(Console(file=out, width=columns), Answer(heading="Verdicts", text="", parts=[WIDE]))
    for figure in WIDE.rows[0][1:3]:
        assert figure in out.getvalue()
    if columns > 40:
        assert WIDE.rows[0][3] in out.getvalue()
    assert not any(line.strip() in ("hput,", "t") for line in out.getvalue().splitlines())


@pytest.mark.parametrize("columns", [40, 120])
def test_a_heading_within_a_table_is_on_one_line_and_widens_no_column(columns: int) -> None:
    heading, figure = "Cost per million items, \x1bUSD", "0.878 [0.873, 0.898] (7)"
    grid = Grid(header=("name", "lab"), rows=((heading,), (" job", figure), ("last",)), left=(True, False))
    out = io.StringIO()
    print_answer(Console(file=out, width=columns), Answer(heading="Costs", text="", parts=[grid]))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    at = lines.index(r"Cost per million items, \x1bUSD")
    assert lines[at + 1 : at + 3] == [f" job  {figure}", "last"]


def test_a_list_leaves_out_what_is_too_wide_and_not_what_comes_after_it() -> None:
    out = io.StringIO()
    columns = [ListColumn(title=name, show=itemgetter(name), rank=at) for at, name in enumerate("abc")]
    print_list(columns, [{"a": "1", "b": "2" * 40, "c": "3"}], Console(file=out, width=20))
    assert out.getvalue().split()[:2] == ["a", "c"]
