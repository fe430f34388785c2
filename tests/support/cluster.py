"""A real Kubernetes on this machine, from a folder of binaries: plain, or with OpenShift's admission."""

import compileall
import fcntl
import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
import yaml

from gpuagent.images.recipe import write_wheel
from tests.support.containers import LIBRARY, REPOSITORY, SITE_PACKAGES, ULIMITS, import_image, short_folder
from tests.support.images import make_base, make_tiny_base, write_wheels
from tests.support.programs import need
from tests.support.servers import BIN, Node, until

# A folder with up.sh, down.sh, and the binaries in bin/ or bin.tar.xz.
VARIABLE = "GPUAGENT_TEST_KUBERNETES"
# The state of a running cluster of up.sh whose node n1 has NVIDIA GPUs, and whose images are loaded.
GPU_VARIABLE = "GPUAGENT_TEST_KUBERNETES_GPU"
# Set to leave the cluster as it is after the tests, for the next call of them.
KEEP_VARIABLE = "GPUAGENT_TEST_KUBERNETES_KEEP"

# The cluster has addresses of its own, so a machine has one at a time.
_PLACE = Path(tempfile.gettempdir()) / "gpuagent-test-kubernetes"
HOST = "10.99.0.1"
NODES = ("n1", "n2")
TINY = "tiny:1"
# The agent's image, which has the built-in workloads, too, and torch where a claim mounts this machine's.
WORKLOADS = "gpuagent-workloads:0.1.0"
_WORKLOADS = """
FROM docker.io/library/gpuagent-agent:0.1.0
USER 0
RUN printf '#!/bin/sh\\nexec python3 -m torch.distributed.run "$@"' >/opt/gpuagent/bin/torchrun \\
 && chmod 755 /opt/gpuagent/bin/torchrun
ENV PYTHONPATH=/torch
USER 65532:0
"""
_APPLETS = ("id", "dd", "echo", "env", "cat", "yes", "kill")

