"""The Job that runs an experiment on each node of a cluster, and what becomes of its data."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.gcp.gcloud import Shell, say
from deploy.kubernetes.cluster import NAMESPACE
from deploy.kubernetes.credentials import COLLECTOR_POD
from deploy.kubernetes.problems import DeployError

EXPERIMENT = "accelerators"
JOB = "gpuagent-bench"

_WORKLOAD = Path(__file__).resolve().parents[1] / "kubernetes/jobs/workload"
_WORKLOAD_JOB = "gpuagent-mnist"
_EXPORTED = "/var/lib/gpuagent/bench-export"
_SECONDS_PER_HOUR = 3600
# For Kubernetes to end a Job itself, and to tell.
_GRACE_SECONDS = 600

# A node with several GPUs would take several of the pods, and they would disturb each other.
_SELECTOR = {"matchLabels": {"batch.kubernetes.io/job-name": JOB}}
_APART = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": _SELECTOR}]
_ONE_A_NODE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _APART}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An experiment on a cluster that is up, with a collector in it.

    Attributes:
        shell: runs kubectl.
        context: the cluster's, of kubectl.
        nodes: on which the experiment runs, on each by itself.
        image: of the workloads.
        platform: what the runs are called by.
        repeats: of each cell; None: as many as the experiment says.
        hours: after which the Job is ended.
    """

    shell: Shell
    context: str
    nodes: int
    image: str
    platform: str
    repeats: int | None
    hours: float

    def start(self) -> None:
        """Create the Job.

        Raises:
            GcloudError: kubectl refused.
        """
        with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as name:
            folder = Path(name).resolve()
            # JSON is YAML, too.
            (folder / "kustomization.yaml").write_text(json.dumps(self.kustomization(folder), indent=2))
            self.shell.run(self._kubectl("apply", "-k", str(folder)))

    def kustomization(self, folder: Path) -> dict[str, Any]:
        """Return the kustomization that stands in `folder`: the workload's Job, with the experiment in its place."""
        image, _, tag = self.image.rpartition(":")
        more = [f"--repeats={self.repeats}"] if self.repeats else []
        container = {
            "name": "workload",
            "command": ["gpuagent", "experiment", "run", EXPERIMENT],
            "args": [*more, "--label=namespace=$(POD_NAMESPACE)", "--label=pod=$(POD_NAME)"],
            "env": [{"name": "GPUAGENT_PLATFORM", "value": self.platform}],
        }
        spec = {
            "parallelism": self.nodes,
            "completions": self.nodes,
            "activeDeadlineSeconds": int(self.hours * _SECONDS_PER_HOUR),
            "template": {"spec": {"containers": [container], "affinity": _ONE_A_NODE}},
        }
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": _WORKLOAD_JOB}, "spec": spec}
        rename = [{"op": "replace", "path": "/metadata/name", "value": JOB}]
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": NAMESPACE,
            # kustomize takes no absolute paths.
            "resources": [os.path.relpath(_WORKLOAD, folder)],
            "images": [{"name": "gpuagent-workloads", "newName": image, "newTag": tag}],
            "patches": [
                {"patch": json.dumps(job)},
                {"target": {"kind": "Job", "name": _WORKLOAD_JOB}, "patch": json.dumps(rename)},
            ],
        }

    def wait(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        every_seconds: float = 30.0,
    ) -> None:
        """Wait until all pods of the Job have ended well; Kubernetes ends it after `hours`.

        Raises:
            DeployError: it failed, and its last words; or the cluster does not tell any more.
        """
        if self.shell.dry_run:
            return
        say(f"waiting for the experiment, up to {self.hours:g} h")
        end = clock() + self.hours * _SECONDS_PER_HOUR + _GRACE_SECONDS
        while clock() < end:
            conditions = self._conditions()
            if "Complete" in conditions:
                return
            if "Failed" in conditions:
                raise DeployError(f"the experiment failed: {conditions['Failed']}\n{self._last_words()}".rstrip())
            sleep(every_seconds)
        raise DeployError(f"the experiment's end is not known after {self.hours:g} h: the cluster did not tell")

    def _last_words(self) -> str:
        """Return what the Job's pods wrote last; the cluster, and with it their logs, goes in a moment."""
        pods = f"--selector=batch.kubernetes.io/job-name={JOB}"
        asked = subprocess.run(
            self._kubectl("logs", pods, "--tail=20", "--prefix"), capture_output=True, text=True, check=False
        )
        return asked.stdout

    def _conditions(self) -> dict[str, str]:
        """Return the Job's conditions that hold, each with its message; none where the cluster did not answer."""
        asked = subprocess.run(
            self._kubectl("get", "job", JOB, "--output=json"), capture_output=True, text=True, check=False
        )
        status = json.loads(asked.stdout)["status"] if asked.returncode == 0 else {}
        return {
            condition["type"]: condition.get("message", "")
            for condition in status.get("conditions", ())
            if condition["status"] == "True"
        }

    def fetch(self, collector: str, store: Path, folder: Path) -> None:
        """Bring what the cluster's collector has into a store here.

        Args:
            collector: the program.
            folder: where the export is put.

        Raises:
            GcloudError: kubectl or the collector refused.
        """
        inside = ["exec", COLLECTOR_POD, "--", "collector", "export", "--parquet", _EXPORTED]
        self.shell.run(self._kubectl(*inside, "--experiment", EXPERIMENT))
        self.shell.run(self._kubectl("cp", f"{NAMESPACE}/{COLLECTOR_POD}:{_EXPORTED}", str(folder)))
        self.shell.run([collector, "import", str(folder), "--store", str(store)])

    def _kubectl(self, *arguments: str) -> list[str]:
        return ["kubectl", f"--context={self.context}", f"--namespace={NAMESPACE}", *arguments]
