"""The command `run`: a subcommand for each workload, with the parameters that its Config declares."""

from collections.abc import Callable, Iterator
from typing import Any

import click

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.parameters import Parameter, parameters_of
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.workload import Workload

_TYPES: dict[str, click.ParamType[Any] | type] = {"int": int, "float": float, "str": str, "bool": bool, "path": str}


class WorkloadGroup(click.Group):
    """A group whose commands are the workloads; each calls `execute(workload, config)`."""

    def __init__(self, execute: Callable[[Workload[Any], Any], None], **attributes: Any) -> None:
        super().__init__(
            commands=[WorkloadCommand(workload, execute) for workload in WORKLOADS],
            invoke_without_command=True,
            callback=_require_name,
            **attributes,
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a workload's command.

        Raises:
            MisuseError: the workload is unknown.
        """
        name, *others = args
        return super().resolve_command(ctx, [find(name).name, *others])


class WorkloadCommand(click.Command):
    """A command that parses a workload's parameters into its Config and calls `execute(workload, config)`."""

    def __init__(self, workload: Workload[Any], execute: Callable[[Workload[Any], Any], None]) -> None:
        def run(**given: Any) -> None:
            execute(workload, workload.config(**given))

        super().__init__(
            workload.name,
            callback=run,
            params=[_option(parameter) for parameter in parameters_of(workload.config)],
            help=workload.summary,
            epilog="Each can also be given as --param KEY=VALUE.",
            context_settings={"token_normalize_func": lambda token: token.replace("_", "-")},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments into `ctx`."""
        return super().parse_args(ctx, list(_without_param(iter(args))))


def _require_name(**_options: Any) -> None:
    if click.get_current_context().invoked_subcommand is None:
        raise MisuseError(f"missing workload: choose from {', '.join(workload.name for workload in WORKLOADS)}")


def _option(parameter: Parameter) -> click.Option:
    # A truth value can be given bare (--compile) as well as with its value (--compile false, --param compile=false).
    flag: dict[str, Any] = {"is_flag": False, "flag_value": True} if parameter.type == "bool" else {}
    return click.Option(
        [f"--{parameter.name}"],
        type=click.Choice(parameter.choices) if parameter.choices else _TYPES[parameter.type],
        default=parameter.default,
        show_default=True,
        help=parameter.help,
        **flag,
    )


def _without_param(arguments: Iterator[str]) -> Iterator[str]:
    """Turn `--param key=value` into `--key=value`, so that both forms are parsed alike."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name != "--param":
            yield argument
            continue
        pair = value if equals else next(arguments, "")
        if "=" not in pair:
            raise MisuseError(f"--param needs KEY=VALUE, not {pair!r}")
        yield f"--{pair}"
