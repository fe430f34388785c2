"""`gpuagent prepare`: fetch the real data of a workload."""

import os
import sys

import click

from gpuagent.runs.catalogue import Catalogue
from gpuagent_common.errors import GpuAgentError


@click.command(
    epilog="""\b
Examples:
  gpuagent prepare mnist
  gpuagent prepare cifar10 --data ~/cifar10
  gpuagent prepare resnet50 --mirror http://mirror.example/datasets"""
)
@click.argument("workload")
@click.option("--data", metavar="DIR", help="Where to put it; by default a folder in ~/.cache/gpuagent.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Fetch from this folder instead; repeatable.")
@click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one.")
def command(workload: str, data: str | None, mirrors: tuple[str, ...], python: str) -> None:
    """Fetch the real data of a workload; it then runs with --data DIR, and without a network.

    `gpuagent workloads` says how much each fetches. Every file is checked before it gets its name, what is there is
    not fetched again, and an interrupted download goes on where it stopped. Without real data workloads train on
    synthetic data.
    """
    catalogue = Catalogue(python)
    _become(catalogue.preparation(catalogue.find(workload), data, mirrors))


def _become(program: list[str]) -> None:
    """Go on as another program: it has the terminal, gets the signals, and its exit code is ours."""
    sys.stdout.flush()
    try:
        os.execvp(program[0], program)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise GpuAgentError(f"cannot start {program[0]}: {error.strerror or error}") from error
