"""Experiment files on connected agents."""

import asyncio
import uuid
from collections.abc import Sequence

from gpuagent_collector.server.agents import AgentRegistry, AgentStream, NoAnswerError
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.run_pb2 import ExperimentFile


class Experiments:
    """Requests to agents about experiment files; each agent decides on its own."""

    def __init__(self, registry: AgentRegistry, *, answer_seconds: float) -> None:
        self._registry = registry
        self._answer_seconds = answer_seconds

    async def launch(self, session_uuids: Sequence[str], file: ExperimentFile) -> list[pb.AgentExperiment]:
        """Start a file on agents; return their answers in order."""
        return await self._ask_each(session_uuids, wire.ExperimentOrder(launch=file))

    async def look(self, session_uuids: Sequence[str], name: str) -> list[pb.AgentExperiment]:
        """Return the state of the experiment of this name on each of the agents."""
        return await self._ask_each(session_uuids, wire.ExperimentOrder(look=name))

    async def cancel(self, name: str) -> int:
        """Stop an experiment wherever it runs or waits; return the number of agents that had it."""
        able = [agent.session_uuid for agent in self._registry.streams() if agent.hello.takes_experiments]
        answers = await self._ask_each(able, wire.ExperimentOrder(cancel=name))
        return sum(answer.HasField("state") for answer in answers)

    async def _ask_each(self, session_uuids: Sequence[str], order: wire.ExperimentOrder) -> list[pb.AgentExperiment]:
        connected = {agent.session_uuid: agent for agent in self._registry.streams()}
        sessions = list(dict.fromkeys(session_uuids))
        replies = await asyncio.gather(*(self._ask(connected.get(session), order) for session in sessions))
        return [
            pb.AgentExperiment(
                session_uuid=session,
                state=reply.state if reply.HasField("state") else None,
                refusal=reply.refusal,
            )
            for session, reply in zip(sessions, replies, strict=True)
        ]

    async def _ask(self, agent: AgentStream | None, order: wire.ExperimentOrder) -> wire.ExperimentReply:
        if agent is None:
            return wire.ExperimentReply(refusal="it is no longer connected")
        if not agent.hello.takes_experiments:
            version = agent.hello.agent_version
            return wire.ExperimentReply(
                refusal=f"its agent (gpuagent {version}) is too old to take experiment files; upgrade it, or there: "
                "gpuagent experiment run"
            )
        question = wire.ExperimentOrder(request_id=uuid.uuid4().hex)
        question.MergeFrom(order)
        try:
            message = wire.CollectorMessage(experiment=question)
            return (await agent.ask(question.request_id, message, self._answer_seconds)).experiment_reply
        except NoAnswerError as error:
            return wire.ExperimentReply(refusal=str(error))


def take_reply(stream: AgentStream, message: wire.AgentMessage) -> None:
    """Deliver an agent's answer; cancel an experiment that it started after the question had timed out."""
    reply = message.experiment_reply
    if not stream.answer(reply.request_id, message) and reply.has_begun:
        order = wire.ExperimentOrder(request_id=uuid.uuid4().hex, cancel=reply.state.name)
        stream.outbox.push(wire.CollectorMessage(experiment=order))
