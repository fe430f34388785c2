"""The readers of a store: through a running collector, or of the store itself."""

import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from gpuagent_collector.errors import StoreIsHeldError
from gpuagent_collector.query.execute import Execution, Limits, Parameter
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.query.snapshot import TableRows, tables_of
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_common.address import Address
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

if TYPE_CHECKING:
    from gpuagent_collector.query.remote import RemoteReader


class Answer:
    """Batches of rows that can be read once, in order."""

    def __init__(self, rows: pa.RecordBatchReader, truncated: Callable[[], bool]) -> None:
        self._rows = rows
        self._truncated = truncated
        self._exhausted = False
        self.schema: pa.Schema = rows.schema
        # Of the batches read so far.
        self.rows = 0
        # The same in Arrow's memory.
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.rows += batch.num_rows
            self.size_bytes += batch.nbytes
            yield batch
        self._exhausted = True

    @property
    def truncated(self) -> bool:
        """True if a limit cut the answer short; known once all batches have been read."""
        return self._exhausted and self._truncated()

    def whole(self) -> pa.Table:
        """Return all rows. Raises GpuAgentError: a limit cut the answer short; figures made of it would be wrong."""
        table = pa.Table.from_batches(list(self), self.schema)
        if self.truncated:
            raise GpuAgentError(f"the answer is cut at {table.num_rows:,} rows by the collector's limit; ask for less")
        return table


_FREE_SHARE = """
SELECT free_blocks / greatest(total_blocks, 1) FROM pragma_database_size() WHERE database_name = current_database()
"""


class FileReader:
    """A reader that opens the store itself, behind the same guard as a collector's queries."""

    def __init__(self, spec: StoreSpec, *, older: bool = False, memory_bytes: int | None = None) -> None:
        """Open the store read-only.

        Args:
            older: accept a schema that is older than this collector's.
            memory_bytes: limit of memory; None: half of the machine's or the container's.

        Raises:
            StoreError: it cannot be opened, or a running collector holds it.
        """
        self.source = f"the store {spec}"
        # Of several files that are read as one, that of each platform whose runs are in one alone.
        self.files: Mapping[str, Path] = {}
        self.part: str | None = None
        self.trouble: str | None = None
        self._store = Store.open(spec, read_only=True, older=older, memory_bytes=memory_bytes)
        with self._store.connect() as connection:
            self._guard = Guard(store_relations(connection))
        # Ctrl-C reaches the main thread only while it waits in Python, not inside DuckDB.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="query")

    @contextmanager
    def stream(self, query: str, parameters: Sequence[Parameter] = ()) -> Iterator[Answer]:
        """Execute one readable statement; its rows can be read inside the `with` block."""
        execution = Execution(self._store.connect, Limits())
        try:
            rows = self._thread.submit(execution.start, self._guard.check(query), parameters).result()
            waited = pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))
            yield Answer(waited, lambda: execution.truncated)
        finally:
            execution.close()

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        """Return the whole answer of one readable statement."""
        with self.stream(query, parameters) as answer:
            return answer.whole()

    def snapshot(self) -> Generator[TableRows, None, None]:
        """Yield every table of the store, all of the same moment."""
        return tables_of(self._store)

    def free_share(self) -> float:
        """Return the share of a file's blocks that hold no rows."""
        with self._store.using("read") as connection:
            ((share,),) = connection.execute(_FREE_SHARE).fetchall()
        return float(share)

    def close(self) -> None:
        """Close the store."""
        self._thread.shutdown()
        self._store.close()

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while (batch := self._thread.submit(next, rows, None).result()) is not None:
            yield batch


_PROBE_SECONDS = 2.0


class Reader(Protocol):
    """A reader of the store."""

    # The collector's address or the store's path, for people.
    source: str

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        """Return the whole answer of one readable statement.

        Raises:
            MisuseError: it is not one readable statement, or DuckDB rejects it.
            GpuAgentError: the store cannot be read, or the answer exceeds the collector's limits.
        """
        ...

    def close(self) -> None:
        """Close the connection or store."""
        ...


class StreamingReader(Reader, Protocol):
    """A reader whose answers need not fit into memory."""

    # The part of the store that the token shows, for people, from the last whole answer; None: everything.
    part: str | None
    # Why the collector cannot store what agents send, for people, from the last answer; None: it can.
    trouble: str | None

    def stream(self, query: str, parameters: Sequence[Parameter] = ()) -> AbstractContextManager[Answer]:
        """Execute one readable statement; its rows can be read inside the `with` block, with the errors of `sql`."""
        ...

    def snapshot(self) -> Generator[TableRows, None, None]:
        """Yield every table of the store, all of the same moment.

        Raises GpuAgentError: the store cannot be read, or the collector does not allow it.
        """
        ...


