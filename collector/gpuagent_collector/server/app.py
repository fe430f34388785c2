"""The collector: store, ingest and gRPC services put together, started and stopped in the right order."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gpuagent_collector.errors import CollectorError
from gpuagent_collector.ingest.housekeeping import Summarize
from gpuagent_collector.ingest.ingest import Ingest, IngestSettings
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.server.agents import AgentRegistry
from gpuagent_collector.server.auth import TokenInterceptor
from gpuagent_collector.server.listen import Address, check_free
from gpuagent_collector.server.query_service import QueryService
from gpuagent_collector.server.run_service import RunServicer
from gpuagent_collector.server.telemetry_service import TelemetryServicer
from gpuagent_collector.store import Store
from gpuagent_collector.summarize import summarize_runs
from gpuagent_proto.connection import MAX_MESSAGE_BYTES
from gpuagent_proto.v1 import (
    query_service_pb2,
    query_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    telemetry_service_pb2,
    telemetry_service_pb2_grpc,
)

_SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (telemetry_service_pb2, "TelemetryService"),
        (query_service_pb2, "QueryService"),
        (run_service_pb2, "RunService"),
    )
)

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two collectors never share a port unnoticed
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_age_ms", 3_600_000),  # agents come back, and spread over new collectors
    ("grpc.max_connection_age_grace_ms", 30_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the collector serves."""

    listen: Address
    token: str
    flush_interval_millis: int = 1000
    """How often agents are to send while the collector keeps up."""
    launch_answer_seconds: float = 30.0
    """How long an agent may take to accept or refuse a launch."""
    stop_grace_seconds: float = 10.0
    """How long open calls may take to end when the collector stops."""
    ingest: IngestSettings = field(default_factory=IngestSettings)


class Collector:
    """A running collector. It belongs to one event loop."""

    def __init__(self, store: Store, settings: ServerSettings, *, summarize: Summarize = summarize_runs) -> None:
        """Put everything together; nothing is open before `start`.

        Raises:
            StoreError: the store cannot be read.
        """
        self._settings = settings
        self.ingest = Ingest(store, summarize=summarize, settings=settings.ingest)
        self._registry = AgentRegistry(self.ingest.presence)
        self._health = health.aio.HealthServicer()
        self._queries = _query_service(store)
        self._server = grpc.aio.server(interceptors=[TokenInterceptor(settings.token)], options=_OPTIONS)
        self._add_services(store)

    def _add_services(self, store: Store) -> None:
        telemetry = TelemetryServicer(
            self.ingest, self._registry, flush_interval_millis=self._settings.flush_interval_millis
        )
        runs = RunServicer(store, self._registry, answer_seconds=self._settings.launch_answer_seconds)
        telemetry_service_pb2_grpc.add_TelemetryServiceServicer_to_server(telemetry, self._server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(runs, self._server)
        query_service_pb2_grpc.add_QueryServiceServicer_to_server(self._queries, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> Address:
        """Open the port, and return where the collector listens.

        Raises:
            CollectorError: it cannot listen there.
        """
        check_free(self._settings.listen)
        try:
            port = self._server.add_insecure_port(str(self._settings.listen))
        except RuntimeError as error:
            raise CollectorError(f"cannot listen on {self._settings.listen}: {error}") from error
        self.ingest.start()
        await self._server.start()
        for service in ("", *_SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return self._settings.listen.at(port)

    async def stop(self) -> None:
        """Take nothing new, commit and acknowledge what was taken, and close."""
        await self._health.enter_graceful_shutdown()
        closing = asyncio.ensure_future(self._server.stop(self._settings.stop_grace_seconds))
        await self._registry.drain()
        await closing
        await asyncio.to_thread(self._queries.close)
        await self.ingest.close()


def _query_service(store: Store) -> QueryService:
    connection = store.connect()
    try:
        return QueryService(store.connect, guard=Guard(store_relations(connection)), source=str(store.spec))
    finally:
        connection.close()


async def serve(store: Store, settings: ServerSettings, announce: Callable[[Address], None]) -> None:
    """Serve until SIGINT or SIGTERM; a second one ends the process at once.

    Raises:
        CollectorError: it cannot listen, or the store became unusable.
    """
    stopped = _until_signal()
    collector = Collector(store, settings)
    announce(await collector.start())
    reasons: set[asyncio.Future[Any]] = {stopped, collector.ingest.failed}
    await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    await collector.stop()
    if collector.ingest.failed.done():
        raise collector.ingest.failed.result()


def _until_signal() -> "asyncio.Future[None]":
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def on_signal() -> None:
        if stopped.done():
            os._exit(130)
        stopped.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stopped
