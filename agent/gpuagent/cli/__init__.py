"""The command `gpuagent`."""

import importlib
import io
import logging
import os
import sys

import click

from gpuagent import __version__
from gpuagent_common.errors import GpuAgentError, MisuseError

# Each command's line in the help; its code is in the module of the same name, imported only when it is used.
_COMMANDS: dict[str, str] = {
    "join": "Join a collector: keep its token and certificate.",
    "start": "Sample this node and stream to a collector until stopped.",
    "run": "Run a workload or any command, measured.",
    "experiment": "Run an experiment from a file: many runs, one question.",
    "image": "Build the image of the workloads for an environment, or pull it.",
    "info": "Show what this node has, and which sources work here.",
    "prepare": "Fetch the real data of a workload.",
    "workloads": "List the built-in workloads and their parameters.",
    "completion": "Print the shell completion script.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in _COMMANDS:
            return None
        command = importlib.import_module(f"gpuagent.cli.{name}").command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuagent")
@click.option("-v", "--verbose", is_flag=True, help="Log what the agent does.")
def cli(verbose: bool) -> None:
    """Run deep-learning workloads and stream CPU, memory and GPU samples to a collector.

    \b
    Begin with:
      collector serve                     in one terminal
      gpuagent run mnist --repeat 3       in another
      collector runs
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="gpuagent: %(message)s")


def main() -> None:
    """Run the command; every error the user can mend is one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where the locale is not UTF-8, ? stands for what it cannot show
    # gRPC's core would write a line of its own about every handshake that fails, beside ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GpuAgentError as error:
        click.echo(f"gpuagent: {_one_line(str(error))}", err=True)
        sys.exit(2 if isinstance(error, MisuseError) else 1)
    except (KeyboardInterrupt, click.Abort):
        click.echo("gpuagent: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        click.echo(f"gpuagent: {error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _one_line(text: str) -> str:
    r"""Return `text` with what would act on a terminal written out (`\x1b`): files and collectors can be anybody's."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
