"""Options that several commands share."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from gpuagent_collector.cli.algebra import import_numpy
from gpuagent_collector.errors import OlderSchemaError
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME, single
from gpuagent_common.connection import (
    ADDRESS_VARIABLE,
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    DEFAULT_ADDRESS,
    READ_LATER_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TlsFiles,
    tls_files,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.exchange.changing import Changer
    from gpuagent_collector.query.reader import StreamingReader
    from gpuagent_collector.query.remote import RemoteReader
    from gpuagent_collector.store.spec import StoreSpec


def stored_workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the workloads of the runs at the place given by earlier options, or at the default place."""
    from gpuagent_collector.query.reader import open_reader

    given: dict[str, Any] = context.params
    try:
        tls = tls_files(given.get("ca_file"), given.get("client_cert"), given.get("client_key"))
        store = given.get("store") or next(iter(context.meta.get("stores", ())), None)
        reader = open_reader(address=given.get("collector"), token_file=given.get("token_file"), store=store, tls=tls)
        with closing(reader):
            found = reader.sql("SELECT DISTINCT workload FROM runs WHERE workload IS NOT NULL ORDER BY workload")
        return [name for name in map(str, found.column(0).to_pylist()) if name.startswith(incomplete)]
    except (GpuAgentError, ValueError, OSError):
        return []


def facets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the facets of --by; after a comma, those not given yet."""
    from gpuagent_collector.runs.facets import FACETS

    before, comma, begun = incomplete.rpartition(",")
    names = [*(facet.name for facet in FACETS), "argument:", "parameter:", "label:"]
    return [f"{before}{comma}{name}" for name in names if name.startswith(begun) and name not in before.split(",")]


Command = TypeVar("Command", bound=Callable[..., Any])


_FILE = click.Path(path_type=Path, dir_okay=False)


def node_option(words: str) -> Callable[[Any], Any]:
    """Return the option --node, which names one node."""
    return click.option("--node", type=NAME, metavar="NAME", multiple=True, callback=single, help=words)


def file_option(name: str, variable: str, words: str) -> Callable[[Any], Any]:
    """Return an option for a file, which an environment variable may name too."""
    return click.option(name, envvar=variable, show_envvar=True, type=_FILE, help=words)


# Listed in the help from the last to the first.
_CONNECTION: tuple[Callable[[Any], Any], ...] = (
    file_option("--client-key", CLIENT_KEY_VARIABLE, "Private key of --client-cert."),
    file_option("--client-cert", CLIENT_CERT_VARIABLE, "Client certificate, where the collector requires one."),
    file_option("--ca-file", CA_FILE_VARIABLE, "CA of the collector's certificate; turns TLS on."),
    file_option(
        "--token-file", TOKEN_FILE_VARIABLE, "File with the collector's token.  [default: that of `collector serve`]"
    ),
    click.option(
        "--collector",
        envvar=ADDRESS_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"Address of the collector.  [default: {DEFAULT_ADDRESS}]",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The place to read from. None: not given."""

    address: str | None
    token_file: Path | None
    store: str | None
    # None: no TLS.
    tls: TlsFiles | None = None
    # The words by which another command reads the same.
    words: tuple[str, ...] = ()
    # Of stores to read as one.
    files: tuple[Path, ...] = ()

    @contextmanager
    def open(self, *, is_named: bool = True) -> Iterator["StreamingReader"]:
        """Open the collector or the store, print its name on stderr if `is_named`, and close it on exit.

        Raises:
            GpuAgentError: neither can be read.
            MisuseError: the options contradict each other, or files have runs in common.
        """
        if self.files:
            from gpuagent_collector.exchange.merge import join_stores

            with join_stores(self.files) as joined:
                click.echo(f"reading {joined.source}", err=True)
                yield joined
            return
        from gpuagent_collector.query.reader import open_reader
        from gpuagent_collector.store.spec import DEFAULT_STORE, Kind, StoreSpec

        try:
            reader = open_reader(address=self.address, token_file=self.token_file, store=self.store, tls=self.tls)
        except OlderSchemaError:
            spec = StoreSpec.parse(self.store or DEFAULT_STORE)
            if spec.kind is Kind.SHARED:
                raise
            with self._copy(spec, is_named=is_named) as copied:
                yield copied
            return
        if is_named:
            click.echo(f"reading {reader.source}", err=True)
        try:
            yield reader
            if reader.trouble:
                click.echo(f"collector: {reader.trouble}", err=True)
        finally:
            reader.close()

    @contextmanager
    def _copy(self, spec: "StoreSpec", *, is_named: bool) -> Iterator["StreamingReader"]:
        """Open a copy of the store with the newest schema, as of several stores."""
        from gpuagent_collector.exchange.merge import join_stores

        with join_stores([spec.path]) as copied:
            if is_named:
                click.echo(f"reading an upgraded copy of {spec.path.name}, whose schema is older", err=True)
            yield copied

    @contextmanager
    def open_to_change(self) -> Iterator["Changer"]:
        """Open the collector or the store for changes, print its name on stderr, and close it on exit.

        Raises GpuAgentError: neither can be changed.
        """
        from gpuagent_collector.exchange.changing import open_changer

        with open_changer(address=self.address, token_file=self.token_file, store=self.store, tls=self.tls) as changer:
            click.echo(f"changing {changer.source}", err=True)
            yield changer


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """The collector to connect to. None: not given."""

    address: str | None
    token_file: Path | None
    # None: no TLS.
    tls: TlsFiles | None = None

    @contextmanager
    def open(self) -> Iterator["RemoteReader"]:
        """Connect to the collector, and close the connection on exit.

        Raises GpuAgentError: no collector listens, or there is no token for it.
        """
        from gpuagent_collector.query.reader import open_collector

        with closing(open_collector(address=self.address, token_file=self.token_file, tls=self.tls)) as reader:
            yield reader