# The rights of somebody with a project, without an administrator (docs/environments.md).
RIGHTS = REPOSITORY / "deploy/kubernetes/jobs/rights.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster of the nodes n1 and n2, with the project's images and one that has hardly more than a shell."""

    scripts: Path
    programs: Path
    state: Path
    openshift: bool

    def up(self) -> None:
        """Start whatever of it does not run."""
        variables = {"NODES": "2", **({"OPENSHIFT": "1"} if self.openshift else {})}
        _call([self.scripts / "up.sh", self.programs, self.state], **variables)

    def down(self) -> None:
        """End it, and remove its state."""
        # Nothing is kept, so nothing has to end in order, which takes a minute.
        for path in self.state.glob("pids/[!n]*"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        _call([self.scripts / "down.sh", self.programs, self.state], KEEP="1")
        _remove(self.state)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.state / "admin.conf"), "PATH": path}

    def kubectl(self, *words: str, text: str | None = None, code: int | None = 0) -> str:
        """Run kubectl; fail unless it ends with `code`, None: any; return what it printed."""
        done = subprocess.run(
            ["kubectl", *words], env=self.environment, input=text, capture_output=True, text=True, check=False
        )
        assert code in (None, done.returncode), (
            f"kubectl {' '.join(words)} gave {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def make_project(self, name: str, user: str, *labels: str) -> None:
        """Make a namespace in which a user has the documented rights, and no others."""
        self.kubectl("create", "namespace", name)
        self.kubectl("label", "namespace", name, *(labels or ["pod-security.kubernetes.io/enforce=restricted"]))
        self.kubectl("apply", f"--namespace={name}", f"--filename={RIGHTS}")
        self.kubectl("create", f"--namespace={name}", "rolebinding", "runs", "--role=gpuagent-runs", f"--user={user}")
        until(lambda: "default" in self.kubectl("get", f"--namespace={name}", "serviceaccounts"), "a service account")

    def wait_until_clear(self, namespace: str) -> None:
        """Wait until nothing is left of what gpuagent made in a namespace."""
        words = (f"--namespace={namespace}", "jobs,pods,secrets", "--selector=app.kubernetes.io/managed-by=gpuagent")
        self.kubectl("wait", "--for=delete", "--timeout=60s", *words, code=None)
        until(lambda: self.kubectl("get", *words, "--output=name") == "", "the end of the pod")

    def ctr(self, node: str, *words: str | Path) -> str:
        """Run containerd's client on a node, which needs no API server."""
        ctr = ["ctr", f"--address={self.state}/{node}/run/containerd.sock", "--namespace=k8s.io"]
        done = subprocess.run([*ctr, *words], env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make(self, *words: str, code: int = 0) -> str:
        """Run make for this cluster; return what it printed."""
        variables = {name: value for name, value in self.environment.items() if not name.startswith("MAKE")}
        done = subprocess.run(
            ["make", "--silent", f"BIN={BIN}", *words, "CONTEXT=lab"],
            cwd=REPOSITORY,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def crash(self, node: str) -> None:
        """End a node with all that runs on it, without a word."""
        os.kill(int((self.state / node / "init.pid").read_text()), signal.SIGKILL)
        self._wait_for_end(node)

    def stop_api_server(self) -> None:
        """Kill the API server; `up` brings it back."""
        os.kill(int((self.state / "pids/apiserver").read_text()), signal.SIGKILL)
        self._wait_for_end("apiserver")

    def _wait_for_end(self, name: str) -> None:
        number = int((self.state / "pids" / name).read_text())

        def has_ended() -> bool:
            with suppress(psutil.NoSuchProcess):
                return bool(psutil.Process(number).status() == psutil.STATUS_ZOMBIE)
            return True

        until(has_ended, f"the end of {name}")


@contextmanager
def cluster(*, openshift: bool) -> Iterator[Cluster]:
    """Bring a cluster up, and take it down again."""
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"{VARIABLE} names no folder with a Kubernetes")
    if os.geteuid():
        pytest.skip("nodes are namespaces of this machine, which root alone may make")
    need("podman", "runc")
    scripts = Path(given).absolute()
    _PLACE.mkdir(exist_ok=True)
    with (_PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        programs = _unpacked(scripts)
        state = _PLACE / ("openshift" if openshift else "plain")
        found = Cluster(scripts=scripts, programs=programs, state=state, openshift=openshift)
        # What another call left.
        other = _PLACE / ("plain" if openshift else "openshift")
        if other.exists():
            replace(found, state=other).down()
        try:
            with ThreadPoolExecutor() as pool:
                images = pool.submit(_images, programs)
                found.up()
                _load(found, images.result())
            yield found
        finally:
            if not os.environ.get(KEEP_VARIABLE):
                found.down()


def cluster_with_gpus() -> Cluster:
    """Return the cluster with GPUs that somebody has brought up; its programs are on the PATH."""
    state = os.environ.get(GPU_VARIABLE)
    if not state:
        pytest.skip(f"{GPU_VARIABLE} names no state of a cluster with GPUs")
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl of the cluster is not on the PATH"
    openshift = (Path(state) / "openshift.yaml").exists()
    return Cluster(scripts=Path(state), programs=Path(kubectl).parent, state=Path(state), openshift=openshift)


def _load(found: Cluster, images: Path) -> None:
    """Give images to every node, unless a cluster that was kept has them."""
    loaded, now = found.state / "loaded", str(images.stat().st_mtime_ns)
    if loaded.exists() and loaded.read_text() == now:
        return
    # By containerd's own service, without --local, this takes more than twice as long.
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: found.ctr(node, "images", "import", "--local", images), NODES))
    loaded.write_text(now)


def _unpacked(scripts: Path) -> Path:
    programs = scripts / "bin"
    if not programs.is_dir():
        programs = _PLACE / "bin"
        if not (programs / "kubectl").exists():
            programs.mkdir(exist_ok=True)
            subprocess.run(["tar", "-xJf", scripts / "bin.tar.xz", "-C", programs], check=True)
    return programs


@cache
def _images(programs: Path) -> Path:
    """Return an archive of the project's images and of the tiny one, built as `make images` does."""
    folder = _PLACE / "images"
    made = folder / "images.tar"
    if os.environ.get(KEEP_VARIABLE) and made.exists():
        return made
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    client = ["podman", "--root", f"{folder}/data", "--runroot", f"{folder}/run", "--runtime", "runc"]
    client += ["--cgroup-manager", "cgroupfs"]
    root = make_tiny_base(folder / "tiny")
    for name in _APPLETS:
        (root / "bin" / name).unlink(missing_ok=True)
        (root / "bin" / name).symlink_to("busybox")
    import_image(client, root, f"docker.io/library/{TINY}")
    base = make_base(folder / "base")
    # Every start in a pod, whose root is read-only, would compile Python's library again: most of a second of a core.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    library = base / LIBRARY.relative_to("/")
    compileall.compile_dir(library, quiet=2, workers=0, stripdir=str(base), prependdir="/", invalidation_mode=unchecked)
    # For `kubectl cp`.
    (base / "bin/tar").symlink_to("busybox")
    import_image(client, base, "gpuagent-base")
    context = folder / "context"
    context.mkdir()
    write_wheels(context / "wheels", ["gpuagent", "gpuagent[collector,lake]"])
    write_wheel(context / "wheels")
    shutil.copy(REPOSITORY / "constraints.txt", context / "wheels")
    shutil.copy(programs / "kubectl", context / "wheels")
    (context / "workloads.Dockerfile").write_text(_WORKLOADS)

    def build(*names: str) -> None:
        for name in names:
            options = ["--network=host", *ULIMITS, "--layers=false", "--pull=never"]
            options += [f"--build-arg={each}" for each in ("BASE=gpuagent-base", "PIP_NO_INDEX=1", "VERSION=0.1.0")]
            recipe = (context if name == "workloads" else REPOSITORY / "deploy/docker") / f"{name}.Dockerfile"
            tag = f"docker.io/library/gpuagent-{name}:0.1.0"
            _call([*client, "build", *options, f"--file={recipe}", f"--tag={tag}", context])

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda names: build(*names), [["collector"], ["agent", "workloads"]]))
    tags = [TINY, WORKLOADS, "gpuagent-agent:0.1.0", "gpuagent-collector:0.1.0"]
    # Layers that images share are in it once.
    part, names = made.with_suffix(".part"), [f"docker.io/library/{tag}" for tag in tags]
    _call([*client, "save", "--multi-image-archive", "--output", part, *names])
    part.rename(made)
    subprocess.run(["umount", f"{folder}/data/overlay"], capture_output=True, check=False)
    _remove(folder / "data")
    return made


