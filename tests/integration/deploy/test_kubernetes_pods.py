"""The collector's and the agents' pods as processes: their arguments, variables and probes, folders for volumes."""

import json
import re
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.credentials import HOSTS
from tests.support.manifests import containers
from tests.support.pods import FROM_THE_CLUSTER, Pod
from tests.support.servers import Node, until

pytestmark = pytest.mark.needs("kubectl")


def container(name: str) -> Mapping[str, Any]:
    (found,) = (each.spec for each in containers("overlays/generic") if each.name == name)
    return found


@pytest.fixture
def collector(node: Node) -> Pod:
    pod = Pod(
        spec=container("collector"),
        folder=node.folder / "collector",
        # 0.0.0.0 would be a pod's own; here it would be this machine's.
        replacements={
            "--listen=0.0.0.0:50051": "--listen=127.0.0.1:0",
            "--http=0.0.0.0:9464": "--http=127.0.0.1:0",
        },
    )
    node.run("collector", "certs", "init", "--dir", str(pod.folder / "secrets"), *(f"--host={host}" for host in HOSTS))
    started = pod.start(node, "collector", log="collector.log")
    until(lambda: "token file" in said(node) or started.poll() is not None, "the collector's first lines")
    assert started.poll() is None, said(node)
    return pod


def said(node: Node) -> str:
    return (node.folder / "collector.log").read_text()


def test_an_agents_pod_delivers_to_the_collectors_pod_and_both_are_well(node: Node, collector: Pod) -> None:
    address, page = re.findall(r"127\.0\.0\.1:\d+", said(node))[:2]
    ca = collector.folder / "secrets/ca.crt"
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert get(f"https://{page}{collector.spec[name]['httpGet']['path']}", ca) == 200

    agent = Pod(spec=container("agent"), folder=node.folder / "agent", replacements={"GPUAGENT_COLLECTOR": address})
    node.environment["GPUAGENT_COLLECTOR"] = address
    # As deploy/kubernetes/credentials.py has the collector make it.
    made = node.run("collector", "tokens", "create", "agent", "--any-node", "--name=gpuagent-token").stdout
    secrets = agent.folder / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "token").write_text(made)
    (secrets / "token").chmod(0o400)
    (secrets / "ca.crt").write_bytes(ca.read_bytes())

    owner = dict(node.environment)
    assert agent.probe("startupProbe") != 0
    started = agent.start(node, "gpuagent", log="agent.log")
    first = "the agent's first message in its spool"
    until(lambda: agent.probe("livenessProbe") == 0 or started.poll() is not None, first)
    assert started.poll() is None, (node.folder / "agent.log").read_text()
    node.environment |= owner
    (found,) = until(lambda: nodes(node), "the node in the store")
    assert (found["hostname"], found["platform"]) == ("gke-pool-1-abcd", "gke-l4")
    assert json.loads(found["labels"])["pod_uid"] == FROM_THE_CLUSTER["POD_UID"]
    assert node.stop(started) == 0, (node.folder / "agent.log").read_text()


def nodes(node: Node) -> list[dict[str, str]]:
    sql = "SELECT hostname, platform, labels FROM sessions WHERE EXISTS (FROM host_samples)"
    found: list[dict[str, str]] = json.loads(node.run("collector", "query", "sql", "--json", sql).stdout)
    return found


def get(address: str, ca: Path) -> int:
    with urllib.request.urlopen(address, context=ssl.create_default_context(cafile=ca)) as answer:
        status: int = answer.status
    return status
