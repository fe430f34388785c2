import asyncio
import threading

import pytest

from gpuagent.event_loop import EventLoop


async def whoami() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise ValueError("no")


def test_results_and_errors_reach_the_thread_that_started_the_coroutine() -> None:
    loop = EventLoop("elsewhere")
    assert loop.start(whoami()).result() == "elsewhere"
    with pytest.raises(ValueError, match="no"):
        loop.start(fail()).result()
    loop.close()


def test_closing_cancels_running_coroutines_and_lets_them_clean_up() -> None:
    loop = EventLoop("elsewhere")
    runs, cleaned_up = threading.Event(), threading.Event()

    async def wait() -> None:
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()

    waiting = loop.start(wait())
    runs.wait()
    loop.close()
    assert cleaned_up.is_set()
    assert waiting.cancelled()
