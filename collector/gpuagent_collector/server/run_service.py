"""The run service: launches, cancellations and logs on connected agents."""

# ruff: noqa: ARG002, N802 - signatures and names of gRPC

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from gpuagent_collector.server.agents import AgentRegistry, AgentStream, NoAnswerError
from gpuagent_collector.store import Store
from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from gpuagent_proto.v1 import run_pb2, run_service_pb2_grpc
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1 import telemetry_pb2 as wire

Context = grpc.aio.ServicerContext[Any, Any]
Reply = TypeVar("Reply", wire.LaunchReply, wire.ExperimentReply)

_NO_AGENTS = "name the agents to launch on"
_ABSENT = "it is no longer connected"

# Interval of requests for a run's output: rare enough not to disturb measurements.
_POLL_SECONDS = 1.0

# Wait for an agent that has gone; the collector declares its runs lost after two minutes.
_ABSENCE_SECONDS = 150.0

_STREAMS = ("stdout", "stderr")

_NODES_OF_RUN = """
SELECT node_id FROM run_requests WHERE run_id = $run_id
UNION
SELECT node_id FROM run_states WHERE run_id = $run_id AND session_id IS NOT NULL
"""


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """A service that forwards work to agents; each agent decides whether to accept it."""

    def __init__(self, store: Store, registry: AgentRegistry, *, answer_seconds: float) -> None:
        self._store = store
        self._registry = registry
        self._answer_seconds = answer_seconds

    async def Agents(self, request: pb.AgentsRequest, context: Context) -> pb.AgentsResponse:
        """List the connected agents."""
        return pb.AgentsResponse(
            agents=[
                pb.ConnectedAgent(
                    session_uuid=agent.session_uuid,
                    node_uuid=agent.hello.node_uuid,
                    agent_version=agent.hello.agent_version,
                    allows_commands=agent.hello.allows_commands,
                )
                for agent in self._registry.streams()
            ]
        )

    async def Launch(self, request: pb.LaunchRequest, context: Context) -> pb.LaunchResponse:
        """Launch a spec on each of the agents."""
        if not request.session_uuids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _NO_AGENTS)
        if bool(request.spec.workload) == bool(request.spec.command):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name either a workload or a command to launch")
        replies = await self._ask_each(request.session_uuids, lambda agent: self._launch(agent, request.spec))
        return pb.LaunchResponse(
            agents=[
                pb.LaunchedRuns(session_uuid=session, run_ids=reply.run_ids, refusal=reply.refusal)
                for session, reply in replies.items()
            ]
        )

    async def LaunchExperiment(
        self, request: pb.LaunchExperimentRequest, context: Context
    ) -> pb.LaunchExperimentResponse:
        """Start an experiment file on each of the agents."""
        if not request.session_uuids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _NO_AGENTS)
        if request.file.ByteSize() > 2 * MAX_EXPERIMENT_BYTES:  # more than an agent's stream accepts
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the file is too large for an experiment")
        order = wire.ExperimentOrder(launch=request.file)
        return pb.LaunchExperimentResponse(agents=await self._order(request.session_uuids, order))

    async def Experiments(self, request: pb.ExperimentsRequest, context: Context) -> pb.ExperimentsResponse:
        """Return the state of an experiment on each of the agents."""
        order = wire.ExperimentOrder(look=request.name)
        return pb.ExperimentsResponse(agents=await self._order(request.session_uuids, order))

    async def CancelExperiment(
        self, request: pb.CancelExperimentRequest, context: Context
    ) -> pb.CancelExperimentResponse:
        """Stop an experiment wherever it runs or waits."""
        able = [agent.session_uuid for agent in self._registry.streams() if agent.hello.takes_experiments]
        answers = await self._order(able, wire.ExperimentOrder(cancel=request.name))
        return pb.CancelExperimentResponse(agents=sum(answer.HasField("state") for answer in answers))

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Ask the agents of a run to stop it."""
        agents = self._agents_of(request.run_id, await self._nodes_of(request.run_id, context))
        if not agents:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the agent of run {request.run_id} is not connected")
        for agent in agents:
            agent.outbox.push(wire.CollectorMessage(cancel=wire.CancelRun(run_id=request.run_id)))
        return pb.CancelResponse(agents=len(agents))

    async def Logs(self, request: pb.LogsRequest, context: Context) -> AsyncIterator[pb.LogsResponse]:
        """Send the output of a run's program; with `follow` until it ends."""
        run_id = request.run_id
        nodes = await self._nodes_of(run_id, context)
        if request.node_uuid:
            nodes = [node for node in nodes if node == key(request.node_uuid)]
        output = RunOutput(
            run_id,
            lambda: self._agents_of(run_id, nodes),
            from_start=request.from_start,
            answer_seconds=self._answer_seconds,
        )
        try:
            if request.follow:
                async for message in _follow(output):
                    yield message
                return
            while messages := await output.read():
                for message in messages:
                    yield message
            if messages is None:
                raise _AbsentError
        except NoOutputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no output of run {run_id}: {error}")
        except _AbsentError:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the agent of run {run_id} is not connected")

    async def _nodes_of(self, run_id: str, context: Context) -> Sequence[int]:
        """Return the nodes of a run, from the store or, soon after its launch, from the agents that accepted it."""

        def load() -> list[int]:
            with self._store.using("read") as connection:
                rows = connection.execute(_NODES_OF_RUN, {"run_id": run_id}).fetchall()
            return [node_id for (node_id,) in rows]

        nodes = await asyncio.to_thread(load)
        if not nodes:  # any agent can claim a run that it does not have
            nodes = [agent.node_id for agent in self._registry.streams() if run_id in agent.launched]
        if not nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no run {run_id}; `collector runs` lists them")
        return nodes

    def _agents_of(self, run_id: str, nodes: Sequence[int]) -> Sequence[AgentStream]:
        """Return the agents that may have a run: the ones that accepted it, or else all on its nodes."""
        took = [agent for agent in self._registry.on_nodes(nodes) if run_id in agent.launched]
        return took or self._registry.on_nodes(nodes)

    async def _ask_each(
        self, session_uuids: Sequence[str], ask: Callable[[AgentStream | None], Awaitable[Reply]]
    ) -> dict[str, Reply]:
        """Ask the agents of these sessions at once; return their replies in order."""
        connected = {agent.session_uuid: agent for agent in self._registry.streams()}
        sessions = list(dict.fromkeys(session_uuids))
        replies = await asyncio.gather(*(ask(connected.get(session)) for session in sessions))
        return dict(zip(sessions, replies, strict=True))

    async def _launch(self, agent: AgentStream | None, spec: run_pb2.RunSpec) -> wire.LaunchReply:
        if agent is None:
            return wire.LaunchReply(refusal=_ABSENT)
        if spec.command and not agent.hello.allows_commands:
            return wire.LaunchReply(refusal="it runs built-in workloads only, unless started with --allow-commands")
        launch_id = uuid.uuid4().hex
        question = wire.CollectorMessage(launch=wire.Launch(launch_id=launch_id, spec=spec))
        try:
            return (await agent.ask(launch_id, question, self._answer_seconds)).launch_reply
        except NoAnswerError as error:
            return wire.LaunchReply(refusal=str(error))

    async def _order(self, session_uuids: Sequence[str], order: wire.ExperimentOrder) -> list[pb.AgentExperiment]:
        """Send an order about an experiment to agents; return their answers in order."""

        async def ask(agent: AgentStream | None) -> wire.ExperimentReply:
            if agent is None:
                return wire.ExperimentReply(refusal=_ABSENT)
            if not agent.hello.takes_experiments:
                return wire.ExperimentReply(refusal="its agent only delivers, and takes no experiment files")
            question = wire.ExperimentOrder(request_id=uuid.uuid4().hex)
            question.MergeFrom(order)
            message = wire.CollectorMessage(experiment=question)
            try:
                return (await agent.ask(question.request_id, message, self._answer_seconds)).experiment_reply
            except NoAnswerError as error:
                return wire.ExperimentReply(refusal=str(error))

        return [
            pb.AgentExperiment(
                session_uuid=session, state=reply.state if reply.HasField("state") else None, refusal=reply.refusal
            )
            for session, reply in (await self._ask_each(session_uuids, ask)).items()
        ]


