"""Options that several commands share, the same everywhere."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from gpuagent_collector.output.formats import OutputFormat
from gpuagent_common.connection import (
    ADDRESS_VARIABLE,
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    DEFAULT_ADDRESS,
    TOKEN_FILE_VARIABLE,
    TlsFiles,
    tls_files,
)
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.query.reader import StreamingReader
    from gpuagent_collector.query.remote import RemoteReader

Command = TypeVar("Command", bound=Callable[..., Any])


_FILE = click.Path(path_type=Path, dir_okay=False)

# How to reach a collector; the last is listed first.
_CONNECTION: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--client-key", envvar=CLIENT_KEY_VARIABLE, show_envvar=True, type=_FILE, help="That certificate's key."
    ),
    click.option(
        "--client-cert",
        envvar=CLIENT_CERT_VARIABLE,
        show_envvar=True,
        type=_FILE,
        help="Certificate to show where the collector asks for one.",
    ),
    click.option(
        "--ca-file",
        envvar=CA_FILE_VARIABLE,
        show_envvar=True,
        type=_FILE,
        help="Speak TLS, and only with a collector whose certificate comes from this CA.",
    ),
    click.option(
        "--token-file",
        envvar=TOKEN_FILE_VARIABLE,
        show_envvar=True,
        type=_FILE,
        help="File with the collector's token.  [default: where `collector serve` puts it]",
    ),
    click.option(
        "--collector",
        envvar=ADDRESS_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"The collector to ask.  [default: {DEFAULT_ADDRESS}]",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Where to read from. None: the user did not say."""

    address: str | None
    token_file: Path | None
    store: str | None
    # None: do not speak TLS.
    tls: TlsFiles | None = None

    @contextmanager
    def open(self) -> Iterator["StreamingReader"]:
        """Open the collector or the store, say on stderr which, and close it afterwards.

        Raises:
            GpuAgentError: neither can be read.
            MisuseError: the options contradict each other.
        """
        from gpuagent_collector.query.reader import open_reader

        reader = open_reader(address=self.address, token_file=self.token_file, store=self.store, tls=self.tls)
        click.echo(f"reading {reader.source}", err=True)
        try:
            yield reader
        finally:
            reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Which collector to speak to. None: the user did not say."""

    address: str | None
    token_file: Path | None
    # None: do not speak TLS.
    tls: TlsFiles | None = None

    @contextmanager
    def open(self) -> Iterator["RemoteReader"]:
        """Connect to the collector, and close the connection afterwards.

        Raises:
            GpuAgentError: there is none, or no token for it.
        """
        from gpuagent_collector.query.reader import open_collector

        with closing(open_collector(address=self.address, token_file=self.token_file, tls=self.tls)) as reader:
            yield reader


def collector_options(command: Command) -> Command:
    """Add --collector and what connects to it; the command gets `collector: CollectorOptions`."""

    @wraps(command)
    def with_collector(*args: Any, collector: str | None, token_file: Path | None, **rest: Any) -> object:
        options = CollectorOptions(address=collector or None, token_file=token_file, tls=_tls(rest))
        return command(*args, collector=options, **rest)

    for option in _CONNECTION:
        option(with_collector)
    return with_collector  # type: ignore[return-value]


def reader_options(command: Command) -> Command:
    """Add --store, --collector and what connects to it; the command gets `reader: ReaderOptions`."""

    @wraps(command)
    def with_reader(
        *args: Any, collector: str | None, token_file: Path | None, store: str | None, **rest: Any
    ) -> object:
        if store and click.get_current_context().get_parameter_source("collector") is ParameterSource.COMMANDLINE:
            raise MisuseError("--collector and --store name two places to read from; give one of them")
        reader = ReaderOptions(address=collector or None, token_file=token_file, store=store, tls=_tls(rest))
        return command(*args, reader=reader, **rest)

    for option in (
        click.option(
            "--store",
            metavar="FILE",
            help="Read this store instead of asking a collector.  [default: runs.duckdb, when no collector listens]",
        ),
        *_CONNECTION,
    ):
        option(with_reader)
    return with_reader  # type: ignore[return-value]


def _tls(options: dict[str, Any]) -> TlsFiles | None:
    """Return what a command's options say of TLS, and take them out."""
    try:
        return tls_files(options.pop("ca_file"), options.pop("client_cert"), options.pop("client_key"))
    except ValueError as error:
        raise MisuseError(str(error)) from error


def format_options(command: Command) -> Command:
    """Add --format and --json; the command gets `output_format: OutputFormat`."""

    @wraps(command)
    def with_format(*args: Any, as_json: bool, format_name: str, **rest: Any) -> object:
        return command(*args, output_format=OutputFormat.JSON if as_json else OutputFormat(format_name), **rest)

    click.option("--json", "as_json", is_flag=True, help="Short for --format json.")(with_format)
    click.option(
        "--format",
        "format_name",
        type=click.Choice([each.value for each in OutputFormat]),
        default=OutputFormat.TABLE.value,
        show_default=True,
        help="How to print.",
    )(with_format)
    return with_format  # type: ignore[return-value]


def prices_option(command: Command) -> Command:
    """Add --prices; the command gets `prices: Prices | None`, read and checked."""

    @wraps(command)
    def with_prices(*args: Any, prices: Path | None, **rest: Any) -> object:
        from gpuagent_collector.prices.file import find_prices

        return command(*args, prices=find_prices(prices), **rest)

    click.option(
        "--prices",
        envvar="GPUAGENT_PRICES",
        show_envvar=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="What nodes and electricity cost.  [default: ~/.config/gpuagent/prices.yaml, if there]",
    )(with_prices)
    return with_prices  # type: ignore[return-value]


def show_sql_option(command: Command) -> Command:
    """Add --show-sql; the command gets `show_sql: bool`."""
    return click.option("--show-sql", is_flag=True, help="Print the SQL behind the answer on stderr.")(command)
