"""How commands of the same user reach the node's running agent: gRPC over a Unix socket."""

import queue
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc

from gpuagent.errors import GpuAgentError, MisuseError
from gpuagent.execution import Status
from gpuagent.planning import Planner
from gpuagent.runner import Runner
from gpuagent_proto.v1 import agent_service_pb2 as messages
from gpuagent_proto.v1.agent_service_pb2_grpc import (
    AgentServiceServicer,
    AgentServiceStub,
    add_AgentServiceServicer_to_server,
)
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

_FOLLOWERS = 256
"""How many commands can follow their runs at the same time; each holds a thread, made when it comes."""

_ENDED = frozenset(status.value for status in Status if status not in (Status.QUEUED, Status.RUNNING))


def socket_path(runtime_directory: Path, node_id: int) -> Path:
    """Return where the agent of node `node_id` listens."""
    return runtime_directory / f"{node_id & 0xFFFF_FFFF_FFFF_FFFF:016x}.sock"


class AgentServicer(AgentServiceServicer):
    """Serves AgentService of one agent."""

    def __init__(self, planner: Planner, runner: Runner, status: Callable[[], messages.StatusResponse]) -> None:
        self._planner = planner
        self._runner = runner
        self._status = status

    def Submit(self, request: messages.SubmitRequest, context: grpc.ServicerContext) -> Iterator[RunUpdate]:  # noqa: N802
        """Queue the runs and follow them; when the caller goes, they are cancelled."""
        updates: queue.SimpleQueue[RunUpdate | None] = queue.SimpleQueue()
        try:
            run_ids = self._runner.submit(self._planner.plan(request.spec), updates.put)
        except MisuseError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except GpuAgentError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

        def caller_went() -> None:
            self._runner.cancel(run_ids)
            updates.put(None)

        if not context.add_callback(caller_went):
            caller_went()
        yield from follow(updates, len(run_ids))

    def Status(self, request: messages.StatusRequest, context: grpc.ServicerContext) -> messages.StatusResponse:  # noqa: ARG002, N802
        """Tell how the agent is doing."""
        return self._status()


def follow(updates: "queue.SimpleQueue[RunUpdate | None]", runs: int) -> Iterator[RunUpdate]:
    """Yield updates until `runs` runs have ended, or None comes."""
    while runs and (update := updates.get()) is not None:
        runs -= update.status in _ENDED
        yield update


def serve(servicer: AgentServicer, path: Path) -> grpc.Server:
    """Serve on the socket `path`, which only this user may open.

    Raises:
        GpuAgentError: the socket cannot be made.
    """
    path.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_FOLLOWERS), options=[("grpc.http2.bdp_probe", 0)])
    add_AgentServiceServicer_to_server(servicer, server)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise GpuAgentError(f"cannot listen on {path}: {error}") from error
    server.start()
    path.chmod(0o600)
    return server


class AgentClient:
    """Talks to the agent that runs on this node."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.enable_http_proxy", 0)])
        self._stub = AgentServiceStub(self._channel)

    def status(self) -> messages.StatusResponse | None:
        """Return how the agent is doing; None when there is none."""
        try:
            return self._stub.Status(messages.StatusRequest(), timeout=5)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                return None
            raise GpuAgentError(f"the agent on this node does not answer: {error.details()}") from error

    def submit(self, spec: RunSpec) -> Iterator[RunUpdate]:
        """Queue the runs and yield what becomes of them; closing the iterator cancels them.

        Raises:
            MisuseError: the spec makes no sense.
            GpuAgentError: the agent refused, or ended.
        """
        call = self._stub.Submit(messages.SubmitRequest(spec=spec))
        try:
            yield from call
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise MisuseError(error.details()) from error
            raise GpuAgentError(f"the agent on this node ended the run: {error.details()}") from error
        finally:
            call.cancel()

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()


def find_agent(path: Path) -> AgentClient | None:
    """Return a client of the agent that listens on `path`; None when none does."""
    if not path.exists():
        return None
    client = AgentClient(path)
    if client.status() is None:
        client.close()
        return None
    return client
