"""`gpuagent completion`: print the shell completion script."""

import click
from click.shell_completion import get_completion_class


@click.command(epilog="\b\nExample:\n  gpuagent completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script for bash, zsh or fish."""
    found = get_completion_class(shell)
    assert found  # noqa: S101 - the choices above are the shells that click has
    click.echo(found(ctx.find_root().command, {}, "gpuagent", "_GPUAGENT_COMPLETE").source())
