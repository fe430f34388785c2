"""A node with NVIDIA GPUs: what its agent stores, runs of somebody without rights, and a study beside Slurm.

Each test shows the figures that it checked (`pytest -s`).
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import WORKLOADS, Cluster, Site, mount_torch, on, open_site
from tests.support.deployment import Deployment
from tests.support.servers import until
from tests.support.slurm import slurm

pytestmark = [pytest.mark.timeout(900), on("gpu")]

PROJECT, USER = "study", "ada"
# The node's packages with torch, for pods to mount.
PACKAGES = Path(os.environ.get("GPUAGENT_TEST_KUBERNETES_TORCH", "/srv/torch/.venv/lib/python3.12/site-packages"))
POD = "--gpus 1 --volume torch:/torch:ro --platform openshift"
TRAINED_SECONDS = 300.0


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Deployment:
    """Agents of the DaemonSet, without privileges, on every node with GPUs."""
    overlay = "openshift" if cluster.openshift else "generic"
    found = Deployment(cluster=cluster, words=(f"OVERLAY={overlay}", "PLATFORM=openshift"))
    found.deploy()
    return found


@pytest.fixture(scope="module")
def site(cluster: Cluster, deployed: Deployment) -> Iterator[Site]:
    cluster.kubectl("delete", "namespace", PROJECT, "--ignore-not-found")
    cluster.kubectl("delete", "persistentvolume", "torch", "--ignore-not-found")
    cluster.make_project(PROJECT, USER)
    mount_torch(cluster, PROJECT, PACKAGES)
    with open_site(cluster) as found:
        found.be(USER, PROJECT, POD)
        yield found


def test_the_agent_stores_every_gpu_of_its_node(deployed: Deployment) -> None:
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout.split()
    rows = (
        "SELECT device_id, count(*) AS samples, avg(power_watts) AS watts, count(sm_active_percent) AS activity, "
        "epoch(max(time) - min(time)) AS seconds FROM gpu_samples GROUP BY ALL ORDER BY ALL"
    )
    found = until(
        lambda: [row for row in deployed.ask(rows) if float(str(row["seconds"])) > 10] or None, "ten seconds of GPUs"
    )
    show("GPU rows of the DaemonSet's agent", found)
    known = deployed.ask("SELECT DISTINCT uuid FROM devices")
    assert sorted(str(row["uuid"]) for row in known) == sorted(listed)
    assert len(found) == len(listed)
    for row in found:
        # At 10 Hz, of which a start and an end are missing.
        assert int(str(row["samples"])) > 8 * float(str(row["seconds"]))
        assert int(str(row["activity"]))


def test_a_run_of_a_project_trains_to_its_end_on_one_gpu(site: Site, deployed: Deployment) -> None:
    printed = train(site, "resnet18")
    assert "pod measures itself" in printed
    (run,) = runs(site, "resnet18")
    assert (run["status"], run["gpus"]) == ("succeeded", 1), run
    (session,) = site.ask(
        f"SELECT labels, gpu_count, orchestrator FROM sessions WHERE session_id = {run['session_id']}"
    )
    labels = json.loads(str(session["labels"]))
    show("the run", {**run, **session})
    assert session["gpu_count"] == 1
    seen = in_pod(deployed, labels["pod_uid"])
    show("what the node's agent saw of its pod", seen)
    assert [row["device_id"] for row in seen] == [run["device_id"]]
    assert int(str(seen[0]["most_bytes"])) > 2**30
    assert seen[0]["containers"] == 1


def test_two_jobs_at_a_time_have_a_gpu_each(site: Site, deployed: Deployment) -> None:
    if len(deployed.ask("SELECT DISTINCT uuid FROM devices")) < 2:
        pytest.skip("this node has one GPU")
    second = site.node.environment | {
        name: str(site.node.folder / "second") for name in ("GPUAGENT_SPOOL_DIR", "GPUAGENT_RUNTIME_DIR")
    }
    first = site.node.start("gpuagent", *words("vgg16"), log="first.log")
    before, site.node.environment = site.node.environment, second
    try:
        other = site.node.start("gpuagent", *words("alexnet"), log="other.log")
    finally:
        site.node.environment = before
    logs = [site.node.folder / name for name in ("first.log", "other.log")]
    ends = [process.wait(timeout=TRAINED_SECONDS) for process in (first, other)]
    assert ends == [0, 0], [log.read_text() for log in logs]
    found = [runs(site, name)[0] for name in ("vgg16", "alexnet")]
    show("two at a time", found)
    assert [run["status"] for run in found] == ["succeeded", "succeeded"]
    assert len({run["device_id"] for run in found}) == 2
    began, ended = max(str(run["started_at"]) for run in found), min(str(run["ended_at"]) for run in found)
    assert began < ended, "the two were not there at once"


LONG = """
import time, torch
a = torch.randn(4096, 4096, device="cuda")
end = time.monotonic() + 45
while time.monotonic() < end:
    (a @ a).sum().item()
