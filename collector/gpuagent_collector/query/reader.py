"""Where answers come from: a running collector, or the store itself."""

import socket
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from gpuagent_collector.query.answer import Answer
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.local import FileReader
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.query.snapshot import TableRows
from gpuagent_collector.store import StoreSpec
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_common.connection import (
    DEFAULT_ADDRESS,
    TlsError,
    TlsFiles,
    TokenError,
    default_token_file,
    host_and_port,
    read_token,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

_PROBE_SECONDS = 2.0


class Reader(Protocol):
    """Reads the store."""

    # What is read, for people: a collector's address or a store's path.
    source: str

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        """Return the whole answer of one readable statement.

        Raises:
            MisuseError: it is not one readable statement, or DuckDB finds a mistake in it.
            GpuAgentError: the store cannot be read, or the answer is larger than the collector gives.
        """
        ...

    def close(self) -> None:
        """Let go of the connection or store."""
        ...


class StreamingReader(Reader, Protocol):
    """A reader whose answers need not fit into memory."""

    # What of the store is shown to us, for people, as the last whole answer said; None: everything.
    part: str | None

    def stream(self, query: str, parameters: Sequence[Parameter] = ()) -> AbstractContextManager[Answer]:
        """Execute one readable statement; its rows can be taken inside the `with` block, with the errors of `sql`."""
        ...

    def snapshot(self) -> Generator[TableRows, None, None]:
        """Yield every table of the store, as all of them are at one moment, until it is closed.

        Raises:
            GpuAgentError: the store cannot be read, or the collector does not let us.
        """
        ...


def open_reader(
    *, address: str | None, token_file: Path | None, store: str | None, tls: TlsFiles | None = None
) -> StreamingReader:
    """Open `store`, or the collector at `address`; when neither is named, whichever is at its default place.

    A collector that was named is never replaced by a file: that would be the answer of another store.

    Raises:
        GpuAgentError: there is nothing to read, or it cannot be read.
        MisuseError: the address or the store's name makes no sense.
    """
    if store:
        return FileReader(StoreSpec.parse(store))
    if _listens(address or DEFAULT_ADDRESS):
        return _open_remote(address or DEFAULT_ADDRESS, token_file or default_token_file(), tls)
    if address:
        raise GpuAgentError(f"no collector listens at {address}; start `collector serve`, or read a --store FILE")
    return _open_default_store()


def open_collector(*, address: str | None, token_file: Path | None, tls: TlsFiles | None = None) -> RemoteReader:
    """Open the collector at `address`, or at its default place.

    Raises:
        GpuAgentError: none listens there, or there is no token for it.
        MisuseError: the address makes no sense.
    """
    place = address or DEFAULT_ADDRESS
    if not _listens(place):
        raise GpuAgentError(f"no collector listens at {place}; start `collector serve`, or name another by --collector")
    return _open_remote(place, token_file or default_token_file(), tls)


def _open_remote(address: str, token_file: Path, tls: TlsFiles | None) -> RemoteReader:
    try:
        return RemoteReader(address, read_token(token_file), tls)
    except FileNotFoundError:
        raise GpuAgentError(
            f"a collector listens at {address}, but there is no token file {token_file}; "
            "name it with --token-file, or read a --store FILE"
        ) from None
    except (TokenError, TlsError) as error:
        raise GpuAgentError(str(error)) from error


def _open_default_store() -> FileReader:
    if not Path(DEFAULT_STORE).exists():
        raise GpuAgentError(
            f"no collector listens at {DEFAULT_ADDRESS}, and there is no {DEFAULT_STORE} here; "
            "start `collector serve`, or name a store with --store FILE"
        )
    return FileReader(StoreSpec.parse(DEFAULT_STORE))


def _listens(address: str) -> bool:
    place = host_and_port(address)
    if place is None:
        raise MisuseError(f"the collector's address must be HOST:PORT, as {DEFAULT_ADDRESS}; this is {address!r}")
    try:
        socket.create_connection(place, timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True
