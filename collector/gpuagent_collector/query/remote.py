"""A reader through a running collector."""

import io
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.reader import Answer
from gpuagent_collector.query.snapshot import TableRows
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_common.channel import open_channel, why_unreachable
from gpuagent_common.connection import MAX_MESSAGE_BYTES, TlsFiles, bearer
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1 import backup_service_pb2_grpc as backup_grpc
from gpuagent_proto.v1 import query_service_pb2 as pb
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc
from gpuagent_proto.v1.backup_service_pb2 import BackupRequest, BackupResponse

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),  # a site's web proxy cannot reach a collector on the site's own network
)


class RemoteReader:
    """A reader that uses the collector's QueryService."""

    def __init__(self, address: str, token: str, tls: TlsFiles | None = None) -> None:
        """Open a channel to the collector at `address` (HOST:PORT); send nothing yet.

        Raises TlsError: a certificate or key cannot be used.
        """
        self.source = f"the collector at {address}"
        self.part: str | None = None
        self.trouble: str | None = None
        self.address = address
        self.metadata = bearer(token)
        self.tls = tls
        self.channel = open_channel(address, tls, _OPTIONS)
        self._stub = pb_grpc.QueryServiceStub(self.channel)

    @contextmanager
    def stream(self, query: str, parameters: Sequence[Parameter] = ()) -> Iterator[Answer]:
        """Send one readable statement; its rows can be read inside the `with` block."""
        request = pb.QueryRequest(sql=query, parameters_json=json.dumps(list(parameters)) if parameters else "")
        call = self._stub.Query(request, metadata=self.metadata)
        messages = _Messages(call, self.address, self.tls)
        try:
            rows = pa.ipc.open_stream(io.BufferedReader(messages))
            yield Answer(rows, messages.truncated)
            self.part = messages.part or self.part
            self.trouble = messages.trouble or None
        finally:
            call.cancel()

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        """Return the whole answer of one readable statement."""
        with self.stream(query, parameters) as answer:
            return answer.whole()

    def snapshot(self) -> Generator[TableRows, None, None]:
        """Yield every table of the store, all of the same moment."""
        call = backup_grpc.BackupServiceStub(self.channel).Backup(BackupRequest(), metadata=self.metadata)
        try:
            for table, messages in groupby(self._read(call), key=lambda message: message.table):
                pieces = _Messages((message.rows for message in messages), self.address, self.tls)
                yield table, pa.ipc.open_stream(io.BufferedReader(pieces))
        finally:
            call.cancel()

    def _read(self, call: Iterable[BackupResponse]) -> Iterator[BackupResponse]:
        try:
            yield from call
        except grpc.RpcError as error:
            raise to_error(error, self.address, self.tls) from error

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()


class _Messages(io.RawIOBase):
    """A file of the bytes in a call's messages."""

    def __init__(self, call: Iterable[pb.QueryResponse], address: str, tls: TlsFiles | None) -> None:
        super().__init__()
        self._messages = iter(call)
        self._address = address
        self._tls = tls
        self._unread = memoryview(b"")
        self._last: pb.QueryResponse | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._unread:
            message = self._next()
            if message is None:
                return 0
            self._unread = memoryview(message.arrow_ipc)
        size = min(len(buffer), len(self._unread))
        buffer[:size] = self._unread[:size]
        self._unread = self._unread[size:]
        return size

    def truncated(self) -> bool:
        """Read to the last message, and return its `truncated`."""
        while self._next() is not None:
            pass
        return self._last is not None and self._last.truncated

    @property
    def part(self) -> str:
        """The part of the store in the last message; empty: everything, or not received yet."""
        return self._last.part if self._last else ""

    @property
    def trouble(self) -> str:
        """The reason in the last message why nothing can be stored; empty: none, or not received yet."""
        return self._last.trouble if self._last else ""

    def _next(self) -> pb.QueryResponse | None:
        try:
            message = next(self._messages, None)
        except grpc.RpcError as error:
            here = f"; --store {DEFAULT_STORE} reads the store here" if Path(DEFAULT_STORE).exists() else ""
            raise to_error(error, self._address, self._tls, if_refused=here) from error
        self._last = message or self._last
        return message


def to_error(error: grpc.RpcError, address: str, tls: TlsFiles | None, *, if_refused: str = "") -> GpuAgentError:
    """Return the user's error for a failed call, which is also its grpc.Call; `if_refused` ends a refusal."""
    code, details = error.code(), error.details() or ""
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return MisuseError(details)
        case grpc.StatusCode.UNAVAILABLE:
            return GpuAgentError(
                f"the collector at {address} cannot be reached: {why_unreachable(address, tls) or details}"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return GpuAgentError(f"the collector at {address} refused: {details}{if_refused}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return GpuAgentError(f"the collector at {address} is older than this command; upgrade it")
        case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.RESOURCE_EXHAUSTED:
            return GpuAgentError(details)
    return GpuAgentError(f"the collector at {address} failed: {details} ({code.name.lower()})")
