"""RunService as agents that speak by hand see it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.server import run_service
from gpuagent_common.connection import bearer
from gpuagent_proto.v1 import run_pb2
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.server.agents import SETTINGS, TOKEN, Agent, Served, connected, serving

MNIST = run_pb2.RunSpec(workload="mnist", repeats=2)


def launch(
    served: Served, agents: Sequence[Agent], spec: run_pb2.RunSpec = MNIST
) -> "asyncio.Future[pb.LaunchResponse]":
    request = pb.LaunchRequest(spec=spec, session_uuids=[agent.session_uuid for agent in agents])
    return asyncio.ensure_future(RunServiceStub(served.channel).Launch(request, metadata=bearer(TOKEN)))


async def accept(agent: Agent, *run_ids: str) -> run_pb2.RunSpec:
    """Take the next launch; return what was to be run."""
    asked = (await agent.read()).launch
    reply = wire.LaunchReply(launch_id=asked.launch_id, run_ids=run_ids)
    await agent.call.write(wire.AgentMessage(launch_reply=reply))
    return asked.spec


async def test_a_launch_reaches_the_agents_it_names_and_brings_back_their_runs(served: Served) -> None:
    agent = await connected(served)
    await connected(served)
    answer = launch(served, [agent])
    assert await accept(agent, "r1", "r2") == MNIST
    (runs,) = (await answer).agents
    assert (runs.session_uuid, list(runs.run_ids), runs.refusal) == (agent.session_uuid, ["r1", "r2"], "")


async def test_the_connected_agents_are_listed_with_their_own_sessions(served: Served) -> None:
    agent = await connected(served, allows_commands=True)
    answer = await RunServiceStub(served.channel).Agents(pb.AgentsRequest(), metadata=bearer(TOKEN))
    expected = pb.ConnectedAgent(
        session_uuid=agent.session_uuid, node_uuid="node-1", agent_version="0.0.1", allows_commands=True
    )
    assert list(answer.agents) == [expected]


async def test_an_agent_may_refuse_and_one_that_has_gone_is_said_to(served: Served) -> None:
    agent, gone = Agent(channel=served.channel), Agent(channel=served.channel)
    await agent.connect()
    answer = launch(served, [gone, agent, agent])
    asked = (await agent.read()).launch
    reply = wire.LaunchReply(launch_id=asked.launch_id, refusal="no such workload")
    await agent.call.write(wire.AgentMessage(launch_reply=reply))
    assert [runs.refusal for runs in (await answer).agents] == ["it is no longer connected", "no such workload"]


async def test_a_launch_on_an_agent_that_goes_away_says_so(served: Served, agent: Agent) -> None:
    answer = launch(served, [agent])
    await agent.read()
    agent.call.cancel()
    (runs,) = (await answer).agents
    assert "answered; `collector runs`" in runs.refusal


async def test_runs_of_an_agent_that_answered_too_late_are_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, replace(SETTINGS, launch_answer_seconds=0.01)) as served:
        agent = await connected(served)
        (runs,) = (await launch(served, [agent])).agents
        assert "within 0.01 s" in runs.refusal
        await accept(agent, "r1", "r2")
        assert [(await agent.read()).cancel.run_id for _ in range(2)] == ["r1", "r2"]


async def test_commands_go_only_to_agents_whose_owner_allows_them(served: Served) -> None:
    strict = Agent(channel=served.channel)
    lenient = Agent(channel=served.channel, node_uuid="node-2", allows_commands=True)
    await strict.connect()
    await lenient.connect()
    answer = launch(served, [strict, lenient], run_pb2.RunSpec(command=["true"]))
    await accept(lenient, "r")
    refused, taken = (await answer).agents
    assert "started with --allow-commands" in refused.refusal
    assert list(taken.run_ids) == ["r"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (pb.LaunchRequest(spec=MNIST), "name the agents to launch on"),
        (pb.LaunchRequest(session_uuids=["s"]), "name either a workload or a command to launch"),
    ],
)
async def test_a_launch_that_makes_no_sense_says_why(served: Served, request_: pb.LaunchRequest, words: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await RunServiceStub(served.channel).Launch(request_, metadata=bearer(TOKEN))
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, words)


async def cancel(served: Served, run_id: str) -> str:
    try:
        answer = await RunServiceStub(served.channel).Cancel(pb.CancelRequest(run_id=run_id), metadata=bearer(TOKEN))
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        return error.details() or ""
    return f"{answer.agents} told"


async def test_a_cancellation_reaches_the_agent_that_has_the_run(served: Served) -> None:
    agent, other = Agent(channel=served.channel), Agent(channel=served.channel, node_uuid="node-2")
    await other.connect()
    await agent.connect()
    await agent.send(1, encode_records({"run_requests": [{"run_id": "r"}]}))
    await agent.acknowledged(1)
    assert "nobody's; `collector runs`" in await cancel(served, "nobody's")
    assert await cancel(served, "r") == "1 told"
    assert (await agent.read()).cancel.run_id == "r"
    agent.call.cancel()
    while (answer := await cancel(served, "r")) == "1 told":
        pass
    assert "run r is not" in answer


async def test_a_launched_run_can_be_cancelled_before_the_store_has_it(served: Served, agent: Agent) -> None:
    answer = launch(served, [agent])
    await accept(agent, "r")
    await answer
    assert await cancel(served, "r") == "1 told"
    assert (await agent.read()).cancel.run_id == "r"


async def test_an_agent_that_claims_another_node_s_run_gets_nothing_of_it(served: Served, agent: Agent) -> None:
    owner = await connected(served, node_uuid="node-2")
    await owner.send(1, encode_records({"run_requests": [{"run_id": "r"}]}))
    await owner.acknowledged(1)
    answer = launch(served, [agent])
    await accept(agent, "r")
    await answer
    assert await cancel(served, "r") == "1 told"
    assert (await owner.read()).cancel.run_id == "r"


LogsCall = grpc.aio.UnaryStreamCall[pb.LogsRequest, pb.LogsResponse]


async def has_run(agent: Agent, number: int = 1) -> None:
    await agent.connect()
    await agent.send(number, encode_records({"run_requests": [{"run_id": "r"}]}))
    await agent.acknowledged(number)


def logs(served: Served, *, follow: bool = False, from_start: bool = False) -> LogsCall:
    request = pb.LogsRequest(run_id="r", follow=follow, from_start=from_start)
    return RunServiceStub(served.channel).Logs(request, metadata=bearer(TOKEN))


async def write(agent: Agent, stream: str, text: str, *, at_end: bool = False) -> int | None:
    """Answer the next question for output, which is about `stream`; return the offset that it asked for."""
    asked = (await agent.read()).read_output
    assert (asked.run_id, asked.stream) == ("r", stream)
    offset = asked.offset_bytes if asked.HasField("offset_bytes") else None
    output = wire.Output(
        request_id=asked.request_id, text=text, next_offset_bytes=(offset or 0) + len(text), at_end=at_end
    )
    await agent.call.write(wire.AgentMessage(output=output))
    return offset


async def heard(call: LogsCall) -> tuple[str, str, str]:
    message = await call.read()
    assert isinstance(message, pb.LogsResponse), await call.details()
    return message.stream, message.text, message.notice


async def test_output_is_asked_for_by_pieces_as_it_is_taken(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_service, "_POLL_SECONDS", 0.0)
    agent = Agent(channel=served.channel)
    await has_run(agent)
    call = logs(served, follow=True, from_start=True)
    assert (await write(agent, "stdout", "one\n"), await write(agent, "stderr", "")) == (0, 0)
    assert await heard(call) == ("stdout", "one\n", "")
    assert (await write(agent, "stdout", "two\n", at_end=True), await write(agent, "stderr", "!")) == (4, 0)
    assert await heard(call) == ("stdout", "two\n", "")
    assert await heard(call) == ("stderr", "!", "")
    await write(agent, "stdout", "", at_end=True)
    await write(agent, "stderr", "", at_end=True)
    assert await call.read() is grpc.aio.EOF


async def test_who_follows_hears_that_the_agent_went_and_goes_on_where_it_was(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_service, "_POLL_SECONDS", 0.001)
    agent = Agent(channel=served.channel)
    await has_run(agent)
    call = logs(served, follow=True)
    assert await write(agent, "stdout", "one\n") is None
    await write(agent, "stderr", "")
    assert await heard(call) == ("stdout", "one\n", "")
    agent.call.cancel()
    assert await heard(call) == ("", "", "the agent of this run is not connected; waiting for it")
    await agent.connect()
    assert await write(agent, "stdout", "two\n", at_end=True) == 4
    await write(agent, "stderr", "", at_end=True)
    assert await heard(call) == ("stdout", "two\n", "")
    assert await call.read() is grpc.aio.EOF


async def refusal(call: LogsCall) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    return error.value.code(), error.value.details() or ""


async def test_output_that_is_not_to_be_had_has_a_reason(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_service, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(run_service, "_ABSENCE_SECONDS", 0.0)
    missing = grpc.StatusCode.NOT_FOUND
    assert await refusal(logs(served)) == (missing, "there is no run r; `collector runs` lists them")
    agent = Agent(channel=served.channel)
    await has_run(agent)
    refused = asyncio.ensure_future(refusal(logs(served)))
    for _stream in ("stdout", "stderr"):
        asked = (await agent.read()).read_output
        output = wire.Output(request_id=asked.request_id, refusal="this node keeps no output of it")
        await agent.call.write(wire.AgentMessage(output=output))
    assert await refused == (grpc.StatusCode.FAILED_PRECONDITION, "no output of run r: this node keeps no output of it")
    agent.call.cancel()
    while (gone := await refusal(logs(served)))[0] != missing:
        pass
    assert gone == (missing, "the agent of run r is not connected")
    call = logs(served, follow=True)
    assert (await heard(call))[2]
    assert await refusal(call) == (missing, "the agent of run r is not connected")
