"""`gpuagent workloads`: list the built-in workloads, their parameters, and the layers of a network."""

import re
import textwrap

import click

from gpuagent.cli.options import PYTHON_OPTION
from gpuagent.runs.catalogue import Catalogue, ask, ask_layers
from gpuagent_common.errors import MisuseError
from gpuagent_common.waiting import waiting_for

_EXAMPLES = """\b
Examples:
  gpuagent workloads
  gpuagent workloads gpt
  gpuagent workloads --json
  gpuagent workloads resnet50 --summary --param batch-size=1
  gpuagent workloads biggan --summary --json > biggan.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@PYTHON_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--summary", is_flag=True, help="Print a table of the network's layers instead.")
@click.option(
    "--param", "parameters", multiple=True, metavar="KEY=VALUE", help="With --summary: a parameter; repeatable."
)
def command(names: tuple[str, ...], python: str, as_json: bool, summary: bool, parameters: tuple[str, ...]) -> None:
    """List the built-in workloads, or the parameters of some.

    Without names: one line for each. With --summary: each layer's output shape, parameters, FLOPs and bytes.
    """
    if not summary and parameters:
        raise MisuseError("--param is for --summary, which is missing")
    if summary and len(names) != 1:
        raise MisuseError("--summary needs one workload, such as: gpuagent workloads resnet50 --summary")
    catalogue = Catalogue(python)
    with waiting_for("gpuagent", f"{python} to list its workloads"):
        for name in names:
            catalogue.find(name)
        if summary:
            click.echo(ask_layers(python, names[0], parameters, as_json=as_json), nl=False)
            return
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
