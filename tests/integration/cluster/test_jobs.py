"""Runs as Jobs in a real Kubernetes: followed by their node's agent, launched by the DaemonSet, and over two nodes."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cluster import TINY, WORKLOADS, Cluster, Site, mount_torch, on, open_site, read_all
from tests.support.containers import REPOSITORY
from tests.support.deployment import Deployment, launch
from tests.support.device_plugins import offer_gpus
from tests.support.servers import until

pytestmark = [pytest.mark.timeout(1500), on("plain")]


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    with open_site(cluster) as found:
        found.node.environment["GPUAGENT_NODE_NAME"] = "n1"
        found.be("admin", "default")
        found.node.environment["GPUAGENT_KUBERNETES"] = "kubectl"
        yield found


def run(site: Site, name: str, *words: str, code: int = 0, options: tuple[str, ...] = ()) -> str:
    with site.beside(name) as own:
        named = (f"--environment=kubernetes:{TINY}", f"--name={name}", *options)
        done = own.node.run("gpuagent", "run", *named, "--", *words, code=code)
    site.cluster.wait_until_clear("default")
    return done.stdout + done.stderr


def test_the_agent_of_a_node_follows_a_job_whose_program_is_the_container_s_first_process(site: Site) -> None:
    script = "echo '$$ $(HOME)'; sleep 3; exit 3"
    printed = run(site, "first", "sh", "-c", script, code=3, options=("--cpus=1", "--memory=64M"))
    assert "the pod measures itself" not in printed
    assert "$$ $(HOME)" in printed
    found = site.find("first")
    assert (found["status"], found["exit_code"]) == ("failed", 3)
    (row,) = site.ask(f"SELECT max(processes) AS most FROM process_samples WHERE run_id = '{found['run_id']}'")
    assert int(str(row["most"])) >= 2  # the shell and its sleep
    assert site.ask(f"SELECT count(*) AS n FROM run_requests WHERE run_id = '{found['run_id']}'") == [{"n": 1}]


def test_the_limits_and_the_ends_of_a_followed_job(site: Site) -> None:
    fill = ("dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=200")
    with ThreadPoolExecutor() as pool:
        ended = [
            pool.submit(run, site, "memory", *fill, code=137, options=("--memory=64M",)),
            pool.submit(run, site, "absent", "no-such-program", code=127),
            pool.submit(run, site, "late", "sleep", "600", code=1, options=("--timeout=5",)),
        ]
    for each in ended:
        each.result()
    assert "memory limit (64M)" in str(site.find("memory")["reason"])
    assert 'program: "no-such-program"' in str(site.find("absent")["reason"])
    assert site.find("late")["status"] == "timed_out"


def test_nothing_is_left_of_a_followed_job(site: Site) -> None:
    site.end_each("default", signal.SIGINT, signal.SIGKILL)


@pytest.fixture
def deployed(cluster: Cluster) -> Deployment:
    found = Deployment(cluster=cluster)
    if "gpuagent-agent" not in cluster.kubectl("get", "daemonsets", "--all-namespaces", "--output=name"):
        found.deploy()
    return found


def test_agents_of_the_daemonset_launch_jobs_on_their_node(deployed: Deployment) -> None:
    deployed.goes_on()
    found = launch(deployed, "asked")
    assert (found["status"], found["environment"], found["hostname"]) == ("succeeded", "kubernetes", "n2")
    assert deployed.ask("SELECT count(*) AS n FROM run_requests WHERE workload = 'asked'") == [{"n": 1}]


def test_an_agent_s_account_may_make_jobs_in_one_namespace_and_nothing_else(deployed: Deployment) -> None:
    account = "--as=system:serviceaccount:gpuagent:gpuagent-agent"

    def may(*words: str) -> bool:
        return deployed.cluster.kubectl("auth", "can-i", *words, account, code=None).startswith("yes")

    assert may("create", "jobs.batch", "--namespace=gpuagent-runs")
    for verb, kind in (("create", "pods"), ("get", "secrets"), ("create", "jobs.batch"), ("list", "pods")):
        assert not may(verb, kind, "--namespace=gpuagent"), (verb, kind)
    assert not may("get", "secrets", "--namespace=gpuagent-runs")
    assert not may("list", "nodes")
    # Since PODS=yes.
    assert may("get", "pods", "--namespace=default")
    assert not may("list", "pods", "--namespace=default")
    privileged = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    privileged["spec"] = {"hostPID": True, "containers": [{"name": "x", "image": TINY}]}
    words = ("create", "--namespace=gpuagent-runs", account, "--dry-run=server", "--filename=-")
    assert "violates PodSecurity" in deployed.cluster.kubectl(*words, text=json.dumps(privileged), code=1)


HOLDERS = """
{{"apiVersion": "{version}", "kind": "{kind}", "metadata": {{"name": "{name}"}}, "spec": {{{spec}"template": {{
  "metadata": {{"labels": {{"app": "{name}"}}}},
  "spec": {{
    "nodeSelector": {{"kubernetes.io/hostname": "n1"}}, "restartPolicy": "{restart}",
    "terminationGracePeriodSeconds": 0,
    "containers": [{{
      "name": "main", "image": "tiny:1", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "900"],
      "resources": {{"limits": {{"nvidia.com/gpu": "1"}}}}
    }}]
  }}
}}}}}}
"""
SELECTED = '"selector": {"matchLabels": {"app": "web"}}, '


def test_pods_that_hold_a_gpu_have_the_names_of_what_made_them(deployed: Deployment) -> None:
    cluster = deployed.cluster
    held = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"

    def holders() -> dict[str, dict[str, object]]:
        rows = deployed.ask(
            "SELECT job, any_value(title) AS title, max(is_held) AS is_held, max(ended_at) AS ended_at, "
            "count(DISTINCT device_id) AS gpus FROM owners WHERE kind = 'pod' AND is_held = 1 GROUP BY job"
        )
        return {str(row["job"]): row for row in rows}

    def running(title: str) -> list[str]:
        return [job for job, row in holders().items() if row["title"] == title and row["ended_at"] is None]

    # The node's folders are seen from here, and their sockets lead into it.
    plugins = cluster.state / "n1/var-lib/kubelet/device-plugins"
    with offer_gpus(plugins, [f"{held}::0", f"{held}::1"]):
        web = HOLDERS.format(version="apps/v1", kind="Deployment", name="web", spec=SELECTED, restart="Always")
        train = HOLDERS.format(version="batch/v1", kind="Job", name="train", spec="", restart="Never")
        for manifest in (web, train):
            cluster.kubectl("apply", "--namespace=default", "--filename=-", text=manifest)
        first = until(lambda: running("Deployment/web"), "the Deployment's pod", 120)
        assert until(lambda: running("Job/train"), "the Job's pod", 120)[0].startswith("default/train-")
        assert {row["gpus"] for row in holders().values()} == {1}
        assert "held 1 GPU" in deployed.inside("collector", "job", first[0])
        agent = deployed.kubectl("get", "pods", "--selector=app.kubernetes.io/component=agent", "--output=json")
        (name,) = (each["metadata"]["name"] for each in json.loads(agent)["items"] if each["spec"]["nodeName"] == "n1")
        printed = deployed.kubectl("exec", name, "--", "gpuagent", "info", "--json")
        found, _ = json.JSONDecoder().raw_decode(printed, printed.index("{\n"))
        assert [each["works"] for each in found["pods"]] == [True] * 3
        # Another pod takes its place.
        cluster.kubectl("delete", "pod", "--namespace=default", first[0].removeprefix("default/"))
        second = until(lambda: [job for job in running("Deployment/web") if job not in first], "the next pod", 120)
        assert until(lambda: holders()[first[0]]["ended_at"], "the end of the first pod", 60)
        assert second[0].startswith("default/web-")
        cluster.kubectl("delete", "deployment/web", "job/train", "--namespace=default")


@pytest.fixture(scope="module")
def project(cluster: Cluster) -> Iterator[str]:
    """A restricted namespace with torch on a volume, and the rights of a user in it."""
    cluster.make_project("team-a", "ada")
    mount_torch(cluster, "team-a")
    yield "team-a"
    cluster.kubectl("delete", "namespace", "team-a", "--wait=false")
    cluster.kubectl("delete", "persistentvolume", "torch", "--wait=false")


def test_one_command_trains_on_two_nodes_whose_pods_measure_themselves(site: Site, project: str) -> None:
    words = ("mnist", "--nodes=2", "--steps=5", "--warmup=1", "--batch-size=8", f"--environment=kubernetes:{WORKLOADS}")
    with site.beside("project") as own:
        del own.node.environment["GPUAGENT_NODE_NAME"]
        own.be("ada", project, "--volume torch:/torch:ro --platform lab")
        own.node.run("gpuagent", "run", *words)
    found = site.find("mnist")
    assert (found["workload"], found["status"], found["nodes"]) == ("mnist", "succeeded", 2)
    asked = f"FROM run_requests JOIN sessions USING (session_id) WHERE run_id = '{found['run_id']}'"
    assert site.ask(f"SELECT count(*) AS n, count(DISTINCT hostname) AS nodes {asked}") == [{"n": 2, "nodes": 2}]
    ranks = f"SELECT count(DISTINCT rank) AS n FROM results WHERE run_id = '{found['run_id']}'"
    assert site.ask(ranks) == [{"n": 2}]
    site.cluster.wait_until_clear(project)
    assert "gpuagent" not in site.cluster.kubectl("get", "services", f"--namespace={project}", "--output=name")


def test_the_job_torchrun_is_one_run_over_two_nodes(deployed: Deployment, project: str, tmp_path: Path) -> None:
    cluster = deployed.cluster
    deployed.documented("kubectl label namespace team-a gpuagent/collector=allowed")
    deployed.documented(
        "(umask 077; kubectl -n gpuagent exec gpuagent-collector-0 -- "
        "collector tokens create agent --any-node --name team-a > team-a.token)",
        folder=tmp_path,
    )
    deployed.documented("kubectl -n team-a apply -f deploy/kubernetes/jobs/rights.yaml")
    token = (tmp_path / "team-a.token").read_text()
    for secret, key in (("gpuagent-token", "token"), ("gpuagent-collector-tls", "ca.crt")):
        words = ("create", "secret", "generic", secret, f"--namespace={project}", f"--from-file={key}=/dev/stdin")
        cluster.kubectl(*words, text=token)
    found = read_all(cluster.kubectl("kustomize", str(REPOSITORY / "deploy/kubernetes/jobs/torchrun")))
    (job,) = (each for each in found if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # This machine has no GPU, two cores, and torch on a volume.
    container["args"] = [word.replace("resnet18", "mnist").replace("=200", "=5") for word in container["args"]]
    container["resources"] = {}
    container["volumeMounts"].append({"name": "torch", "mountPath": "/torch", "readOnly": True})
    pod["volumes"].append({"name": "torch", "persistentVolumeClaim": {"claimName": "torch", "readOnly": True}})
    cluster.kubectl("apply", f"--namespace={project}", "--filename=-", text="\n---\n".join(map(json.dumps, found)))
    wait = ("wait", f"--namespace={project}", "job/gpuagent-torchrun", "--timeout=400s")
    cluster.kubectl(*wait, "--for=condition=Complete")
    (run,) = deployed.ask("SELECT status, nodes, run_id FROM runs WHERE workload = 'gpuagent_workloads' OR nodes = 2")
    assert (run["status"], run["nodes"]) == ("succeeded", 2)
    ranks = "SELECT count(DISTINCT rank) AS ranks, count(DISTINCT node_id) AS nodes FROM results"
    assert deployed.ask(f"{ranks} WHERE run_id = '{run['run_id']}'") == [{"ranks": 2, "nodes": 2}]
