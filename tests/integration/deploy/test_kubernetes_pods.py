"""The collector's and the agents' pods as processes: their arguments, variables and probes, folders for volumes."""

import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.credentials import HOSTS
from tests.support.containers import short_folder
from tests.support.manifests import containers, variables
from tests.support.servers import Node, until

pytestmark = pytest.mark.needs("kubectl")

FROM_THE_CLUSTER = {
    "POD_NAME": "gpuagent-agent-x7k2p",
    "POD_NAMESPACE": "gpuagent",
    "POD_UID": "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d",
    "GPUAGENT_NODE_NAME": "gke-pool-1-abcd",
    "GPUAGENT_PLATFORM": "gke-l4",
}
"""What the downward API and the ConfigMap give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A container of a rendered manifest, its paths below `folder`, and `known` for what a cluster would tell."""

    spec: Mapping[str, Any]
    folder: Path
    replacements: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in variables(self.spec).items():
            known = {**FROM_THE_CLUSTER, **self.replacements}
            found[name] = known[name] if value is None else self.local(value, found)
        return found

    @property
    def arguments(self) -> list[str]:
        return [self.local(word, self.environment) for word in self.spec["args"]]

    def local(self, text: str, values: Mapping[str, str]) -> str:
        expanded = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)
        for path, instead in (("/var/lib/gpuagent", self.folder / "state"), ("/etc/gpuagent", self.folder / "secrets")):
            expanded = expanded.replace(path, str(instead))
        return self.replacements.get(expanded, expanded)

    def start(self, node: Node, program: str, log: str) -> "subprocess.Popen[str]":
        (self.folder / "state").mkdir(parents=True)
        node.environment |= self.environment
        return node.start(program, *self.arguments, log=log)

    def probe(self, name: str) -> int:
        command = [self.local(word, {}) for word in self.spec[name]["exec"]["command"]]
        return subprocess.run(command, capture_output=True, check=False).returncode


def container(name: str) -> Mapping[str, Any]:
    (found,) = (each.spec for each in containers("overlays/generic") if each.name == name)
    return found


@pytest.fixture
def node() -> Iterator[Node]:
    """A folder with a short name: the paths of sockets have 107 bytes."""
    with short_folder() as folder:
        node = Node(folder)
        yield node
        node.close()


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
    started = pod.start(node, "collector", "collector.log")
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
    started = agent.start(node, "gpuagent", "agent.log")
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