def open_reader(
    *, address: str | None, token_file: Path | None, store: str | None, tls: TlsFiles | None = None
) -> StreamingReader:
    """Open `store`, or the collector at `address`; without either, the default collector or the default store.

    A store that a collector of this user has open on this machine is read through that one. A named collector is never
    replaced by a file, which would answer from another store.

    Raises:
        GpuAgentError: neither exists, or it cannot be read.
        MisuseError: the address or the store's name is malformed.
    """
    if store:
        return _open_file(store, token_file)
    if place := find_collector(address):
        return _open_remote(place, token_file, tls)
    if not Path(DEFAULT_STORE).exists():
        raise GpuAgentError(
            f"no collector listens at {DEFAULT_ADDRESS}, and there is no {DEFAULT_STORE} here; "
            "start `collector serve`, or read --store FILE"
        )
    return _open_file(DEFAULT_STORE, token_file)


def _open_file(store: str, token_file: Path | None) -> StreamingReader:
    """Open a store, or the collector that has it open, such as that of `gpuagent bench`."""
    try:
        return FileReader(StoreSpec.parse(store))
    except StoreIsHeldError as error:
        if (place := find_holder(error)) is None:
            raise
        return _open_remote(place, token_file, None)


def find_holder(error: StoreIsHeldError) -> str | None:
    """Return the address of the collector that has a store open; None: it is no collector, or of another user."""
    import psutil  # only here: most readers need no other process

    try:
        if error.holder is None:
            return None
        process = psutil.Process(error.holder)
        words = [Path(word).name for word in process.cmdline()]
        # Root sees the ports of others too, and would give them its token.
        if process.uids().real != os.geteuid() or ("collector", "serve") not in pairwise(words):
            return None
        every = psutil.net_connections("tcp")
        found = [each.laddr for each in every if each.pid == error.holder and each.laddr and not each.raddr]
    except (psutil.Error, OSError):
        return None
    hosts = [each.ip.removeprefix("::ffff:") for each in found]
    places = [
        Address(host="127.0.0.1" if host in ("0.0.0.0", "::") else host, port=each.port)  # noqa: S104 - of another process
        for host, each in zip(hosts, found, strict=True)
    ]
    if len(places) > 1:  # another port has the pages and metrics
        places = [place for place in places if _speaks_grpc(place)]
    return str(places[0]) if len(places) == 1 else None


# A client's first words in HTTP/2, and the kind of frame with which a server answers them.
_PREFACE, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 4


def _speaks_grpc(place: Address) -> bool:
    """Return whether a server speaks HTTP/2 without TLS, as gRPC does and pages do not."""
    with suppress(OSError), socket.create_connection((place.host, place.port), timeout=1.0) as connection:
        connection.sendall(_PREFACE)
        return connection.recv(4)[3:] == bytes([_SETTINGS])
    return False


def find_collector(address: str | None) -> str | None:
    """Return the address of the collector, by default the usual one; None: nothing listens there.

    Raises:
        GpuAgentError: no collector listens at `address`.
        MisuseError: the address is malformed.
    """
    place = DEFAULT_ADDRESS if address is None else address
    if _listens(place):
        return place
    if address is not None:
        raise GpuAgentError(f"no collector listens at {address}; start `collector serve`, or give --store FILE")
    return None


def open_collector(*, address: str | None, token_file: Path | None, tls: TlsFiles | None = None) -> "RemoteReader":
    """Open the collector at `address`, or at its default place.

    Raises:
        GpuAgentError: none listens there, or there is no token for it.
        MisuseError: the address is malformed.
    """
    place = DEFAULT_ADDRESS if address is None else address
    if not _listens(place):
        raise GpuAgentError(f"no collector listens at {place}; start `collector serve`, or give --collector HOST:PORT")
    return _open_remote(place, token_file, tls)


def _open_remote(address: str, token_file: Path | None, tls: TlsFiles | None) -> "RemoteReader":
    # Reading a file needs no gRPC, which takes a tenth of a second to import.
    from gpuagent_collector.query.remote import RemoteReader
    from gpuagent_common.channel import find_local_tls

    token_file = token_file or default_token_file()
    try:
        return RemoteReader(address, read_token(token_file), tls or find_local_tls(address))
    except FileNotFoundError:
        raise GpuAgentError(
            f"no token file {token_file} for the collector at {address}; give --token-file, or read --store FILE"
        ) from None
    except (TokenError, TlsError) as error:
        raise GpuAgentError(str(error)) from error


def _listens(address: str) -> bool:
    place = host_and_port(address)
    if place is None:
        raise MisuseError(f"the collector's address must be HOST:PORT, such as {DEFAULT_ADDRESS}; not {address!r}")
    try:
        socket.create_connection(place, timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True
