"""`collector report`: a comparison as one HTML file."""

from pathlib import Path
from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.keeper import output_path
from gpuagent_collector.cli.options import ReaderOptions, check_option, prices_option, reader_options
from gpuagent_collector.cli.printing import asking
from gpuagent_collector.cli.selection import (
    delta_option,
    each_option,
    run_options,
    side_options,
    stats_options,
    tested_options,
    unpaired_option,
)
from gpuagent_common.cli import NAME
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector report l4-a100.html gke-l4 gke-a100
  collector report containers.html --by environment --experiment containers
  collector report costs.html --workload resnet50 --prices prices.yaml
"""


def _check_name(_context: click.Context, _argument: click.Parameter, path: Path) -> Path:
    if path.suffix.lower() not in (".html", ".htm"):
        raise MisuseError(f"{path} would hold a page: give it a name that ends in .html")
    return path


@click.command(epilog=_EXAMPLES)
@click.argument("path", metavar="OUT.html", type=click.Path(path_type=Path), callback=_check_name)
@side_options
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@tested_options
@stats_options
@delta_option
@unpaired_option
@each_option
@prices_option
@click.option("--inline", is_flag=True, help="Put the charts' library (5 MB) into the page.")
@click.option("--force", is_flag=True, help="Replace an existing OUT.html.")
@check_option
@reader_options
def command(reader: ReaderOptions, path: Path, inline: bool, force: bool, **asked: Any) -> None:
    """Write a comparison as an HTML page that needs no network.

    It holds tables, charts, warnings, and the commands that reproduce it. The charts' library is a file beside it, one
    for all pages of a folder; keep both together, or give --inline. Sides and runs are chosen as in
    `collector compare`.
    """
    from gpuagent_collector.compare.comparison import Request
    from gpuagent_collector.present.files import appearing
    from gpuagent_collector.report.page import library_name, plotly_script, render_report

    path = output_path(path, force=force)
    library = None if inline else path.with_name(library_name())
    with reader.open() as opened:
        name = library.name if library else None
        page = render_report(asking(opened, show_sql=False), Request(**asked), source=opened.source, library=name)
    if library and not library.exists():
        with appearing(library) as unfinished:
            unfinished.write_text(plotly_script(), encoding="utf-8")
    with appearing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    click.echo(f"{path}: {_size(path)}")


def _size(path: Path) -> str:
    from gpuagent_collector.present.human import notation

    size_bytes = path.stat().st_size
    return notation([size_bytes], "bytes").write(size_bytes)
