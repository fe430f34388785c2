#!/usr/bin/env python3
"""Pods that share a GPU, are killed, and hold a GPU without using it, as `collector job` shows them.

    KUBECONFIG=… PATH=…:$PATH python3 benchmarks/on_gpu/pods.py --torch /srv/torch

It takes a cluster that runs, of one node with a GPU which its device plugin offers three times (time-slicing,
`replicas: 3`), with the project's images loaded, and deploys agents and a collector to it. kubectl is on the PATH.
TORCH is a folder of the node with torch in .venv, which pods mount at /opt/torch. It takes about five minutes.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "gpuagent-bench"

# Kernels for a share of each tenth of a second, as long as nobody else has the GPU.
_WORK = """
import sys, time, torch
share, end = float(sys.argv[1]), time.monotonic() + 900
a = torch.randn(4096, 4096, device="cuda")
while time.monotonic() < end:
    began = time.monotonic()
    while time.monotonic() - began < 0.1 * share:
        (a @ a).sum().item()
    time.sleep(0.1 * (1 - share))
"""

_PODS = """
SELECT
    job, arg_max(title, time) AS made_by, max(is_held) AS is_held, max(ended_at) AS ended_at,
    count(DISTINCT device_id) AS gpus, max(gpu_seconds) AS gpu_seconds,
    max(observed_seconds) FILTER (device_id IS NOT NULL) AS watched_seconds,
    max(gpu_memory_max_bytes) AS gpu_memory_bytes, count(energy_joules) AS energies
FROM owners WHERE kind = 'pod' AND job LIKE '{namespace}/%' GROUP BY job ORDER BY job
"""
# Of a pod the share of its GPU's time, out of the samples of the last seconds.
_SHARES = """
SELECT
    job, (max(gpu_seconds) - min(gpu_seconds)) / epoch(max(time) - min(time)) * 100 AS gpu_percent,
    max(gpu_memory_used_bytes) AS gpu_memory_bytes
FROM owner_samples JOIN (SELECT owner_id, arg_max(job, time) AS job FROM owners GROUP BY owner_id) USING (owner_id)
WHERE device_id IS NOT NULL AND time >= (SELECT max(time) FROM owner_samples) - to_seconds({seconds})
    AND job LIKE '{namespace}/%'
GROUP BY job ORDER BY job
"""


class Cluster:
    """The cluster, with agents and a collector."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given

    def deploy(self) -> None:
        """Deploy agents that know pods by name, and a collector."""
        words = ["deploy", "--overlay", self.given.overlay, "--platform", "pods", "--pods", "yes"]
        context = ["--context", self.kubectl("config", "current-context").strip()]
        subprocess.run([sys.executable, "-m", "deploy.kubernetes", *words, *context], cwd=ROOT, check=True)

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl; return what it printed."""
        done = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def collector(self, *words: str) -> str:
        """Run a command of the collector in its pod; return what it printed."""
        return self.kubectl("exec", "--namespace=gpuagent", "gpuagent-collector-0", "--", "collector", *words)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        rows: list[dict[str, Any]] = json.loads(self.collector("query", "sql", sql, "--format=json"))
        return rows

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return what the store has of the pods of this script, by their names."""
        return {row["job"].partition("/")[2]: row for row in self.ask(_PODS.format(namespace=NAMESPACE))}

    def running(self, made_by: str, *, gone: str = "") -> str | None:
        """Return a pod that this made and that runs; `gone` is another one."""
        for name, row in self.pods().items():
            if row["made_by"] == made_by and row["ended_at"] is None and row["is_held"] and name != gone:
                return name
        return None

    def apply(self, kind: str, name: str, program: list[str]) -> None:
        """Make a Pod, or a Deployment or Job of one pod, with a part of the GPU."""
        container: dict[str, Any] = {
            "name": "main",
            "image": self.given.image,
            "imagePullPolicy": "IfNotPresent",
            "command": program,
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        pod: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if self.given.torch:
            site = "/opt/torch/.venv/lib/python3.12/site-packages"
            container["env"] = [{"name": "PYTHONPATH", "value": site}]
            container["volumeMounts"] = [{"name": "torch", "mountPath": "/opt/torch", "readOnly": True}]
            pod["volumes"] = [{"name": "torch", "hostPath": {"path": self.given.torch}}]
        labels = {"app": name}
        made: dict[str, Any] = {"metadata": {"name": name, "labels": labels}}
        if kind == "Pod":
            made |= {"apiVersion": "v1", "kind": "Pod", "spec": pod}
        else:
            template = {"metadata": {"labels": labels}, "spec": pod}
            made |= {"apiVersion": "apps/v1" if kind == "Deployment" else "batch/v1", "kind": kind}
            made["spec"] = {"template": template}
            if kind == "Deployment":
                made["spec"]["selector"] = {"matchLabels": labels}
            else:
                pod["restartPolicy"] = "Never"
        self.kubectl("apply", f"--namespace={NAMESPACE}", "--filename=-", text=json.dumps(made))

    def kill(self, pod: str) -> None:
        """End the program of a pod as the kernel does, from the node; its pod stays."""
        uid = self.kubectl("get", "pod", pod, f"--namespace={NAMESPACE}", "--output=jsonpath={.metadata.uid}")
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                groups = (folder / "cgroup").read_text().replace("_", "-")
                if uid in groups and b"/pause" not in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)


