"""What a run's program wrote, read through its agent."""

import asyncio
import uuid
from collections.abc import Callable, Sequence

from gpuagent_collector.server.agents import AgentStream
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.run_service_pb2 import LogsResponse

STREAMS = ("stdout", "stderr")


class NoOutputError(GpuAgentError):
    """The agents that could have a run's output cannot send it, or will not."""


class RunOutput:
    """One reader's place in the output of a run.

    A piece is asked for when the one before has been taken: a slow reader costs neither side memory.
    """

    def __init__(
        self, run_id: str, agents: Callable[[], Sequence[AgentStream]], *, from_start: bool, answer_seconds: float
    ) -> None:
        """Begin with the first byte, or shortly before the end; `agents` returns those that may have the run."""
        self._run_id = run_id
        self._agents = agents
        self._answer_seconds = answer_seconds
        self._offsets_bytes: dict[str, int | None] = dict.fromkeys(STREAMS, 0 if from_start else None)
        # Whether the run has ended and all has been read.
        self.at_end = False

    async def read(self) -> Sequence[LogsResponse] | None:
        """Return what is new, one message a stream; None while no agent is connected that may have it.

        Raises:
            NoOutputError: the agents that are connected cannot send it.
        """
        refusal = None
        for agent in self._agents():
            answers = [await self._ask(agent, stream) for stream in STREAMS]
            outputs = [answer for answer in answers if answer is not None]
            refusal = next((output.refusal for output in outputs if output.refusal), None)
            if refusal is None and len(outputs) == len(STREAMS):
                return self._take(outputs)
        if refusal is not None:
            raise NoOutputError(refusal)
        return None

    def _take(self, outputs: Sequence[wire.Output]) -> Sequence[LogsResponse]:
        for stream, output in zip(STREAMS, outputs, strict=True):
            self._offsets_bytes[stream] = output.next_offset_bytes
        self.at_end = all(output.at_end for output in outputs)
        texts = [(stream, output.text) for stream, output in zip(STREAMS, outputs, strict=True)]
        return [LogsResponse(stream=stream, text=text) for stream, text in texts if text]

    async def _ask(self, agent: AgentStream, stream: str) -> wire.Output | None:
        if not agent.hello.sends_output:
            version = agent.hello.agent_version
            return wire.Output(
                refusal=f"its agent (gpuagent {version}) is too old to send output; upgrade it. When the run has "
                "ended, the end of its output is in the store"
            )
        request = wire.ReadOutput(
            request_id=uuid.uuid4().hex,
            run_id=self._run_id,
            stream=stream,
            offset_bytes=self._offsets_bytes[stream],
        )
        question = wire.CollectorMessage(read_output=request)
        try:
            answer = await agent.ask(request.request_id, question, self._answer_seconds)
        except asyncio.TimeoutError:
            return None
        return None if answer is None else answer.output
