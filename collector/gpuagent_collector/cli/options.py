"""Options that several commands share, the same everywhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from gpuagent_collector.errors import MisuseError
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_proto.connection import ADDRESS_VARIABLE, DEFAULT_ADDRESS, TOKEN_FILE_VARIABLE

if TYPE_CHECKING:
    from gpuagent_collector.query.reader import StreamingReader

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Where to read from. None: the user did not say."""

    address: str | None
    token_file: Path | None
    store: str | None

    @contextmanager
    def open(self) -> Iterator["StreamingReader"]:
        """Open the collector or the store, say on stderr which, and close it afterwards.

        Raises:
            CollectorError: neither can be read.
            MisuseError: the options contradict each other.
        """
        from gpuagent_collector.query.reader import open_reader

        reader = open_reader(address=self.address, token_file=self.token_file, store=self.store)
        click.echo(f"reading {reader.source}", err=True)
        try:
            yield reader
        finally:
            reader.close()


def reader_options(command: Command) -> Command:
    """Add --collector, --token-file and --store; the command gets `reader: ReaderOptions`."""

    @wraps(command)
    def with_reader(
        *args: Any, collector: str | None, token_file: Path | None, store: str | None, **rest: Any
    ) -> object:
        if store and click.get_current_context().get_parameter_source("collector") is ParameterSource.COMMANDLINE:
            raise MisuseError("--collector and --store name two places to read from; give one of them")
        reader = ReaderOptions(address=collector or None, token_file=token_file, store=store)
        return command(*args, reader=reader, **rest)

    for option in (
        click.option(
            "--store",
            metavar="FILE",
            help="Read this store instead of asking a collector.  [default: runs.duckdb, when no collector listens]",
        ),
        click.option(
            "--token-file",
            envvar=TOKEN_FILE_VARIABLE,
            show_envvar=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="File with the collector's token.  [default: where `collector serve` puts it]",
        ),
        click.option(
            "--collector",
            envvar=ADDRESS_VARIABLE,
            show_envvar=True,
            metavar="HOST:PORT",
            help=f"Read from this collector.  [default: {DEFAULT_ADDRESS}]",
        ),
    ):
        option(with_reader)
    return with_reader  # type: ignore[return-value]


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
