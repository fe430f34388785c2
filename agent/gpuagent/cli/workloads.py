"""`gpuagent workloads`: list the built-in workloads and their parameters."""

import sys

import click

from gpuagent.runs.catalogue import Catalogue, ask


@click.command(epilog="\b\nExamples:\n  gpuagent workloads\n  gpuagent workloads gpt\n  gpuagent workloads --json")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(names: tuple[str, ...], python: str, as_json: bool) -> None:
    """List the built-in workloads, or those named: what each does, what it needs, its parameters."""
    catalogue = Catalogue(python)
    for name in names:
        catalogue.find(name)
    click.echo(ask(python, as_json=as_json, names=names), nl=False)
