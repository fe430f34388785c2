"""`collector serve`: receive from agents, store, answer queries."""

import asyncio
import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import file_option, retention_options
from gpuagent_collector.cli.printing import print_error
from gpuagent_collector.errors import MissingPackageError, StoreIsReadError
from gpuagent_collector.ingest.housekeeping import Intervals
from gpuagent_collector.ingest.ingest import IngestSettings
from gpuagent_collector.ingest.writer import Gathering
from gpuagent_collector.server.app import ServerSettings, raise_file_limit, serve
from gpuagent_collector.store import Kind, Store, StoreSpec
from gpuagent_collector.store.retention import DEFAULT_RETENTION, Retention
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_collector.trust.audit import keep_in
from gpuagent_collector.trust.private_files import ensure_token
from gpuagent_collector.trust.serving import Encryption, choose_certificates
from gpuagent_collector.trust.tokens import TokenFile
from gpuagent_common.address import Address, check_free
from gpuagent_common.cli import MOST, MOST_SECONDS, Number
from gpuagent_common.connection import ADDRESS_VARIABLE, DEFAULT_ADDRESS, TOKEN_FILE_VARIABLE, default_token_file
from gpuagent_common.errors import MisuseError
from gpuagent_common.unexpected import LineFormatter

if TYPE_CHECKING:
    from gpuagent_collector.server.otlp import OtlpTarget

_SHARED_COMMIT_SECONDS = 10.0

