"""`collector serve`."""

import asyncio
import logging
from pathlib import Path

import click

from gpuagent_collector.errors import MisuseError
from gpuagent_collector.server.app import ServerSettings, serve
from gpuagent_collector.server.listen import Address
from gpuagent_collector.store import Store
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_collector.tokens import ensure_token
from gpuagent_proto.connection import DEFAULT_ADDRESS, TOKEN_FILE_VARIABLE, default_token_file


@click.command(
    epilog="""\b
Examples:
  collector serve
  collector serve --store results/july.duckdb --listen 127.0.0.1:6000
  collector serve --store ducklake:lake.ducklake
  collector serve --http 127.0.0.1:9464
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
    help="The DuckDB file to keep everything in; `ducklake:PATH` for a DuckLake.",
)
@click.option(
    "--token-file",
    envvar=TOKEN_FILE_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the token that agents and users must show; made when it is not there.  "
    "[default: ~/.config/gpuagent/token]",
)
@click.option("--insecure", is_flag=True, help="Listen on a network without encryption: anybody there can read along.")
@click.option("-v", "--verbose", is_flag=True, help="Say what happens.")
def command(
    *, listen: str, http: str | None, store_name: str, token_file: Path | None, insecure: bool, verbose: bool
) -> None:
    """Receive from agents, store, and answer queries, until Ctrl-C.

    Ctrl-C finishes what was received; a second one stops at once. Either way nothing is lost: agents keep what is not
    stored, and send it again.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s: %(message)s")
    address = _address(listen, insecure=insecure)
    http_address = None if http is None else _address(http, insecure=insecure)
    token_path = token_file or default_token_file()
    token = ensure_token(token_path)

    def announce(listening: Address, http_listening: Address | None) -> None:
        click.echo(f"collector listens on {listening} and stores in {store.spec}")
        if http_listening is not None:
            click.echo(f"metrics and pages: http://{http_listening}/ (any name, the token as password)")
        click.echo(f"token file: {token_path}")

    with Store.open(store_name) as store:
        asyncio.run(serve(store, ServerSettings(listen=address, http=http_address, token=token), announce))


def _address(text: str, *, insecure: bool) -> Address:
    address = Address.parse(text)
    if not address.is_loopback() and not insecure:
        raise MisuseError(
            f"{address} can be reached from other machines, and nothing is encrypted; "
            "listen on 127.0.0.1 behind an SSH tunnel, or accept it with --insecure"
        )
    return address
