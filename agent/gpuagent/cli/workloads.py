"""`gpuagent workloads`: list the built-in workloads and their parameters."""

import sys

import click

from gpuagent.catalogue import ask


@click.command(epilog="\b\nExamples:\n  gpuagent workloads\n  gpuagent workloads --json")
@click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(python: str, as_json: bool) -> None:
    """List the built-in workloads: what each does, what it needs, its parameters."""
    click.echo(ask(python, as_json=as_json), nl=False)
