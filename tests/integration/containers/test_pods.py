"""The pods of collector and agent in a real Docker Engine, restricted as their manifests require, as far as it can."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from deploy.kubernetes.credentials import HOSTS
from gpuagent_collector.trust.serving import CertificateFolder
from tests.support.containers import IMAGE, PACKAGES, REPOSITORY, Runtime, short_folder
from tests.support.manifests import Container, containers
from tests.support.pods import FOLDERS, LOOPBACK, Pod
from tests.support.servers import LIMIT_SECONDS, until

pytestmark = [pytest.mark.needs("kubectl")]

# The manifests' fsGroup.
GROUP = 65532

COLLECTOR = REPOSITORY / "collector"
PROGRAMS = {"collector": "gpuagent_collector.cli", "agent": "gpuagent.cli"}
_RIGHTS = ("Uid", "CapEff", "NoNewPrivs")


class Engine:
    """A runner of pods' containers with the settings of their manifests; it ends those that are left."""

    def __init__(self, client: Sequence[str], mounts: Sequence[str]) -> None:
        self._client = client
        self._mounts = mounts
        self._started: list[str] = []

    def start(self, container: Container, pod: Pod) -> "subprocess.Popen[str]":
        """Start one under its name in the manifest; its output goes to a file in the pod's folder."""
        name = container.name
        command = [*self._client, "run", "--rm", f"--name={name}", "--network=host", *self._mounts]
        variables = {"HOME": "/var/lib/gpuagent"} | pod.environment
        command += [f"--env={key}={value}" for key, value in variables.items()]
        command += [*held(container), *volumes(pod), IMAGE, *self.program(name), *pod.arguments]
        with (pod.folder / "log").open("w") as log:
            self._started.append(name)
            return subprocess.Popen(command, stdout=log, stderr=log, text=True)

    def program(self, name: str) -> Sequence[str]:
        return ("/usr/bin/python3", "-c", f"from {PROGRAMS[name]} import main; main()")

    def inside(self, name: str, *arguments: str) -> str:
        return self._call("exec", name, *self.program(name), *arguments)

    def rights(self, name: str) -> dict[str, str]:
        """Return the rights of a container's first process, by the kernel."""
        number = self._call("inspect", "--format={{.State.Pid}}", name).strip()
        lines = [line.split() for line in Path(f"/proc/{number}/status").read_text().splitlines()]
        return {name: words[0] for (label, *words) in lines if (name := label.rstrip(":")) in _RIGHTS}

    def stop(self, name: str, process: "subprocess.Popen[str]") -> int:
        """End one as kubelet does, by SIGTERM; return its exit code."""
        self._call("kill", "--signal=TERM", name)
        return process.wait(timeout=LIMIT_SECONDS)

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._client, *words], capture_output=True, text=True, check=True).stdout

    def close(self) -> None:
        for name in self._started:
            subprocess.run([*self._client, "rm", "--force", name], capture_output=True, check=False)


def held(container: Container) -> Iterator[str]:
    """Yield Docker's options for the rights of a pod and its container."""
    context = {**container.pod["securityContext"], **container.spec["securityContext"]}
    yield f"--user={context['runAsUser']}:{context['runAsGroup']}"
    yield from (f"--cap-drop={name}" for name in context["capabilities"]["drop"])
    if context["readOnlyRootFilesystem"]:
        yield "--read-only"
    if not context["allowPrivilegeEscalation"]:
        yield "--security-opt=no-new-privileges"
    if container.pod.get("hostPID"):
        yield "--pid=host"


def volumes(pod: Pod) -> Iterator[str]:
    """Yield Docker's options for a pod's volumes: folders, or memory for one that is empty."""
    for mount in pod.spec["volumeMounts"]:
        place = mount["mountPath"]
        if place in FOLDERS:
            only_to_read = ",readonly" if mount.get("readOnly") else ""
            yield f"--mount=type=bind,source={pod.folder / FOLDERS[place]},target={place}{only_to_read}"
        else:
            yield f"--mount=type=tmpfs,destination={place}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the paths of sockets have 107 bytes."""
    with short_folder() as folder:
        yield folder


