"""A collector that listens, and an agent that is connected to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.integration.server.agents import Agent, Served, serving


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


@pytest_asyncio.fixture
async def agent(served: Served) -> Agent:
    agent = Agent(channel=served.channel)
    await agent.connect()
    return agent
