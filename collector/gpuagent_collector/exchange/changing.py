"""Changes of a store by commands: through its running collector, or of the file itself."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import grpc

from gpuagent_collector.errors import StoreIsHeldError
from gpuagent_collector.exchange.delete import Deleted, Deletion, delete
from gpuagent_collector.exchange.edit import RunEdit, edit_runs
from gpuagent_collector.query.reader import find_collector, find_holder, open_collector
from gpuagent_collector.query.remote import RemoteReader, to_error
from gpuagent_collector.store import Store
from gpuagent_collector.store.spec import DEFAULT_STORE
from gpuagent_collector.times import utc_now
from gpuagent_common.connection import TlsFiles
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import store_service_pb2 as pb
from gpuagent_proto.v1.store_service_pb2_grpc import StoreServiceStub

Response = TypeVar("Response")

_SECONDS = 600.0


class Changer(Protocol):
    """A store that can be changed. Every method raises GpuAgentError where the store or the collector fails."""

    # The collector's address or the store's path, for people.
    source: str

    def delete(self, chosen: Deletion, *, only_count: bool) -> Deleted:
        """Remove runs or a node, or only count their rows."""
        ...

    def edit_runs(self, run_ids: Sequence[str], edit: RunEdit) -> None:
        """Edit runs."""
        ...


class _FileChanger:
    def __init__(self, store: Store) -> None:
        self.source = f"the store {store.spec}"
        self._store = store

    def delete(self, chosen: Deletion, *, only_count: bool) -> Deleted:
        return delete(self._store, chosen, only_count=only_count)

    def edit_runs(self, run_ids: Sequence[str], edit: RunEdit) -> None:
        edit_runs(self._store, run_ids, edit, utc_now())


class _RemoteChanger:
    def __init__(self, reader: RemoteReader) -> None:
        self.source = reader.source
        self._reader = reader
        self._stub = StoreServiceStub(reader.channel)

    def delete(self, chosen: Deletion, *, only_count: bool) -> Deleted:
        request = pb.DeleteRequest(
            run_ids=chosen.run_ids, experiment=chosen.experiment or "", node=chosen.node or "", only_count=only_count
        )
        answer = self._call(lambda: self._stub.Delete(request, metadata=self._reader.metadata, timeout=_SECONDS))
        tables = {each.table: each.rows for each in answer.tables}
        hosts = {each.hostname: each.runs for each in answer.hosts}
        return Deleted(tables=tables, runs=answer.runs, open_runs=answer.open_runs, hosts=hosts)

    def edit_runs(self, run_ids: Sequence[str], edit: RunEdit) -> None:
        request = pb.EditRunsRequest(
            run_ids=run_ids,
            labels=edit.labels,
            workload=edit.workload,
            note=edit.note,
            is_excluded=edit.is_excluded,
        )
        self._call(lambda: self._stub.EditRuns(request, metadata=self._reader.metadata, timeout=_SECONDS))

    def _call(self, call: Callable[[], Response]) -> Response:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise GpuAgentError(f"{self.source} is older than this command; upgrade it") from error
            raise to_error(error, self._reader.address, self._reader.tls) from error


@contextmanager
def open_changer(
    *, address: str | None, token_file: Path | None, store: str | None, tls: TlsFiles | None
) -> Iterator[Changer]:
    """Open `store`, or the collector at `address`; without either, the default collector or the default store.

    Raises:
        GpuAgentError: neither exists, or it cannot be changed.
    """
    place = None if store else find_collector(address)
    if place is None:
        try:
            opened = Store.open(store or DEFAULT_STORE, create=False)
        except StoreIsHeldError as error:
            if (place := find_holder(error)) is None:
                raise
        else:
            with opened:
                yield _FileChanger(opened)
            return
    reader = open_collector(address=place, token_file=token_file, tls=tls)
    try:
        yield _RemoteChanger(reader)
    finally:
        reader.close()
