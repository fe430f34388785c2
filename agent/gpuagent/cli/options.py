"""Options of several commands."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.delivery.joined import Joined
from gpuagent.locations import SPOOL_VARIABLE
from gpuagent_common.cli import MOST_SECONDS, NAME, Number, parse_labels
from gpuagent_common.connection import (
    ADDRESS_VARIABLE,
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    DEFAULT_ADDRESS,
    TOKEN_FILE_VARIABLE,
    TlsFiles,
    default_ca_file,
    default_token_file,
    host_and_port,
    tls_files,
)
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.naming import check_name
from gpuagent_common.run_spec import run_options as common_run_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gpuagent.agent_config import AgentConfig


_FILE = click.Path(path_type=Path, dir_okay=False)


def env_option(name: str, variable: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that an environment variable can set, which its help names."""
    return click.option(name, envvar=variable, show_envvar=True, **settings)


CLIENT_CERTIFICATE_OPTIONS = (
    env_option("--client-cert", CLIENT_CERT_VARIABLE, type=_FILE, help="Certificate to present to the collector."),
    env_option("--client-key", CLIENT_KEY_VARIABLE, type=_FILE, help="Private key of --client-cert."),
)

CONNECTION_OPTIONS = (
    env_option(
        "--collector",
        ADDRESS_VARIABLE,
        metavar="HOST:PORT",
        help="Address of the collector.",
        show_default=f"the joined one, or {DEFAULT_ADDRESS}",
    ),
    env_option(
        "--token-file",
        TOKEN_FILE_VARIABLE,
        type=_FILE,
        help="Token for the collector.",
        show_default="that of `gpuagent join`, or of `collector serve`",
    ),
    env_option(
        "--ca-file",
        CA_FILE_VARIABLE,
        type=_FILE,
        help="CA of the collector's certificate; turns on TLS.",
        show_default="that of `gpuagent join`",
    ),
    *CLIENT_CERTIFICATE_OPTIONS,
)


def take_connection(options: dict[str, Any]) -> tuple[str, Path, TlsFiles | None]:
    """Remove the connection's options from `options`; return the collector's address, the token file and TLS files.

    The files of `gpuagent join` are for the joined collector only: no other is shown its token.

    Raises:
        MisuseError: the options contradict each other, or an address is not HOST:PORT.
        GpuAgentError: the files of `gpuagent join` cannot be read.
    """
    joined = Joined.usual()
    home = joined.collector
    given = options.pop("collector")
    address = (home or DEFAULT_ADDRESS) if given is None else given
    for one in address.split(","):
        check_address(one, "--collector")
    token_file, ca = options.pop("token_file"), options.pop("ca_file")
    certificate, key = options.pop("client_cert"), options.pop("client_key")
    if address == home:
        token_file = token_file or joined.token
        kept = joined.tls
        if kept is not None:
            ca = ca or kept.ca
            certificate, key = (certificate, key) if certificate or key else (kept.certificate, kept.key)
    tls = tls_files(ca, certificate, key)
    if tls is None and default_ca_file().is_file():
        from gpuagent_common.channel import find_local_tls  # gRPC, which help needs not

        # On the machine of `collector certs init`, its CA is found as its token is.
        tls = find_local_tls(address)
    return address, token_file or default_token_file(), tls


def check_address(address: str, option: str) -> None:
    """Check that an address is HOST:PORT. Raises MisuseError where it is not; names `option`."""
    if host_and_port(address) is None:
        raise MisuseError(f"{option} takes HOST:PORT, such as {DEFAULT_ADDRESS}; not {address!r}")


Decorated = Callable[..., Any]

MAX_RATE_HZ = 100.0
MAX_NODES = 100_000


def complete_workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the built-in workloads; none after the first word of `run`, where their parameters begin."""
    return [] if context.params.get("words") else _complete(context, incomplete)


def complete_interference(context: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the workloads that can run beside others."""
    return _complete(context, incomplete, "interference")


def _complete(context: click.Context, incomplete: str, kind: str | None = None) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from gpuagent.runs.catalogue import Catalogue

    try:
        known = Catalogue(context.params.get("python") or sys.executable).workloads().values()
    except GpuAgentError:
        return []
    return [
        CompletionItem(workload.name, help=workload.summary)
        for workload in known
        if kind in (None, workload.kind) and workload.name.startswith(incomplete)
    ]


_SECONDS = Number(0, MOST_SECONDS, min_open=True)