def _remove(folder: Path) -> None:
    """Remove a folder of thousands of files, of which nothing waits for the end but this process."""
    removed = folder.rename(tempfile.mkdtemp(prefix="removed-", dir=_PLACE))
    Thread(target=subprocess.run, args=(["rm", "-rf", "--one-file-system", removed],)).start()


def _call(command: Sequence[str | Path], **variables: str) -> None:
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command[0]} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A machine outside of the cluster with kubectl and a token for runs, and a collector that pods reach."""

    cluster: Cluster
    node: Node
    # The owner's token of the collector.
    owner: Path

    def be(self, user: str, project: str, options: str = "") -> None:
        """Let the commands act as a user in a project."""
        self.node.environment["GPUAGENT_KUBERNETES"] = f"kubectl --as={user} --namespace={project}"
        self.node.environment["GPUAGENT_KUBERNETES_ARGS"] = options

    @contextmanager
    def beside(self, name: str) -> Iterator["Site"]:
        """Yield the site with an agent of its own, for a run at the same time as others; no two have one name."""
        (self.node.folder / name).mkdir()
        with Node(self.node.folder / name) as node:
            own = {variable: node.environment[variable] for variable in ("GPUAGENT_SPOOL_DIR", "GPUAGENT_RUNTIME_DIR")}
            node.environment = self.node.environment | own
            yield replace(self, node=node)

    def find(self, name: str) -> dict[str, object]:
        """Return the one run with this name."""
        (found,) = self.ask(f"SELECT * FROM runs WHERE workload = '{name}'")
        return found

    def end_each(self, namespace: str, *numbers: signal.Signals, options: Sequence[str] = ()) -> None:
        """Start a run for each signal, named after it; send it once the program has begun; wait for the end of all."""
        script = ("--", "sh", "-c", "echo begun; sleep 600")
        with ExitStack() as stack:
            processes = {}
            for number in numbers:
                node = stack.enter_context(self.beside(number.name)).node
                words = (f"--environment=kubernetes:{TINY}", f"--name={number.name}", *options, *script)
                processes[number] = (node.start("gpuagent", "run", *words, log="run.log"), node.folder / "run.log")
            for process, log in processes.values():
                until(lambda: "begun" in log.read_text() or process.poll() is not None, "the program's first line")  # noqa: B023
                assert process.poll() is None, log.read_text()
            for number, (process, _) in processes.items():
                os.kill(process.pid, number)
            for process, _ in processes.values():
                process.wait(timeout=60)
        self.cluster.wait_until_clear(namespace)

    def ask(self, sql: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(
            self.as_owner("collector", "query", "sql", sql, "--format", "json").stdout
        )
        return rows

    def as_owner(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command with the owner's token of the collector."""
        return self.node.run(*words, "--token-file", str(self.owner))


