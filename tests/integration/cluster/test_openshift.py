"""OpenShift: runs in a project, by somebody without any other right, and the overlay with all that it deploys."""

import json
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cluster import NODES, TINY, Cluster, Site, on, open_site
from tests.support.containers import short_folder
from tests.support.deployment import LOADED_SECONDS, NEWEST, Deployment, launch
from tests.support.emulation import install_by_pip
from tests.support.programs import need
from tests.support.servers import until
from tests.support.slurm import slurm

pytestmark = [pytest.mark.timeout(1500), on("openshift")]

PROJECT, USER = "study", "ada"


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    cluster.kubectl("delete", "namespace", PROJECT, "--ignore-not-found")
    cluster.make_project(PROJECT, USER)
    with open_site(cluster) as found:
        found.be(USER, PROJECT)
        yield found


def run(site: Site, name: str, *words: str, code: int = 0, options: Sequence[str] = (), pod: str = "") -> str:
    """Run a command in the tiny image, with options of its pod; return what was printed."""
    named = (f"--environment=kubernetes:{TINY}", "--platform=openshift", f"--name={name}", *options)
    with site.beside(name) as own:
        own.be(USER, PROJECT, pod)
        done = own.node.run("gpuagent", "run", *named, "--", *words, code=code)
    site.cluster.wait_until_clear(PROJECT)
    return done.stdout + done.stderr


def test_a_run_records_itself_as_any_other(site: Site) -> None:
    script = "echo '$$(HOME) is literal'; id; sleep 2; exit 3"
    printed = run(site, "first", "sh", "-c", script, code=3, options=["--cpus=0.5", "--memory=400M", "--label=a=b"])
    assert "no node of" in printed
    assert "$$(HOME) is literal" in printed
    found = site.find("first")
    assert (found["status"], found["exit_code"], found["reason"]) == ("failed", 3, "exit code 3")
    assert (found["platform"], found["environment"], found["image"]) == ("openshift", "kubernetes", TINY)
    assert found["limits"] == "cpus=0.5 memory=400M"
    (session,) = site.ask(f"SELECT * FROM sessions WHERE session_id = {found['session_id']}")
    assert session["hostname"] in ("n1", "n2")
    assert (session["orchestrator"], session["container"]) == ("openshift", "containerd")
    assert session["memory_limit_bytes"] == 400 * 2**20
    (image,) = site.ask(f"SELECT * FROM images WHERE run_id = '{found['run_id']}'")
    assert str(image["digest"]).startswith("sha256:")
    events = site.ask(f"SELECT name, detail FROM run_events WHERE run_id = '{found['run_id']}' ORDER BY time")
    assert [event["name"] for event in events][:2] == ["launch", "process"]
    assert "is literal" in json.dumps(events)
    assert site.ask(f"SELECT count(*) AS n FROM process_samples WHERE run_id = '{found['run_id']}'")[0]["n"]
    # Its requester's agent records nothing of it.
    assert site.ask(f"SELECT count(*) AS n FROM run_requests WHERE run_id = '{found['run_id']}'") == [{"n": 1}]


def test_a_pod_is_compared_with_a_node_of_another_processor(site: Site) -> None:
    run(site, "both", "sh", "-c", "exit 0", options=["--repeat=2"])
    with short_folder() as folder, site.beside("satori") as own:
        satori = install_by_pip("ppc64le", folder)
        options = ("--platform=satori", "--name=both", "--repeat=2")
        own.node.run(*satori.command(own.node, "run", *options, "--", "true"))
    compared = site.as_owner("collector", "compare", "satori", "openshift", "--all").stdout
    assert {"satori", "openshift", "ppc64le", platform.machine()} <= set(compared.split())


