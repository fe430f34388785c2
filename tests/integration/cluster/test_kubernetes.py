"""The overlays, a deployment's whole life, and runs that the agent of their node follows, in a real Kubernetes."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.cluster import TINY, Cluster, Site, open_site
from tests.support.servers import until

pytestmark = [pytest.mark.timeout(1500), pytest.mark.needs("make")]

LAKE = ("STORE=ducklake:postgres:host=db1 dbname=lake user=lake", "DATA=s3://bucket/lake")
INSIDE = ("exec", "--namespace=gpuagent", "gpuagent-collector-0", "--")


def ask(cluster: Cluster, sql: str) -> list[dict[str, object]]:
    words = ("collector", "query", "sql", sql, "--format=json")
    rows: list[dict[str, object]] = json.loads(cluster.kubectl(*INSIDE, *words).partition("reading the")[0])
    return rows


def stored_twice_or_lost(cluster: Cluster) -> list[dict[str, object]]:
    return ask(
        cluster,
        "SELECT (SELECT count(*) - count(DISTINCT (session_id, time)) FROM host_samples) AS twice, "
        "(SELECT count(*) FROM gaps) AS lost",
    )


@pytest.mark.parametrize("overlay", ["generic", "gke", "no-gpu", "scale"])
def test_the_api_server_accepts_every_overlay(plain: Cluster, overlay: str) -> None:
    manifests = plain.make("render", f"OVERLAY={overlay}", *(LAKE if overlay == "scale" else ()))
    plain.kubectl("create", "namespace", "gpuagent", "--dry-run=client", "--output=name")
    if "gpuagent" not in plain.kubectl("get", "namespaces", "--output=name"):
        plain.kubectl("create", "namespace", "gpuagent")
    plain.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", text=manifests)


@pytest.fixture(scope="module")
def deployed(plain: Cluster) -> Cluster:
    plain.make("deploy-daemonset", "OVERLAY=no-gpu", "PLATFORM=lab")
    return plain


def test_a_deployment_is_complete_and_repeating_it_changes_nothing(deployed: Cluster) -> None:
    until(
        lambda: {row["hostname"] for row in ask(deployed, "SELECT hostname FROM nodes")} == {"n1", "n2"}, "both nodes"
    )
    assert "nothing would change" in deployed.make("diff", "OVERLAY=no-gpu", "PLATFORM=lab")
    labels = deployed.kubectl("get", "namespace", "gpuagent", "--output=jsonpath={.metadata.labels}")
    deployed.make("deploy-daemonset", "OVERLAY=no-gpu", "PLATFORM=lab", "MUTUAL_TLS=yes", code=2)
    assert deployed.kubectl("get", "namespace", "gpuagent", "--output=jsonpath={.metadata.labels}") == labels
    assert "privileged" in labels
    # The agents' own limits are not their nodes'.
    assert ask(deployed, "SELECT cpu_limit_cores, memory_limit_bytes FROM nodes LIMIT 1") == [
        {"cpu_limit_cores": None, "memory_limit_bytes": None}
    ]


def test_a_killed_collector_and_a_crashed_node_lose_nothing_and_store_nothing_twice(deployed: Cluster) -> None:
    deployed.kubectl("delete", "--namespace=gpuagent", "pod", "gpuagent-collector-0", "--grace-period=0", "--force")
    deployed.kubectl("rollout", "status", "--namespace=gpuagent", "statefulset/gpuagent-collector", "--timeout=180s")
    newest = "SELECT hostname, max(time) AS newest FROM host_samples JOIN nodes USING (node_id) GROUP BY ALL"
    before = {row["hostname"]: str(row["newest"]) for row in ask(deployed, newest)}

    def goes_on() -> bool:
        now = {row["hostname"]: str(row["newest"]) for row in ask(deployed, newest)}
        return all(now.get(name, "") > time for name, time in before.items())

    until(goes_on, "samples of both nodes")
    assert stored_twice_or_lost(deployed) == [{"twice": 0, "lost": 0}]


def test_an_image_that_does_not_exist_ends_the_wait_and_names_the_pod(deployed: Cluster) -> None:
    printed = deployed.make("deploy-daemonset", "OVERLAY=no-gpu", "PLATFORM=lab", "REGISTRY=localhost:1", code=2)
    assert "gpuagent-collector-0 collector ImagePullBackOff" in printed
    assert "cannot become ready" in printed
    # A StatefulSet would wait for the broken pod for ever.
    deployed.make("deploy-daemonset", "OVERLAY=no-gpu", "PLATFORM=lab")


def test_what_is_undeployed_and_deployed_again_has_its_store(deployed: Cluster) -> None:
    (row,) = ask(deployed, "SELECT count(*) AS n FROM sessions")
    deployed.make("undeploy", "OVERLAY=no-gpu")
    assert "gpuagent-agent" not in deployed.kubectl("get", "--namespace=gpuagent", "daemonsets", "--output=name")
    deployed.make("deploy-daemonset", "OVERLAY=no-gpu", "PLATFORM=lab")
    (again,) = ask(deployed, "SELECT count(*) AS n FROM sessions")
    assert int(str(again["n"])) >= int(str(row["n"]))
    assert stored_twice_or_lost(deployed) == [{"twice": 0, "lost": 0}]


@pytest.fixture(scope="module")
def site(plain: Cluster) -> Iterator[Site]:
    with open_site(plain) as found:
        found.node.environment["GPUAGENT_NODE_NAME"] = "n1"
        found.be("admin", "default")
        found.node.environment["GPUAGENT_KUBERNETES"] = "kubectl"
        yield found


def run(site: Site, *words: str, code: int = 0, options: tuple[str, ...] = ()) -> str:
    done = site.node.run("gpuagent", "run", f"--environment=kubernetes:{TINY}", *options, "--", *words, code=code)
    until(lambda: site.cluster.left("default") == "", "the end of the pod")
    return done.stdout + done.stderr


def last(site: Site) -> dict[str, object]:
    return site.ask("SELECT * FROM runs ORDER BY queued_at DESC LIMIT 1")[0]


def test_the_agent_of_a_node_follows_a_job_whose_program_is_the_container_s_first_process(site: Site) -> None:
    printed = run(site, "sh", "-c", "echo '$$ $(HOME)'; sleep 3; exit 3", code=3, options=("--cpus=1", "--memory=64M"))
    assert "the pod measures itself" not in printed
    assert "$$ $(HOME)" in printed
    found = last(site)
    assert (found["status"], found["exit_code"]) == ("failed", 3)
    (row,) = site.ask(f"SELECT max(processes) AS most FROM process_samples WHERE run_id = '{found['run_id']}'")
    assert int(str(row["most"])) >= 2  # the shell and its sleep
    assert site.ask(f"SELECT count(*) AS n FROM run_requests WHERE run_id = '{found['run_id']}'") == [{"n": 1}]


def test_the_limits_and_the_ends_of_a_followed_job(site: Site) -> None:
    run(site, "dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=200", code=137, options=("--memory=64M",))
    assert last(site)["reason"] == "its memory limit (64M) ran out, and the kernel ended it"
    run(site, "no-such-program", code=127)
    assert 'cannot start the program: "no-such-program"' in str(last(site)["reason"])
    run(site, "sleep", "600", code=1, options=("--timeout=5",))
    assert last(site)["status"] == "timed_out"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_followed_job(site: Site, number: signal.Signals) -> None:
    words = ("--environment", f"kubernetes:{TINY}", "--", "sh", "-c", "echo begun; sleep 600")
    process = site.node.start("gpuagent", "run", *words, log="run.log")
    log = site.node.folder / "run.log"
    until(lambda: "begun" in log.read_text() or process.poll() is not None, "the program's first line")
    assert process.poll() is None, log.read_text()
    os.kill(process.pid, number)
    process.wait(timeout=60)
    until(lambda: site.cluster.left("default") == "", "the end of the pod")