"""


def test_an_agent_that_is_restarted_while_a_job_runs_follows_it_again(site: Site, deployed: Deployment) -> None:
    process = site.node.start("gpuagent", *words("--name=long"), "--", "python3", "-c", LONG, log="run.log")
    log = site.node.folder / "run.log"
    until(lambda: pod_uid(site) or process.poll() is not None, "the pod")
    assert process.poll() is None, log.read_text()
    uid = str(pod_uid(site))
    until(lambda: in_pod(deployed, uid), "the Job's processes in the store")
    before = deployed.ask("SELECT count(*) AS n FROM sessions")[0]["n"]
    killed = time.time_ns() // 1000
    deployed.kubectl("delete", "pod", "--selector=app.kubernetes.io/component=agent", "--wait=false")
    seen = until(lambda: in_pod(deployed, uid, killed + 3_000_000) or process.poll() is not None, "the Job again")
    assert process.wait(timeout=TRAINED_SECONDS) == 0, log.read_text()
    assert runs(site, "long")[0]["status"] == "succeeded"
    after = deployed.ask("SELECT count(*) AS n FROM sessions")[0]["n"]
    show("sessions before, after, and the Job seen by the new agent", [before, after, seen])
    assert seen is not True, "the Job had ended before the new agent saw it"
    assert int(str(after)) == int(str(before)) + 1
    deployed.check_counts()


STUDY = """
name: slurm-openshift
question: What does BigGAN lose on OpenShift against a Slurm node with the same GPUs?
environments: [slurm, "kubernetes:{image}"]
repeats: 6
metric: throughput
options:
  kubernetes: {options}
workloads:
  - workload: biggan
    parameters: {{steps: 10, warmup: 3}}
answer: [compare --by platform]
"""


def test_one_file_compares_slurm_with_a_project_on_openshift(site: Site) -> None:
    if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "munged", "srun")):
        pytest.skip("needs slurmctld, slurmd, munged and srun")
    file = site.node.folder / "study.yaml"
    file.write_text(STUDY.format(image=WORKLOADS, options=POD))
    site.be(USER, PROJECT)
    with slurm() as runtime:
        site.node.environment.update(runtime.variables)
        process = site.node.start("gpuagent", "experiment", "run", "study.yaml", "--platform=satori", log="study.log")
        assert process.wait(timeout=600) == 0, (site.node.folder / "study.log").read_text()
    sides = (
        "SELECT platform, environment, count(*) AS n FROM runs "
        "WHERE experiment = 'slurm-openshift' AND status = 'succeeded'"
    )
    assert site.ask(f"{sides} GROUP BY ALL ORDER BY ALL") == [
        {"platform": "openshift", "environment": "kubernetes", "n": 6},
        {"platform": "satori", "environment": "slurm", "n": 6},
    ]
    metrics = (
        "throughput,cpu_percent,memory_used_percent,gpu_utilization_percent,sm_active_percent,"
        "gpu_memory_used_percent,gpu_energy_per_item_joules,process_start_seconds"
    )
    for more in ((), ("--table", metrics), ("--specs",)):
        asked = ("collector", "compare", "--by", "platform", "--experiment", "slurm-openshift", *more)
        show(" ".join(asked), site.as_owner(*asked).stdout)


def show(title: str, value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    sys.stdout.write(f"\n{title}: {text}\n")


def words(workload: str) -> tuple[str, ...]:
    return ("run", workload, f"--environment=kubernetes:{WORKLOADS}")


def train(site: Site, workload: str) -> str:
    """Run a workload to its end in the project; return what was printed."""
    done = site.node.run("gpuagent", *words(workload))
    site.cluster.wait_until_clear(PROJECT)
    return done.stdout + done.stderr


def runs(site: Site, workload: str) -> list[dict[str, object]]:
    """Return the runs of a workload, the newest first, with their GPU and how long they used it."""
    return site.ask(
        "SELECT run_id, status, session_id, started_at, ended_at, any_value(device_id) AS device_id, "
        "count(DISTINCT device_id) AS gpus, any_value(throughput) AS throughput FROM runs "
        "LEFT JOIN run_devices USING (run_id, session_id) "
        "LEFT JOIN (SELECT run_id, value AS throughput FROM metrics WHERE metric = 'throughput') USING (run_id) "
        f"WHERE workload = '{workload}' GROUP BY ALL ORDER BY started_at DESC"
    )


def pod_uid(site: Site) -> str | None:
    """Return the UID of the pod that runs in the project now."""
    path = "{.items[?(@.status.phase=='Running')].metadata.uid}"
    return site.cluster.kubectl("get", "pods", f"--namespace={PROJECT}", f"--output=jsonpath={path}") or None


def in_pod(deployed: Deployment, uid: str, after_unix_us: int = 0) -> list[dict[str, object]]:
    """Return what the node's agent saw on GPUs of a pod's processes, by GPU."""
    return deployed.ask(
        "SELECT device_id, count(*) AS rows, count(DISTINCT container_id) AS containers, "
        "count(DISTINCT pid) AS processes, max(memory_used_bytes) AS most_bytes FROM gpu_process_samples "
        f"WHERE pod_uid = '{uid}' AND epoch_us(time) > {after_unix_us} GROUP BY ALL"
    )