def test_what_ends_a_run_is_said_in_plain_words(site: Site) -> None:
    fill = "sleep 1; dd if=/dev/zero of=/dev/shm/x bs=1M count=600; sleep 60"
    with ThreadPoolExecutor() as pool:
        memory = pool.submit(run, site, "memory", "sh", "-c", fill, code=1, options=["--memory=300M"])
        late = pool.submit(run, site, "late", "sleep", "600", code=1, options=["--timeout=2"])
        absent = pool.submit(run, site, "absent", "no-such-program", code=127)
        without = pool.submit(run, site, "without-image", "true", code=1, pod="--agent-image=localhost:1/none:1")
    assert "memory limit (300M)" in memory.result()
    found = site.find("memory")
    assert (found["status"], found["reason"]) == ("failed", "its memory limit (300M) ran out, and the kernel ended it")
    assert "stopped after 2 s, its timeout" in late.result()
    assert site.find("late")["status"] == "timed_out"
    assert "start no-such-program" in absent.result()
    assert str(site.find("absent")["reason"]).startswith("the image cannot")
    found = site.find("without-image")
    assert "kubernetes: ErrImage" in without.result() or "ImagePullBackOff" in str(found["reason"])
    assert found["status"] == "failed"


def test_a_run_that_cannot_begin_is_refused(site: Site) -> None:
    site.be("eve", PROJECT)
    printed = site.node.run("gpuagent", "run", f"--environment=kubernetes:{TINY}", "--", "true", code=1).stderr
    assert "create Jobs" in printed
    site.be(USER, PROJECT, "--collector=127.0.0.1:50051")
    printed = site.node.run("gpuagent", "run", f"--environment=kubernetes:{TINY}", "--", "true", code=2).stderr
    assert "collector at 127.0.0.1:50051" in printed
    site.be(USER, PROJECT)


def test_an_end_from_outside_leaves_nothing(site: Site) -> None:
    site.end_each(PROJECT, signal.SIGINT, signal.SIGKILL, options=["--platform=openshift"])
    assert until(lambda: site.find("SIGINT")["status"] == "cancelled", "the run's end in the store")
    assert until(lambda: site.find("SIGKILL")["status"] == "cancelled", "the run's end in the store")


def test_a_pod_that_others_end_says_who(site: Site) -> None:
    words = (f"--environment=kubernetes:{TINY}", "--platform=openshift", "--name=evicted")
    script = ("--", "sh", "-c", "echo begun; sleep 600")
    process = site.node.start("gpuagent", "run", *words, *script, log="run.log")
    log = site.node.folder / "run.log"
    until(lambda: "begun" in log.read_text() or process.poll() is not None, "the program's first line")
    (pod,) = site.cluster.kubectl("get", f"--namespace={PROJECT}", "pods", "--output=name").split()
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.removeprefix("pod/"), "namespace": PROJECT},
    }
    path = f"/api/v1/namespaces/{PROJECT}/pods/{pod.removeprefix('pod/')}/eviction"
    site.cluster.kubectl("create", "--raw", path, "--filename=-", text=json.dumps(eviction))
    assert process.wait(timeout=120) == 1
    assert "it was evicted" in log.read_text()
    found = site.find("evicted")
    assert found["status"] == "failed"
    assert "it was evicted" in str(found["reason"])


STUDY = """
name: slurm-openshift
environments: [slurm, "kubernetes:{image}"]
repeats: 3
metric: throughput
options:
  kubernetes: --platform openshift
workloads:
  - command: {command}
answer: [compare --by platform]
"""
# A workload of any language: one line in the run directory.
REPORT = """
echo '{"t": '$(date +%s)'000000000, "event": "result", "name": "throughput", "value": '$(($$ % 7 + 100))'}' \\
    > $GPUAGENT_RUN_DIR/events.0.0.jsonl
"""


