"""`collector compare`: compare platforms, GPUs or environments."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options, prices_option
from gpuagent_collector.cli.printing import asking, print_answer, print_error
from gpuagent_collector.cli.selection import (
    delta_option,
    each_option,
    run_options,
    side_options,
    stats_options,
    tested_options,
    unpaired_option,
)
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME, Number
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.compare.comparison import Comparison

_EXAMPLES = """\b
Examples:
  collector compare satori openshift
  collector compare --by interference --workload mnist
  collector compare bare docker --by environment --metric step_seconds
  collector compare --by platform,environment satori,docker openshift,podman
  collector compare vm container --where "started_at > '2026-11-01'"
  collector compare --before driver --workload resnet50
  collector compare --by label:commit main mine --max-regression 3 --junit out.xml
  collector compare --table throughput,gpu_utilization_percent --max
  collector compare --table step_seconds --rows device --columns environment
  collector compare --by device --specs
  collector compare --by argument:--dtype --all
  collector compare --by command -- "--lr 0.1" "--lr 0.2"
  collector compare gke-l4 gke-a100 --format csv > l4-a100.csv
"""


@click.command(epilog=_EXAMPLES)
@side_options
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@tested_options
@stats_options
@delta_option
@unpaired_option
@click.option(
    "--before",
    "--after",
    "event",
    metavar="EVENT",
    help="Compare each node's runs before and after its last such event.",
)
@click.option(
    "--max-regression",
    type=Number(0, 100),
    metavar="PERCENT",
    help="Exit with 1 if a side is shown worse by more.",
)
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML; with --max-regression."
)
@click.option("--table", metavar="METRIC,...", help="Print one table of these metrics, by workload and side; no test.")
@click.option("--rows", metavar="FACET", shell_complete=facets, help="Rows of --table.  [default: workload]")
@click.option("--columns", metavar="FACET", shell_complete=facets, help="Columns of --table.  [default: that of --by]")
@each_option
@click.option("--specs", is_flag=True, help="Print the hardware and software of the sides alone.")
@click.option("--all", "everything", is_flag=True, help="Show all warnings, metrics, hardware and charts.")
@click.option("--no-series", is_flag=True, help="With --all, leave out the charts over time.")
@prices_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    no_series: bool,
    specs: bool,
    table: str | None,
    rows: str | None,
    columns: str | None,
    max_regression: float | None,
    junit: Path | None,
    **asked: Any,
) -> None:
    """Compare platforms, GPUs or environments.

    Compares runs with the same workload, parameters and circumstances. For the primary metric it reports whether the
    sides differ, are equal (=), are inconclusive (~), or have too few runs; for all other metrics it prints 95 %
    intervals. One side, or --by workload, is described by its values. FACET is platform, environment, interference,
    limits, device, node, nodes, workload, run, all, parameter:KEY or label:KEY; for your own programs also
    argument:NAME, such as argument:--lr, or command. A side that begins with a hyphen goes after --, in quotes.

    EVENT is a change that agents saw: driver, cuda, kernel, os, bios, gpu-firmware, image, torch, torch-cuda, cudnn,
    nccl, agent or reboot; EVENT=VALUE is the change to that value. With --max-regression, an undecided comparison does
    not fail.
    """
    from gpuagent_collector.compare.comparison import Request, compare
    from gpuagent_collector.compare.export import render

    if specs and table:
        raise MisuseError("--specs and --table are two answers; give one of them")
    if junit and max_regression is None:
        raise MisuseError("--junit writes conclusions of --max-regression; give that too")
    if asked["event"] and (table or asked["values"] or asked["baseline"] or asked["by"] != "platform"):
        raise MisuseError("--before has two sides of its own: leave out names of sides, --by, --baseline and --table")
    if (rows or columns) and not table:
        raise MisuseError("--rows and --columns arrange --table; name its metrics: --table throughput")
    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        if table:
            from gpuagent_collector.compare import matrix

            request = Request(**{**asked, "by": columns or asked["by"], "series": False})
            names = [name.strip() for name in table.split(",")]
            print_answer(matrix.render(matrix.tabulate(ask, request, names, rows or "workload")), output_format)
            return
        if specs:
            from gpuagent_collector.compare.tables import render_hardware

            print_answer(render_hardware(ask, compare(ask, Request(series=False, **asked))), output_format)
            return
        series = output_format is OutputFormat.TABLE and asked["everything"] and not no_series
        comparison = compare(ask, Request(series=series, **asked))
        print_answer(render(comparison), output_format)
        if max_regression is not None:
            _check(comparison, max_regression / 100, junit)


def _check(comparison: "Comparison", tolerated: float, junit: Path | None) -> None:
    """Print the conclusions on stderr, write them to a file, and exit with 1 for a regression."""
    from gpuagent_collector.compare.regression import Outcome, check_regressions, write_junit

    checks = check_regressions(comparison, tolerated)
    if junit:
        write_junit(checks, junit)
    for check in checks:
        print_error(f"{check.outcome.value}: {check.name} ({check.evidence})")
    if any(check.outcome is Outcome.REGRESSED for check in checks):
        raise click.exceptions.Exit(1)
