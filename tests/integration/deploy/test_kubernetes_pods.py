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
from tests.support.pods import FROM_THE_CLUSTER, LOOPBACK, Pod
from tests.support.servers import Node, until

pytestmark = pytest.mark.needs("kubectl")


def container(name: str) -> Mapping[str, Any]:
    (found,) = (each.spec for each in containers("overlays/generic") if each.name == name)
    return found


@pytest.fixture
def collector(node: Node) -> Pod:
    pod = Pod(spec=container("collector"), folder=node.folder / "collector", replacements=LOOPBACK)
    node.collector("certs", "init", "--dir", str(pod.folder / "secrets"), *(f"--host={host}" for host in HOSTS))
    started = pod.start(node, "collector", log="collector.log")
    until(lambda: "token file" in said(node) or started.poll() is not None, "the collector's first lines")
    assert started.poll() is None, said(node)
    return pod


def said(node: Node, name: str = "collector") -> str:
    return (node.folder / f"{name}.log").read_text()


def test_an_agents_pod_delivers_to_the_collectors_pod_and_both_are_well(node: Node, collector: Pod) -> None:
    address, page = re.findall(r"127\.0\.0\.1:\d+", said(node))[:2]
    ca = collector.folder / "secrets/ca.crt"
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert get(f"https://{page}{collector.spec[name]['httpGet']['path']}", ca) == 200
    known = {**LOOPBACK, "GPUAGENT_COLLECTOR": address}
    agent = Pod(spec=container("agent"), folder=node.folder / "agent", replacements=known)
    node.environment["GPUAGENT_COLLECTOR"] = address
    # As deploy/kubernetes/credentials.py has the collector make it.
    made = node.collector("tokens", "create", "agent", "--any-node", "--name=gpuagent-token").stdout
    secrets = agent.folder / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "token").write_text(made)
    (secrets / "token").chmod(0o400)
    (secrets / "ca.crt").write_bytes(ca.read_bytes())
    owner = dict(node.environment)
    started = agent.start(node, "gpuagent", log="agent.log")
    until(lambda: agent.first_waiting_message() > 1 or started.poll() is not None, "a message that is stored")
    assert started.poll() is None, said(node, "agent")
    own = re.findall(r"http://(127\.0\.0\.1:\d+)/metrics", said(node, "agent"))[0]
    for name in ("readinessProbe", "livenessProbe"):
        assert get(f"http://{own}{agent.spec[name]['httpGet']['path']}") == 200
    node.environment |= owner
    sql = "SELECT hostname, platform, labels FROM sessions WHERE EXISTS (FROM host_samples)"
    (found,) = json.loads(node.collector("query", "sql", "--json", sql).stdout)
    assert (found["hostname"], found["platform"]) == ("gke-pool-1-abcd", "gke-l4")
    assert json.loads(found["labels"])["pod_uid"] == FROM_THE_CLUSTER["POD_UID"]
    assert node.stop(started) == 0, said(node, "agent")


def get(address: str, ca: Path | None = None) -> int:
    with urllib.request.urlopen(address, context=ssl.create_default_context(cafile=ca)) as answer:
        status: int = answer.status
    return status
