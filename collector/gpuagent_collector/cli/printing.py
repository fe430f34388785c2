"""Lines on stderr, the `Ask` that prints its statements there, and answers that are files."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.errors import MissingPackageError
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.query.ask import Ask
    from gpuagent_collector.query.execute import Parameter
    from gpuagent_collector.query.reader import Reader


def print_error(words: str) -> None:
    """Print a line on stderr, escaped, with the program's name before it."""
    click.echo(f"collector: {harmless(words)}", err=True)


def print_rows_of(table: str, rows: int) -> None:
    """Print a table's number of rows on stderr, unless it has none."""
    if rows:
        click.echo(f"  {harmless(table):<20} {rows:>13,} {'row' if rows == 1 else 'rows'}", err=True)


def asking(reader: "Reader", *, show_sql: bool, statements: list[str] | None = None) -> "Ask":
    """Return a callable that runs one SELECT on `reader`; it prints each on stderr with `show_sql`.

    Where `statements` are given, each is added to them.
    """
    from gpuagent_collector.query.ask import list_text, rows_of, with_values

    def ask(sql: str, parameters: "Sequence[Parameter]" = ()) -> list[dict[str, Any]]:
        if show_sql or statements is not None:
            statement = with_values(sql.strip(), parameters)
            if show_sql:
                click.echo(f"{statement};\n", err=True)
            if statements is not None:
                statements.append(statement)
        given = [list_text(value) if isinstance(value, list) else value for value in parameters]
        return rows_of(reader.sql(sql, given))

    return ask


def draw(
    ask: "Ask",
    *,
    source: str,  # noqa: ARG001 - a figure names no place
    place: Sequence[str],  # noqa: ARG001
    path: Path,
    what: str,
    metric: str | None,
    kind: str | None,
    rows: str,
    columns: str | None,
    width: float,
    percent: int | None,
    milliseconds: Mapping[str, float],
    **asked: Any,
) -> None:
    """Draw a figure into a file; `asked` are the fields of a comparison's request."""
    try:
        from gpuagent_collector.plot.draw import Kind, PlotRequest, write_plot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingPackageError("figures", "matplotlib") from None
    from gpuagent_collector.choices import WHOLE
    from gpuagent_collector.cli.selection import draw_instead
    from gpuagent_collector.compare.comparison import Request
    from gpuagent_collector.metrics import BY_NAME
    from gpuagent_collector.runs.words import write_command

    # What is drawn may also follow the sides.
    words = [what, *asked["values"]]
    drawn = [word for word in words if word.split(",")[0] in {*WHOLE, *BY_NAME}]
    if len(drawn) == 1:
        what = drawn[0]
        asked["values"] = tuple(word for word in words if word != what)
    request = Request(**{**asked, "by": columns or asked["by"]})
    names = tuple(dict.fromkeys(name.strip() for name in what.split(",")))
    whole = next((name for name in names if name in WHOLE), None)
    if metric is not None or (whole and names[1:]):
        instead, why = (whole, f"{whole} is a figure of its own") if metric is None else draw_instead(what, metric)
        prices = request.prices.source if request.prices else None
        options = {**request.choice, "--baseline": request.baseline, "--prices": prices, "-o": str(path)}
        raise MisuseError(f"{why}: `{write_command('plot', options, instead or what, sides=request.values)}`")
    wanted = PlotRequest(
        names=names,
        kind=Kind(kind) if kind else None,
        request=request,
        rows=rows,
        width_mm=width,
        percent=percent,
        milliseconds=milliseconds,
    )
    picture = write_plot(ask, wanted, path)
    if picture.missing:
        print_error(f"not drawn, because no run has it: {', '.join(picture.missing)}")
    for paragraph in picture.said.splitlines():
        click.echo(textwrap.fill(paragraph, shutil.get_terminal_size().columns))
    click.echo(f"{path}: {picture.width_mm:.0f} × {picture.height_mm:.0f} mm")


def report(ask: "Ask", *, source: str, place: Sequence[str], path: Path, inline: bool, **asked: Any) -> None:
    """Write a page, and beside it, unless it is inline, the charts' library; `asked` are the fields of a request."""
    from gpuagent_collector.compare.answer import answer
    from gpuagent_collector.compare.choosing import say_choice
    from gpuagent_collector.compare.comparison import Request
    from gpuagent_collector.compare.document import find_next
    from gpuagent_collector.present.files import appearing
    from gpuagent_collector.present.human import in_unit
    from gpuagent_collector.present.terminal import shell_lines
    from gpuagent_collector.report.page import library_name, plotly_script, render
    from gpuagent_collector.report.study import make_report
    from gpuagent_collector.runs.words import read_from
    from gpuagent_collector.times import utc_now

    library = None if inline else path.with_name(library_name())
    name = library.name if library else None
    request = Request(**asked)
    made = make_report(ask, request, source=source, place=place, now=utc_now())
    page = render(made, library=name)
    if library and not library.exists():
        with appearing(library) as unfinished:
            unfinished.write_text(plotly_script(), encoding="utf-8")
    with appearing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    columns = shutil.get_terminal_size().columns
    chosen = say_choice(made.comparison, request)
    text = f"{answer(made.comparison, most=1, place='on the page')} {chosen}".rstrip()
    for paragraph in text.splitlines():
        click.echo(textwrap.fill(paragraph, columns))
    beside = f"; its charts need {name} beside it, or --inline" if name else ""
    written = f"{path}: {in_unit('bytes')(path.stat().st_size)}, a page for a browser{beside}"
    click.echo(textwrap.fill(written, columns, break_long_words=False, break_on_hyphens=False))
    further = find_next(made.comparison, reported=True)
    if further:
        click.echo("\n".join(["Next:", *shell_lines(read_from(further, place), columns)]))
