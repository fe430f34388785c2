"""What waits to be said to one agent."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from gpuagent_proto.v1 import telemetry_pb2 as wire

# With so many messages waiting, no more is read from an agent that does not listen.
_LIMIT = 1000


class Outbox:
    """Messages to an agent, in order; acknowledgements that pile up become one. It belongs to one event loop."""

    def __init__(self) -> None:
        self._messages: deque[wire.CollectorMessage] = deque()
        self._acks: dict[int, int] = {}
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def push(self, message: wire.CollectorMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        if len(self._messages) >= _LIMIT:
            self._room.clear()
        self._changed.set()

    def acknowledge(self, session_id: int, number: int) -> None:
        """Say that everything of the session up to `number` is done with."""
        self._acks[session_id] = max(number, self._acks.get(session_id, 0))
        self._changed.set()

    def close(self) -> None:
        """End the iteration, after what waits has been said."""
        self._closed = True
        self._changed.set()

    async def room(self) -> None:
        """Wait until the agent has taken enough of what waits."""
        await self._room.wait()

    async def __aiter__(self) -> AsyncIterator[wire.CollectorMessage]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._messages:
                yield self._messages.popleft()
            self._room.set()
            if self._acks:
                yield self._take_acks()
            if self._closed and not (self._messages or self._acks):
                return

    def _take_acks(self) -> wire.CollectorMessage:
        marks = [wire.Mark(session_id=session_id, number=number) for session_id, number in self._acks.items()]
        self._acks.clear()
        return wire.CollectorMessage(ack=wire.Ack(marks=marks))
