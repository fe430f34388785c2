"""A collector in this process with tokens in a real file, for who tries what they allow."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.trust.tokens import Scope, TokenFile
from tests.integration.server.agents import SETTINGS, Agent, Served, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    served: Served
    tokens: TokenFile

    def agent(self, token: str, **about: Any) -> Agent:
        return Agent(channel=self.served.channel, token=token, **about)

    def bound(self, name: str, node_uuid: str) -> Agent:
        return self.agent(self.tokens.create(Scope.AGENT, name), node_uuid=node_uuid)


@asynccontextmanager
async def guarded(folder: Path, *, revoked_seconds: float = 3600.0) -> AsyncIterator[Guarded]:
    tokens = TokenFile(folder / "tokens.json")
    async with serving(folder, replace(SETTINGS, tokens=tokens, revoked_seconds=revoked_seconds)) as served:
        yield Guarded(served=served, tokens=tokens)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as site:
        yield site
