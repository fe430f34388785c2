"""`collector runs`: list the runs, newest first, or describe some of them."""

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import (
    ReaderOptions,
    ReadingCommand,
    answer_options,
    prices_option,
    stored_workloads,
)
from gpuagent_collector.json_cells import read_words
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.statuses import STATUSES, WARMS_UP
from gpuagent_common.cli import MOST, NAME
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted, harmless
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent_collector.prices.price import Prices
    from gpuagent_collector.query.reader import StreamingReader


_EXAMPLES = """\b
Examples:
  collector runs
  collector runs --workload mnist --status failed
  collector runs --experiment mnist-20260714T091500
  collector runs --platform gke-l4 --limit 100 --json
  collector runs nanogpt-1f2e3d4c5b
"""

# The collector computes the figures of a run a few seconds after its end.
_FIGURES_SECONDS = 10.0


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.option("--workload", type=NAME, help="Only runs of this workload.", shell_complete=stored_workloads)
@click.option("--platform", type=NAME, help="Only runs on this platform.")
@click.option("--experiment", type=NAME, metavar="NAME", help="Only runs of this experiment or launch.")
@click.option("--status", type=click.Choice([*STATUSES, WARMS_UP]), help="Only runs with this status.")
@click.option("--limit", type=click.IntRange(1, MOST), default=18, show_default=True, help="Most runs to list.")
@click.option("--all", "whole", is_flag=True, help="Show names, settings and reasons whole.")
@click.option("--parts", is_flag=True, help="List runs on several nodes by node.")
@click.option("--is-ending-known", is_flag=True, hidden=True, help="Describe a single run without how it ended.")
@prices_option
@answer_options
def command(
    names: tuple[str, ...],
    workload: str | None,
    platform: str | None,
    experiment: str | None,
    status: str | None,
    limit: int,
    whole: bool,
    parts: bool,
    is_ending_known: bool,
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    prices: "Prices | None",
) -> None:
    """List the runs, newest first.

    A wider terminal shows more columns; --json has all of them. RUN is a run's identity, or a unique beginning of it:
    these runs are described in a paragraph, with their cost if prices are known.
    """
    if names and output_format is OutputFormat.TABLE:
        _describe(names, reader, show_sql=show_sql, prices=prices, is_ending_known=is_ending_known)
        return
    from gpuagent_collector.runs.listing import runs_sql

    filters = {"workload": workload, "platform": platform, "experiment": experiment, "status": status}
    sql = runs_sql(filters, limit, of_parts=parts, names=names)
    if show_sql:
        click.echo(sql, err=True)
    with reader.open() as store:
        table = store.sql(sql)
        none = "" if table.num_rows else _explain_none(store, filters, reader.words, of_parts=parts)
    if output_format is not OutputFormat.TABLE:
        from gpuagent_collector.present.data import print_table

        print_table(table, output_format)
    elif none:
        click.echo(none)
    else:
        from gpuagent_collector.present.terminal import plain_console, print_list
        from gpuagent_collector.runs.listing import part_columns, run_columns

        rows = table.to_pylist()
        print_list(part_columns() if parts else run_columns(rows, whole=whole), rows, plain_console(sys.stdout))
        commands = set() if parts else {tuple(map(str, read_words(row["command"]))) for row in rows}
        if len(rows) > 1 and len(commands) == 1 and (words := shlex.join(commands.pop())):
            click.echo(f"all ran: {harmless(words)}", err=True)
        if len(rows) == limit:
            click.echo(f"the newest {limit}; --limit shows more", err=True)


def _explain_none(
    store: "StreamingReader", filters: Mapping[str, str | None], place: Sequence[str], *, of_parts: bool
) -> str:
    """Return why no run is listed, and a command that lists some or makes one.

    Raises MisuseError: no run has a name that the filters ask for.
    """
    from gpuagent_collector.runs.find import say_present
    from gpuagent_collector.runs.words import read_from

    given = {column: value for column, value in filters.items() if value is not None}
    for column in [column for column in given if column != "status"]:
        query = f"SELECT DISTINCT {column} FROM runs WHERE {column} IS NOT NULL ORDER BY {column}"  # noqa: S608
        known = [str(name) for name in store.sql(query).column(0).to_pylist()]
        if given[column] not in known:
            raise MisuseError(f"no run has the {column} {given[column]}; {say_present(known)}")
    number = store.sql("SELECT count(*) FROM runs").column(0)[0].as_py()
    if not number:
        return "no runs; start one with: gpuagent run mnist"
    conditions = " and ".join(f"the {column} {value}" for column, value in given.items())
    which = " and ".join(["is on several nodes"] * of_parts + [f"has {conditions}"] * bool(given))
    said = f"no run {which}; the store has {counted(number, 'run')}: `collector runs`"
    return read_from(harmless(said), place)


def _describe(
    names: Sequence[str],
    options: ReaderOptions,
    *,
    show_sql: bool,
    prices: "Prices | None",
    is_ending_known: bool,
) -> None:
    """Print a paragraph on the runs, when the collector has computed their figures."""
    from gpuagent_collector.cli.printing import asking
    from gpuagent_collector.prices.runs import with_costs
    from gpuagent_collector.query.named_runs import find_run
    from gpuagent_collector.runs.data import load_facts, load_runs
    from gpuagent_collector.runs.facets import find_facet
    from gpuagent_collector.runs.paragraph import describe_runs
    from gpuagent_collector.runs.words import read_from

    with options.open() as store:
        ask = asking(store, show_sql=show_sql)
        wanted = [find_run(ask, name) for name in names]
        unknown = next((run.run_id for run in wanted if run.status is None), None)
        if unknown is not None:
            raise MisuseError(f"no run has the identity {unknown}; `collector runs` lists the runs")
        run_ids = [run.run_id for run in wanted]
        deadline = time.monotonic() + _FIGURES_SECONDS
        facts = load_facts(ask, run_ids)
        with waiting_for("collector", "the collector to compute the figures of the runs"):
            while not all(run.run_id in facts.metrics or not run.has_ended for run in wanted):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.5)
                facts = load_facts(ask, run_ids)
        runs = load_runs(ask, find_facet("platform"), run_ids=run_ids)
        for workload in dict.fromkeys(run.workload for run in runs):
            of_one = [run for run in runs if run.workload == workload]
            facts_of_one = with_costs(ask, facts, prices)
            described = describe_runs(ask, of_one, facts_of_one, is_ending_known=is_ending_known and len(names) == 1)
            for line in map(harmless, described.split("\n")):
                # A command is one line, which can be pasted.
                lead, _, further = line.partition(": ")
                width = shutil.get_terminal_size().columns
                # `gpuagent run`, which knows how it ended, names the collector for its own reading alone.
                command = f"{lead}: {read_from(further, () if is_ending_known else options.words)}"
                is_command = lead in ("Next", "Its output")
                click.echo(command if is_command else textwrap.fill(line, width, break_on_hyphens=False))