SPOOL_OPTION = env_option(
    "--spool",
    SPOOL_VARIABLE,
    metavar="DIR",
    # Another's folder has a remedy of its own.
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    help="Folder of the agent's messages, runs and records, on a local disk.",
)


def _make_absolute(_context: click.Context, _parameter: click.Parameter, program: str) -> str:
    """Return the program; by a relative path it would be another one in another folder."""
    return os.path.abspath(program) if os.sep in program else program  # noqa: PTH100 - a link stays one


PYTHON_OPTION = click.option(
    "--python",
    metavar="PROGRAM",
    callback=_make_absolute,
    default=sys.executable,
    show_default="this one",
    help="Python that has the workloads.",
)

_NODE_ID_HELP = "Identity of the node, any text, where /etc/machine-id is not unique."
_NODE_NAME_HELP = "Name of the node."
_DELIVER_HELP = "On exit, wait up to SECONDS for delivery to finish, or fail."
_JOB_HELP = "With --nodes: the secret that identifies the run, the same everywhere."

_IDENTITY_OPTIONS = (
    env_option("--node-id", "GPUAGENT_NODE_ID", type=NAME, metavar="NAME", help=_NODE_ID_HELP),
    env_option(
        "--node-name",
        "GPUAGENT_NODE_NAME",
        type=NAME,
        metavar="NAME",
        help=_NODE_NAME_HELP,
        show_default="--node-id, or the host's name",
    ),
)

_AGENT_OPTIONS = (
    *CONNECTION_OPTIONS,
    env_option(
        "--platform",
        "GPUAGENT_PLATFORM",
        type=NAME,
        metavar="NAME",
        help="Name of this kind of machine.",
        show_default="the host's name",
    ),
    click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the samples and runs; repeatable."),
    click.option(
        "--rate",
        "rate_hz",
        metavar="HZ",
        type=Number(0.1, MAX_RATE_HZ),
        default=10.0,
        show_default=True,
        help="Readings per second of the cheap sources.",
    ),
    SPOOL_OPTION,
    env_option("--deliver-within", "GPUAGENT_DELIVER_WITHIN", metavar="SECONDS", type=_SECONDS, help=_DELIVER_HELP),
    PYTHON_OPTION,
    *_IDENTITY_OPTIONS,
)

# What `gpuagent` alone can ask for.
_OWN_RUN_OPTIONS = (
    click.option(
        "--nodes",
        metavar="N",
        type=click.IntRange(1, MAX_NODES),
        default=1,
        help="One run on N nodes: give the same command on each.",
    ),
    env_option("--job", "GPUAGENT_JOB", type=NAME, metavar="NAME", help=_JOB_HELP, show_default="the step of Slurm"),
)


def _decorator(options: Sequence[Callable[[Decorated], Decorated]]) -> Callable[[Decorated], Decorated]:
    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# What an agent needs; which node this is; how a workload runs.
agent_options = _decorator(_AGENT_OPTIONS)
identity_options = _decorator((SPOOL_OPTION, *_IDENTITY_OPTIONS))
run_options = _decorator((common_run_options(beside={"shell_complete": complete_interference}), *_OWN_RUN_OPTIONS))


def find_node_name(name: str | None, node_id: str | None) -> str:
    """Return the node's name: the given one, else its given identity, as clones of a machine share their host's name.

    Raises MisuseError: it is too long, or not printable.
    """
    return check_name(name or node_id or os.uname().nodename, "--node-name" if name or not node_id else "--node-id")


def agent_config(options: dict[str, Any], *, allow_commands: bool) -> "AgentConfig":
    """Remove the options of `agent_options` from `options`; return them as an AgentConfig.

    Raises MisuseError: a label is not NAME=VALUE, or a name is too long or not printable.
    """
    from gpuagent.agent_config import AgentConfig
    from gpuagent.delivery.uplink import Delivery

    labels = parse_labels(options.pop("labels"))
    collector, token_file, tls = take_connection(options)
    seconds = options.pop("deliver_within")
    return AgentConfig(
        collector=collector,
        token_file=token_file,
        tls=tls,
        platform=check_name(options.pop("platform") or os.uname().nodename.partition(".")[0], "--platform"),
        node_name=find_node_name(options.pop("node_name"), options["node_id"]),
        labels=labels,
        rate_hz=options.pop("rate_hz"),
        spool=options.pop("spool"),
        owners=options.pop("owners", "off"),
        python=options.pop("python"),
        node_id=options.pop("node_id"),
        delivery=Delivery(seconds=seconds, through_failures=True) if seconds else Delivery(),
        allow_commands=allow_commands,
    )
