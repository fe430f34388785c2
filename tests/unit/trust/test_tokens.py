import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.cli import cli
from gpuagent_collector.trust.tokens import Scope, TokenFile
from gpuagent_common.errors import GpuAgentError, MisuseError

START = datetime(2026, 1, 1)  # noqa: DTZ001 - times of the collector are UTC without a zone


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile.beside(tmp_path / "token")


def test_of_a_token_only_its_hash_is_kept(tokens: TokenFile) -> None:
    secret = tokens.create(Scope.VIEWER, "board")
    assert secret.startswith("gpuagent_viewer_")
    assert len(secret) >= len("gpuagent_viewer_") + 43
    assert secret.encode() not in tokens.path.read_bytes()
    found = tokens.find(secret)
    assert found
    assert (found.name, found.scope) == ("board", Scope.VIEWER)
    assert tokens.find(secret + "x") is None


def test_the_file_lies_beside_the_owners_and_only_its_owner_can_read_it(tokens: TokenFile, tmp_path: Path) -> None:
    tokens.create(Scope.VIEWER, "board")
    assert tokens.path == tmp_path / "tokens.json"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}, "the lock as well"
    tokens.path.chmod(0o640)
    with pytest.raises(GpuAgentError, match="chmod 600"):
        tokens.all()


def test_a_running_collector_sees_what_another_process_makes_and_revokes(tokens: TokenFile) -> None:
    command = TokenFile(tokens.path)
    secret = command.create(Scope.OPERATOR, "ci")
    found = tokens.find(secret)
    assert found
    assert tokens.is_valid(found)
    command.revoke("ci")
    assert not tokens.is_valid(found)
    assert tokens.find(secret) is None


def test_a_token_ends_with_its_time(tmp_path: Path) -> None:
    now = [START]
    tokens = TokenFile(tmp_path / "tokens.json", lambda: now[0])
    found = tokens.find(tokens.create(Scope.VIEWER, "board", lifetime=timedelta(days=1)))
    assert found
    now[0] += timedelta(hours=23)
    assert tokens.is_valid(found)
    now[0] += timedelta(hours=1)
    assert not tokens.is_valid(found)


def test_a_token_belongs_to_the_first_node_that_uses_it_and_the_node_to_the_token(tokens: TokenFile) -> None:
    first, second = (tokens.find(tokens.create(Scope.AGENT, name)) for name in ("one", "two"))
    assert first
    assert second
    assert tokens.bind(first, "node-1") is None
    assert [token.bound_to for token in tokens.all()] == ["node-1", None]
    assert "bound to this" in str(tokens.bind(second, "node-1"))
    tokens.revoke("one")
    assert tokens.bind(second, "node-1") is None


def test_tokens_made_for_the_same_node_may_both_be_used_there(tokens: TokenFile) -> None:
    for name in ("before", "after"):
        token = tokens.find(tokens.create(Scope.AGENT, name, node="gpu-7"))
        assert token
        assert tokens.bind(token, "node-7") is None


def test_of_many_that_bind_at_once_each_node_gets_one_token(tokens: TokenFile) -> None:
    made = [tokens.find(tokens.create(Scope.AGENT, f"t{number}")) for number in range(8)]
    refusals: list[str | None] = []
    threads = [
        threading.Thread(target=lambda token=token: refusals.append(TokenFile(tokens.path).bind(token, "node-1")))
        for token in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals.count(None) == 1
    assert [token.bound_to for token in tokens.all()].count("node-1") == 1


@pytest.mark.parametrize(
    ("scope", "name", "node", "any_node", "words"),
    [
        (Scope.VIEWER, "x", "gpu-7", False, "are for the scope agent"),
        (Scope.OPERATOR, "x", None, True, "are for the scope agent"),
        (Scope.AGENT, "x", "gpu-7", True, "contradict"),
        (Scope.AGENT, " ", None, False, "--name takes"),
        (Scope.AGENT, "x\x1b[2J", None, False, "--name takes"),
        (Scope.AGENT, "x", "y" * 101, False, "--node takes"),
        (Scope.AGENT, "taken", None, False, "there is a token taken already"),
    ],
)
def test_what_makes_no_sense_is_misuse(
    tokens: TokenFile, scope: Scope, name: str, node: str | None, any_node: bool, words: str
) -> None:
    tokens.create(Scope.AGENT, "taken")
    with pytest.raises(MisuseError, match=words):
        tokens.create(scope, name, node=node, any_node=any_node)
    with pytest.raises(MisuseError, match="no token ghost"):
        tokens.revoke("ghost")


@given(content=st.one_of(st.text(max_size=50), st.sampled_from(['{"tokens": [{}]}', '{"tokens": 1}', "[]", "null"])))
def test_a_file_of_something_else_opens_nothing(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    path.write_text(content, encoding="utf-8", errors="replace")
    path.chmod(0o600)
    with pytest.raises(GpuAgentError, match="restore it from"):
        TokenFile(path).find("anything")


def test_what_is_written_is_what_is_read(tokens: TokenFile) -> None:
    tokens.create(Scope.AGENT, "one", node="gpu-7", lifetime=timedelta(days=90))
    token = tokens.all()[0]
    assert token.expires_at == token.created_at + timedelta(days=90)
    assert replace(token) == TokenFile(tokens.path).all()[0]
    assert set(json.loads(tokens.path.read_text())["tokens"][0]) == set(token.__dataclass_fields__)


def test_what_cannot_be_handed_out_is_not_made(tmp_path: Path) -> None:
    options = ["tokens", "create", "viewer", "--name", "board", "--token-file", str(tmp_path / "token"), "--output"]
    for place, words in (("/dev/null", "takes a regular file"), (str(tmp_path / "token" / "below"), "cannot write")):
        (tmp_path / "token").touch()
        result = CliRunner().invoke(cli, [*options, place], standalone_mode=False)
        assert words in str(result.exception)
        assert TokenFile.beside(tmp_path / "token").all() == ()


def test_a_file_changed_by_this_process_is_not_read_again(tokens: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [tokens.create(Scope.AGENT, name) for name in ("a", "b")]
    (first, second) = (tokens.find(secret) for secret in secrets)
    assert first
    assert second
    assert tokens.bind(first, "node-1") is None
    monkeypatch.setattr("gpuagent_collector.trust.tokens._read", lambda _path: pytest.fail("read again"))
    assert tokens.is_valid(second)
    found = tokens.find(secrets[0])
    assert found
    assert found.bound_to == "node-1"
