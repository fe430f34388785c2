"""Plumbing of both command lines: lazy subcommands, one-line errors, completion scripts, NAME=VALUE options."""

import errno
import importlib
import io
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.naming import check_label, check_name
from gpuagent_common.text import harmless
from gpuagent_common.unexpected import describe_unexpected, replace_hooks


class SuggestingGroup(click.Group):
    """A group that suggests a subcommand for an unknown one, and prints its help as an error without one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; without any, print the help and exit with 2, as click does by itself since 8.2 alone."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that `args` begin with. Raises MisuseError where it does not exist."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"see: {ctx.command_path} --help"
            raise MisuseError(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group that imports a subcommand's module on first use, so that help stays quick.

    It adds the subcommand `completion`.

    Args:
        modules: by subcommand, MODULE or MODULE:NAME of its command, NAME being `command`, and its line in the help.
    """

    def __init__(self, *, modules: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(context_settings={"help_option_names": ["-h", "--help"]}, **settings)
        self._modules = modules
        # The help of each subcommand in one line.
        self.summaries = {name: summary for name, (_, summary) in modules.items()} | {
            "completion": "Print the completion script of a shell."
        }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the help."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a subcommand; None: it does not exist."""
        if cmd_name == "completion":
            return _completion_command(str(self.name))
        if cmd_name not in self._modules:
            return None
        module, _, name = self._modules[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name or "command")
        assert isinstance(command, click.Command)  # noqa: S101 - import_module returns Any
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


class ProgramCommand(click.Command):
    """A command that keeps the words after `--` in `ctx.meta["program"]`: a user's program and its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`."""
        if "--" in args:
            position = args.index("--")
            ctx.meta["program"] = args[position + 1 :]
            args = args[:position]
        return super().parse_args(ctx, args)


# Most of what an option counts, such as runs, and the longest time that it takes, a year.
MOST = 1_000_000
MOST_SECONDS = 365 * 86_400


class Number(click.FloatRange):
    """A finite number of a range, to which NaN belongs for click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; otherwise a usage error, which names the range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range of finite numbers", param, ctx)
        return number


class Name(click.types.StringParamType):
    """A name given by a user: printable, not blank, and not longer than names may be."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the name; raise MisuseError if it is none."""
        return check_name(str(value), max(param.opts, key=len) if param else "the name")


NAME = Name()


def single(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> str | None:
    """Return the value of a `multiple` option that may be given once, where the last of several would mislead.

    Raises click.BadParameter: it was given several times.
    """
    if len(values) > 1:
        raise click.BadParameter("give it once", ctx=ctx, param=param)
    return values[0] if values else None


def run_command_line(group: click.Group) -> NoReturn:
    """Run a command line and exit: 0 done, 1 failed, 2 misuse, 130 interrupted. Every error is one line."""
    name = str(group.name)
    replace_hooks(name)
    try:
        prepare_streams()
        use_utf8()
        # gRPC's core would print a line of its own about every failed handshake, beside ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        code = group.main(prog_name=group.name, standalone_mode=False)
        click.echo(nl=False)  # flushes: what a full disk does not take must not be lost in silence on exit
    except click.UsageError as error:
        _fail(name, describe_misuse(error), error.exit_code)
    except click.ClickException as error:
        _fail(name, error.format_message(), error.exit_code)
    except BrokenPipeError:
        _discard(1)
        sys.exit(1)
    except (GpuAgentError, OSError) as error:
        _fail(name, _describe_failure(error), 2 if isinstance(error, MisuseError) else 1)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the boundary: every error becomes one line
        # DuckDB turns a Ctrl-C during execution into a RuntimeError.
        causes = (error, error.__cause__)
        if any(isinstance(cause, KeyboardInterrupt | click.Abort) for cause in causes):
            import signal  # as in interrupt_on_signals

            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            _fail(name, "interrupted", 130)
        _fail(name, describe_unexpected(name, error), 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(name: str, words: str, code: int) -> NoReturn:
    with suppress(OSError, ValueError):
        click.echo(f"{name}: {harmless(words)}", err=True)
    sys.exit(code)


def prepare_streams() -> None:
    """Make the standard streams such that writing what they do not take is an error of ours, or a `?`."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would get its number, and what is printed
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # PYTHONUNBUFFERED: Python would ignore that a full disk took a part of the text only.
            sys.stdout = open(1, "w", buffering=1, encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115
        sys.stdout.reconfigure(errors="replace")  # a locale other than UTF-8 prints ? for what it lacks


def use_utf8() -> None:
    """Begin again with UTF-8 where the locale (LC_ALL=C) has no letters for an argument or the working directory.

    Raises MisuseError: they are no UTF-8 either.
    """
    try:
        folder = os.getcwd()  # noqa: PTH109 - a Path is not needed
    except FileNotFoundError:
        folder = ""  # most commands do not need it
    foreign = [text for text in (*sys.argv[1:], folder) if not _is_encodable(text)]
    if not foreign:
        return
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        # The options of Python itself come first in what is left.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - this program again
    if not _is_encodable(folder):
        raise MisuseError(f"the name of the working directory is not UTF-8: {folder!r}; rename it, or cd elsewhere")
    raise MisuseError(f"an argument is not UTF-8: {foreign[0][:60]!r}; rename the file, or write it in a script")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _discard(descriptor: int) -> None:
    """Let what is still written to a stream vanish: Python would try to write it again on exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _describe_failure(error: GpuAgentError | OSError) -> str:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"cannot open another file: {error.strerror}; raise the limit: ulimit -n"
    if not isinstance(error, OSError) or error.filename:
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        _discard(1)
        return f"cannot write the output or a file: {error.strerror}"
    if error.errno == errno.EBADF:
        _discard(1)
        return "the output is closed; redirect it: > FILE"
    if error.errno == errno.ENOENT and not _has_working_directory():
        return "the working directory does not exist any more; change to another"
    return str(error)


def _has_working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - a Path is not needed
    except OSError:
        return False
    return True


# Patterns of click's messages → our words.
_CLICKS_WORDS = {
    r"Missing (?:argument|option|parameter) '(.+?)'.*": r"\1 is missing",
    r"Option '(.+)' requires an argument": r"\1 needs a value",
    r"Option '(.+)' requires (\d+) arguments": r"\1 needs \2 values",
    r"Option '(.+)' does not take a value": r"\1 takes no value",
    r"Got unexpected extra arguments? \((.+)\)": r"unexpected argument: \1",
    r"Invalid value for '(.+?)': '?(.+?)'? is not a valid integer( range)?": r"\1 takes a whole number, not '\2'",
    r"Invalid value for '(.+?)': '?(.+?)'? is not a valid float( range)?": r"\1 takes a number, not '\2'",
    r"Invalid value for '(.+?)': (?:File|Path|Directory) '(.+)' does not exist": r"there is no \2, which \1 names",
    r"Invalid value for '(.+?)': (.+)": r"\1: \2",
}


def describe_misuse(error: click.UsageError) -> str:
    """Return the mistake in a command line as one line with a hint, in our words instead of click's."""
    if isinstance(error, click.NoSuchOption):
        words = f"no option {error.option_name:.60}"
        name = error.option_name.lstrip("-")
        params = error.ctx.command.params if error.ctx else ()
        if any(isinstance(each, click.Argument) and str(each.name).removesuffix("s") == name for each in params):
            words += f"; name the {name} without it"
        elif close := _closest(name, params):
            words += f"; did you mean {close}?"
        elif error.ctx and any(each.nargs == -1 for each in error.ctx.command.params):
            words += "; write -- before arguments that begin with a hyphen"
    elif isinstance(error, click.BadParameter) and (permitted := _describe_permitted(error)):
        return permitted
    else:
        given = " ".join(error.format_message().split()).removesuffix(".")
        # A variable of the environment may have the value.
        given = re.sub(r"'(\S+)' \(env var: '(\w+)'\)", r"'\1 (\2)'", given)
        matches = ((re.fullmatch(pattern, given), ours) for pattern, ours in _CLICKS_WORDS.items())
        words = next((match.expand(ours) for match, ours in matches if match), given[:1].lower() + given[1:])
        if isinstance(error, click.BadParameter) and error.param and error.param.metavar == "SECONDS":
            words = words.replace("takes a number,", "takes a number of seconds,")
    return f"{words}{'' if words.endswith('?') else f'; see: {error.ctx.command_path} --help' if error.ctx else ''}"


def _closest(name: str, params: Sequence[click.Parameter]) -> str | None:
    """Return the option whose name is most like a mistyped one, or which takes it as its value; None: none does.

    Hyphens make no likeness.
    """
    from difflib import get_close_matches

    for each in params:
        if isinstance(each.type, click.Choice) and name in each.type.choices:
            return f"{max(each.opts, key=len)} {name}"
    options = {option.lstrip("-"): option for each in params for option in each.opts if option.startswith("--")}
    begun = [each for each in options if each.startswith(name)] if len(name) > 1 else []
    close = begun or get_close_matches(name, options, n=1)
    return options[close[0]] if close else None


def _describe_permitted(error: click.BadParameter) -> str | None:
    """Return what a choice or a range permits, with the value given; None: the parameter is neither."""
    given, separator, _ = re.split(r"( is not one of | is not in the range |$)", error.message, maxsplit=1)
    if not separator or error.param is None:
        return None
    name, kind = max(error.param.opts, key=len), error.param.type
    if isinstance(kind, click.Choice):
        from difflib import get_close_matches

        close = get_close_matches(given.strip("'"), kind.choices, n=1)
        return f"{name} takes {', '.join(kind.choices)}; not {given}{f'; did you mean {close[0]}?' if close else ''}"
    if isinstance(kind, click.IntRange | click.FloatRange):
        least = [] if kind.min is None else [f"{'above' if kind.min_open else 'at least'} {kind.min:,.15g}"]
        most = [] if kind.max is None else [f"{'below' if kind.max_open else 'at most'} {kind.max:,.15g}"]
        return f"{name} must be {' and '.join(least + most)}, not {given}"
    return None


def interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this command as Ctrl-C does, with its clean-up."""
    import signal  # its enums take a fiftieth of `--help`

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary.

    Raises MisuseError: a text has another form, or a name is given twice; names `option`.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise MisuseError(f"{option} takes NAME=VALUE, not {text!r}")
        if name in pairs:
            raise MisuseError(f"{option} {name} is given twice")
        pairs[name] = value
    return pairs


def word_parameters(words: Sequence[str]) -> list[str]:
    """Return --key value, --key=value and the switch --key, as after a workload's name, as KEY=VALUE texts.

    Raises MisuseError: a word is none of these.
    """
    parameters: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise MisuseError(
                f"unexpected argument {word!r}. Pass parameters as --name value, or run another program with: "
                "-- PROGRAM"
            )
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        parameters.append(f"{name}={value}")
    return parameters


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Return the labels that --label gives.

    Raises MisuseError: a text is not NAME=VALUE, a part of it is no printable name, or the label is gpuagent's own.
    """
    labels = parse_pairs(texts, "--label")
    for name, value in labels.items():
        check_label(name, value, "--label")
    return labels


def _completion_command(program: str) -> click.Command:
    @click.command(
        "completion",
        epilog=f"""\b
Examples:
  {program} completion bash >> ~/.bashrc
  {program} completion zsh >> ~/.zshrc
  {program} completion fish > ~/.config/fish/completions/{program}.fish""",
    )
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    @click.pass_context
    def command(ctx: click.Context, shell: str) -> None:
        """Print the completion script of a shell."""
        from click.shell_completion import get_completion_class

        script = get_completion_class(shell)
        assert script  # noqa: S101 - click has a class for each of the choices
        click.echo(script(ctx.find_root().command, {}, program, f"_{program.upper()}_COMPLETE").source())

    return command
