"""`collector serve`."""

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gpuagent_collector.cli.keeping import retention_options
from gpuagent_collector.ingest.housekeeping import Intervals
from gpuagent_collector.ingest.ingest import IngestSettings
from gpuagent_collector.ingest.writer import Gathering
from gpuagent_collector.output.text import harmless
from gpuagent_collector.server.app import ServerSettings, serve
from gpuagent_collector.server.connections import raise_file_limit
from gpuagent_collector.store import Kind, Store, StoreSpec
from gpuagent_collector.store.retention import Retention
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_collector.trust.audit import keep_in
from gpuagent_collector.trust.own_token import ensure_token
from gpuagent_collector.trust.serving import Encryption, Shown, choose
from gpuagent_collector.trust.tokens import TokenFile
from gpuagent_common.address import Address
from gpuagent_common.connection import DEFAULT_ADDRESS, TOKEN_FILE_VARIABLE, default_token_file
from gpuagent_common.errors import MisuseError

_SHARED_COMMIT_SECONDS = 10.0

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog="""\b
Examples:
  collector serve
  collector serve --store results/july.duckdb --listen 127.0.0.1:6000
  collector serve --store ducklake:lake.ducklake
  collector serve --store 'ducklake:postgres:host=db1 dbname=lake' --data /shared/lake
  collector serve --http 127.0.0.1:9464
  collector serve --keep-raw 7d --keep-seconds 30d --keep 52w
  collector certs init && collector serve --listen 0.0.0.0:50051
"""
)
@click.option("--listen", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus here, and a page of nodes and runs for browsers.",
)
@click.option(
    "--store",
    "store_name",
    default=DEFAULT_STORE,
    show_default=True,
    metavar="PATH",
    help="The DuckDB file to keep everything in; `ducklake:PATH` for a DuckLake; "
    "`ducklake:postgres:host=… dbname=…` for one that several collectors share.",
)
@click.option(
    "--data",
    metavar="DIR|s3://BUCKET/PATH",
    help="Where the files of a new store in PostgreSQL are to lie; all that use it must reach it.",
)
@click.option(
    "--commit-interval",
    "commit_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Commit so often, unless there is much.  [default: 10 with a store in PostgreSQL, else at once]",
)
@retention_options
@click.option(
    "--memory",
    "memory_gib",
    type=click.FloatRange(min=0.25),
    metavar="GIB",
    help="How much memory the store may take. It fills up, mostly with what was written or read last.  "
    "[default: half of what the machine or the container has]",
)
@click.option(
    "--connection-age",
    "connection_age_seconds",
    type=click.FloatRange(min=1),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Have agents connect anew about so often, so that they spread over collectors that came since.",
)
@click.option(
    "--token-file",
    envvar=TOKEN_FILE_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the token that agents and users must show; made when it is not there.  "
    "[default: ~/.config/gpuagent/token]",
)
@click.option(
    "--tls-cert",
    envvar="GPUAGENT_TLS_CERT",
    show_envvar=True,
    type=_FILE,
    help="Speak TLS, with this certificate.  [default: where others reach it, that of `collector certs init`]",
)
@click.option("--tls-key", envvar="GPUAGENT_TLS_KEY", show_envvar=True, type=_FILE, help="The certificate's key.")
@click.option(
    "--tls-client-ca",
    envvar="GPUAGENT_TLS_CLIENT_CA",
    show_envvar=True,
    type=_FILE,
    help="Ask agents and commands for a certificate of this CA; browsers and Prometheus show the token alone.",
)
@click.option(
    "--audit-log",
    envvar="GPUAGENT_AUDIT_LOG",
    show_envvar=True,
    metavar="FILE",
    help="Record every query, launch and refusal here, a line of JSON each; - is stderr.  [default: stderr, with -v]",
)
@click.option("--insecure", is_flag=True, help="Listen on a network without encryption: anybody there can read along.")
@click.option("-v", "--verbose", is_flag=True, help="Say what happens.")
def command(
    *,
    listen: str,
    http: str | None,
    store_name: str,
    data: str | None,
    commit_seconds: float | None,
    retention: Retention,
    memory_gib: float | None,
    connection_age_seconds: float,
    token_file: Path | None,
    audit_log: str | None,
    verbose: bool,
    **encryption: Any,
) -> None:
    """Receive from agents, store, and answer queries, until Ctrl-C.

    Ctrl-C finishes what was received; a second one stops at once. Either way nothing is lost: agents keep what is not
    stored, and send it again.
    """
    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
    if audit_log:
        keep_in(audit_log)
    spec = StoreSpec.parse(store_name, data)
    if spec.kind is not Kind.SHARED:
        os.umask(0o077)  # who could read the store's file would need no token
    raise_file_limit()
    address, http_address = Address.parse(listen), Address.parse(http) if http else None
    shown = choose(address, http_address, Encryption(**encryption))
    _warn_of_end(shown)
    token_path = token_file or default_token_file()
    tokens = TokenFile.beside(token_path)
    tokens.all()  # a file that cannot be used is better told now than to agents
    settings = ServerSettings(
        listen=address,
        token=ensure_token(token_path),
        tokens=tokens,
        tls=shown.grpc,
        http=http_address,
        http_tls=shown.http,
        connection_age_seconds=connection_age_seconds,
        ingest=_ingest_settings(spec, commit_seconds, retention),
    )

    def announce(listening: Address, http_listening: Address | None) -> None:
        click.echo(f"collector listens on {listening} and stores in {store.spec}")
        if http_listening is not None:
            scheme = "https" if shown.http else "http"
            click.echo(f"metrics and pages: {scheme}://{http_listening}/ (any name, the token as password)")
        if shown.certificate is not None:
            click.echo(f"TLS: {shown.certificate}")
        click.echo(f"token file: {token_path}")

    with Store.open(spec, memory_bytes=None if memory_gib is None else int(memory_gib * 2**30)) as store:
        asyncio.run(serve(store, settings, announce))


class LogFormatter(logging.Formatter):
    """Writes every message on one line, and nothing that does something to a terminal: agents have a say in some."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record, without its traceback."""
        return harmless(super().formatMessage(record))


def is_ours_to_tell(record: logging.LogRecord) -> bool:
    """Return whether a line is of more than a caller who went away while it was answered, which gRPC calls an error."""
    return not record.getMessage().startswith("ExecuteBatchError raised in core by servicer method")


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    handler.addFilter(is_ours_to_tell)
    logging.basicConfig(level=level, handlers=[handler])


def _ingest_settings(spec: StoreSpec, commit_seconds: float | None, retention: Retention) -> IngestSettings:
    """A commit costs a shared catalog some ten milliseconds, and a file of each large table: few of them, then."""
    shared = spec.kind is Kind.SHARED
    if shared and retention:
        raise MisuseError("a store in PostgreSQL is thinned out by a job of its own: collector compact --keep …")
    seconds = commit_seconds if commit_seconds is not None else _SHARED_COMMIT_SECONDS if shared else 0.0
    # A run's nodes may be with several collectors, each of which commits when it does.
    settle = timedelta(seconds=2 * seconds if shared else 0)
    return IngestSettings(gathering=Gathering(seconds=seconds), intervals=Intervals(settle=settle), retention=retention)


def _warn_of_end(shown: Shown) -> None:
    end = shown.certificate and shown.certificate.expires_soon()
    if end:
        click.echo(f"collector: its certificate ends on {end:%Y-%m-%d}; renew it: collector certs rotate", err=True)
