"""A deployment in the test's cluster, and questions to its store."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.cluster import NODES, TINY, Cluster
from tests.support.containers import REPOSITORY
from tests.support.servers import until

PAGES = REPOSITORY / "docs/deploy"

# What kubelet and agents take to load a changed Secret, without a restart.
LOADED_SECONDS = 240.0

# The time of the newest sample of each node's agent of the DaemonSet.
NEWEST = (
    "SELECT hostname, epoch_us(max(time)) AS newest FROM host_samples JOIN sessions USING (session_id) "
    "WHERE labels ->> 'namespace' = 'gpuagent' GROUP BY ALL"
)
_COUNTS = (
    "SELECT (SELECT count(*) - count(DISTINCT (session_id, time)) FROM host_samples) AS twice, "
    "(SELECT count(*) FROM gaps) AS lost"
)
# Each question starts a program in the pod, so both are asked at once.
_STATE = f"SELECT * FROM ({NEWEST}), ({_COUNTS})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Agents on every node, and a collector or several.

    Attributes:
        words: the variables of `make deploy-daemonset`.
        pod: the collector that answers, as POD or deployment/NAME.
    """

    cluster: Cluster
    words: tuple[str, ...] = ("OVERLAY=no-gpu", "PLATFORM=lab", "LAUNCH=yes", "PODS=yes")
    pod: str = "gpuagent-collector-0"

    def deploy(self, *more: str, code: int = 0) -> str:
        return self.cluster.make("deploy-daemonset", *self.words, *more, code=code)

    def kubectl(self, *words: str, text: str | None = None, code: int = 0) -> str:
        return self.cluster.kubectl(words[0], "--namespace=gpuagent", *words[1:], text=text, code=code)

    def documented(self, command: str, page: str = "kubernetes.md", folder: Path = REPOSITORY) -> str:
        """Run a command that a page of docs/deploy has, in a folder; return its standard output."""
        assert command in (PAGES / page).read_text(), f"{page} does not have: {command}"
        # OpenShift's oc includes kubectl, and is not here.
        words = ["bash", "-c", re.sub(r"^oc ", "kubectl ", command.partition("   #")[0])]
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

    def goes_on(self) -> None:
        """Wait until each node has delivered a sample of a later time than now; check that each is stored once."""
        now = time.time_ns() // 1000

        def answer() -> list[dict[str, object]]:
            try:
                rows = self.ask(_STATE)
            except (AssertionError, ValueError):  # the collector does not answer yet
                return []
            late = {row["hostname"] for row in rows if int(str(row["newest"])) > now}
            return rows if late == set(NODES) else []

        rows = until(answer, "samples of both nodes", LOADED_SECONDS)
        assert all((row["twice"], row["lost"]) == (0, 0) for row in rows), rows

    def check_counts(self) -> None:
        """Check that each sample is stored once."""
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


def launch(deployed: Deployment, name: str) -> dict[str, object]:
    """Make a run on n2 through its agent of the DaemonSet; return how it ended, once nothing of it is left."""
    words = ("--on=node=n2", f"--environment=kubernetes:{TINY}", "--wait", f"--name={name}")
    deployed.inside("collector", "launch", *words, "--", "sh", "-c", "echo launched; sleep 2")
    (found,) = deployed.ask(f"SELECT * FROM runs JOIN nodes USING (node_id) WHERE workload = '{name}'")
    assert "launched" in deployed.inside("collector", "logs", str(found["run_id"]))
    deployed.cluster.wait_until_clear("gpuagent-runs")
    return found


def _is_in(pid: int, pod_uid: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup") as file:  # noqa: PTH123
            return pod_uid in file.read()
    except OSError:
        return False