def test_one_file_compares_a_slurm_node_with_a_project_on_openshift(site: Site) -> None:
    need("slurmctld", "slurmd", "munged", "srun")
    (site.node.folder / "study.yaml").write_text(STUDY.format(image=TINY, command=json.dumps(["sh", "-c", REPORT])))
    with slurm() as runtime:
        site.node.environment.update(runtime.variables)
        done = site.node.run("gpuagent", "experiment", "run", "study.yaml", "--platform=satori")
    runs = site.ask(
        "SELECT platform, environment, count(*) AS n FROM runs "
        "WHERE experiment = 'slurm-openshift' AND status = 'succeeded' GROUP BY ALL ORDER BY ALL"
    )
    assert runs == [
        {"platform": "openshift", "environment": "kubernetes", "n": 3},
        {"platform": "satori", "environment": "slurm", "n": 3},
    ], done.stderr
    compared = site.as_owner("collector", "compare", "--by", "platform", "--experiment", "slurm-openshift").stdout
    assert "openshift" in compared
    assert "satori" in compared
    assert "throughput" in compared


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Deployment:
    cluster.kubectl("delete", "namespace", "gpuagent", "--ignore-not-found")
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    cluster.kubectl("apply", "--filename=-", text=json.dumps({**runtime_class, "handler": "nvidia"}))
    cluster.kubectl("label", "node", *NODES, "nvidia.com/gpu.present=true", "--overwrite")
    words = ("OVERLAY=openshift", "PLATFORM=openshift", "LAUNCH=yes", "HOST=gpuagent-http-gpuagent.apps.example.org")
    found = Deployment(cluster=cluster, words=words)
    found.deploy()
    return found


def test_the_overlay_of_openshift_comes_up_under_its_constraints_without_a_failure(deployed: Deployment) -> None:
    scc = "{range .items[*]}{.metadata.annotations.openshift\\.io/scc} {end}"
    held = deployed.kubectl("get", "pods", f"--output=jsonpath={scc}").split()
    assert sorted(held) == ["gpuagent-agent", "gpuagent-agent", "restricted-v2"]
    assert "No resources found" in deployed.kubectl("get", "events", "--field-selector=reason=FailedCreate")
    deployed.goes_on()

    def documented(command: str) -> str:
        return deployed.documented(command, "openshift.md")

    assert "Running" in documented("oc -n gpuagent get pods")
    shown = documented("oc -n gpuagent exec gpuagent-collector-0 -- collector nodes")
    assert all(node in shown for node in NODES)
    deployed.cluster.kubectl("get", "--namespace=gpuagent", "route", "gpuagent-grpc")
    documented("oc -n gpuagent get route gpuagent-http -o 'jsonpath=https://{.spec.host}/'")
    users = documented("oc get scc gpuagent-agent -o 'jsonpath={.users}'")
    assert "system:serviceaccount:gpuagent:gpuagent-agent" in users
    assert "nothing would change" in deployed.cluster.make("diff", *deployed.words)
    manifests = deployed.cluster.make("render", "OVERLAY=no-gpu", "LAUNCH=yes")
    deployed.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", text=manifests)


def test_agents_launch_jobs_under_the_constraint_of_everybody(deployed: Deployment) -> None:
    found = launch(deployed, "asked")
    assert (found["status"], found["environment"], found["hostname"]) == ("succeeded", "kubernetes", "n2")


# The last of its cluster: controllers and kubelets come back to an API server only after a minute.
@pytest.fixture
def api_server(deployed: Deployment) -> Iterator[Cluster]:
    """The cluster, whose API server is back after the test."""
    yield deployed.cluster
    deployed.cluster.up()


def test_a_minute_without_the_api_server_changes_nothing(deployed: Deployment, api_server: Cluster) -> None:
    node, _, container = deployed.place()
    before = deployed.pods()
    query = ("collector", "query", "sql", NEWEST, "--format=json")
    began = time.time_ns() // 1000
    api_server.stop_api_server()

    def has_minute() -> bool:
        printed = api_server.ctr(node, "tasks", "exec", f"--exec-id=ask-{time.time_ns()}", container, *query)
        rows = json.loads(printed.partition("reading the")[0])
        return all(int(row["newest"]) > began + 60_000_000 for row in rows)

    until(has_minute, "a minute of samples", LOADED_SECONDS)
    api_server.up()
    deployed.goes_on()
    assert deployed.pods() == before
