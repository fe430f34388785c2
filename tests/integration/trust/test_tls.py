"""TLS: certificates, tokens, joining, and what is said when something does not fit.

Agents are processes, and so is the collector in one test; elsewhere it and its commands run in this process.
"""

import asyncio
import json
import socket
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuagent_collector.cli import cli
from gpuagent_collector.trust.authority import Authority, Pair
from gpuagent_collector.trust.private_files import write_private
from gpuagent_collector.trust.serving import CertificateFolder, ServerCertificate
from gpuagent_collector.trust.tokens import TokenFile
from gpuagent_common.channel import why_unreachable
from gpuagent_common.connection import TlsFiles
from tests.integration.server.agents import SETTINGS, TOKEN, Served, serving
from tests.support.servers import LIMIT_SECONDS, ForkingNode, Node

LONG_AGO = datetime(2020, 1, 1)  # noqa: DTZ001 - UTC without a zone, as the collector has it
QUESTION = ("query", "sql", "SELECT 42 AS answer", "--format", "csv")


@pytest.fixture
def site(node: Node) -> Node:
    """A node with certificates, whose commands find its own configuration and no other."""
    node.environment |= {"XDG_CONFIG_HOME": str(node.folder / "config")}
    said(node, "certs", "init", "--dir", str(node.folder / "tls"), "--host", "collector.example.org")
    return node


def said(site: Node, *words: str) -> str:
    """Return what a command of the collector printed, or why it failed."""
    done = CliRunner().invoke(cli, words, env=site.environment, standalone_mode=False)
    return str(done.exception) if done.exception else done.output


def beside_collector(site: Node, clients: Callable[[Served], None], **settings: Any) -> None:
    """Run `clients` in a thread while a collector of this process serves the site's certificate."""
    write_private(site.folder / "token", TOKEN.encode())
    tokens = TokenFile.beside(site.folder / "token")

    async def scenario() -> None:
        async with serving(site.folder, replace(SETTINGS, tokens=tokens, **settings)) as served:
            site.environment["GPUAGENT_COLLECTOR"] = str(served.address)
            await asyncio.to_thread(clients, served)

    asyncio.run(scenario())


def shown_certificate(address: str, ca: Path) -> bytes | None:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((host, int(port))) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True)


def replace_server(folder: CertificateFolder, authority: Authority, host: str) -> None:
    pair = authority.issue_server([host])
    write_private(folder.server.key, pair.key)
    write_private(folder.server.certificate, pair.certificate)


def test_one_command_on_each_side_joins_a_node_and_revoking_shuts_it_out(site: Node) -> None:
    audit, tls, join = (site.folder / name for name in ("audit.jsonl", "tls", "join.txt"))
    site.serve(options=[f"--tls-cert={tls}/tls.crt", f"--tls-key={tls}/tls.key", "--audit-log", str(audit)])
    address = site.environment["GPUAGENT_COLLECTOR"]
    made = said(site, "tokens", "create", "agent", "--name=here", f"--ca-file={tls / 'ca.crt'}", f"--output={join}")
    secret = join.read_text().splitlines()[0]
    agent = ForkingNode(site.folder)
    for variable in ("GPUAGENT_TOKEN_FILE", "GPUAGENT_COLLECTOR"):
        agent.environment.pop(variable, None)
    agent.environment["XDG_CONFIG_HOME"] = str(site.folder / "agent-config")
    joined = agent.run("gpuagent", "join", address, "--join-file", str(join))
    delivered = agent.run("gpuagent", "run", "--", "true")
    assert f"stored by the collector at {address}" in delivered.stderr
    site.environment["GPUAGENT_CA_FILE"] = str(tls / "ca.crt")
    assert "true" in said(site, "runs")
    listed = json.loads(said(site, "tokens", "list", "--json"))
    assert [(token["name"], token["scope"], bool(token["node"])) for token in listed] == [("here", "agent", True)]
    said(site, "tokens", "revoke", "here")
    # Several attempts may be needed: gRPC now and then loses the reason of a refusal.
    shut_out = site.folder / "shut-out.log"
    waits = ("sh", "-c", f"until grep -q 'does not accept the token' '{shut_out}'; do sleep 0.1; done")
    assert agent.start("gpuagent", "run", "--", *waits, log=shut_out.name).wait(LIMIT_SECONDS) == 0
    again = agent.run("gpuagent", "join", address, "--join-file", str(join), code=1)
    assert "accept this token" in again.stderr
    shown = "".join((made, joined.stdout, joined.stderr, delivered.stderr, shut_out.read_text(), audit.read_text()))
    assert secret not in shown + (site.folder / "collector.log").read_text()
    assert {file.stat().st_mode & 0o777 for file in (audit, join)} == {0o600}
    assert {json.loads(line)["action"] for line in audit.read_text().splitlines()} == {"query", "refused"}


