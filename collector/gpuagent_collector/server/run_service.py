"""Launching, cancelling and reading along on connected agents."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence

import grpc

from gpuagent_collector.server.agents import AgentRegistry, AgentStream
from gpuagent_collector.server.experiments import Experiments
from gpuagent_collector.server.nodes import nodes_of_run
from gpuagent_collector.server.run_output import NoOutputError, RunOutput
from gpuagent_collector.store import Store
from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.keys import key
from gpuagent_proto.v1 import run_pb2, run_service_pb2_grpc
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1 import telemetry_pb2 as wire

AgentsContext = grpc.aio.ServicerContext[pb.AgentsRequest, pb.AgentsResponse]
LaunchContext = grpc.aio.ServicerContext[pb.LaunchRequest, pb.LaunchResponse]
CancelContext = grpc.aio.ServicerContext[pb.CancelRequest, pb.CancelResponse]
LogsContext = grpc.aio.ServicerContext[pb.LogsRequest, pb.LogsResponse]

LaunchExperimentContext = grpc.aio.ServicerContext[pb.LaunchExperimentRequest, pb.LaunchExperimentResponse]
ExperimentsContext = grpc.aio.ServicerContext[pb.ExperimentsRequest, pb.ExperimentsResponse]
CancelExperimentContext = grpc.aio.ServicerContext[pb.CancelExperimentRequest, pb.CancelExperimentResponse]

_NO_AGENTS = "name the agents to launch on"

# How often an agent is asked for more of a run's output: seldom enough beside what is measured.
_POLL_SECONDS = 1.0

# How long an agent that has gone is waited for; the collector calls its runs lost after two minutes.
_ABSENCE_SECONDS = 150.0


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Passes work on to agents; each decides itself whether it takes it."""

    def __init__(self, store: Store, registry: AgentRegistry, *, answer_seconds: float) -> None:
        self._store = store
        self._registry = registry
        self._answer_seconds = answer_seconds
        self._experiments = Experiments(registry, answer_seconds=answer_seconds)

    async def Agents(  # noqa: N802 - gRPC's name
        self,
        request: pb.AgentsRequest,  # noqa: ARG002
        context: AgentsContext,  # noqa: ARG002
    ) -> pb.AgentsResponse:
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

    async def Launch(  # noqa: N802 - gRPC's name
        self, request: pb.LaunchRequest, context: LaunchContext
    ) -> pb.LaunchResponse:
        """Have each of the agents run it."""
        mistake = _mistake(request)
        if mistake:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, mistake)
        connected = {agent.session_uuid: agent for agent in self._registry.streams()}
        sessions = list(dict.fromkeys(request.session_uuids))
        replies = await asyncio.gather(*(self._ask(connected.get(session), request.spec) for session in sessions))
        return pb.LaunchResponse(
            agents=[
                pb.LaunchedRuns(session_uuid=session, run_ids=reply.run_ids, refusal=reply.refusal)
                for session, reply in zip(sessions, replies, strict=True)
            ]
        )

    async def LaunchExperiment(  # noqa: N802 - gRPC's name
        self, request: pb.LaunchExperimentRequest, context: LaunchExperimentContext
    ) -> pb.LaunchExperimentResponse:
        """Have each of the agents carry out a file."""
        if not request.session_uuids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _NO_AGENTS)
        if request.file.ByteSize() > 2 * MAX_EXPERIMENT_BYTES:  # more than an agent's stream would survive
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the file is too large for an experiment")
        return pb.LaunchExperimentResponse(agents=await self._experiments.launch(request.session_uuids, request.file))

    async def Experiments(  # noqa: N802 - gRPC's name
        self,
        request: pb.ExperimentsRequest,
        context: ExperimentsContext,  # noqa: ARG002
    ) -> pb.ExperimentsResponse:
        """Tell how an experiment stands on each of the agents."""
        return pb.ExperimentsResponse(agents=await self._experiments.look(request.session_uuids, request.name))

    async def CancelExperiment(  # noqa: N802 - gRPC's name
        self,
        request: pb.CancelExperimentRequest,
        context: CancelExperimentContext,  # noqa: ARG002
    ) -> pb.CancelExperimentResponse:
        """Stop an experiment wherever it runs or waits."""
        return pb.CancelExperimentResponse(agents=await self._experiments.cancel(request.name))

    async def Cancel(  # noqa: N802 - gRPC's name
        self, request: pb.CancelRequest, context: CancelContext
    ) -> pb.CancelResponse:
        """Tell the agents of a run to stop it."""
        agents = self._agents_of(request.run_id, await self._nodes_of(request.run_id, context))
        if not agents:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the agent of run {request.run_id} is not connected")
        for agent in agents:
            agent.outbox.push(wire.CollectorMessage(cancel=wire.CancelRun(run_id=request.run_id)))
        return pb.CancelResponse(agents=len(agents))

    async def Logs(  # noqa: N802 - gRPC's name
        self, request: pb.LogsRequest, context: LogsContext
    ) -> AsyncIterator[pb.LogsResponse]:
        """Send what a run's program wrote, and with `follow` what it writes until it ends."""
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
            async for message in _followed(output) if request.follow else _at_once(output):
                yield message
        except NoOutputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no output of run {run_id}: {error}")
        except _AbsentError:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the agent of run {run_id} is not connected")

    async def _nodes_of(self, run_id: str, context: CancelContext | LogsContext) -> Sequence[int]:
        """Return the nodes of a run, from the store or, so soon after its launch, from those who took it."""
        nodes = await asyncio.to_thread(nodes_of_run, self._store, run_id)
        nodes += [agent.node_id for agent in self._registry.streams() if run_id in agent.launched]
        if not nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no run {run_id}")
        return nodes

    def _agents_of(self, run_id: str, nodes: Sequence[int]) -> Sequence[AgentStream]:
        """Return the agents that may have a run: the one that took it, or else all on its nodes."""
        took = [agent for agent in self._registry.on_nodes(nodes) if run_id in agent.launched]
        return took or self._registry.on_nodes(nodes)

    async def _ask(self, agent: AgentStream | None, spec: run_pb2.RunSpec) -> wire.LaunchReply:
        if agent is None:
            return wire.LaunchReply(refusal="it is not connected any more")
        if spec.command and not agent.hello.allows_commands:
            return wire.LaunchReply(refusal="its owner lets it run built-in workloads only (--allow-commands)")
        launch_id = uuid.uuid4().hex
        question = wire.CollectorMessage(launch=wire.Launch(launch_id=launch_id, spec=spec))
        try:
            answer = await agent.ask(launch_id, question, self._answer_seconds)
        except asyncio.TimeoutError:
            return wire.LaunchReply(refusal=f"it did not answer within {self._answer_seconds:g} s; nothing is run")
        if answer is None:
            return wire.LaunchReply(refusal="it went away before it answered; `collector runs` shows what it has begun")
        return answer.launch_reply


class _AbsentError(Exception):
    """No agent is connected that could have the run."""


async def _at_once(output: RunOutput) -> AsyncIterator[pb.LogsResponse]:
    """Yield what has been written so far."""
    while messages := await output.read():
        for message in messages:
            yield message
    if messages is None:
        raise _AbsentError


async def _followed(output: RunOutput) -> AsyncIterator[pb.LogsResponse]:
    """Yield what is written until the run ends, also when its agent goes away for a while."""
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


def _mistake(request: pb.LaunchRequest) -> str | None:
    if not request.session_uuids:
        return _NO_AGENTS
    if bool(request.spec.workload) == bool(request.spec.command):
        return "name either a workload or a command to launch"
    return None