def until(ask: Callable[[], Any], what: str, seconds: float = 150.0) -> Any:
    """Wait for an answer that is true; return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := ask():
            return found
        time.sleep(3)
    raise SystemExit(f"{what} did not come within {seconds:.0f} s")


def measure(cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """Yield what each part shows."""
    given = cluster.given
    program = given.program.split() if given.program else None
    busy, rare = (program or ["python3", "-c", _WORK, share] for share in ("1", "0.2"))
    cluster.apply("Deployment", "web", busy)
    cluster.apply("Job", "train", rare)
    cluster.apply("Pod", "asleep", ["sleep", "900"])
    web = until(lambda: cluster.running("Deployment/web"), "the Deployment's pod")
    train = until(lambda: cluster.running("Job/train"), "the Job's pod")
    until(lambda: cluster.pods().get("asleep", {}).get("is_held"), "the pod that sleeps")
    time.sleep(given.seconds)
    yield "three pods of one GPU", cluster.pods()
    yield "their shares of its time", cluster.ask(_SHARES.format(namespace=NAMESPACE, seconds=given.seconds))
    for name in (web, train, "asleep"):
        yield f"collector job {name}", cluster.collector("job", f"{NAMESPACE}/{name}")
    before = cluster.pods()[web]
    cluster.kill(web)
    time.sleep(30)
    yield "the Deployment's pod before and after its program was killed", [before, cluster.pods()[web]]
    cluster.kubectl("delete", "pod", web, f"--namespace={NAMESPACE}")
    following = until(lambda: cluster.running("Deployment/web", gone=web), "the next pod")
    until(lambda: cluster.pods()[web]["ended_at"], "the end of the deleted pod")
    time.sleep(20)
    yield "the deleted pod and the one in its place", {name: cluster.pods()[name] for name in (web, following)}
    yield "collector jobs", cluster.collector("jobs")
    # A node whose agent lacks the kubelet's folder.
    selected = "--selector=app.kubernetes.io/component=agent"
    agents = json.loads(cluster.kubectl("get", "daemonset/gpuagent-agent", "--namespace=gpuagent", "--output=json"))
    spec = agents["spec"]["template"]["spec"]
    volume = [each["name"] for each in spec["volumes"]].index("pod-resources")
    mount = [each["name"] for each in spec["containers"][0]["volumeMounts"]].index("pod-resources")
    at = "/spec/template/spec"
    changes = [{"op": "remove", "path": f"{at}/volumes/{volume}"}]
    changes.append({"op": "remove", "path": f"{at}/containers/0/volumeMounts/{mount}"})
    patch = (
        "patch",
        "daemonset/gpuagent-agent",
        "--namespace=gpuagent",
        "--type=json",
        f"--patch={json.dumps(changes)}",
    )
    cluster.kubectl(*patch)
    cluster.kubectl("rollout", "status", "daemonset/gpuagent-agent", "--namespace=gpuagent", "--timeout=180s")
    agent = cluster.kubectl("get", "pods", "--namespace=gpuagent", selected, "--output=name").split()[0]
    printed = cluster.kubectl("exec", agent, "--namespace=gpuagent", "--", "gpuagent", "info", "--json")
    yield "gpuagent info without the kubelet's folder", json.loads(printed)["pods"]
    time.sleep(20)
    yield "what its log says", cluster.kubectl("logs", agent, "--namespace=gpuagent")[-1500:]


def main() -> None:
    """Run all parts and print what they show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", help="folder of the node that has torch in .venv")
    parser.add_argument("--overlay", default="generic", help="of deploy/kubernetes")
    parser.add_argument("--image", default="gpuagent-workloads:0.1.0", help="image of the pods")
    parser.add_argument("--program", help="program of the pods instead of one that uses the GPU")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the pods share the GPU")
    cluster = Cluster(parser.parse_args())
    cluster.deploy()
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        for title, found in measure(cluster):
            print(f"== {title}\n{found if isinstance(found, str) else json.dumps(found, indent=1)}", flush=True)
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


if __name__ == "__main__":
    main()
