"""Launching and cancelling on connected agents."""

import asyncio
import uuid
from collections.abc import Sequence

import grpc

from gpuagent_collector.server.agents import AgentRegistry, AgentStream
from gpuagent_collector.server.nodes import find_nodes, nodes_of_run
from gpuagent_collector.store import Store
from gpuagent_proto.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc
from gpuagent_proto.v1 import telemetry_pb2 as wire

LaunchContext = grpc.aio.ServicerContext[run_service_pb2.LaunchRequest, run_service_pb2.LaunchResponse]
CancelContext = grpc.aio.ServicerContext[run_service_pb2.CancelRequest, run_service_pb2.CancelResponse]


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Passes work on to agents; each decides itself whether it takes it."""

    def __init__(self, store: Store, registry: AgentRegistry, *, answer_seconds: float) -> None:
        self._store = store
        self._registry = registry
        self._answer_seconds = answer_seconds

    async def Launch(  # noqa: N802 - gRPC's name
        self, request: run_service_pb2.LaunchRequest, context: LaunchContext
    ) -> run_service_pb2.LaunchResponse:
        """Launch on every connected agent that fits."""
        mistake = _mistake(request)
        if mistake:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, mistake)
        nodes = await asyncio.to_thread(find_nodes, self._store, node=request.node, platform=request.platform)
        agents = self._registry.on_nodes(nodes)
        if not agents:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no connected agent of {_target(request)}")
        launched = await asyncio.gather(*(self._launch(agent, request.spec) for agent in agents))
        return run_service_pb2.LaunchResponse(nodes=launched)

    async def Cancel(  # noqa: N802 - gRPC's name
        self, request: run_service_pb2.CancelRequest, context: CancelContext
    ) -> run_service_pb2.CancelResponse:
        """Tell the agents of a run to stop it."""
        nodes = await asyncio.to_thread(nodes_of_run, self._store, request.run_id)
        if not nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no run {request.run_id}")
        agents = self._registry.on_nodes(nodes)
        if not agents:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the agent of run {request.run_id} is not connected")
        for agent in agents:
            agent.outbox.push(wire.CollectorMessage(cancel=wire.CancelRun(run_id=request.run_id)))
        return run_service_pb2.CancelResponse(agents=len(agents))

    async def _launch(self, agent: AgentStream, spec: run_pb2.RunSpec) -> run_service_pb2.LaunchedNode:
        reply = await self._ask(agent, spec)
        return run_service_pb2.LaunchedNode(
            node_uuid=agent.hello.node_uuid, run_ids=reply.run_ids, refusal=reply.refusal
        )

    async def _ask(self, agent: AgentStream, spec: run_pb2.RunSpec) -> wire.LaunchReply:
        if spec.command and not agent.hello.allows_commands:
            return wire.LaunchReply(refusal="its owner lets it run built-in workloads only (--allow-commands)")
        launch_id = uuid.uuid4().hex
        answer = agent.launches[launch_id] = asyncio.get_running_loop().create_future()
        agent.outbox.push(wire.CollectorMessage(launch=wire.Launch(launch_id=launch_id, spec=spec)))
        try:
            return await asyncio.wait_for(answer, self._answer_seconds)
        except asyncio.TimeoutError:
            return wire.LaunchReply(refusal=f"the agent did not answer within {self._answer_seconds:g} s")
        finally:
            del agent.launches[launch_id]


def _mistake(request: run_service_pb2.LaunchRequest) -> str | None:
    if not request.node and not request.platform:
        return "name a node or a platform to launch on"
    if bool(request.spec.workload) == bool(request.spec.command):
        return "name either a workload or a command to launch"
    return None


def _target(request: run_service_pb2.LaunchRequest) -> str:
    parts: Sequence[str] = [
        f"{what} {name}" for what, name in (("node", request.node), ("platform", request.platform)) if name
    ]
    return " and ".join(parts)
