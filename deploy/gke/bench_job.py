"""The Job that runs an experiment on each node of a cluster, and the export of its data."""

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
# For Kubernetes to end a Job itself, and to report it.
_GRACE_SECONDS = 600

# Several pods on a node with several GPUs would disturb each other.
_SELECTOR = {"matchLabels": {"batch.kubernetes.io/job-name": JOB}}
_APART = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": _SELECTOR}]
_ONE_A_NODE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _APART}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An experiment on a running cluster with a collector in it.

    Attributes:
        context: kubectl's context of the cluster.
        nodes: number of nodes, each of which runs the whole experiment.
        image: image of the workloads.
        platform: platform of the runs.
        repeats: of each cell; None: those of the experiment.
        hours: time limit of the Job.
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
            GcloudError: kubectl failed.
        """
        with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as name:
            folder = Path(name).resolve()
            # JSON is YAML, too.
            (folder / "kustomization.yaml").write_text(json.dumps(self.kustomization(folder), indent=2))
            self.shell.run(self._kubectl("apply", "-k", str(folder)))

    def kustomization(self, folder: Path) -> dict[str, Any]:
        """Return a kustomization for `folder`: the workload's Job with the experiment as its command."""
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
        """Wait until all pods of the Job have succeeded; Kubernetes ends it after `hours`.

        Raises:
            DeployError: it failed, or the cluster does not answer any more.
        """
        if self.shell.dry_run:
            return
        say(f"waiting for the experiment, up to {self.hours:g} h")
        end = clock() + self.hours * _SECONDS_PER_HOUR + _GRACE_SECONDS
        while clock() < end:
            asked = subprocess.run(
                self._kubectl("get", "job", JOB, "--output=json"), capture_output=True, text=True, check=False
            )
            status = json.loads(asked.stdout)["status"] if asked.returncode == 0 else {}
            conditions = {
                condition["type"]: condition.get("message", "")
                for condition in status.get("conditions", ())
                if condition["status"] == "True"
            }
            if "Complete" in conditions:
                return
            if "Failed" in conditions:
                raise DeployError(f"the experiment failed: {conditions['Failed']}\n{self._read_last_output()}".rstrip())
            sleep(every_seconds)
        raise DeployError(f"no end of the experiment after {self.hours:g} h; see: kubectl get job {JOB}")

    def _read_last_output(self) -> str:
        """Return the last output of the Job's pods, which is deleted with the cluster."""
        pods = f"--selector=batch.kubernetes.io/job-name={JOB}"
        asked = subprocess.run(
            self._kubectl("logs", pods, "--tail=20", "--prefix"), capture_output=True, text=True, check=False
        )
        return asked.stdout

    def fetch(self, collector: str, store: Path, folder: Path) -> None:
        """Import the data of the cluster's collector into a store here.

        Args:
            collector: the program.
            folder: the folder of the export.

        Raises:
            GcloudError: kubectl or the collector failed.
        """
        inside = ["exec", COLLECTOR_POD, "--", "collector", "export", "--parquet", _EXPORTED]
        self.shell.run(self._kubectl(*inside, "--experiment", EXPERIMENT))
        self.shell.run(self._kubectl("cp", f"{NAMESPACE}/{COLLECTOR_POD}:{_EXPORTED}", str(folder)))
        self.shell.run([collector, "import", str(folder), "--store", str(store)])

    def _kubectl(self, *arguments: str) -> list[str]:
        return ["kubectl", f"--context={self.context}", f"--namespace={NAMESPACE}", *arguments]