class NoOutputError(GpuAgentError):
    """The connected agents cannot send a run's output, or refuse to."""


@dataclass
class RunOutput:
    """One reader's position in the output of a run.

    The next piece is requested after the reader has taken the last one, so a slow reader costs neither side memory.
    """

    run_id: str
    # Returns the agents that may have the run.
    agents: Callable[[], Sequence[AgentStream]]
    # At the first byte, or shortly before the end.
    from_start: bool
    answer_seconds: float
    # Whether the run has ended and all of it was read.
    at_end: bool = False

    def __post_init__(self) -> None:
        self._offsets_bytes: dict[str, int | None] = dict.fromkeys(_STREAMS, 0 if self.from_start else None)

    async def read(self) -> Sequence[pb.LogsResponse] | None:
        """Return new output, one message a stream; None while no agent is connected that may have it.

        Raises NoOutputError: the connected agents cannot send it.
        """
        refusal = None
        for agent in self.agents():
            answers = [await self._ask(agent, stream) for stream in _STREAMS]
            outputs = [answer for answer in answers if answer is not None]
            refusal = next((output.refusal for output in outputs if output.refusal), None)
            if refusal is None and len(outputs) == len(_STREAMS):
                for stream, output in zip(_STREAMS, outputs, strict=True):
                    self._offsets_bytes[stream] = output.next_offset_bytes
                self.at_end = all(output.at_end for output in outputs)
                texts = ((stream, output.text) for stream, output in zip(_STREAMS, outputs, strict=True))
                return [pb.LogsResponse(stream=stream, text=text) for stream, text in texts if text]
        if refusal is not None:
            raise NoOutputError(refusal)
        return None

    async def _ask(self, agent: AgentStream, stream: str) -> wire.Output | None:
        request = wire.ReadOutput(
            request_id=uuid.uuid4().hex, run_id=self.run_id, stream=stream, offset_bytes=self._offsets_bytes[stream]
        )
        question = wire.CollectorMessage(read_output=request)
        try:
            return (await agent.ask(request.request_id, question, self.answer_seconds)).output
        except NoAnswerError:
            return None


class _AbsentError(Exception):
    """No agent that could have the run is connected."""


async def _follow(output: RunOutput) -> AsyncIterator[pb.LogsResponse]:
    """Yield output until the run ends, also while its agent is away."""
    seen = time.monotonic()
    is_absent = False
    while not output.at_end:
        messages = await output.read()
        if messages is None:
            if not is_absent:
                yield pb.LogsResponse(notice="the agent of this run is not connected; waiting for it")
            if time.monotonic() - seen > _ABSENCE_SECONDS:
                raise _AbsentError
        else:
            seen = time.monotonic()
            for message in messages:
                yield message
        is_absent = messages is None
        if not messages and not output.at_end:
            await asyncio.sleep(_POLL_SECONDS)
