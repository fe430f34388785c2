"""Several collectors' pods as processes, on a lake in a real PostgreSQL with a folder for its bucket."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from deploy.kubernetes.credentials import HOSTS
from gpuagent_collector.trust.private_files import write_private
from gpuagent_collector.trust.serving import CertificateFolder
from gpuagent_collector.trust.tokens import Scope, TokenFile
from tests.support.manifests import containers
from tests.support.pods import LOOPBACK, Pod
from tests.support.postgres import postgres
from tests.support.servers import Node, until

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl", "psql")]

COMPOSITION = "openshift, a lake, mutual TLS by cert-manager"


@pytest.fixture
def lake(node: Node) -> Iterator[Mapping[str, str]]:
    """What the ConfigMap would say: a catalog of this test's own, and a folder."""
    with postgres() as server:
        data = node.folder / "bucket"
        data.mkdir()
        yield {"STORE": f"ducklake:postgres:{server.database()}", "DATA": str(data)}


def pod(node: Node, name: str, container_name: str, known: Mapping[str, str]) -> Pod:
    """Return a pod with the Secrets in its folders."""
    folder = node.folder / name
    shutil.copytree(node.folder / "made", folder)
    (found,) = (each.spec for each in containers(COMPOSITION) if each.name == container_name)
    return Pod(spec=found, folder=folder, replacements={**LOOPBACK, **known})


def serve(node: Node, name: str, lake: Mapping[str, str]) -> tuple[str, "subprocess.Popen[str]"]:
    """Start a collector's pod; return its address when it listens."""
    # In earnest it commits every 10 s.
    started = pod(node, name, "collector", lake).start(node, "collector", "--commit-interval=1", log=f"{name}.log")
    log = node.folder / f"{name}.log"
    until(lambda: "token file" in log.read_text() or started.poll() is not None, "the collector's first lines")
    assert started.poll() is None, log.read_text()
    return re.findall(r"127\.0\.0\.1:\d+", log.read_text())[0], started


def test_an_agents_pod_delivers_to_any_collectors_pod_and_compaction_runs(node: Node, lake: Mapping[str, str]) -> None:
    made = node.folder / "made"
    certificates = CertificateFolder(path=made / "secrets")
    certificates.init([*HOSTS, "127.0.0.1"])
    shown = certificates.issue_client("agent")
    (made / "client").mkdir()
    shutil.copy(shown.certificate, made / "client/tls.crt")
    shutil.copy(shown.key, made / "client/tls.key")
    owner = made / "owner/token"
    write_private(owner, b"the owner's")
    token = TokenFile.beside(owner).create(Scope.AGENT, "gpuagent-token", any_node=True)
    write_private(made / "secrets/token", token.encode())
    (first, first_process), (second, _) = serve(node, "a", lake), serve(node, "b", lake)
    inside = dict(node.environment)
    agent = pod(node, "agent", "agent", {"GPUAGENT_COLLECTOR": f"{first},{second}"})
    started = agent.start(node, "gpuagent", log="agent.log")
    until(lambda: agent.first_waiting_message() > 1, "a message that is stored")
    # As a drain does: what it had gathered is committed, and the agent goes on with the other one.
    assert node.stop(first_process) == 0
    assert node.stop(started) == 0, (node.folder / "agent.log").read_text()
    compact = pod(node, "compact", "compact", lake)
    node.environment |= compact.environment
    said = node.run("collector", *compact.arguments).stdout
    assert ": compacted" in said
    node.environment = inside | {"GPUAGENT_COLLECTOR": second}
    sql = "SELECT count(*) AS all, count(DISTINCT (session_id, time)) AS different FROM host_samples"
    (counts,) = json.loads(node.run("collector", "query", "sql", "--json", sql).stdout)
    assert counts["all"] == counts["different"] > 0
