"""`collector plot`: figures as files for print."""

import re
from pathlib import Path
from typing import Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.keeper import output_path
from gpuagent_collector.cli.options import ReaderOptions, check_option, prices_option, reader_options, show_sql_option
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_collector.cli.selection import each_option, limit_options, run_options, side_options, stats_options
from gpuagent_common.cli import NAME
from gpuagent_common.errors import GpuAgentError, MisuseError

_ENDINGS = (".png", ".svg", ".pdf")
_LEAST_MM, _MOST_MM = 60.0, 400.0

_EXAMPLES = """\b
Examples:
  collector plot throughput satori openshift -o throughput.pdf
  collector plot gpu_utilization_percent,cpu_percent --kind time -o curves.png
  collector plot step_seconds --by device --kind bars --width 85mm -o steps.svg
  collector plot gpu_utilization_percent --each gpu --max -o gpus.pdf
  collector plot loss --kind steps --by environment -o loss.pdf
  collector plot roofline --workload resnet50 -o roofline.pdf
  collector plot collectives --by node -o links.pdf
  collector plot serving --by parameter:server --ttft 200 -o serving.pdf
  collector plot frontier --by device --prices prices.yaml -o frontier.pdf
"""


def _check_name(_context: click.Context, _option: click.Parameter, path: Path) -> Path:
    if path.suffix.lower() not in _ENDINGS:
        raise MisuseError(f"{path} has no ending of a figure; end it with {', '.join(_ENDINGS)}")
    return path


def _millimetres(_context: click.Context, _option: click.Parameter, text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]+)?)(?:mm)?", text)
    if match is None or not _LEAST_MM <= float(match[1]) <= _MOST_MM:
        raise MisuseError(f"--width {text} is no width from {_LEAST_MM:g}mm to {_MOST_MM:g}mm, such as 85mm or 180mm")
    return float(match[1])


@click.command(epilog=_EXAMPLES)
@click.argument("what", metavar="METRIC,...|KIND")
@side_options
@click.option(
    "-o",
    "--output",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=_check_name,
    help="The figure: FILE.png, FILE.svg or FILE.pdf.",
)
@click.option(
    "--kind",
    type=click.Choice(["dots", "bars", "matrix", "time", "steps"]),
    help="Kind of a figure of metrics.  [default: by what there is]",
)
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@stats_options
@each_option
@click.option(
    "--rows",
    metavar="FACET",
    default="workload",
    shell_complete=facets,
    help="Facet that separates rows.  [default: workload]",
)
@click.option("--columns", metavar="FACET", shell_complete=facets, help="The same as --by.")
@click.option(
    "--width",
    default="180mm",
    show_default=True,
    metavar="MM",
    callback=_millimetres,
    help="Width in print, such as 85mm.",
)
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@limit_options
@prices_option
@show_sql_option
@check_option
@reader_options
def command(
    reader: ReaderOptions,
    what: str,
    path: Path,
    kind: str | None,
    rows: str,
    columns: str | None,
    width: float,
    force: bool,
    show_sql: bool,
    percent: int | None,
    milliseconds: dict[str, float],
    **asked: Any,
) -> None:
    """Draw a figure for print into a file.

    Of METRICs, dots are medians over runs with 95 % intervals, bars have values, a matrix has a row for each workload,
    time draws the median runs' curves, and steps what runs report by step, such as the loss. KIND is roofline, scaling,
    serving, frontier (time against energy and cost), split (of memory-limit) or collectives. Sides and runs are chosen
    as in `collector compare`. Limits of latency are for serving; without them, those of the runs count.
    """
    try:
        from gpuagent_collector.plot.draw import Kind, PlotRequest, write_plot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise GpuAgentError("figures need matplotlib; run: pip install matplotlib") from None
    from gpuagent_collector.compare.comparison import Request

    path = output_path(path, force=force)
    names = tuple(dict.fromkeys(name.strip() for name in what.split(",")))
    request = Request(**{**asked, "by": columns or asked["by"]})
    wanted = PlotRequest(
        names=names,
        kind=Kind(kind) if kind else None,
        request=request,
        rows=rows,
        width_mm=width,
        percent=percent,
        milliseconds=milliseconds,
    )
    with reader.open() as opened:
        picture = write_plot(asking(opened, show_sql=show_sql), wanted, path)
    if picture.missing:
        print_error(f"not drawn, because no run has it: {', '.join(picture.missing)}")
    click.echo(f"{path}: {picture.width_mm:.0f} × {picture.height_mm:.0f} mm")
