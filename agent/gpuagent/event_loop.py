"""An asyncio event loop among threads.

Calls to other processes wait here: gRPC's blocking interface polls its queues every 0.1 or 0.2 s, with a thread for
each, and the asyncio one sleeps until a message arrives.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)

# Limit of the wait for cancelled coroutines; later ones are abandoned.
_STOP_SECONDS = 30.0

Result = TypeVar("Result")


class EventLoop:
    """A loop that runs coroutines of other threads, in one thread of its own, until it is closed."""

    def __init__(self, name: str) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._live(started),), name=name, daemon=True)
        self._thread.start()
        self._loop = started.result()

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start `coroutine`; return the future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel running coroutines and end the thread."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            _LOG.error("the %s did not stop within %.0f s", self._thread.name, _STOP_SECONDS)

    async def _live(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        started.set_result(asyncio.get_running_loop())
        await self._closed.wait()
