import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpuagent.rows import encode_records
from gpuagent_proto.connection import bearer
from gpuagent_proto.v1 import run_pb2
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.run_service_pb2 import CancelRequest, LaunchRequest
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.server.agents import SETTINGS, TOKEN, Agent, Served, serving

MNIST = run_pb2.RunSpec(workload="mnist", repeats=2)


async def refusal(served: Served, request: LaunchRequest) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN))
    return error.value.code(), error.value.details() or ""


@pytest.mark.parametrize(
    "target",
    [{"platform": "satori"}, {"node": "gpu-7"}, {"node": "node-1"}, {"node": "gpu-7", "platform": "satori"}],
)
def test_a_launch_reaches_the_agents_it_names_and_brings_back_their_runs(
    tmp_path: Path, target: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            agent, other = Agent(channel=served.channel), Agent(channel=served.channel, node_uuid="node-2")
            await agent.join_platform("satori", "gpu-7")
            await other.join_platform("openshift", "gpu-8")
            request = LaunchRequest(spec=MNIST, **target)
            answer = asyncio.ensure_future(RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN)))
            launch = (await agent.read()).launch
            assert launch.spec == MNIST
            reply = wire.LaunchReply(launch_id=launch.launch_id, run_ids=["r1", "r2"])
            await agent.call.write(wire.AgentMessage(launch_reply=reply))
            (node,) = (await answer).nodes
            assert (node.node_uuid, list(node.run_ids), node.refusal) == ("node-1", ["r1", "r2"], "")

    asyncio.run(scenario())


def test_an_agent_may_refuse_a_launch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            agent = Agent(channel=served.channel)
            await agent.join_platform("satori")
            request = LaunchRequest(spec=MNIST, platform="satori")
            answer = asyncio.ensure_future(RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN)))
            launch = (await agent.read()).launch
            reply = wire.LaunchReply(launch_id=launch.launch_id, refusal="no such workload")
            await agent.call.write(wire.AgentMessage(launch_reply=reply))
            assert (await answer).nodes[0].refusal == "no such workload"

    asyncio.run(scenario())


def test_a_launch_on_an_agent_that_goes_away_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            agent = Agent(channel=served.channel)
            await agent.join_platform("satori")
            request = LaunchRequest(spec=MNIST, platform="satori")
            answer = asyncio.ensure_future(RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN)))
            await agent.read()
            agent.call.cancel()
            assert (await answer).nodes[0].refusal == "the agent has disconnected"

    asyncio.run(scenario())


def test_a_launch_on_an_agent_that_does_not_answer_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, replace(SETTINGS, launch_answer_seconds=0.01)) as served:
            agent = Agent(channel=served.channel)
            await agent.join_platform("satori")
            request = LaunchRequest(spec=MNIST, platform="satori")
            answer = await RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN))
            assert answer.nodes[0].refusal == "the agent did not answer within 0.01 s"

    asyncio.run(scenario())


def test_commands_go_only_to_agents_whose_owner_allows_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            strict = Agent(channel=served.channel)
            lenient = Agent(channel=served.channel, node_uuid="node-2", allows_commands=True)
            await strict.join_platform("satori")
            await lenient.join_platform("satori")
            request = LaunchRequest(spec=run_pb2.RunSpec(command=["true"]), platform="satori")
            answer = asyncio.ensure_future(RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN)))
            launch = (await lenient.read()).launch
            reply = wire.LaunchReply(launch_id=launch.launch_id, run_ids=["r"])
            await lenient.call.write(wire.AgentMessage(launch_reply=reply))
            refusals = {node.node_uuid: node.refusal for node in (await answer).nodes}
            assert refusals == {
                "node-1": "its owner lets it run built-in workloads only (--allow-commands)",
                "node-2": "",
            }

    asyncio.run(scenario())


def test_a_launch_that_makes_no_sense_or_reaches_nobody_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
            assert await refusal(served, LaunchRequest(spec=MNIST)) == (
                invalid,
                "name a node or a platform to launch on",
            )
            assert await refusal(served, LaunchRequest(node="n")) == (
                invalid,
                "name either a workload or a command to launch",
            )
            assert await refusal(served, LaunchRequest(spec=MNIST, node="n", platform="p")) == (
                missing,
                "no connected agent of node n and platform p",
            )

    asyncio.run(scenario())


async def cancel(served: Served, run_id: str) -> str:
    try:
        answer = await RunServiceStub(served.channel).Cancel(CancelRequest(run_id=run_id), metadata=bearer(TOKEN))
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        return error.details() or ""
    return f"{answer.agents} told"


def test_a_cancellation_reaches_the_agent_that_has_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            agent, other = Agent(channel=served.channel), Agent(channel=served.channel, node_uuid="node-2")
            await other.connect()
            await agent.connect()
            await agent.send(1, encode_records({"run_requests": [{"run_id": "r"}]}))
            await agent.acknowledged(1)
            assert await cancel(served, "nobody's") == "there is no run nobody's"
            assert await cancel(served, "r") == "1 told"
            assert (await agent.read()).cancel.run_id == "r"
            agent.call.cancel()
            while (answer := await cancel(served, "r")) == "1 told":
                pass
            assert answer == "the agent of run r is not connected"

    asyncio.run(scenario())
