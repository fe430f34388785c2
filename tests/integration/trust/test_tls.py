"""TLS with real processes: certificates, tokens, joining, and what is said when something does not fit."""

import json
import socket
import ssl
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest

from gpuagent_collector.trust.authority import Authority, Pair
from gpuagent_collector.trust.certificate_folder import CertificateFolder
from gpuagent_collector.trust.private_files import write_private
from gpuagent_proto.channel import why_unreachable
from gpuagent_proto.connection import TlsFiles
from tests.support.servers import Node

LONG_AGO = datetime(2020, 1, 1)  # noqa: DTZ001 - UTC without a zone, as the collector has it
QUESTION = ("collector", "query", "sql", "SELECT 42 AS answer", "--format", "csv")


@pytest.fixture
def site(node: Node) -> Node:
    """A node with certificates, whose commands find its own configuration and no other."""
    node.environment |= {"XDG_CONFIG_HOME": str(node.folder / "config")}
    node.run("collector", "certs", "init", "--dir", str(node.folder / "tls"), "--host", "collector.example.org")
    return node


def serve(site: Node, *options: str) -> None:
    tls = site.folder / "tls"
    site.serve(options=["--tls-cert", str(tls / "tls.crt"), "--tls-key", str(tls / "tls.key"), *options])


def shown_certificate(address: str, ca: Path) -> bytes | None:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection((host, int(port))) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True)


def replace_server(folder: CertificateFolder, authority: Authority, hosts: list[str]) -> None:
    pair = authority.issue_server(hosts)
    write_private(folder.server.key, pair.key)
    write_private(folder.server.certificate, pair.certificate)


def test_one_command_on_each_side_joins_a_node_and_revoking_shuts_it_out(site: Node) -> None:
    audit = site.folder / "audit.jsonl"
    serve(site, "--audit-log", str(audit))
    tls, address = site.folder / "tls", site.environment["GPUAGENT_COLLECTOR"]
    made = site.run("collector", "tokens", "create", "agent", "--name", "here", "--ca-file", str(tls / "ca.crt"))
    join = site.folder / "join.txt"
    write_private(join, made.stdout.encode())
    secret = made.stdout.splitlines()[0]

    agent = Node(site.folder)
    for variable in ("GPUAGENT_TOKEN_FILE", "GPUAGENT_COLLECTOR"):
        agent.environment.pop(variable, None)
    agent.environment["XDG_CONFIG_HOME"] = str(site.folder / "agent-config")
    joined = agent.run("gpuagent", "join", address, "--join-file", str(join))
    delivered = agent.run("gpuagent", "run", "--", "true")
    assert f"stored by the collector at {address}" in delivered.stderr

    site.environment["GPUAGENT_CA_FILE"] = str(tls / "ca.crt")
    assert "true" in site.run("collector", "runs").stdout
    listed = json.loads(site.run("collector", "tokens", "list", "--json").stdout)
    assert [(token["name"], token["scope"], bool(token["node"])) for token in listed] == [("here", "agent", True)]
    site.run("collector", "tokens", "revoke", "here")
    shut_out = agent.run("gpuagent", "run", "--", "true")
    assert "does not accept the token" in shut_out.stderr
    assert (
        "does not accept this token" in agent.run("gpuagent", "join", address, "--join-file", str(join), code=1).stderr
    )

    shown = "".join((joined.stdout, joined.stderr, delivered.stderr, shut_out.stderr, audit.read_text()))
    assert secret not in shown + (site.folder / "collector.log").read_text()
    assert audit.stat().st_mode & 0o777 == 0o600
    assert {json.loads(line)["action"] for line in audit.read_text().splitlines()} == {"query", "refused"}


def test_what_does_not_fit_is_said_in_words(site: Node) -> None:
    serve(site)
    ca = str(site.folder / "tls" / "ca.crt")
    assert "it speaks TLS; name its CA certificate" in site.run(*QUESTION, code=1).stderr
    assert "42" in site.run(*QUESTION, "--ca-file", ca).stdout
    other = CertificateFolder(path=site.folder / "other")
    other.init(["localhost"])
    assert "does not come from the CA in" in site.run(*QUESTION, "--ca-file", str(other.ca), code=1).stderr
    assert (
        "there is no CA certificate in" in site.run(*QUESTION, "--ca-file", str(site.folder / "token"), code=1).stderr
    )
    undelivered = site.run("gpuagent", "run", "--ca-file", str(other.ca), "--", "true")
    assert "does not come from the CA in" in undelivered.stderr


def test_a_running_collector_shows_what_rotate_made_and_words_tell_of_wrong_ones(site: Node) -> None:
    serve(site, "--http", "127.0.0.1:0")
    folder = CertificateFolder(path=site.folder / "tls")
    tls, address = TlsFiles(ca=folder.ca), site.environment["GPUAGENT_COLLECTOR"]
    before = shown_certificate(address, folder.ca)
    site.run("collector", "certs", "rotate", "--dir", str(folder.path))
    assert shown_certificate(address, folder.ca) != before
    assert "42" in site.run(*QUESTION, "--ca-file", str(folder.ca)).stdout
    token = (site.folder / "token").read_text().strip()
    pages = next(word for word in (site.folder / "collector.log").read_text().split() if word.startswith("https://"))
    request = urllib.request.Request(f"{pages}metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder.ca)) as answer:
        assert b"gpuagent_agents_connected" in answer.read()

    authority = Authority.load(Pair(certificate=folder.ca.read_bytes(), key=(folder.path / "ca.key").read_bytes()))
    replace_server(folder, authority, ["collector.example.org"])
    assert "its certificate is not for 127.0.0.1" in str(why_unreachable(address, tls))
    expired = Authority(certificate=authority.certificate, key=authority.key, now=lambda: LONG_AGO)
    replace_server(folder, expired, ["127.0.0.1"])
    assert "has expired" in str(why_unreachable(address, tls))


def test_mutual_tls_takes_nobody_without_a_certificate_of_the_ca(site: Node) -> None:
    folder = CertificateFolder(path=site.folder / "tls")
    serve(site, "--tls-client-ca", str(folder.ca))
    ask = (*QUESTION, "--ca-file", str(folder.ca))
    assert "it wants a client's certificate" in site.run(*ask, code=1).stderr
    site.run("collector", "certs", "node", "gpu-7", "--dir", str(folder.path))
    mine = [f"--client-{kind}={folder.path}/nodes/gpu-7.{ending}" for kind, ending in (("cert", "crt"), ("key", "key"))]
    assert "42" in site.run(*ask, *mine).stdout
    other = CertificateFolder(path=site.folder / "other")
    other.init(["localhost"])
    stranger = other.issue_client("stranger")
    foreign = ["--client-cert", str(stranger.certificate), "--client-key", str(stranger.key)]
    assert "does not accept the client's certificate" in site.run(*ask, *foreign, code=1).stderr
    assert "belong together" in site.run(*ask, mine[0], code=2).stderr


def test_a_collector_without_tls_is_told_apart(node: Node) -> None:
    node.serve()
    folder = CertificateFolder(path=node.folder / "tls")
    folder.init(["localhost"])
    assert "it speaks no TLS" in node.run(*QUESTION, "--ca-file", str(folder.ca), code=1).stderr
