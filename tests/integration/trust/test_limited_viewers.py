"""What a viewer of one platform gets from a whole collector, through everything that answers viewers."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from gpuagent_collector.cli import cli
from gpuagent_collector.trust.tokens import Reach, Scope, TokenFile
from gpuagent_common.address import Address
from gpuagent_common.connection import bearer
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import backup_service_pb2, backup_service_pb2_grpc, run_service_pb2, run_service_pb2_grpc
from tests.integration.server.agents import SETTINGS, Served, serving
from tests.support.http import Answer, fetch
from tests.support.recent import fill

pytestmark = pytest.mark.slow

# What the store holds of other platforms.
HIDDEN = ("openshift", "birch", "evil", "gpt-done")

COMMANDS = (
    ["nodes", "--json"],
    ["runs", "--json"],
    ["watch", "--once", "--json"],
    ["compare", "--by", "platform", "--json"],
    ["recommend", "--json"],
    ["query", "sql", "FROM sessions", "--json"],
    ["query", "sql", "SUMMARIZE sessions", "--json"],
    ["query", "sql", "FROM nodes WHERE CASE WHEN platform = 'openshift' THEN error(hostname) ELSE true END", "--json"],
    ["query", "sql", "FROM runs.main.sessions"],
    ["query", "sql", "EXPLAIN ANALYZE FROM sessions"],
    ["check"],
    ["export", "--parquet", "exported"],
)

PAGES = ("/", "/?filter=openshift", "/metrics", "/report", "/report?by=platform&sides=satori,openshift", "/nothing")


def _printed(arguments: Sequence[str], served: Served, token_file: Path) -> str:
    where = ["--collector", str(served.address), "--token-file", str(token_file)]
    result = CliRunner().invoke(cli, [*arguments, *where])
    return f"{result.stdout}{result.stderr}{result.exception or ''}"


def _page(served: Served, path: str, token: str) -> Answer:
    address = served.collector.http_address
    assert address is not None
    return fetch(address, path, {"Authorization": f"Bearer {token}"})


def _told(text: str) -> list[str]:
    return [word for word in HIDDEN if word in text]


async def test_a_limited_viewer_sees_his_platform_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = TokenFile(tmp_path / "tokens.json")
    viewer = tokens.create(Scope.VIEWER, "vision", reach=Reach(platforms=("satori",)))
    everything = tokens.create(Scope.VIEWER, "all")
    token_file = tmp_path / "viewer.token"
    token_file.touch(mode=0o600)
    token_file.write_text(viewer)
    settings = replace(SETTINGS, tokens=tokens, http=Address(host="127.0.0.1", port=0))
    async with serving(tmp_path, settings) as served:
        await asyncio.to_thread(fill, served.store)
        printed = {" ".join(each): await asyncio.to_thread(_printed, each, served, token_file) for each in COMMANDS}
        pages = {path: await asyncio.to_thread(_page, served, path, viewer) for path in PAGES}
        whole = await asyncio.to_thread(_page, served, "/metrics", everything)
    asked_for = {"/?filter=openshift", "/report?by=platform&sides=satori,openshift"}
    assert not {command: text for command, text in printed.items() if _told(text) and "openshift" not in command}
    assert not {path: page.text for path, page in pages.items() if _told(page.text) and path not in asked_for}
    assert "of platform satori" in printed["export --parquet exported"]
    assert "shows (platform satori), " in printed["check"]
    exported = b"".join(path.read_bytes() for path in (tmp_path / "exported").rglob("*") if path.is_file())
    assert b"alder" in exported
    assert not _told(exported.decode("latin-1"))
    assert _told(whole.text), "the store has what is to be hidden"
    assert re.findall(r'"hostname": "([^"]*)"', printed["nodes --json"]) == ["alder"], printed["nodes --json"]
    assert "alder" in pages["/"].text
    assert "platform satori" in pages["/"].text, "the page says that it shows a part"
    assert "birch" not in pages["/?filter=openshift"].text
    assert 'gpuagent_node_cpus{node="alder"' in pages["/metrics"].text
    assert "gpuagent_ingest" not in pages["/metrics"].text, "totals tell of others"
    assert "gpuagent_ingest" in whole.text
    assert pages["/nothing"].status == 404
    assert "no table runs.main.sessions" in printed["query sql FROM runs.main.sessions"]
    assert "cannot use EXPLAIN" in printed["query sql EXPLAIN ANALYZE FROM sessions"]


# As `history` writes it for the next command.
OF_A_CHANGE = (
    "list_contains(command::VARCHAR[], 'x') AND json_extract_string(parameters, 'y') IS NULL AND command::VARCHAR[] = "
    "['x'] AND session_id IN (SELECT session_id FROM sessions WHERE hostname = 'alder')"
)

# Each asks the store; what a few runs cannot answer is said, but never for want of the right to ask so.
ANSWERS = (
    *(["nodes"], ["runs"], ["watch", "--once"], ["show", "mnist-open"], ["show", "mnist-open", "gpt-done"]),
    *(["compare"], ["compare", "--by", "platform"], ["recommend"], ["plan"], ["peers", "mnist-open"], ["outliers"]),
    *(["jobs", "--since", "7d"], ["job", "4711"], ["idle"]),
    *(
        ["compare", "--where", OF_A_CHANGE],
        ["history"],
        ["scaling"],
        ["serving"],
        ["roofline"],
        ["profile", "mnist-open"],
        ["logs", "mnist-open"],
    ),
    *(["report", "page.html"], ["trace", "mnist-open", "trace.json"], ["check"], ["export", "--parquet", "exported"]),
    *(["plot", kind, "figure.svg"] for kind in ("cdf", "bars", "frontier", "links", "split", "by-step")),
)

# Of the refusals in `query/growth.py`, `query/sizes.py` and `server/query_service.py`.
REFUSED = re.compile(r"token of scope viewer|rows of this statement")


@pytest.mark.parametrize("reach", [None, Reach(platforms=("satori",))], ids=["whole", "limited"])
async def test_every_answer_s_sql_may_be_a_viewer_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: Reach | None
) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = TokenFile(tmp_path / "tokens.json")
    viewer = tokens.create(Scope.VIEWER, "vision", reach=reach)
    token_file = tmp_path / "viewer.token"
    token_file.touch(mode=0o600)
    token_file.write_text(viewer)
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    settings = replace(SETTINGS, tokens=tokens, http=Address(host="127.0.0.1", port=0))
    async with serving(tmp_path, settings) as served:
        monkeypatch.setattr(served.collector._queries, "on_query", count)
        await asyncio.to_thread(fill, served.store)
        with served.store.connect() as connection:
            nodes = connection.execute("SELECT node_uuid FROM sessions").fetchall()
            job = "1 AS owner_id, 'slurm' AS kind, '4711' AS job, 'train' AS title, time AS started_at"
            connection.execute(f"INSERT INTO owners BY NAME SELECT session_id, node_id, time, {job} FROM host_samples")
        printed = {" ".join(each): await asyncio.to_thread(_printed, each, served, token_file) for each in ANSWERS}
        paths = [
            "/",
            "/metrics",
            "/report",
            "/runs/mnist-open",
            "/jobs",
            "/jobs/4711",
            "/idle",
            *(f"/nodes/{node}" for (node,) in nodes),
        ]
        printed |= {path: (await asyncio.to_thread(_page, served, path, viewer)).text for path in paths}
    assert asked > len(ANSWERS)
    assert not {what: text for what, text in printed.items() if REFUSED.search(text)}


async def test_a_limited_viewer_neither_reads_output_nor_lists_agents_nor_copies_the_store(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token = bearer(tokens.create(Scope.VIEWER, "vision", reach=Reach(platforms=("satori",))))
    async with serving(tmp_path, replace(SETTINGS, tokens=tokens)) as served:
        runs = run_service_pb2_grpc.RunServiceStub(served.channel)
        backup = backup_service_pb2_grpc.BackupServiceStub(served.channel)
        calls: list[grpc.aio.Call] = [
            runs.Agents(run_service_pb2.AgentsRequest(), metadata=token),
            runs.Logs(run_service_pb2.LogsRequest(run_id="r"), metadata=token),
            runs.Launch(run_service_pb2.LaunchRequest(), metadata=token),
            runs.Cancel(run_service_pb2.CancelRequest(run_id="r"), metadata=token),
            backup.Backup(backup_service_pb2.BackupRequest(), metadata=token),
        ]
        assert {await call.code() for call in calls} == {grpc.StatusCode.PERMISSION_DENIED}


def test_a_token_is_limited_on_the_command_line_and_listed_so(tmp_path: Path) -> None:
    place = ["--token-file", str(tmp_path / "token")]
    limits = ["--platform", "satori", "--platform", "gke", "--label", "team=vision", "--label", "team=nlp"]
    made = CliRunner().invoke(cli, ["tokens", "create", "viewer", "--name", "vision", *limits, *place])
    assert made.exit_code == 0, made.output
    (token,) = TokenFile.beside(tmp_path / "token").all()
    assert token.reach == Reach(platforms=("gke", "satori"), labels=(("team", "nlp"), ("team", "vision")))
    listed = CliRunner().invoke(cli, ["tokens", "list", "--json", *place])
    assert json.loads(listed.stdout)[0]["sees"] == "platform gke or satori, label team=nlp or vision"


@pytest.mark.parametrize(
    ("scope", "option", "words"),
    [
        ("operator", ["--platform", "satori"], "are for the scope viewer"),
        ("agent", ["--label", "a=b"], "are for the scope viewer"),
        ("viewer", ["--label", "team"], "--label takes K=V"),
        ("viewer", ["--label", "=vision"], "--label takes K=V"),
        ("viewer", ["--platform", " "], "must not be blank"),
        ("viewer", ["--platform", "a\x1b[2J"], "printable characters"),
    ],
)
def test_limits_that_make_no_sense_are_misuse(tmp_path: Path, scope: str, option: list[str], words: str) -> None:
    place = ["--name", "x", "--token-file", str(tmp_path / "token")]
    result = CliRunner().invoke(cli, ["tokens", "create", scope, *option, *place])
    assert words in str(result.exception)
    assert not TokenFile.beside(tmp_path / "token").all()


@pytest.mark.parametrize(
    "damage", ['{"platforms": [], "labels": []}', '{"platforms": "a", "labels": []}', "{}", "[]", "0"]
)
def test_a_limit_that_cannot_be_read_opens_nothing(tmp_path: Path, damage: str) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    tokens.create(Scope.VIEWER, "vision", reach=Reach(platforms=("satori",)))
    document = json.loads(tokens.path.read_text())
    document["tokens"][0]["reach"] = json.loads(damage)
    tokens.path.write_text(json.dumps(document))
    with pytest.raises(GpuAgentError, match="is damaged"):
        tokens.all()
