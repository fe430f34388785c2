"""The services of an operator: a copy of the store, and removal and edits of runs, while agents deliver."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import duckdb
import grpc

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.changing import Deletion, RunEdit, delete, edit_runs
from gpuagent_collector.query.snapshot import tables_of
from gpuagent_collector.server.query_service import ipc_chunks
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1 import store_service_pb2 as pb
from gpuagent_proto.v1 import store_service_pb2_grpc as pb_grpc
from gpuagent_proto.v1.backup_service_pb2 import BackupRequest, BackupResponse
from gpuagent_proto.v1.backup_service_pb2_grpc import BackupServiceServicer
from gpuagent_proto.v1.query_service_pb2 import QueryResponse

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[Any, Any]


class BackupService(BackupServiceServicer):
    """A service for one copy at a time: each holds a transaction, which keeps old rows on disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_busy = False

    async def Backup(self, request: BackupRequest, context: Context) -> AsyncIterator[BackupResponse]:  # noqa: ARG002, N802
        """Stream every table as of one moment."""
        if self._is_busy:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "another backup is running; try again later")
        self._is_busy = True

        def read() -> Generator[BackupResponse, None, None]:
            with closing(tables_of(self._store)) as tables:
                for table, rows in tables:
                    for chunk in ipc_chunks(rows):
                        yield BackupResponse(table=table, rows=QueryResponse(arrow_ipc=chunk))

        loop, pieces = asyncio.get_running_loop(), read()
        # One thread, so that the iterator is closed after the piece that is being read.
        with ThreadPoolExecutor(1, thread_name_prefix="backup") as thread:
            try:
                while piece := await loop.run_in_executor(thread, partial(next, pieces, None)):
                    yield piece
            except (StoreError, duckdb.Error, OSError) as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error).splitlines()[0])
            finally:
                await loop.run_in_executor(thread, pieces.close)
                self._is_busy = False


class StoreService(pb_grpc.StoreServiceServicer):
    """A service for one change at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changing = asyncio.Lock()

    async def Delete(self, request: pb.DeleteRequest, context: Context) -> pb.DeleteResponse:  # noqa: N802
        """Remove runs or a node, or count their rows."""
        chosen = Deletion(
            run_ids=list(request.run_ids), experiment=request.experiment or None, node=request.node or None
        )
        deleted = await self._change(lambda: delete(self._store, chosen, only_count=request.only_count), context)
        tables = [pb.TableRows(table=table, rows=rows) for table, rows in deleted.tables.items()]
        hosts = [pb.HostRuns(hostname=host, runs=runs) for host, runs in deleted.hosts.items()]
        return pb.DeleteResponse(tables=tables, runs=deleted.runs, open_runs=deleted.open_runs, hosts=hosts)

    async def EditRuns(self, request: pb.EditRunsRequest, context: Context) -> pb.EditRunsResponse:  # noqa: N802
        """Append an edit of runs."""
        edit = RunEdit(
            labels=dict(request.labels),
            workload=request.workload if request.HasField("workload") else None,
            note=request.note if request.HasField("note") else None,
            is_excluded=request.is_excluded if request.HasField("is_excluded") else None,
        )
        run_ids = list(request.run_ids)
        await self._change(lambda: edit_runs(self._store, run_ids, edit, utc_now()), context)
        return pb.EditRunsResponse()

    async def _change(self, work: Callable[[], Result], context: Context) -> Result:
        async with self._changing:
            try:
                return await asyncio.to_thread(work)
            except MisuseError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except StoreError as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error).splitlines()[0])