@pytest.fixture
def engine(docker: Runtime) -> Iterator[Engine]:
    client = docker.variables["GPUAGENT_DOCKER"].split()
    path = ":".join(map(str, (*PACKAGES, COLLECTOR)))
    options = [word for word in docker.variables["GPUAGENT_DOCKER_ARGS"].split() if word.startswith("--volume=")]
    engine = Engine(client, [*options, f"--volume={COLLECTOR}:{COLLECTOR}:ro", f"--env=PYTHONPATH={path}"])
    yield engine
    engine.close()


def manifest(name: str) -> Container:
    (found,) = (each for each in containers("overlays/no-gpu") if each.name == name)
    return found


def make_pod(container: Container, folder: Path, secrets: Mapping[str, bytes], **known: Any) -> Pod:
    """Make a pod's folders as kubelet does: Secrets and volumes are root's, and of the pod's group, if it has one."""
    group = container.pod["securityContext"].get("fsGroup")
    for name in ("state", "secrets"):
        (folder / name).mkdir(parents=True)
    for name, content in secrets.items():
        file = folder / "secrets" / name
        file.touch(mode=0o600)
        file.write_bytes(content)
        file.chmod(0o400 if group is None else 0o440)
    if group is not None:
        for path in (folder / "state", *(folder / "secrets").iterdir()):
            os.chown(path, 0, group)
        (folder / "state").chmod(0o2770)
    return Pod(spec=container.spec, folder=folder, replacements={**LOOPBACK, **known}, is_contained=True)


def test_an_agents_container_delivers_to_a_collectors_and_sigterm_ends_both(engine: Engine, folder: Path) -> None:
    certificates = CertificateFolder(path=folder / "certificates")
    certificates.init([*HOSTS, "127.0.0.1"])
    ca = certificates.ca.read_bytes()
    files = {"ca.crt": ca, "tls.crt": (folder / "certificates/tls.crt").read_bytes()}
    files["tls.key"] = (folder / "certificates/tls.key").read_bytes()
    collector = make_pod(manifest("collector"), folder / "collector", files)
    serving = engine.start(manifest("collector"), collector)
    log = collector.folder / "log"
    until(lambda: "token file" in log.read_text() or serving.poll() is not None, "the collector's first lines")
    assert serving.poll() is None, log.read_text()

    token = engine.inside("collector", "tokens", "create", "agent", "--any-node", "--name=gpuagent-token")
    address = re.findall(r"127\.0\.0\.1:\d+", log.read_text())[0]
    secrets = {"token": token.encode(), "ca.crt": ca}
    agent = make_pod(manifest("agent"), folder / "agent", secrets, GPUAGENT_COLLECTOR=address)
    sampling = engine.start(manifest("agent"), agent)
    until(lambda: agent.first_waiting_message() > 1 or sampling.poll() is not None, "a message that is stored")
    assert sampling.poll() is None, (agent.folder / "log").read_text()
    assert engine.rights("collector") == {"Uid": "65532", "CapEff": "0" * 16, "NoNewPrivs": "1"}
    assert engine.rights("agent") == {"Uid": "0", "CapEff": "0" * 16, "NoNewPrivs": "1"}

    assert engine.stop("agent", sampling) == 0, (agent.folder / "log").read_text()
    assert engine.stop("collector", serving) == 0, log.read_text()
    with duckdb.connect(str(collector.folder / "state/runs.duckdb"), read_only=True) as store:
        sql = "SELECT DISTINCT hostname, container FROM host_samples JOIN sessions USING (session_id)"
        assert store.execute(sql).fetchall() == [("gke-pool-1-abcd", "docker")]
