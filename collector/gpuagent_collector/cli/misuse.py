"""Groups of commands whose errors are one line of ours, with a suggestion."""

from difflib import get_close_matches
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from gpuagent_common.errors import MisuseError


class SuggestingGroup(click.Group):
    """A group that suggests a subcommand for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that `args` begin with.

        Raises:
            MisuseError: it does not exist.
        """
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"see: {ctx.command_path} --help"
            raise MisuseError(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class RootGroup(SuggestingGroup):
    """The group of a program. Called with `standalone_mode=False`, it raises MisuseError for click's usage errors."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line.

        Raises:
            MisuseError: the command line makes no sense.
        """
        try:
            return super().main(*args, **settings)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise MisuseError(_describe(error)) from error


def _describe(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        close = error.possibilities or []
        hint = f"; did you mean {sorted(close)[0]}?" if close else ""
        words = f"no option {error.option_name}{hint}"
    else:
        words = " ".join(error.format_message().split()).removesuffix(".")
        words = words[:1].lower() + words[1:]
    return f"{words}{'' if words.endswith('?') else f'; see: {error.ctx.command_path} --help' if error.ctx else ''}"
