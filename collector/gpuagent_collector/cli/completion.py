"""`collector completion`: completion of commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

_EXAMPLES = """\b
Examples:
  collector completion bash >> ~/.bashrc
  collector completion zsh >> ~/.zshrc
  collector completion fish > ~/.config/fish/completions/collector.fish
"""


@click.command(epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete collector's commands and options."""
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}")
    click.echo(completion(context.find_root().command, {}, "collector", "_COLLECTOR_COMPLETE").source())
