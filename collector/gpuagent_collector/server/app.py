"""The collector: store, ingest and gRPC services, started and stopped in the right order."""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gpuagent_collector.ingest.housekeeping import Summarize
from gpuagent_collector.ingest.ingest import Ingest, IngestSettings
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.present.new_files import follow_user
from gpuagent_collector.query.execute import STATM, Limits, keep_little_memory, resident_bytes
from gpuagent_collector.query.visible_parts import Parts
from gpuagent_collector.server.agents import Admission, AgentRegistry
from gpuagent_collector.server.auth import Gate, caller
from gpuagent_collector.server.query_service import DEFAULT_LIMITS, QueryService, Turns
from gpuagent_collector.server.run_service import RunServicer
from gpuagent_collector.server.store_service import BackupService, StoreService
from gpuagent_collector.server.telemetry_service import TelemetryServicer
from gpuagent_collector.store import Store
from gpuagent_collector.store.instance import memory_limit_bytes, remove_scratch, total_memory_bytes
from gpuagent_collector.trust import audit
from gpuagent_collector.trust.serving import ServerCertificate
from gpuagent_collector.trust.tokens import Reach, TokenFile, Tokens
from gpuagent_collector.web.asker import Asker
from gpuagent_common.address import Address, check_free
from gpuagent_common.connection import MAX_MESSAGE_BYTES
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.service_manager import notify, watchdog_seconds
from gpuagent_proto.v1 import (
    backup_service_pb2,
    backup_service_pb2_grpc,
    query_service_pb2,
    query_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    store_service_pb2,
    store_service_pb2_grpc,
    telemetry_service_pb2,
)

if TYPE_CHECKING:
    from gpuagent_collector.server.otlp import OtlpPush, OtlpTarget
    from gpuagent_collector.web.layout import Page
    from gpuagent_collector.web.server import WebServer

# For the store, pages and libraries.
_RESERVED_FILES = 256

_MOST_FILES = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files to the user's maximum; many systems start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return the limit of connections that are open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return max(files // 2, files - _RESERVED_FILES)


_LOG = logging.getLogger(__name__)

