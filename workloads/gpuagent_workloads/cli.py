"""The command line: `python -m gpuagent_workloads list | run | prepare | check | check-parameters | serve`."""

import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from gpuagent_common.cli import MOST, use_utf8
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import user_folder
from gpuagent_common.unexpected import DEBUG, is_debugging, name_error
from gpuagent_workloads.counters import counting
from gpuagent_workloads.errors import Terminated, WorkloadError
from gpuagent_workloads.llama import PRESETS
from gpuagent_workloads.registry import WORKLOADS, as_json, as_text, find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.workload import Parameter, Workload, parameters_of

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
        """Return a workload's command. Raises MisuseError where the workload is unknown."""
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


_COUNT = click.IntRange(1, MOST)


@click.command("serve")
@click.option("--model", type=click.Choice([*PRESETS]), default="tiny", show_default=True, help="Size of the model.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Device.")
@click.option("--dtype", type=click.Choice(["auto", "fp32", "bf16"]), default="auto", help="Of weights and cache.")
@click.option("--slots", type=_COUNT, default=16, show_default=True, help="Most requests in one batch.")
@click.option("--context", type=_COUNT, default=4096, show_default=True, help="Most tokens of a request.")
@click.option("--prefill", type=_COUNT, default=2048, show_default=True, help="Tokens of prompts between two steps.")
@click.option("--threads", type=_COUNT, help="CPU threads; by default torch's.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Seed of the weights.")
def serve(
    model: str, host: str, port: int, device: str, dtype: str, context: int, threads: int | None, **limits: Any
) -> None:
    """Serve a Llama model with random weights, by OpenAI's API.

    A byte is a token. Nothing is downloaded, and every answer has as many tokens as were asked for.
    """
    import torch
    import uvicorn

    from gpuagent_workloads.server import Engine, Server
    from gpuagent_workloads.training.device import choose_device

    if threads:
        torch.set_num_threads(threads)
    place = choose_device(device)
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    kind = types.get(dtype) or (torch.bfloat16 if place.type == "cuda" else torch.float32)
    size = PRESETS[model]
    make = partial(Engine, size, context=context, device=place, dtype=kind, **limits)
    server = Server(model, context=context, vocabulary=size.vocabulary, load=make)
    config = uvicorn.Config(server.app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)
    server.run(uvicorn.Server(config))


@click.group(help="Deep-learning workloads that report their phases, steps and results through a run directory.")
def cli() -> None:
    """Hold the commands."""


@cli.command("list")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@click.option("--json", "in_json", is_flag=True, help="Print a JSON array.")
def list_workloads(names: tuple[str, ...], in_json: bool) -> None:
    """List workloads with their parameters."""
    chosen = [find(name) for name in names] or WORKLOADS
    click.echo(as_json(chosen) if in_json else as_text(chosen))


@cli.command()
@click.argument("name", metavar="WORKLOAD")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Directory for the data.  [default: a folder in ~/.cache/gpuagent]"
)
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", help="Folder to fetch from instead; repeatable.")
def prepare(name: str, data: Path | None, mirrors: tuple[str, ...]) -> None:
    """Fetch a workload's data.

    No other command uses the network.
    """
    workload = find(name)
    if workload.preparation is None:
        click.echo(f"{workload.name}: there is nothing to fetch. Its data: {workload.data}.")
        return
    cache = user_folder(os.environ, "XDG_CACHE_HOME", ".cache", "cache") / "gpuagent"
    directory = (data or cache / (workload.dataset or workload.name)).absolute()
    workload.prepare(directory, mirrors)
    click.echo(f"Ready. To use it: gpuagent run {workload.name} --data {shlex.quote(str(directory))}")


@cli.command()
def check() -> None:
    """Check that the installed torch can use the GPUs.

    Raises WorkloadError: it cannot use one of them, for the reason given.
    """
    from gpuagent_workloads.training.device import device_problems

    problems = device_problems()
    if problems:
        raise WorkloadError("; ".join(problems))


@cli.command("check-parameters")
@click.argument("name", metavar="WORKLOAD")
def check_parameters(name: str) -> None:
    """Check parameters of a workload, without a run: a JSON array of objects on standard input."""
    workload = find(name)
    command = WorkloadCommand(workload, lambda _workload, _config: None)
    for given in json.load(sys.stdin):
        command.main([f"--{key}={value}" for key, value in given.items()], prog_name=name, standalone_mode=False)


def execute(workload: Workload[Any], config: Any) -> None:
    """Run a workload and print its results, or start its ranks where several are wanted."""
    if isinstance(config, TrainingConfig) and config.wants_torchrun and not os.environ.get("WORLD_SIZE"):
        if not is_debugging():
            # Read by torch on import, here and in the ranks. The launcher reports broken connections in one line.
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
        from gpuagent_workloads.training.launch import launch

        launch(workload.name, config)
        return

    def announce(phase: str) -> None:
        if reporter.rank == 0:
            click.echo(f"{workload.name}: {phase}", err=True)

    reporter = Reporter.from_environment(on_phase=announce)
    try:
        with reporter, counting(workload, config, reporter):
            workload.run(config, reporter)
    except (KeyboardInterrupt, Terminated):
        _print_summary(reporter)
        raise
    _print_summary(reporter)


cli.add_command(WorkloadGroup(execute, name="run", help="Run a workload.", subcommand_metavar="WORKLOAD ..."))


cli.add_command(serve)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code.

    0: done; 1: failed; 2: misuse; 130: interrupted; 143: terminated.
    """
    try:
        with _sigterm_raises():
            code, message = attempt(arguments)
    except Terminated:
        return 128 + signal.SIGTERM
    if message:
        print(f"error: {message}", file=sys.stderr)  # noqa: T201 - click.echo may be what failed
    return code


def attempt(arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run the command line; return the exit code and an error message of one line, None without an error."""
    try:
        use_utf8()
        cli.main(list(arguments) or ["--help"], prog_name="python -m gpuagent_workloads", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT, None
    except MisuseError as error:
        return _fail(str(error), 2)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except GpuAgentError as error:
        return _fail(str(error), 1)
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is not installed here; run in a checkout: pip install '.[workloads]'", 1)
    except Exception as error:  # noqa: BLE001 - the boundary: every error becomes one line
        return _fail(f"{name_error(error)} ({DEBUG}=1 shows where)", 1)
    return 0, None


def _fail(message: str, code: int) -> tuple[int, str]:
    if is_debugging():
        traceback.print_exc()
    return code, " ".join(message.split())


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM unwind the stack, for an orderly end; a second one ends the process at once."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_summary(reporter: Reporter) -> None:
    if reporter.rank > 0:
        return
    width = max((len(result.name) for result in reporter.results), default=0)
    for result in reporter.results:
        value = f"{result.value:,.6g}" if isinstance(result.value, float) else str(result.value)
        click.echo(f"{result.name:<{width}}  {value}{' ' + result.unit if result.unit else ''}")
