"""Options that several commands have."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.completing import interference
from gpuagent.cli.connection import CONNECTION_OPTIONS, take_connection
from gpuagent.locations import SPOOL_VARIABLE
from gpuagent_common.errors import MisuseError
from gpuagent_common.naming import check_name

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.delivery.uplink import Delivery

Decorated = Callable[..., Any]

MAX_RATE_HZ = 100.0
MAX_NODES = 100_000

PLATFORM_VARIABLE = "GPUAGENT_PLATFORM"
NODE_ID_VARIABLE = "GPUAGENT_NODE_ID"
NODE_NAME_VARIABLE = "GPUAGENT_NODE_NAME"
DELIVER_WITHIN_VARIABLE = "GPUAGENT_DELIVER_WITHIN"
JOB_VARIABLE = "GPUAGENT_JOB"


def agent_options(command: Decorated) -> Decorated:
    """Add what an agent needs to know."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


def identity_options(command: Decorated) -> Decorated:
    """Add what settles which node this is."""
    for option in (*reversed(_NODE), _SPOOL):
        command = option(command)
    return command


def run_options(command: Decorated) -> Decorated:
    """Add how a workload is run."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


_SPOOL = click.option(
    "--spool",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    envvar=SPOOL_VARIABLE,
    help=f"Where messages wait for the collector, on a local disk (or {SPOOL_VARIABLE}).",
)

_NODE = (
    click.option(
        "--node-id",
        metavar="UUID",
        envvar=NODE_ID_VARIABLE,
        help=f"The node's identity, where /etc/machine-id is not unique (or {NODE_ID_VARIABLE}).",
    ),
    click.option(
        "--node-name",
        metavar="NAME",
        envvar=NODE_NAME_VARIABLE,
        help=f"What the node is called, where the host's name is a pod's (or {NODE_NAME_VARIABLE}).",
    ),
)

_AGENT_OPTIONS = (
    *CONNECTION_OPTIONS,
    click.option(
        "--platform",
        metavar="NAME",
        envvar=PLATFORM_VARIABLE,
        help=f"What you call this kind of place; by default the host's name (or {PLATFORM_VARIABLE}).",
    ),
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
    _SPOOL,
    click.option(
        "--deliver-within",
        "deliver_within_seconds",
        metavar="SECONDS",
        type=click.FloatRange(0, min_open=True),
        envvar=DELIVER_WITHIN_VARIABLE,
        help="At the end wait so long until the collector has everything, whether it answers or not; `run` fails if it "
        f"has not. For where the spool goes with the agent, as in a pod (or {DELIVER_WITHIN_VARIABLE}).",
    ),
    click.option("--per-core", is_flag=True, help="Also sample each logical CPU."),
    click.option("--python", default=sys.executable, help="The Python that has the workloads; by default this one."),
    *_NODE,
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
    click.option(
        "--with",
        "beside",
        metavar="WORKLOAD",
        multiple=True,
        shell_complete=interference,
        help="Runs beside it, as cpu-burn.",
    ),
    click.option("--cpus", metavar="N", type=float, help="How many CPUs it may use; by default all of the node."),
    click.option("--memory", metavar="SIZE", help="How much memory it may use, as 8G; by default all of the node."),
    click.option(
        "--change",
        "changes",
        metavar="cpus=N@SECONDSs",
        multiple=True,
        help="Changes its CPUs while it runs, as cpus=8@60s; can be given several times.",
    ),
    click.option(
        "--nodes",
        metavar="N",
        type=click.IntRange(1, MAX_NODES),
        default=1,
        help="One run on so many nodes: give the same command on each of them.",
    ),
    click.option(
        "--job",
        metavar="NAME",
        envvar=JOB_VARIABLE,
        help="With --nodes, what tells the run from all others, the same on all nodes; who does not know it cannot "
        f"join (or {JOB_VARIABLE}). Not needed in a step of Slurm.",
    ),
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
    from gpuagent.agent_config import AgentConfig

    labels = pairs(options.pop("labels"), "--label")
    for text in (*labels, *labels.values()):
        check_name(text, "--label")
    rate_hz = options.pop("rate_hz")
    if not math.isfinite(rate_hz):
        raise MisuseError(f"--rate must be a number, not {rate_hz}")
    collector, token_file, tls = take_connection(options)
    return AgentConfig(
        collector=collector,
        token_file=token_file,
        tls=tls,
        platform=check_name(options.pop("platform") or os.uname().nodename.partition(".")[0], "--platform"),
        node_name=check_name(options.pop("node_name") or os.uname().nodename, "--node-name"),
        labels=labels,
        rate_hz=rate_hz,
        spool=options.pop("spool"),
        per_core=options.pop("per_core"),
        python=options.pop("python"),
        node_id=options.pop("node_id"),
        delivery=_delivery(options.pop("deliver_within_seconds")),
        allow_commands=allow_commands,
    )


def _delivery(within_seconds: float | None) -> "Delivery":
    from gpuagent.delivery.uplink import Delivery

    return Delivery(seconds=within_seconds, through_failures=True) if within_seconds else Delivery()


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
