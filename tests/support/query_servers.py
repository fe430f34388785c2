"""A real gRPC server with nothing but the QueryService, on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.query.visible_parts import Parts
from gpuagent_collector.server.query_service import QueryService
from gpuagent_collector.store import Store
from gpuagent_collector.trust.tokens import Caller, Scope
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc


@dataclass(slots=True, kw_only=True)
class Serving:
    store: Store
    address: str
    service: QueryService
    loop: asyncio.AbstractEventLoop


@contextmanager
def serving_queries(store: Store, limits: Limits) -> Iterator[Serving]:
    """Answer queries of this store until the end of the block."""
    ready, stop = threading.Event(), asyncio.Event()
    running: list[Serving] = []

    async def serve() -> None:
        owner = Caller(name="owner", scope=Scope.OPERATOR)
        service = QueryService(Parts(store), source=str(store.spec), limits=limits, caller=lambda: owner)
        server = grpc.aio.server()
        pb_grpc.add_QueryServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        loop = asyncio.get_running_loop()
        running.append(Serving(store=store, address=f"127.0.0.1:{port}", service=service, loop=loop))
        ready.set()
        await stop.wait()
        await server.stop(grace=0)
        await service.close(20.0)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield running[0]
    finally:
        running[0].loop.call_soon_threadsafe(stop.set)
        thread.join()
