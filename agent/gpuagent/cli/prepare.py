"""`gpuagent prepare`: download the real data of a workload."""

import os
import sys

import click

from gpuagent.cli.options import PYTHON_OPTION
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
@click.option("--data", metavar="DIR", show_default="a folder in ~/.cache/gpuagent", help="Folder for the data.")
@click.option("--mirror", "mirrors", metavar="URL", multiple=True, help="Folder to download from; repeatable.")
@PYTHON_OPTION
def command(workload: str, data: str | None, mirrors: tuple[str, ...], python: str) -> None:
    """Download the real data of a workload.

    The workload then runs with --data DIR, without a network; without real data it trains on synthetic data.
    `gpuagent workloads` lists the sizes. Every file is verified, and existing files are kept.
    """
    catalogue = Catalogue(python)
    program = catalogue.preparation(catalogue.find(workload), data, mirrors)
    sys.stdout.flush()
    try:
        # The program replaces this one: it has the terminal, gets the signals, and its exit code is ours.
        os.execvp(program[0], program)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise GpuAgentError(f"cannot start {program[0]}: {error.strerror or error}") from error
