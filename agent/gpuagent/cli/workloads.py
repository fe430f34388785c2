"""`gpuagent workloads`: list the built-in workloads and their parameters."""

import re
import textwrap

import click

from gpuagent.cli.options import PYTHON_OPTION
from gpuagent.runs.catalogue import Catalogue, ask
from gpuagent_common.waiting import waiting_for

_EXAMPLES = """\b
Examples:
  gpuagent workloads
  gpuagent workloads gpt
  gpuagent workloads --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@PYTHON_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(names: tuple[str, ...], python: str, as_json: bool) -> None:
    """List the built-in workloads, or the parameters of some.

    Without names: one line for each.
    """
    catalogue = Catalogue(python)
    with waiting_for("gpuagent", f"{python} to list its workloads"):
        for name in names:
            catalogue.find(name)
        if names or as_json:
            click.echo(ask(python, as_json=as_json, names=names), nl=False)
            return
        workloads = catalogue.workloads()
    width = max(map(len, workloads), default=0) + 2
    for name, workload in workloads.items():
        # Sizes and optimisers, in parentheses, are for the long list.
        text = re.sub(r" \(.*?\)", "", workload.summary).removesuffix(".")
        click.echo(f"{name:<{width}}{textwrap.shorten(text, 79 - width, placeholder=' …')}")
    click.echo("\nParameters: gpuagent workloads NAME")
