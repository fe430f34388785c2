"""Options that several commands have."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.errors import MisuseError
from gpuagent.locations import SPOOL_VARIABLE
from gpuagent_proto.connection import ADDRESS_VARIABLE, DEFAULT_ADDRESS, TOKEN_FILE_VARIABLE, default_token_file

if TYPE_CHECKING:
    from gpuagent.agent import AgentConfig

Decorated = Callable[..., Any]

MAX_RATE_HZ = 100.0
MAX_NAME_CHARACTERS = 100


def agent_options(command: Decorated) -> Decorated:
    """Add what an agent needs to know."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


def run_options(command: Decorated) -> Decorated:
    """Add how a workload is run."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


_AGENT_OPTIONS = (
    click.option(
        "--collector",
        metavar="HOST:PORT",
        envvar=ADDRESS_VARIABLE,
        default=DEFAULT_ADDRESS,
        show_default=True,
        help=f"Where the collector listens (or {ADDRESS_VARIABLE}).",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        envvar=TOKEN_FILE_VARIABLE,
        help=f"The collector's token (or {TOKEN_FILE_VARIABLE}); by default where `collector serve` puts it.",
    ),
    click.option("--platform", metavar="NAME", help="What you call this kind of place; by default the host's name."),
    click.option("--label", "labels", metavar="K=V", multiple=True, help="A label; can be given several times."),
    click.option(
        "--rate",
        "rate_hz",
        metavar="HZ",
        type=click.FloatRange(0.1, MAX_RATE_HZ),
        default=10.0,
        show_default=True,
        help="How often to read what is cheap to read.",
    ),
    click.option(
        "--spool",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        envvar=SPOOL_VARIABLE,
        help=f"Where messages wait for the collector, on a local disk (or {SPOOL_VARIABLE}).",
    ),
    click.option("--per-core", is_flag=True, help="Also sample each logical CPU."),
    click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one."),
    click.option("--node-id", metavar="UUID", help="The node's identity, where /etc/machine-id is not unique."),
)

_RUN_OPTIONS = (
    click.option("--param", "parameters", metavar="K=V", multiple=True, help="A parameter of the workload."),
    click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="How many runs."),
    click.option(
        "--first-repeat",
        type=click.IntRange(1, 1_000_000),
        default=1,
        help="Number of the first one.",
    ),
    click.option(
        "--environment",
        metavar="ENV[:IMAGE]",
        default="bare",
        show_default=True,
        help="How to contain it; `gpuagent info` says what can be used here.",
    ),
    click.option("--with", "beside", metavar="WORKLOAD", multiple=True, help="Runs beside it, as cpu-burn."),
    click.option("--experiment", metavar="NAME", help="Groups runs that answer one question."),
    click.option(
        "--timeout", metavar="SECONDS", type=click.FloatRange(0, min_open=True), help="Stop a run after this."
    ),
)


def agent_config(options: dict[str, Any], *, allow_commands: bool) -> "AgentConfig":
    """Return the AgentConfig of what `agent_options` parsed; takes its options out of `options`.

    Raises:
        MisuseError: a label is not K=V, or a name is too long or not printable.
    """
    from gpuagent.agent import AgentConfig

    labels = pairs(options.pop("labels"), "--label")
    for text in (*labels, *labels.values()):
        check_name(text, "--label")
    rate_hz = options.pop("rate_hz")
    if not math.isfinite(rate_hz):
        raise MisuseError(f"--rate must be a number, not {rate_hz}")
    return AgentConfig(
        collector=options.pop("collector"),
        token_file=options.pop("token_file") or default_token_file(),
        platform=check_name(options.pop("platform") or os.uname().nodename.partition(".")[0], "--platform"),
        labels=labels,
        rate_hz=rate_hz,
        spool=options.pop("spool"),
        per_core=options.pop("per_core"),
        python=options.pop("python"),
        node_id=options.pop("node_id"),
        allow_commands=allow_commands,
    )


def check_name(text: str, option: str) -> str:
    """Return a name as it is given.

    Raises:
        MisuseError: it is blank, too long, or would do something to a terminal; says so of `option`.
    """
    if not text.strip():
        raise MisuseError(f"{option} must not be blank")
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise MisuseError(f"{option} takes up to {MAX_NAME_CHARACTERS} printable characters")
    return text


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Return K=V texts as a dictionary.

    Raises:
        MisuseError: one is not K=V, or a key comes twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise MisuseError(f"{option} takes NAME=VALUE, not {text!r}")
        if name in found:
            raise MisuseError(f"{option} {name} is given twice")
        found[name] = value
    return found
