"""A deployment in the test's cluster, and questions to its store."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.cluster import NODES, Cluster
from tests.support.containers import REPOSITORY
from tests.support.servers import until

# What kubelet and agents take to load a changed Secret, without a restart.
LOADED_SECONDS = 240.0

_NEWEST = (
    "SELECT hostname, epoch_us(max(time)) AS newest FROM host_samples JOIN sessions USING (session_id) "
    "WHERE labels ->> 'namespace' = 'gpuagent' GROUP BY ALL"
)
_COUNTS = (
    "SELECT (SELECT count(*) - count(DISTINCT (session_id, time)) FROM host_samples) AS twice, "
    "(SELECT count(*) FROM gaps) AS lost"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Agents on every node, and a collector or several.

    Attributes:
        words: the variables of `make deploy-daemonset`.
        pod: the collector that answers, as POD or deployment/NAME.
    """

    cluster: Cluster
    words: tuple[str, ...] = ("OVERLAY=no-gpu", "PLATFORM=lab", "LAUNCH=yes")
    pod: str = "gpuagent-collector-0"

    def deploy(self, *more: str, code: int = 0) -> str:
        return self.cluster.make("deploy-daemonset", *self.words, *more, code=code)

    def kubectl(self, *words: str, text: str | None = None, code: int = 0) -> str:
        return self.cluster.kubectl(words[0], "--namespace=gpuagent", *words[1:], text=text, code=code)

    def documented(self, command: str, page: str = "kubernetes.md", folder: Path = REPOSITORY) -> str:
        """Run a command that a page of docs/deploy has, in a folder; return its standard output."""
        assert command in (REPOSITORY / "docs/deploy" / page).read_text(), f"{page} does not have: {command}"
        words = ["bash", "-c", command.partition("   #")[0]]
        done = subprocess.run(
            words, env=self.cluster.environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def inside(self, *words: str) -> str:
        """Run a command in the collector's pod; return its standard output."""
        return self.kubectl("exec", self.pod, "--container=collector", "--", *words).partition("reading the")[0]

    def ask(self, sql: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(self.inside("collector", "query", "sql", sql, "--format=json"))
        return rows

    def place(self) -> tuple[str, str, str]:
        """Return node, UID and container of the collector's pod."""
        path = "{.spec.nodeName} {.metadata.uid} {.status.containerStatuses[0].containerID}"
        node, uid, container = self.kubectl("get", "pod", self.pod, f"--output=jsonpath={path}").split()
        return node, uid, container.removeprefix("containerd://")

    def newest(self) -> dict[str, int]:
        """Return the time of each node's newest sample, in µs, as its agent of the DaemonSet measured it."""
        return {str(row["hostname"]): int(str(row["newest"])) for row in self.ask(_NEWEST)}

    def goes_on(self, seconds: float = LOADED_SECONDS) -> None:
        """Wait until each node has delivered a newer sample than now; check that each is stored once."""
        after: dict[str, int] = {}

        def answers() -> bool:
            try:
                after.update(self.newest())
            except (AssertionError, ValueError):  # it does not answer yet
                return False
            return set(after) == set(NODES)

        until(answers, "an answer for both nodes", seconds)
        before = dict(after)
        until(lambda: answers() and all(after[name] > before[name] for name in NODES), "samples of both nodes", seconds)
        assert self.ask(_COUNTS) == [{"twice": 0, "lost": 0}]

    def pods(self) -> dict[str, tuple[str, int]]:
        """Return the UID of each pod and how often its containers were restarted."""
        found = json.loads(self.kubectl("get", "pods", "--selector=app.kubernetes.io/component", "--output=json"))
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ())),
            )
            for pod in found["items"]
        }

    def kill_collector(self) -> None:
        """End the collector's process by SIGKILL, as the kernel does."""
        _, uid, _ = self.place()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or ()
            if "serve" in words and _is_in(process.pid, uid):
                os.kill(process.pid, signal.SIGKILL)
                return
        raise AssertionError(f"no process of the pod {uid}")


def _is_in(pid: int, pod_uid: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup") as file:  # noqa: PTH123
            return pod_uid in file.read()
    except OSError:
        return False