_SERVICES = tuple(
    service.full_name
    for module in (telemetry_service_pb2, query_service_pb2, run_service_pb2, backup_service_pb2, store_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)

# Share of DuckDB's memory beyond which queries are stopped; the rest is the writer's.
_QUERIES_SHARE = 0.6
# Share of the machine's or the container's memory beyond which queries are stopped, DuckDB's included, and the least
# that they have beside DuckDB's if that was given nearly all.
_PROCESS_SHARE, _LEAST_OTHER_SHARE = 0.6, 0.25

# New objects between two looks for garbage in cycles.
_NEW_OBJECTS = 20_000

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # two collectors must not share a port
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", 1000),  # of one connection
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_age_grace_ms", 10_000),  # agents send unacknowledged messages again
    # Windows stay at 64 KiB a stream: probed ones grow until every unread message of an agent is in our memory.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),  # a silent connection is closed
    ("grpc.max_connection_idle_ms", 60_000),  # so is one without calls; commands reconnect
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the server."""

    listen: Address
    # The owner's, which allows everything.
    token: str
    # The file of the other tokens; None: there are no others.
    tokens: TokenFile | None = None
    # The certificate for agents and commands; None: no encryption.
    tls: ServerCertificate | None = None
    # The address of metrics and pages; None: nowhere.
    http: Address | None = None
    # The certificate for metrics and pages; None: no encryption.
    http_tls: ServerCertificate | None = None
    # The OpenTelemetry backend that metrics are sent to; None: none.
    otlp: "OtlpTarget | None" = None
    # Flush interval of agents while the collector keeps up.
    flush_interval_millis: int = 1000
    # Time for an agent to accept or refuse a launch.
    launch_answer_seconds: float = 30.0
    # Time for open calls and queued messages to end when the collector stops.
    stop_grace_seconds: float = 10.0
    # Further time for interrupted queries to stop.
    last_interrupt_seconds: float = 1.0
    # Time for an agent to send its hello.
    hello_seconds: float = 10.0
    # Interval of token checks on idle streams; each message is checked at once.
    revoked_seconds: float = 1.0
    # Age at which a connection is ended: agents reconnect, and so spread over new collectors.
    connection_age_seconds: float = 3600.0
    ingest: IngestSettings = field(default_factory=IngestSettings)


class Collector:
    """A running collector. It belongs to one event loop."""

    def __init__(self, store: Store, settings: ServerSettings, *, summarize: Summarize = summarize_runs) -> None:
        """Assemble the collector; nothing is open before `start`. Raises StoreError: the store cannot be read."""
        self._settings = settings
        self._source = str(store.spec)
        limits = _query_limits(store)
        self._parts = Parts(store)
        turns = Turns()
        if limits.other_memory_bytes is not None:  # less what the process takes as it starts
            with closing(store.connect()) as connection:
                ((threads,),) = connection.execute("SELECT current_setting('threads')").fetchall()
            turns = Turns(memory_bytes=limits.other_memory_bytes - resident_bytes(), threads=threads)
        self._queries = QueryService(
            self._parts,
            source=self._source,
            limits=limits,
            turns=turns,
            caller=caller,
            trouble=lambda: self.ingest.trouble,
        )
        self.ingest = Ingest(
            store=store, summarize=summarize, settings=settings.ingest, out_of_memory=self._queries.evict
        )
        self._registry = AgentRegistry(self.ingest.presence)
        self._health = health.aio.HealthServicer()
        self._tokens = Tokens(settings.token, settings.tokens)
        options = (
            *_OPTIONS,
            ("grpc.max_connection_age_ms", int(settings.connection_age_seconds * 1000)),
            ("grpc.max_allowed_incoming_connections", most_connections()),
        )
        self._server = grpc.aio.server(interceptors=[Gate(self._tokens)], options=options)
        self._revoking: asyncio.Task[None] | None = None
        self._add_services(store)
        self._asker = Asker(store.connect, limits)
        self._web: WebServer | None = None
        self._otlp: OtlpPush | None = None
        self._is_serving = False

    def _add_services(self, store: Store) -> None:
        telemetry = TelemetryServicer(
            self.ingest,
            self._registry,
            Admission(store, self._registry),
            flush_interval_millis=self._settings.flush_interval_millis,
            hello_seconds=self._settings.hello_seconds,
        )
        self._queries.on_query = telemetry.note_question
        runs = RunServicer(store, self._registry, answer_seconds=self._settings.launch_answer_seconds)
        self._server.add_generic_rpc_handlers((telemetry.handlers(),))
        run_service_pb2_grpc.add_RunServiceServicer_to_server(runs, self._server)
        query_service_pb2_grpc.add_QueryServiceServicer_to_server(self._queries, self._server)
        backup_service_pb2_grpc.add_BackupServiceServicer_to_server(BackupService(store), self._server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreService(store), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> Address:
        """Open the port, and return the address of the collector. Raises GpuAgentError: the address cannot be used."""
        check_free(self._settings.listen)
        if self._settings.http is not None:
            self._web = self._web_server(self._settings.http)
        if self._settings.otlp is not None:
            from gpuagent_collector.server.otlp import OtlpPush

            self._otlp = OtlpPush(self._settings.otlp, self._asker)
        try:
            listen, tls = str(self._settings.listen), self._settings.tls
            if tls is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, tls.grpc_credentials())
        except RuntimeError as error:
            raise GpuAgentError(f"cannot listen on {self._settings.listen}: {error}") from error
        self.ingest.start()
        await self._server.start()
        for service in ("", *_SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._revoking = asyncio.create_task(self._end_revoked())
        self._is_serving = True
        if self._web is not None:
            self._web.start()
        if self._otlp is not None:
            self._otlp.start()
        return self._settings.listen.at(port)

    async def _end_revoked(self) -> None:
        while True:
            await asyncio.sleep(self._settings.revoked_seconds)
            self._registry.end_revoked()
            audit.sum_up()

    @property
    def stuck(self) -> asyncio.Future[str]:
        """Return what is set, with the reason, when a query can be ended only with the process."""
        return self._queries.stuck

    @property
    def http_address(self) -> Address | None:
        """Return the address of metrics and pages after `start`, or None."""
        return None if self._web is None else self._web.address

    def _web_server(self, listen: Address) -> "WebServer":
        # A third of what `collector serve` imports; most collectors serve no pages.
        from gpuagent_collector.web.server import WebServer
        from gpuagent_collector.web.site import Sources, pages

        sources = Sources(
            ask=self._asker,
            store=self._source,
            instruments=(*self.ingest.instruments.collectors(), self._registry.connected),
            is_ready=lambda: self._is_serving and not self.ingest.failed.done(),
            trouble=lambda: self.ingest.trouble,
        )

        def limited(reach: Reach) -> "Sequence[Page]":
            ask = self._asker.through(lambda: self._parts.of(reach).connect())
            # The collector's own metrics sum over all agents, so a limited token must not see them.
            return pages(replace(sources, ask=ask, store=f"{self._source}, of {reach}", instruments=None))

        return WebServer(listen, pages(sources), limited=limited, tokens=self._tokens, tls=self._settings.http_tls)

    async def stop(self) -> bool:
        """Commit and acknowledge queued messages, and close; return whether all queries have ended.

        After `stop_grace_seconds` no further commit begins: agents send the rest again.
        """
        grace_seconds = self._settings.stop_grace_seconds
        abandoning = asyncio.get_running_loop().call_later(grace_seconds, self.ingest.abandon)
        self._is_serving = False
        if self._revoking is not None:
            self._revoking.cancel()
        audit.sum_up(at_end=True)
        if self._web is not None:
            await asyncio.to_thread(self._web.stop)
        await asyncio.to_thread(self._asker.close)
        if self._otlp is not None:
            await asyncio.to_thread(self._otlp.stop)
        await self._health.enter_graceful_shutdown()
        self.ingest.give_up_on_failure()
        closing = asyncio.ensure_future(self._server.stop(grace_seconds))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._registry.drain(), grace_seconds)
        await self.ingest.close()
        abandoning.cancel()
        await closing
        return await self._queries.close(self._settings.last_interrupt_seconds)


def _query_limits(store: Store) -> Limits:
    keep_little_memory()
    with closing(store.connect()) as connection:
        store_bytes = memory_limit_bytes(connection)
    total_bytes = total_memory_bytes()
    other_bytes = int(max(total_bytes * _PROCESS_SHARE - store_bytes, total_bytes * _LEAST_OTHER_SHARE))
    return replace(
        DEFAULT_LIMITS,
        store_memory_bytes=int(store_bytes * _QUERIES_SHARE),
        other_memory_bytes=other_bytes if STATM.exists() else None,
        process_memory_bytes=store_bytes + other_bytes if STATM.exists() else None,
    )


async def serve(store: Store, settings: ServerSettings, announce: Callable[[Address, Address | None], None]) -> None:
    """Serve until SIGINT or SIGTERM; a second one ends the process at once.

    `announce` receives the address for agents and commands, and the address of metrics and pages. Raises GpuAgentError:
    an address cannot be used, or the store became unusable.
    """

    async def keep_watchdog() -> None:
        while seconds := watchdog_seconds():
            notify("WATCHDOG=1")
            await asyncio.sleep(seconds)

    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def on_signal() -> None:
        if stopped.done():
            os._exit(130)
        stopped.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    collector = Collector(store, settings)
    announce(await collector.start(), collector.http_address)
    notify("READY=1")
    # What serves until the end is no garbage, and messages leave few cycles: looks for them took an eighth of the CPU.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    watchdog = asyncio.ensure_future(keep_watchdog())
    reasons: set[asyncio.Future[Any]] = {stopped, collector.ingest.failed, collector.stuck}
    await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    if collector.stuck.done():
        # Commits are safe; agents send again what was not acknowledged.
        _LOG.warning("%s; the collector restarts", collector.stuck.result())
        remove_scratch()
        follow_user()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command that started it
    notify("STOPPING=1")
    stopped_cleanly = await collector.stop()
    watchdog.cancel()
    error = collector.ingest.failed.result() if collector.ingest.failed.done() else None
    if not stopped_cleanly:
        _LOG.warning("a query does not stop; exiting anyway%s", f"; {error}" if error else "")
        os._exit(1 if error else 0)  # its thread would keep the process alive; commits are safe
    if error:
        raise error
