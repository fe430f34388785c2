#!/usr/bin/env python3
"""Measure accelerators on GKE one by one and compare them: a cluster each, deleted in any case.

Called by `make bench-gke`; see docs/deploy/gke.md.
"""

import json
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.accelerators import Accelerator, find_accelerator
from deploy.gcp.gcloud import Shell, say
from deploy.gke import launch_cluster
from deploy.gke.clusters import ask_kubectl
from deploy.kubernetes.cluster import NAMESPACE
from deploy.kubernetes.credentials import COLLECTOR_POD
from deploy.kubernetes.problems import DeployError, MisuseError

_EXAMPLES = """examples:
  bench_gke.py --accelerators nvidia-l4,nvidia-tesla-t4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY
  bench_gke.py --accelerators nvidia-l4 --registry us-docker.pkg.dev/PROJECT/REPOSITORY --dry-run -- --spot
Options after -- are for launch_cluster.py."""

EXPERIMENT = "accelerators"
JOB = "gpuagent-bench"
_WORKLOAD = Path(__file__).resolve().parents[1] / "kubernetes/jobs/workload"
_WORKLOAD_JOB = "gpuagent-mnist"
_EXPORTED = "/var/lib/gpuagent/bench-export"
# For Kubernetes to end a Job itself, and to report it.
_GRACE_SECONDS = 600


def run(arguments: Sequence[str]) -> None:
    """Measure the accelerators named by the arguments, and print their comparison.

    Raises:
        DeployError: one of them could not be measured; the others are compared first.
    """
    options = shared.parser("Measure accelerators on GKE one by one and compare them.", _EXAMPLES)
    options.add_argument("--accelerators", required=True, metavar="GPU,GPU", help="names as for launch_cluster.py")
    options.add_argument("--registry", required=True, metavar="ADDRESS", help="registry of the images")
    options.add_argument("--repeats", type=shared.positive, metavar="N", help="repeats of each workload on each node")
    options.add_argument("--hours", type=float, default=6.0, help="limit of one accelerator (default 6)")
    options.add_argument("--folder", type=Path, metavar="DIR", help="folder of the data (default bench-gke/TIME)")
    options.add_argument("launch", nargs="*", metavar="-- OPTION", help="options of launch_cluster.py")
    given = options.parse_args(arguments)
    accelerators = [find_accelerator(name) for name in given.accelerators.split(",") if name]
    if not (accelerators and given.registry):
        raise MisuseError("name at least one accelerator and the registry; see --help")
    given.folder = given.folder or Path("bench-gke") / time.strftime("%Y%m%d-%H%M%S")
    # Leaves the user's own contexts unchanged. gcloud makes the folder.
    os.environ["KUBECONFIG"] = str(given.folder.resolve() / "kubeconfig")
    failed = [accelerator.name for accelerator in accelerators if not _try_measuring(accelerator, given)]
    store = given.folder / "runs.duckdb"
    if store.exists() or (given.dry_run and len(failed) < len(accelerators)):
        compare = ["compare", "--by", "device", "--experiment", EXPERIMENT, "--store", str(store)]
        Shell(dry_run=given.dry_run).run([_collector(), *compare])
    if failed:
        data = f"; the data are in {given.folder}" if store.exists() else ""
        raise DeployError(f"failed: {', '.join(failed)}; see the errors above{data}")


def _try_measuring(accelerator: Accelerator, given: Namespace) -> bool:
    """Measure one accelerator; return whether that succeeded, and print its error if not."""
    project = [*(["--dry-run"] if given.dry_run else []), *(["--project", given.project] if given.project else [])]
    asked = ["--accelerator_type", accelerator.name, "--registry", given.registry, *project, *given.launch]
    try:
        _measure(accelerator, given, launch_cluster.parser().parse_args(asked))
    except DeployError as error:
        say(f"{accelerator.name}: {error}")
        # After Ctrl-C, a failed clean-up must not continue with the next cluster.
        before: BaseException | None = error
        while before and not isinstance(before, KeyboardInterrupt):
            before = before.__context__
        if before:
            raise KeyboardInterrupt from error
        return False
    return True


