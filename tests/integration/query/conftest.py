import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.server.query_service import QueryService
from gpuagent_collector.store import Store
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc
from tests.support.stores import fill


@dataclass(slots=True, kw_only=True)
class Serving:
    """A real gRPC server with nothing but the QueryService, on an event loop in a thread of its own."""

    store: Store
    address: str
    service: QueryService
    loop: asyncio.AbstractEventLoop


@pytest.fixture(params=["", "ducklake:"], ids=["file", "lake"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    ready, stop = threading.Event(), asyncio.Event()
    running: list[Serving] = []

    async def serve(store: Store) -> None:
        with store.connect() as connection:
            guard = Guard(store_relations(connection))
        service = QueryService(
            store.connect, guard=guard, source=str(store.spec), limits=Limits(timeout_seconds=20.0, rows=100_000)
        )
        server = grpc.aio.server()
        pb_grpc.add_QueryServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        running.append(
            Serving(store=store, address=f"127.0.0.1:{port}", service=service, loop=asyncio.get_running_loop())
        )
        ready.set()
        await stop.wait()
        await server.stop(grace=0)
        await service.close(20.0)

    with Store.open(f"{request.param}{tmp_path}/runs.duckdb") as store:
        fill(store)
        thread = threading.Thread(target=asyncio.run, args=(serve(store),))
        thread.start()
        ready.wait()
        yield running[0]
        running[0].loop.call_soon_threadsafe(stop.set)
        thread.join()
