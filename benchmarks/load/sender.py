"""A process of many agents."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random

from benchmarks.load.agents import NodeAccess, SimulatedAgent, Tally
from benchmarks.load.messages import DrawnValues
from benchmarks.load.plan import SimulatedNode

_LOOK_SECONDS = 0.1

# The fates of the agents, by their node's index.
Report = Mapping[int, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The agents of a process."""

    nodes: Sequence[SimulatedNode]
    # By the node's index.
    accesses: Mapping[int, NodeAccess]
    seed: int
    # Between two messages of an agent.
    flush_seconds: float


class Sender:
    """The parent's end of a process of agents."""

    def __init__(self, task: Task) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(task, theirs), daemon=True)
        self.process.start()
        theirs.close()
        # True while the process is stopped and cannot answer.
        self.suspended = False

    def disconnected(self) -> int:
        """Return the number of disconnected agents."""
        return self._ask("disconnected")

    def waiting(self) -> int:
        """Return the number of unacknowledged messages."""
        return self._ask("waiting")

    def begin(self) -> None:
        """Start the sampling of the agents."""
        self._ask("begin")

    def end(self) -> None:
        """Stop the sampling."""
        self._ask("end")

    def report(self) -> Report:
        """Return the fates of all agents, and end the process."""
        self._pipe.send("report")
        report: Report = self._pipe.recv()
        self.process.join()
        return report

    def suspend(self, suspended: bool) -> None:
        """Stop or continue the process."""
        if suspended != self.suspended and self.process.pid is not None:
            self.suspended = suspended
            os.kill(self.process.pid, signal.SIGSTOP if suspended else signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()

    def _ask(self, question: str) -> int:
        self._pipe.send(question)
        answer: int = self._pipe.recv()
        return answer


def _main(task: Task, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us ends us
    logging.disable(logging.WARNING)  # a thousand agents say that the collector has gone
    with suppress(EOFError):
        asyncio.run(_Senders(task, pipe).run())


class _Senders:
    """The agents and their answers to the parent."""

    def __init__(self, task: Task, pipe: Connection) -> None:
        self._pipe = pipe
        self._random = Random(task.seed)
        self._flush_seconds = task.flush_seconds
        self._ends = asyncio.Event()
        drawn = DrawnValues(task.seed)
        self._agents = [
            SimulatedAgent(node, task.accesses[node.index], drawn, flush_seconds=task.flush_seconds)
            for node in task.nodes
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Answer until a report is asked for."""
        self._tasks += [asyncio.create_task(agent.deliver()) for agent in self._agents]
        while (question := await self._question()) != "report":
            self._pipe.send(self._answer(question))
        self._pipe.send({agent.node.index: agent.tally for agent in self._agents})
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _question(self) -> str:
        while not self._pipe.poll():
            self._raise_failures()
            await asyncio.sleep(_LOOK_SECONDS)
        question: str = self._pipe.recv()
        return question

    def _answer(self, question: str) -> int:
        if question == "begin":
            self._begin()
        elif question == "end":
            self._ends.set()
        elif question == "disconnected":
            return sum(not agent.connected for agent in self._agents)
        return sum(agent.waiting for agent in self._agents)

    def _begin(self) -> None:
        """Let agents flush at moments of their own, as those do that were started at different times."""
        for agent in self._agents:
            begins_seconds = time.monotonic() + self._random.uniform(0.0, self._flush_seconds)
            self._tasks.append(asyncio.create_task(agent.sample(begins_seconds, self._ends)))

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