# A command that reads a store's file takes seconds, and a restarted collector is waited for by the same ones.
_READERS_SECONDS = 60.0

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.command(
    epilog="""\b
Examples:
  collector serve
  collector serve --store results/july.duckdb --listen 127.0.0.1:6000
  collector serve --store ducklake:lake.ducklake
  collector serve --store 'ducklake:postgres:dbname=lake' --data /shared/lake
  collector serve --http 127.0.0.1:9464
  collector serve --otlp http://127.0.0.1:4318
  collector serve --keep-raw 7d --keep-seconds 30d --keep 52w
  collector certs init && collector serve --listen 0.0.0.0:50051
"""
)
@click.option("--listen", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Address to listen on.")
@click.option("--http", metavar="HOST:PORT", help="Address of the web pages and of /metrics for Prometheus.")
@click.option("--otlp", metavar="URL", help="Send metrics to an OpenTelemetry backend, such as http://HOST:4318.")
@click.option(
    "--store",
    "store_name",
    default=DEFAULT_STORE,
    show_default=True,
    metavar="PATH",
    help="DuckDB file to store in, ducklake:PATH, or ducklake:postgres:… for several collectors.",
)
@click.option("--data", metavar="DIR|s3://BUCKET/PATH", help="Place of the files of a new store in PostgreSQL.")
@click.option(
    "--commit-interval",
    "commit_seconds",
    type=Number(0, MOST_SECONDS),
    metavar="SECONDS",
    help="Longest time between commits.  [default: 10 with PostgreSQL, else at once]",
)
@retention_options
@click.option(
    "--memory",
    "memory_gib",
    type=Number(0.25, MOST),
    metavar="GIB",
    help="Memory limit of the store.  [default: half of the machine's or container's]",
)
@click.option(
    "--connection-age",
    "connection_age_seconds",
    type=Number(1, MOST_SECONDS),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Let agents reconnect after this time, to spread over new collectors.",
)
@file_option(
    "--token-file",
    TOKEN_FILE_VARIABLE,
    "File with the owner's token; made if it does not exist.  [default: ~/.config/gpuagent/token]",
)
@file_option(
    "--tls-cert", "GPUAGENT_TLS_CERT", "TLS certificate.  [default: on a network, that of `collector certs init`]"
)
@file_option("--tls-key", "GPUAGENT_TLS_KEY", "Private key of --tls-cert.")
@file_option("--tls-client-ca", "GPUAGENT_TLS_CLIENT_CA", "Require client certificates of this CA, except on --http.")
@click.option(
    "--audit-log",
    envvar="GPUAGENT_AUDIT_LOG",
    show_envvar=True,
    metavar="FILE",
    help="Record every query, launch and refusal as JSON; - is stderr.  [default: stderr, with -v]",
)
@click.option("--insecure", is_flag=True, help="Listen on a network without TLS: everybody there can read everything.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(
    *,
    listen: str,
    http: str | None,
    otlp: str | None,
    store_name: str,
    data: str | None,
    commit_seconds: float | None,
    retention: Retention | None,
    memory_gib: float | None,
    connection_age_seconds: float,
    token_file: Path | None,
    audit_log: str | None,
    verbose: bool,
    **encryption: Any,
) -> None:
    """Receive from agents, store, and answer queries.

    Runs until Ctrl-C, which stores received data first, for up to 10 s; a second Ctrl-C stops at once. Nothing is lost
    either way: agents keep data until it is stored, and send it again. TIME is such as 12h, 7d or 52w. Without
    --keep…, samples are kept as read for 7 days, by the second for 30 days, and then by the minute.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    handler.addFilter(is_worth_logging)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    if audit_log:
        keep_in(audit_log)
    spec = StoreSpec.parse(store_name, data)
    raise_file_limit()
    address, http_address = Address.parse(listen), Address.parse(http) if http else None
    target = _otlp_target(otlp) if otlp else None
    # Before anything is made: a second collector leaves nothing behind.
    check_free(address)
    if http_address:
        check_free(http_address, option="--http")
    shown = choose_certificates(address, http_address, Encryption(**encryption))
    if end := shown.certificate and shown.certificate.expires_soon():
        print_error(f"the collector's certificate ends on {end:%Y-%m-%d}; renew it: collector certs rotate")
    token_path = token_file or default_token_file()
    tokens = TokenFile.beside(token_path)
    tokens.all()  # reports a damaged file now, not to agents later
    settings = ServerSettings(
        listen=address,
        token=ensure_token(token_path),
        tokens=tokens,
        tls=shown.grpc,
        http=http_address,
        http_tls=shown.http,
        otlp=target,
        connection_age_seconds=connection_age_seconds,
        ingest=_ingest_settings(spec, commit_seconds, retention),
    )

    def announce(listening: Address, http_listening: Address | None) -> None:
        lines = [f"collector listens on {listening} and stores in {store.spec}"]
        names = [name for name in shown.grpc.hosts if name not in _LOOPBACK] if shown.grpc else []
        if names:
            lines.append(f"agents and commands elsewhere connect to {names[0]}:{listening.port}")
        elif str(listening) != DEFAULT_ADDRESS and address.is_loopback():
            lines.append(f"agents and commands find it with: export {ADDRESS_VARIABLE}={listening}")
        if http_listening is not None:
            scheme = "https" if shown.http else "http"
            lines.append(f"metrics and pages: {scheme}://{http_listening}/ (any name, the token as password)")
        if shown.certificate is not None:
            lines.append(f"TLS: {shown.certificate}")
        lines.append(f"token file: {token_path}")
        # In one write: who reads a log for the first line finds the others too.
        click.echo("\n".join(lines))

    with _open(spec, memory_bytes=None if memory_gib is None else int(memory_gib * 2**30)) as store:
        asyncio.run(serve(store, settings, announce))


def _otlp_target(url: str) -> "OtlpTarget":
    try:
        from gpuagent_collector.server.otlp import OtlpTarget
    except ModuleNotFoundError:
        raise MissingPackageError("metrics by --otlp", "opentelemetry-proto") from None
    return OtlpTarget.parse(url)


def _open(spec: StoreSpec, *, memory_bytes: int | None) -> Store:
    """Open the store as soon as no command reads its file, such as one that came before the collector had started."""
    deadline = time.monotonic() + _READERS_SECONDS
    said = False
    while True:
        try:
            return Store.open(spec, memory_bytes=memory_bytes)
        except StoreIsReadError as error:
            if time.monotonic() > deadline:
                raise
            if not said:
                logging.warning("%s, or wait: the collector tries again for %.0f s", error, _READERS_SECONDS)
            said = True
            time.sleep(0.1)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for gRPC's error about a caller that disconnected before its answer."""
    return not record.getMessage().startswith("ExecuteBatchError raised in core by servicer method")


def _ingest_settings(spec: StoreSpec, commit_seconds: float | None, given: Retention | None) -> IngestSettings:
    # A commit costs a shared catalog some ten milliseconds, and a file of each large table.
    shared = spec.kind is Kind.SHARED
    if shared and given:
        raise MisuseError("a store in PostgreSQL needs a job of its own for this: collector compact --keep …")
    seconds = commit_seconds if commit_seconds is not None else _SHARED_COMMIT_SECONDS if shared else 0.0
    retention = Retention() if shared else DEFAULT_RETENTION if given is None else given
    # A run's nodes may use several collectors, which commit independently.
    settle = timedelta(seconds=2 * seconds if shared else 0)
    return IngestSettings(gathering=Gathering(seconds=seconds), intervals=Intervals(settle=settle), retention=retention)