def test_what_does_not_fit_is_said_in_words_and_nothing_is_delivered(site: Node) -> None:
    folder, other = (CertificateFolder(path=site.folder / name) for name in ("tls", "other"))
    other.init(["localhost"])

    def clients(served: Served) -> None:
        assert "it uses TLS" in said(site, *QUESTION)
        assert "42" in said(site, *QUESTION, "--ca-file", str(folder.ca))
        assert "from the CA" in said(site, *QUESTION, "--ca-file", str(other.ca))
        assert "no CA certificate" in said(site, *QUESTION, "--ca-file", str(site.folder / "token"))
        undelivered = site.run("gpuagent", "run", "--ca-file", str(other.ca), "--", "true")
        assert "from the CA" in undelivered.stderr
        assert served.rows("SELECT count(*) FROM runs") == [(0,)]

    beside_collector(site, clients, tls=ServerCertificate(folder.server))


def test_a_running_collector_shows_what_rotate_made_and_words_tell_of_wrong_ones(site: Node) -> None:
    folder = CertificateFolder(path=site.folder / "tls")
    certificate, tls = ServerCertificate(folder.server), TlsFiles(ca=folder.ca)

    def clients(served: Served) -> None:
        address = str(served.address)
        before = shown_certificate(address, folder.ca)
        said(site, "certs", "rotate", "--dir", str(folder.path))
        pages = f"https://{served.collector.http_address}/metrics"
        request = urllib.request.Request(pages, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder.ca)) as answer:
            assert b"gpuagent_agents_connected" in answer.read()
        # HTTP, which was first to see the new files, leaves them to gRPC as well.
        assert shown_certificate(address, folder.ca) != before
        assert "42" in said(site, *QUESTION, "--ca-file", str(folder.ca))
        authority = Authority.load(Pair(certificate=folder.ca.read_bytes(), key=(folder.path / "ca.key").read_bytes()))
        replace_server(folder, authority, "collector.example.org")
        assert "not for 127.0.0.1" in str(why_unreachable(address, tls))
        expired = Authority(certificate=authority.certificate, key=authority.key, now=lambda: LONG_AGO)
        replace_server(folder, expired, "127.0.0.1")
        assert "has expired" in str(why_unreachable(address, tls))

    beside_collector(site, clients, tls=certificate, http=SETTINGS.listen, http_tls=certificate)


def test_mutual_tls_takes_nobody_without_a_certificate_of_the_ca_and_join_keeps_it(site: Node) -> None:
    folder, other = (CertificateFolder(path=site.folder / name) for name in ("tls", "other"))
    other.init(["localhost"])
    stranger = other.issue_client("stranger")
    said(site, "certs", "node", "gpu-7", "--dir", str(folder.path))
    mine = [f"--client-{kind}={folder.path}/nodes/gpu-7.{ending}" for kind, ending in (("cert", "crt"), ("key", "key"))]
    foreign = ["--client-cert", str(stranger.certificate), "--client-key", str(stranger.key)]
    ask, join = (*QUESTION, "--ca-file", str(folder.ca)), str(site.folder / "join.txt")

    def clients(served: Served) -> None:
        assert "client certificate" in said(site, *ask)
        assert "42" in said(site, *ask, *mine)
        assert "client certificate" in said(site, *ask, *foreign)
        assert "belong together" in said(site, *ask, mine[0])
        said(site, "tokens", "create", "agent", "--name=here", "--ca-file", str(folder.ca), "--output", join)
        site.run("gpuagent", "join", str(served.address), "--join-file", join, *mine)
        for variable in ("GPUAGENT_TOKEN_FILE", "GPUAGENT_COLLECTOR"):
            del site.environment[variable]
        (folder.path / "nodes").rename(folder.path / "elsewhere")
        assert f"stored by the collector at {served.address}" in site.run("gpuagent", "run", "--", "true").stderr

    beside_collector(site, clients, tls=ServerCertificate(replace(folder.server, client_ca=folder.ca)))


def test_a_collector_without_tls_is_told_apart(site: Node) -> None:
    def clients(served: Served) -> None:
        tls = TlsFiles(ca=site.folder / "tls/ca.crt")
        assert "not use TLS" in str(why_unreachable(str(served.address), tls))

    beside_collector(site, clients)
