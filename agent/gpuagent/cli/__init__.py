"""The command `gpuagent`."""

import logging
from typing import NoReturn

import click

from gpuagent import __version__
from gpuagent_common.cli import LazyGroup, run_command_line
from gpuagent_common.unexpected import LineFormatter

# Each command's line in the help; its code is in the module of the same name.
_COMMANDS = {
    "join": "Join a collector: store its token and certificate.",
    "start": "Sample this node until stopped.",
    "run": "Run a workload or any command, and measure it.",
    "bench": "Compare commands or settings: run them in turns, and answer.",
    "experiment": "Run an experiment from a file.",
    "image": "Build or pull the image of the workloads.",
    "info": "Show this node's hardware, environments and sources.",
    "prepare": "Download the real data of a workload.",
    "workloads": "List the built-in workloads and their parameters.",
}


@click.group(
    "gpuagent", cls=LazyGroup, modules={name: (f"gpuagent.cli.{name}", summary) for name, summary in _COMMANDS.items()}
)
@click.version_option(__version__, prog_name="gpuagent")
@click.option("-v", "--verbose", is_flag=True, help="Log the agent's steps.")
def cli(verbose: bool) -> None:
    """Run deep-learning workloads and measure them.

    CPU, memory and GPU samples go to a collector, which stores and compares them.

    \b
    Begin with:
      gpuagent bench 'python a.py' 'python b.py'
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("gpuagent: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


def main() -> NoReturn:
    """Run the command line and exit."""
    run_command_line(cli)