def collector_options(command: Command) -> Command:
    """Add --collector and its TLS options; the command gets `collector: CollectorOptions`."""

    @wraps(command)
    def with_collector(*args: Any, collector: str | None, token_file: Path | None, **rest: Any) -> object:
        options = CollectorOptions(address=collector, token_file=token_file, tls=_tls(rest))
        return command(*args, collector=options, **rest)

    for option in _CONNECTION:
        option(with_collector)
    return with_collector  # type: ignore[return-value]


# Where a command keeps the files of stores among its words.
_STORES = "stores"
# Of a command line, the words that are no options, and then the options with their values and the stores.
WORDS = "words"


class ReadingCommand(click.Command):
    """A command that reads the stores whose files are among its words: one as by --store, several as one store."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words without those of stores.

        Raises MisuseError: a word names a store that does not exist, or an option with one value is given twice.
        """
        args = [_Word(word) for word in args]
        options: list[click.Parameter] = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        parser = click.Command(self.name, params=options, add_help_option=False).make_parser(ctx)
        _, words, given = parser.parse_args(list(args))
        for option, number in Counter(given).items():
            # The last value alone would count, without a word.
            if number > 1 and not (isinstance(option, click.Option) and (option.multiple or option.is_flag)):
                raise MisuseError(f"{max(option.opts, key=len)} is given {number} times; it takes one value")
        stores = [word for word in words if _is_store(word, fails=not ctx.resilient_parsing)]
        ctx.meta[_STORES] = list(map(str, stores))
        taken = set(map(id, stores))
        others = [word for word in words if id(word) not in taken]
        named = set(map(id, others))
        ctx.meta[WORDS] = [str(word) for word in others], [str(word) for word in args if id(word) not in named]
        return super().parse_args(ctx, [str(word) for word in args if id(word) not in taken])


class _Word(str):
    """A word of a command line; an equal one, such as an option's value, is another word."""

    __slots__ = ()


def _is_store(word: str, *, fails: bool) -> bool:
    """Return whether a word names a store's file; a name alone, without a dot or a folder, is that of a side."""
    file = Path(word)
    if not file.suffix and os.sep not in word:
        return False
    with suppress(OSError, ValueError):
        if file.is_file():
            from gpuagent_collector.store.spec import find_stores

            if find_stores(file):
                return True
    if fails and file.suffix == ".duckdb":
        what = f"{word} is no store" if file.exists() else f"there is no store {word}"
        raise MisuseError(f"{what}; name a file that `gpuagent bench` or `collector serve` made")
    return False


