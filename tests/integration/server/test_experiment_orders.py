"""Experiment files as agents that speak by hand see them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpuagent_common.connection import MAX_EXPERIMENT_BYTES, bearer
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.run_pb2 import ExperimentFile, ExperimentState
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.server.agents import SETTINGS, TOKEN, Agent, Served, connected, serving

FILE = ExperimentFile(file_name="study.yaml", content=b"name: study")
STATE = ExperimentState(name="study", status="running", planned_runs=6)


def launch(
    served: Served, agents: Sequence[Agent], file: ExperimentFile = FILE
) -> "asyncio.Future[pb.LaunchExperimentResponse]":
    request = pb.LaunchExperimentRequest(session_uuids=[agent.session_uuid for agent in agents], file=file)
    return asyncio.ensure_future(RunServiceStub(served.channel).LaunchExperiment(request, metadata=bearer(TOKEN)))


async def reply(agent: Agent, *, refusal: str = "") -> wire.ExperimentOrder:
    order = (await agent.read()).experiment
    answer = wire.ExperimentReply(request_id=order.request_id, refusal=refusal)
    if not refusal:
        answer.state.CopyFrom(STATE)
        answer.has_begun = order.HasField("launch")
    await agent.call.write(wire.AgentMessage(experiment_reply=answer))
    return order


async def test_a_file_reaches_the_agents_that_are_named_and_each_answers_for_itself(served: Served) -> None:
    takes, refuses = Agent(channel=served.channel), Agent(channel=served.channel)
    delivering = Agent(channel=served.channel, takes_experiments=False)
    gone = Agent(channel=served.channel)
    for agent in (takes, refuses, delivering):
        await agent.connect()
    answer = launch(served, [takes, refuses, delivering, gone])
    assert (await reply(takes)).launch == FILE
    await reply(refuses, refusal="study.yaml:1:1: no")
    taken, refused, unable, away = (await answer).agents
    assert (taken.session_uuid, taken.state, taken.refusal) == (takes.session_uuid, STATE, "")
    assert (refused.HasField("state"), refused.refusal) == (False, "study.yaml:1:1: no")
    assert "takes no experiment files" in unable.refusal
    assert "no longer connected" in away.refusal


async def test_who_asks_hears_how_it_stands_and_cancelling_reaches_every_agent_that_can_have_it(served: Served) -> None:
    agent = await connected(served)
    await connected(served, takes_experiments=False)
    stub = RunServiceStub(served.channel)
    request = pb.ExperimentsRequest(session_uuids=[agent.session_uuid], name="study")
    looking = asyncio.ensure_future(stub.Experiments(request, metadata=bearer(TOKEN)))
    assert (await reply(agent)).look == "study"
    assert [each.state for each in (await looking).agents] == [STATE]
    cancelling = asyncio.ensure_future(
        stub.CancelExperiment(pb.CancelExperimentRequest(name="study"), metadata=bearer(TOKEN))
    )
    assert (await reply(agent)).cancel == "study"
    assert (await cancelling).agents == 1


async def test_what_was_begun_too_late_is_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, replace(SETTINGS, launch_answer_seconds=0.01)) as served:
        agent = await connected(served)
        (answer,) = (await launch(served, [agent])).agents
        assert "within 0.01 s" in answer.refusal
        await reply(agent)
        assert (await agent.read()).experiment.cancel == "study"


@pytest.mark.parametrize(
    ("agents", "size", "words"),
    [(0, 10, "name the agents to launch on"), (1, 2 * MAX_EXPERIMENT_BYTES, "the file is too large for an experiment")],
)
async def test_what_no_agent_could_take_is_refused(served: Served, agents: int, size: int, words: str) -> None:
    agent = Agent(channel=served.channel)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await launch(served, [agent] * agents, ExperimentFile(content=b"#" * size))
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, words)
