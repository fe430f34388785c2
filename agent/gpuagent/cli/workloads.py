"""`gpuagent workloads`: list the built-in workloads and their parameters."""

import json
import sys

import click

from gpuagent.catalogue import Catalogue, Workload


@click.command(epilog="\b\nExamples:\n  gpuagent workloads\n  gpuagent workloads mnist\n  gpuagent workloads --json")
@click.argument("name", required=False)
@click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, python: str, as_json: bool) -> None:
    """List the built-in workloads; with a NAME, that one's parameters."""
    catalogue = Catalogue(python)
    chosen = [catalogue.find(name)] if name else list(catalogue.workloads().values())
    if as_json:
        click.echo(json.dumps([workload.as_json() for workload in chosen], indent=2))
        return
    for workload in chosen:
        _print(workload, with_help=name is not None)


def _print(workload: Workload, *, with_help: bool) -> None:
    formatter = click.HelpFormatter(width=min(100, click.formatting.shutil.get_terminal_size().columns))
    click.echo(f"{workload.name}  {workload.summary}")