def reader_options(command: Command) -> Command:
    """Add --store, --collector and its TLS options; the command gets `reader: ReaderOptions`."""

    @wraps(command)
    def with_reader(
        *args: Any, collector: str | None, token_file: Path | None, store: str | None, **rest: Any
    ) -> object:
        context = click.get_current_context()
        stores = context.meta.get(_STORES, ())
        is_given = context.get_parameter_source("collector") is ParameterSource.COMMANDLINE
        if stores and (store or is_given):
            raise MisuseError(f"{stores[0]} is a store: omit {'--store' if store else '--collector'}, or the file")
        store = stores[0] if len(stores) == 1 else store
        words: tuple[str, ...] = ("--store", store) if store else tuple(stores)
        if is_given:
            if store:
                raise MisuseError("--collector and --store name two places to read from; give one of them")
            words = ("--collector", collector or "")
        if (later := os.environ.get(READ_LATER_VARIABLE)) is not None:
            words = tuple(shlex.split(later))
        reader = ReaderOptions(
            address=collector,
            token_file=token_file,
            store=store,
            tls=_tls(rest),
            words=words,
            files=tuple(map(Path, stores)) if len(stores) > 1 else (),
        )
        import_numpy()
        return command(*args, reader=reader, **rest)

    for option in (
        click.option(
            "--store",
            metavar="FILE",
            help="Use this store, without a collector.  [default: runs.duckdb, if no collector listens]",
        ),
        *_CONNECTION,
    ):
        option(with_reader)
    return with_reader  # type: ignore[return-value]


def _tls(options: dict[str, Any]) -> TlsFiles | None:
    return tls_files(options.pop("ca_file"), options.pop("client_cert"), options.pop("client_key"))


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
        help="Output format.",
    )(with_format)
    return with_format  # type: ignore[return-value]


PRICES_OPTION = click.option(
    "--prices",
    envvar="GPUAGENT_PRICES",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prices of nodes and electricity.  [default: ~/.config/gpuagent/prices.yaml]",
)


def prices_option(command: Command) -> Command:
    """Add --prices; the command gets `prices: Prices | None`, read and checked."""

    @wraps(command)
    def with_prices(*args: Any, prices: Path | None, **rest: Any) -> object:
        from gpuagent_collector.prices.price import find_prices

        return command(*args, prices=find_prices(prices), **rest)

    PRICES_OPTION(with_prices)
    return with_prices  # type: ignore[return-value]


def show_sql_option(command: Command) -> Command:
    """Add --show-sql; the command gets `show_sql: bool`."""
    return click.option("--show-sql", is_flag=True, help="Print the SQL of the answer on stderr.")(command)


def answer_options(command: Command) -> Command:
    """Add --show-sql, --format and the options of `reader_options`."""
    return show_sql_option(format_options(reader_options(command)))


def changed_store_option(command: Command) -> Command:
    """Add --store; the command gets `store_name: str`."""

    @wraps(command)
    def with_store(*args: Any, store: str | None, **rest: Any) -> object:
        from gpuagent_collector.store.spec import DEFAULT_STORE

        return command(*args, store_name=store or DEFAULT_STORE, **rest)

    click.option(
        "--store",
        metavar="FILE",
        help="The store to change; stop its collector first, except with PostgreSQL.  [default: runs.duckdb]",
    )(with_store)
    return with_store  # type: ignore[return-value]


_RETENTION = {
    "--keep-raw": "Thin older samples out to one row a second.",
    "--keep-seconds": "Thin older samples out to one row a minute.",
    "--keep": "Remove older samples and steps; runs keep their figures.",
}


def retention_options(command: Command) -> Command:
    """Add --keep-raw, --keep-seconds and --keep; the command gets `retention: Retention | None`, None: not given."""

    @wraps(command)
    def with_retention(
        *args: Any, keep_raw: str | None, keep_seconds: str | None, keep: str | None, **rest: Any
    ) -> object:
        from gpuagent_collector.store.retention import Retention

        given = {"--keep-raw": keep_raw, "--keep-seconds": keep_seconds, "--keep": keep}
        samples, seconds, everything = (
            parse_time(name, text) if text and text != "never" else None for name, text in given.items()
        )
        retention = Retention(samples=samples, seconds=seconds, everything=everything) if any(given.values()) else None
        return command(*args, retention=retention, **rest)

    for name, words in reversed(_RETENTION.items()):
        click.option(name, metavar="TIME|never", help=words)(with_retention)
    return with_retention  # type: ignore[return-value]


_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def parse_time(option: str, text: str) -> timedelta:
    """Return the time that 12h, 7d or 52w stands for. Raises MisuseError: the text has another form; names `option`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
    if match is None or not int(match[1]):
        raise MisuseError(f"{option} takes a whole number above 0 and h, d or w, such as 90d; not {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