def _measure(accelerator: Accelerator, given: Namespace, asked: Namespace) -> None:
    """Create a cluster, run the experiment on each node, fetch the data, and delete the cluster whatever happens."""
    cluster, place = launch_cluster.launch(asked)
    try:
        cluster.deploy_agents(place, asked.registry, asked.tag, asked.platform)
        context, shell = cluster.context(place), cluster.shell
        kubectl = ["kubectl", f"--context={context}", f"--namespace={NAMESPACE}"]
        with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as name:
            folder = Path(name).resolve()
            # JSON is YAML, too.
            (folder / "kustomization.yaml").write_text(json.dumps(kustomization(folder, accelerator, given, asked)))
            shell.run([*kubectl, "apply", "-k", str(folder)])
        try:
            if not given.dry_run:
                wait_for_job(context, given.hours)
        finally:
            # Also the data of an experiment that failed later.
            inside = ["exec", COLLECTOR_POD, "--", "collector", "export", "--parquet", _EXPORTED]
            data = given.folder / accelerator.name
            shell.run([*kubectl, *inside, "--experiment", EXPERIMENT])
            shell.run([*kubectl, "cp", f"{NAMESPACE}/{COLLECTOR_POD}:{_EXPORTED}", str(data)])
            shell.run([_collector(), "import", str(data), "--store", str(given.folder / "runs.duckdb")])
    finally:
        cluster.delete(place)


def kustomization(folder: Path, accelerator: Accelerator, given: Namespace, asked: Namespace) -> dict[str, Any]:
    """Return a kustomization for `folder`: the workload's Job with the experiment as its command, once on each node."""
    container = {
        "name": "workload",
        "command": ["gpuagent", "experiment", "run", EXPERIMENT],
        "args": [
            *([f"--repeats={given.repeats}"] if given.repeats else []),
            *("--label=namespace=$(POD_NAMESPACE)", "--label=pod=$(POD_NAME)"),
        ],
        "env": [{"name": "GPUAGENT_PLATFORM", "value": asked.platform}],
    }
    # Several pods on a node with several GPUs would disturb each other.
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": JOB}}
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    spec = {
        "parallelism": asked.nodes,
        "completions": asked.nodes,
        "activeDeadlineSeconds": int(given.hours * 3600),
        "template": {"spec": {"containers": [container], "affinity": affinity}},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": _WORKLOAD_JOB}, "spec": spec}
    rename = [{"op": "replace", "path": "/metadata/name", "value": JOB}]
    build = accelerator.software.torch_build if accelerator.software else ""
    image = {"name": "gpuagent-workloads", "newName": f"{given.registry}/gpuagent-workloads", "newTag": build}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        # kustomize takes no absolute paths.
        "resources": [os.path.relpath(_WORKLOAD, folder)],
        "images": [image],
        "patches": [
            {"patch": json.dumps(job)},
            {"target": {"kind": "Job", "name": _WORKLOAD_JOB}, "patch": json.dumps(rename)},
        ],
    }


def wait_for_job(
    context: str,
    hours: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until all pods of the Job have succeeded; raise DeployError if it failed, or the cluster does not answer."""
    say(f"waiting for the experiment, up to {hours:g} h")
    end, namespace = clock() + hours * 3600 + _GRACE_SECONDS, f"--namespace={NAMESPACE}"
    while clock() < end:
        answer = ask_kubectl(context, namespace, "get", "job", JOB, "--output=json")
        known = json.loads(answer)["status"].get("conditions", ()) if answer else ()
        true = {each["type"]: each.get("message", "") for each in known if each["status"] == "True"}
        if "Complete" in true:
            return
        if "Failed" in true:
            # The pods' last words are deleted with the cluster.
            pods = f"--selector=batch.kubernetes.io/job-name={JOB}"
            output = ask_kubectl(context, namespace, "logs", pods, "--tail=20", "--prefix") or ""
            raise DeployError(f"the experiment failed: {true['Failed']}\n{output}".rstrip())
        sleep(30.0)
    raise DeployError(f"no end of the experiment after {hours:g} h; see: kubectl get job {JOB}")


def _collector() -> str:
    """Return the collector installed beside this Python, or the one on PATH."""
    beside = Path(sys.executable).with_name("collector")
    return str(beside) if beside.exists() else "collector"


if __name__ == "__main__":
    sys.exit(shared.main(run))
