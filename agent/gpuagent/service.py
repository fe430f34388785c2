"""The service of a node's agent for commands of the same user: gRPC over a Unix socket."""

import asyncio
import contextlib
import os
import queue
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from pathlib import Path

import grpc

from gpuagent.errors import AgentEndedError
from gpuagent.event_loop import EventLoop
from gpuagent.locations import runtime_directory
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner, has_ended
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import key
from gpuagent_proto.v1 import agent_service_pb2 as messages
from gpuagent_proto.v1.agent_service_pb2_grpc import (
    AgentServiceServicer,
    AgentServiceStub,
    add_AgentServiceServicer_to_server,
)
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

SubmitContext = grpc.aio.ServicerContext[messages.SubmitRequest, RunUpdate]
StatusContext = grpc.aio.ServicerContext[messages.StatusRequest, messages.StatusResponse]


def find_socket(node_uuid: str, beside: str | None) -> Path:
    """Return the socket of the node's agent, or of the one beside it that delivers to the collector `beside`."""
    identity = node_uuid if beside is None else f"{node_uuid} {beside}"
    return runtime_directory(os.environ) / f"{key(identity) & 0xFFFF_FFFF_FFFF_FFFF:016x}.sock"


class AgentServicer(AgentServiceServicer):
    """AgentService of one agent."""

    def __init__(self, planner: Planner, runner: Runner, status: Callable[[], messages.StatusResponse]) -> None:
        self._planner = planner
        self._runner = runner
        self._status = status

    async def Submit(  # noqa: N802 - gRPC's name
        self, request: messages.SubmitRequest, context: SubmitContext
    ) -> AsyncIterator[RunUpdate]:
        """Queue the runs and stream their updates; cancel them if the caller disconnects."""
        loop = asyncio.get_running_loop()
        updates: asyncio.Queue[RunUpdate] = asyncio.Queue()

        def listen(update: RunUpdate) -> None:
            loop.call_soon_threadsafe(updates.put_nowait, update)

        try:
            # In a thread: it may start another process to list the workloads.
            variables = _decode_variables(request.environment) if request.environment else None
            plans = await asyncio.to_thread(self._planner.plan, request.spec, variables=variables)
            run_ids = self._runner.submit(plans, listen)
        except MisuseError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except AgentEndedError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except GpuAgentError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        try:
            running = len(run_ids)
            while running:
                update = await updates.get()
                running -= has_ended(update)
                yield update
        finally:
            self._runner.cancel(run_ids)

    async def Status(  # noqa: N802 - gRPC's name
        self,
        request: messages.StatusRequest,  # noqa: ARG002
        context: StatusContext,  # noqa: ARG002
    ) -> messages.StatusResponse:
        """Return the state of the agent."""
        return self._status()


def _decode_variables(entries: Iterable[bytes]) -> dict[str, str]:
    if any(b"\0" in entry for entry in entries):
        raise MisuseError("an environment variable cannot contain a NUL character")
    named = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, equals, value in named if name and equals}


async def serve(servicer: AgentServicer, path: Path) -> grpc.aio.Server:
    """Serve on the socket `path`, which only this user may open. Raises GpuAgentError: the socket cannot be created."""
    path.unlink(missing_ok=True)
    server = grpc.aio.server(options=[("grpc.http2.bdp_probe", 0)])
    add_AgentServiceServicer_to_server(servicer, server)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise GpuAgentError(f"cannot listen on {path}: {error}") from error
    await server.start()
    path.chmod(0o600)
    return server


class AgentClient:
    """A client of the agent that runs on this node."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = EventLoop("agent client")
        self._channel = self._loop.start(_open_channel(path)).result()
        self._stub = AgentServiceStub(self._channel)

    def status(self) -> messages.StatusResponse | None:
        """Return the state of the agent; None: no agent answers."""
        try:
            return self._loop.start(self._status()).result()
        except grpc.aio.AioRpcError as error:
            # Cancelled: the agent ended while it was asked.
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                return None
            raise GpuAgentError(f"the agent on this node does not answer: {error.details()}") from error

    def read_process_id(self) -> str | None:
        """Return the number of the agent's process, which is in its lock; None: it is not."""
        with contextlib.suppress(OSError):
            return self._path.with_suffix(".lock").read_text().strip() or None
        return None

    def uses(self, spool: Path) -> bool:
        """Return whether the agent uses this spool, whose lock has the number of a process too."""
        with contextlib.suppress(OSError):
            return (spool / "lock").read_text().strip() == self.read_process_id()
        return False

    def submit(self, spec: RunSpec) -> Generator[RunUpdate, None, None]:
        """Queue the runs, with this process's environment, and yield their updates; closing the iterator cancels them.

        Raises:
            MisuseError: the spec is invalid.
            AgentEndedError: the agent ended, or is ending.
            GpuAgentError: the agent refused the runs.
        """
        updates: queue.SimpleQueue[RunUpdate | None] = queue.SimpleQueue()
        call = self._loop.start(self._submit(spec, updates.put))
        call.add_done_callback(lambda _: updates.put(None))
        try:
            yield from iter(updates.get, None)
            call.result()
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise MisuseError(error.details()) from error
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise GpuAgentError(error.details()) from error
            raise AgentEndedError(
                f"the agent on this node ended before the run: {error.details()}; start it again"
            ) from error
        finally:
            call.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._loop.start(self._channel.close()).result()
        self._loop.close()

    async def _status(self) -> messages.StatusResponse:
        return await self._stub.Status(messages.StatusRequest(), timeout=5)

    async def _submit(self, spec: RunSpec, take: Callable[[RunUpdate], None]) -> None:
        environment = [name + b"=" + value for name, value in os.environb.items()]
        async for update in self._stub.Submit(messages.SubmitRequest(spec=spec, environment=environment)):
            take(update)


async def _open_channel(path: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{path}", options=[("grpc.enable_http_proxy", 0)])


def find_agent_of(spool: Path, node_uuid: str, beside: str | None = None) -> AgentClient | None:
    """Return a client of the agent that uses the spool, or else of the node's; None: neither runs.

    The two differ where the agent was started with another identity, by --node-id.
    """
    for identity in dict.fromkeys((read_node(spool) or node_uuid, node_uuid)):
        if client := find_agent(find_socket(identity, beside)):
            return client
    return None


# In the spool's folder: the identity of the node of the agent that used it last.
_NODE_FILE = "node"


def write_node(spool: Path, node_uuid: str) -> None:
    """Record which node's agent uses the spool. Raises GpuAgentError: the file cannot be written."""
    try:
        (spool / _NODE_FILE).write_text(f"{node_uuid}\n")
    except OSError as error:
        raise GpuAgentError(f"cannot write {spool / _NODE_FILE}: {error.strerror}") from error


def read_node(spool: Path) -> str | None:
    """Return the identity of the node of the agent that used the spool last; None: unknown."""
    try:
        return (spool / _NODE_FILE).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def find_agent(path: Path) -> AgentClient | None:
    """Return a client of the agent that listens on `path`; None: no agent does."""
    if not path.exists():
        return None
    client = AgentClient(path)
    if client.status() is None:
        client.close()
        return None
    return client
