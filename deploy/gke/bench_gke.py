#!/usr/bin/env python3
"""Measure accelerators on GKE one by one and compare them: a cluster each, deleted in any case.

Called by `make bench-gke`; see docs/deploy/gke.md.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import Shell, say
from deploy.gke import launch_cluster
from deploy.gke.delete_cluster import delete
from deploy.kubernetes.cluster import NAMESPACE, Cluster, Context
from deploy.kubernetes.credentials import COLLECTOR_POD
from deploy.kubernetes.problems import DeployError

_EXAMPLES = """examples:
  bench_gke.py --accelerators nvidia-l4,nvidia-tesla-t4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY
  bench_gke.py --accelerators nvidia-l4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY --dry-run -- --spot
Options after -- are for launch_cluster.py."""

EXPERIMENT = "accelerators"
JOB = "gpuagent-experiment"
_EXPORTED = "/var/lib/gpuagent/bench-export"
# For Kubernetes to end a Job itself, and to report it.
_GRACE_SECONDS = 600
_PAUSE_SECONDS = 30.0


def run(arguments: Sequence[str]) -> None:
    """Measure the accelerators named by the arguments, and print their comparison.

    Raises DeployError: one of them could not be measured; the others are compared first.
    """
    options = shared.parser(__doc__, _EXAMPLES)
    options.add_argument("--accelerators", required=True, metavar="GPU,GPU", help="names as for launch_cluster.py")
    options.add_argument("--registry", required=True, metavar="ADDRESS", help="registry of the images")
    options.add_argument("--repeats", type=shared.positive, metavar="N", help="repeats of each workload on each node")
    options.add_argument("--hours", type=float, default=6.0, help="limit of one accelerator (default 6)")
    options.add_argument("--folder", type=Path, metavar="DIR", help="folder of the data (default bench-gke/TIME)")
    options.add_argument("launch", nargs="*", metavar="-- OPTION", help="options of launch_cluster.py")
    given = options.parse_args(arguments)
    if not given.registry:
        options.error("--registry is empty")
    common = ["--registry", given.registry, *(["--dry-run"] if given.dry_run else [])]
    common += [*(["--project", given.project] if given.project else []), *given.launch]
    clusters = [
        shared.parse_machine(launch_cluster.parser(), ["--accelerator_type", name, *common])
        for name in given.accelerators.split(",")
    ]
    given.folder = given.folder or Path("bench-gke") / time.strftime("%Y%m%d-%H%M%S")
    # Leaves the user's own contexts unchanged. gcloud makes the folder.
    os.environ["KUBECONFIG"] = str(given.folder.resolve() / "kubeconfig")
    failed = [asked.accelerator.name for asked in clusters if not _try_measuring(given, asked)]
    store = given.folder / "runs.duckdb"
    if store.exists() or (given.dry_run and len(failed) < len(clusters)):
        compare = ["compare", "--by", "device", "--experiment", EXPERIMENT, "--store", str(store)]
        Shell(dry_run=given.dry_run).run([_collector(), *compare])
    if failed:
        data = f"; the data are in {given.folder}" if store.exists() else ""
        raise DeployError(f"failed: {', '.join(failed)}; see the errors above{data}")


def _try_measuring(given: Namespace, asked: Namespace) -> bool:
    """Measure one accelerator; return whether that succeeded, and print its error if not."""
    try:
        # Create a cluster, run the experiment on each node, fetch the data, and delete the cluster whatever happens.
        cluster, zone = launch_cluster.launch(asked)
        try:
            launch_cluster.deploy_agents(cluster, zone, asked)
            context, shell = launch_cluster.context(cluster, zone), cluster.shell
            kubectl = ["kubectl", f"--context={context}", f"--namespace={NAMESPACE}"]
            with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as name:
                folder = Path(name).resolve()
                # JSON is YAML, too.
                (folder / "kustomization.yaml").write_text(json.dumps(kustomization(folder, given, asked)))
                shell.run([*kubectl, "apply", "-k", str(folder)])
            try:
                if not given.dry_run and (
                    failure := wait_for_job(Cluster(Context(name=context, server="")), given.hours)
                ):
                    # The pods' last words are deleted with the cluster.
                    say(f"the experiment failed: {failure}")
                    shell.run(
                        [*kubectl, "logs", f"--selector=batch.kubernetes.io/job-name={JOB}", "--tail=20", "--prefix"]
                    )
                    raise DeployError(f"the experiment failed: {failure}")
            finally:
                # Also the data of an experiment that failed later.
                data = given.folder / asked.accelerator.name
                export = ["collector", "export", "--parquet", _EXPORTED, "--experiment", EXPERIMENT]
                shell.run([*kubectl, "exec", COLLECTOR_POD, "--", *export])
                shell.run([*kubectl, "cp", f"{NAMESPACE}/{COLLECTOR_POD}:{_EXPORTED}", str(data)])
                shell.run([_collector(), "import", str(data), "--store", str(given.folder / "runs.duckdb")])
        finally:
            delete(cluster, zone)
    except DeployError as error:
        say(f"{asked.accelerator.name}: {error}")
        # After Ctrl-C, a failed clean-up must not continue with the next cluster.
        cause: BaseException | None = error
        while cause := cause and cause.__context__:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from error
        return False
    return True


def kustomization(folder: Path, given: Namespace, asked: Namespace) -> dict[str, Any]:
    """Return a kustomization for `folder`: the experiment once on each node, with the build of PyTorch for the GPU."""
    command = ["gpuagent", "experiment", "run", EXPERIMENT]
    command += [f"--repeats={given.repeats}"] if given.repeats else []
    platform = {"name": "GPUAGENT_PLATFORM", "value": asked.platform}
    container = {"name": "workload", "command": command, "env": [platform]}
    spec = {
        "parallelism": asked.nodes,
        "completions": asked.nodes,
        "activeDeadlineSeconds": int(given.hours * 3600),
        "template": {"spec": {"containers": [container]}},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}, "spec": spec}
    image = {"name": "gpuagent-workloads", "newName": f"{given.registry}/gpuagent-workloads"}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        # kustomize takes no absolute paths.
        "resources": [os.path.relpath(shared.ROOT / "deploy/kubernetes/jobs/experiment", folder)],
        "images": [{**image, "newTag": asked.accelerator.software.torch_build}],
        "patches": [{"patch": json.dumps(job)}],
    }


def wait_for_job(cluster: Cluster, hours: float, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Wait until all pods of the Job have succeeded: None. Return the reason if it failed, or the cluster is silent."""
    say(f"waiting for the experiment, up to {hours:g} h")
    for _ in range(int((hours * 3600 + _GRACE_SECONDS) / _PAUSE_SECONDS)):
        try:
            conditions = json.loads(cluster.field(f"job/{JOB}", "{.status.conditions}") or "[]")
        except DeployError as error:
            say(error)
            conditions = []
        true = {each["type"]: each.get("message") or each["type"] for each in conditions if each["status"] == "True"}
        if "Complete" in true or "Failed" in true:
            return true.get("Failed")
        sleep(_PAUSE_SECONDS)
    return f"no end after {hours:g} h"


def _collector() -> str:
    """Return the collector installed beside this Python, or the one on PATH."""
    return shutil.which("collector", path=os.fspath(Path(sys.executable).parent)) or "collector"


if __name__ == "__main__":
    sys.exit(shared.main(run))
