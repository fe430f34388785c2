"""The backup service: a copy of the store while agents deliver."""

import asyncio
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import duckdb
import grpc

from gpuagent_collector.errors import StoreError
from gpuagent_collector.query.snapshot import tables_of
from gpuagent_collector.server.query_service import ipc_chunks
from gpuagent_collector.store import Store
from gpuagent_proto.v1 import backup_service_pb2 as pb
from gpuagent_proto.v1 import backup_service_pb2_grpc as pb_grpc
from gpuagent_proto.v1.query_service_pb2 import QueryResponse

Context = grpc.aio.ServicerContext[pb.BackupRequest, pb.BackupResponse]


class BackupService(pb_grpc.BackupServiceServicer):
    """A service for one copy at a time: each holds a transaction, which keeps old rows on disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_busy = False

    async def Backup(self, request: pb.BackupRequest, context: Context) -> AsyncIterator[pb.BackupResponse]:  # noqa: ARG002, N802
        """Stream every table as of one moment."""
        if self._is_busy:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "another backup is running; try again later")
        self._is_busy = True

        def read() -> Generator[pb.BackupResponse, None, None]:
            with closing(tables_of(self._store)) as tables:
                for table, rows in tables:
                    for chunk in ipc_chunks(rows):
                        yield pb.BackupResponse(table=table, rows=QueryResponse(arrow_ipc=chunk))

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
