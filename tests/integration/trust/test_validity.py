import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gpuagent_collector.server.auth import Validity
from gpuagent_collector.trust.caller import Caller
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.tokens import TokenFile


def _holders(tokens: TokenFile, *names: str) -> list[Caller]:
    found = [tokens.find(tokens.create(Scope.AGENT, name)) for name in names]
    return [Caller(name=token.name, scope=token.scope, token=token, file=tokens) for token in found if token]


async def test_the_file_is_looked_at_once_for_all_that_comes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    holders, validity, looks = _holders(tokens, "a", "b", "c"), Validity(), 0
    look = TokenFile.snapshot

    def counting(self: TokenFile) -> object:
        nonlocal looks
        looks += 1
        return look(self)

    monkeypatch.setattr(TokenFile, "snapshot", counting)
    assert all(validity.is_valid(holder) for holder in holders)
    assert looks == 1
    TokenFile(tokens.path).revoke("b")
    await asyncio.sleep(0)
    assert [validity.is_valid(holder) for holder in holders] == [True, False, True]
    assert looks == 2


async def test_the_owner_is_always_valid_and_nobody_else_is_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    (holder,), validity = _holders(tokens, "a"), Validity()
    tokens.path.write_text("nonsense")
    assert not validity.is_valid(holder)
    assert validity.is_valid(replace(holder, token=None, file=None))
