"""The store service: removal and edits of runs while agents deliver."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.changing import Deletion, RunEdit, delete, edit_runs
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1 import store_service_pb2 as pb
from gpuagent_proto.v1 import store_service_pb2_grpc as pb_grpc

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[Any, Any]


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
