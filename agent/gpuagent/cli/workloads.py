"""`gpuagent workloads`: list the built-in workloads and their parameters."""

import click

from gpuagent.cli.options import PYTHON_OPTION
from gpuagent.runs.catalogue import Catalogue, ask


@click.command(epilog="\b\nExamples:\n  gpuagent workloads\n  gpuagent workloads gpt\n  gpuagent workloads --json")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@PYTHON_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(names: tuple[str, ...], python: str, as_json: bool) -> None:
    """List the built-in workloads and their parameters.

    With names, list only those.
    """
    catalogue = Catalogue(python)
    for name in names:
        catalogue.find(name)
    click.echo(ask(python, as_json=as_json, names=names), nl=False)