@contextmanager
def open_site(found: Cluster) -> Iterator[Site]:
    with short_folder() as folder, Node(folder) as node:
        node.environment |= found.environment | {"XDG_CONFIG_HOME": str(folder / "config")}
        owner = folder / "owner"
        node.environment["GPUAGENT_TOKEN_FILE"] = str(owner)
        node.run("collector", "certs", "init", "--dir", "certs", "--host", HOST)
        files = ("--tls-cert", "certs/tls.crt", "--tls-key", "certs/tls.key")
        node.start("collector", "serve", "--listen", f"{HOST}:0", "--store", str(node.store), *files, log="collector")
        log = folder / "collector"
        address = until(lambda: re.search(rf"{HOST}:\d+", log.read_text()), "the collector's address")[0]
        node.environment |= {"GPUAGENT_COLLECTOR": address, "GPUAGENT_CA_FILE": str(folder / "certs/ca.crt")}
        made = node.run("collector", "tokens", "create", "agent", "--any-node", "--name", "runs").stdout
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(made)
        node.environment["GPUAGENT_TOKEN_FILE"] = str(token)
        yield Site(cluster=found, node=node, owner=owner)


def read_all(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML text."""
    return [each for each in yaml.safe_load_all(text) if each]


def on(kind: str) -> pytest.MarkDecorator:
    """Return the mark of tests in a cluster of this kind, plain, openshift or gpu, which all of one kind share."""
    return pytest.mark.parametrize("cluster", [kind], indirect=True, scope="session")


def mount_torch(found: Cluster, project: str, packages: Path = SITE_PACKAGES) -> None:
    """Make the claim `torch` in a project: the packages of this machine's Python, as a node's disk would have them."""
    size = {"storage": "1Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "torch"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "hostPath": {"path": str(packages)},
        },
    }
    bound = {"volumeName": "torch", "storageClassName": "", "accessModes": ["ReadOnlyMany"]}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "torch", "namespace": project},
        "spec": {**bound, "resources": {"requests": size}},
    }
    for each in (volume, claim):
        found.kubectl("apply", "--filename=-", text=json.dumps(each))
