"""The overlays, and a deployment's whole life, in a real Kubernetes."""

import json
import re
import ssl
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from tests.support.cluster import NODES, Cluster, on, read_all
from tests.support.deployment import LOADED_SECONDS, PAGES, Deployment, launch
from tests.support.servers import BIN, until

pytestmark = [pytest.mark.timeout(1500), pytest.mark.needs("make"), on("plain")]

LAKE = ("STORE=ducklake:postgres:host=db1 dbname=lake user=lake", "DATA=s3://bucket/lake")
IMAGES = ("agent", "collector")
WORKLOADS = ("DaemonSet", "StatefulSet", "Deployment", "CronJob")


@pytest.fixture
def deployed(cluster: Cluster) -> Deployment:
    """The deployment; a test that changes it changes it back."""
    found = Deployment(cluster=cluster)
    if "gpuagent-agent" not in cluster.kubectl("get", "daemonsets", "--all-namespaces", "--output=name"):
        found.deploy()
    return found


@pytest.mark.parametrize("overlay", ["generic", "gke", "no-gpu", "scale"])
def test_the_api_server_accepts_every_overlay_and_restricts_all_but_agents(cluster: Cluster, overlay: str) -> None:
    manifests = cluster.make("render", f"OVERLAY={overlay}", "LAUNCH=yes", *(LAKE if overlay == "scale" else ()))
    levels = {"gpuagent": "enforce=privileged", "gpuagent-runs": "enforce=restricted", "restricted": "warn=restricted"}
    for name, level in levels.items():
        cluster.kubectl("create", "namespace", name, code=None)
        cluster.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{level}", "--overwrite")
    dry = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")
    cluster.kubectl(*dry, text=manifests)
    workloads = [each for each in read_all(manifests) if each["kind"] in WORKLOADS]
    assert workloads
    for each in workloads:
        metadata = {"name": each["metadata"]["name"], "namespace": "restricted"}
        printed = cluster.kubectl(*dry, text=json.dumps({**each, "metadata": metadata}))
        assert ("would violate PodSecurity" in printed) is (each["kind"] == "DaemonSet"), printed


def test_a_deployment_is_complete_and_repeating_it_changes_nothing(deployed: Deployment) -> None:
    deployed.goes_on()
    assert "Running" in deployed.documented("kubectl -n gpuagent get pods -o wide")
    shown = deployed.documented("kubectl -n gpuagent exec gpuagent-collector-0 -- collector nodes")
    assert all(node in shown for node in NODES)
    assert "n2" in deployed.documented("kubectl -n gpuagent exec gpuagent-collector-0 -- collector watch --once")
    assert "nothing would change" in deployed.cluster.make("diff", *deployed.words)
    labels = deployed.kubectl("get", "namespace", "gpuagent", "--output=jsonpath={.metadata.labels}")
    deployed.deploy("MUTUAL_TLS=yes", code=2)
    assert deployed.kubectl("get", "namespace", "gpuagent", "--output=jsonpath={.metadata.labels}") == labels
    assert "privileged" in labels
    # The agents' own limits are not their nodes'.
    limits = "SELECT DISTINCT cpu_limit_cores AS cpus, memory_limit_bytes AS memory FROM sessions"
    of_agents = deployed.ask(f"{limits} WHERE labels ->> 'namespace' = 'gpuagent'")
    assert of_agents == [{"cpus": None, "memory": None}]


FROM_YOUR_MACHINE = """\
(umask 077; kubectl -n gpuagent exec gpuagent-collector-0 -- collector tokens create viewer --name me > gpuagent.token)
kubectl -n gpuagent port-forward service/gpuagent-collector 50051 9464 &
export GPUAGENT_TOKEN_FILE=$PWD/gpuagent.token GPUAGENT_CA_FILE=$PWD/gpuagent.token     # it holds both
"""
PODS = "kubectl get pods -A -o 'custom-columns=UID:.metadata.uid,NAMESPACE:.metadata.namespace,POD:.metadata.name'"


def test_somebody_with_a_token_asks_through_a_forwarded_port(deployed: Deployment, tmp_path: Path) -> None:
    page = (PAGES / "kubernetes.md").read_text()
    assert FROM_YOUR_MACHINE in page
    (query,) = re.findall(r'^collector query sql ".*?"$', page, re.DOTALL | re.MULTILINE)
    # Another port than the page's, which another collector of this machine may have.
    steps = [
        FROM_YOUR_MACHINE.replace("50051 9464", ":50051 >forwarded"),
        "trap 'kill $!' EXIT; timeout 60 sh -c 'until grep -q Forwarding forwarded; do sleep 0.1; done'",
        "export GPUAGENT_COLLECTOR=$(sed -n '1s/Forwarding from \\(.*\\) ->.*/\\1/p' forwarded)",
        query,
        "collector nodes --format json",
    ]
    variables = {**deployed.cluster.environment, "PATH": f"{BIN}:{deployed.cluster.environment['PATH']}"}
    words = ["bash", "-ec", "\n".join(steps)]
    done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f'"hostname": "{node}"' in done.stdout for node in NODES), done.stdout
    assert deployed.pods()[deployed.pod][0] in deployed.documented(PODS)


def test_the_commands_that_the_page_has_against_trouble_work(deployed: Deployment) -> None:
    assert "n1" in deployed.documented("kubectl get nodes -L nvidia.com/gpu.present,cloud.google.com/gke-accelerator")
    assert "amd64" in deployed.documented("kubectl get nodes -L kubernetes.io/arch")
    assert "local-path" in deployed.documented("kubectl get storageclass")
    deployed.documented("kubectl describe quota -A")
    deployed.cluster.kubectl("create", "namespace", "monitoring")
    deployed.documented("kubectl label namespace monitoring gpuagent/collector=allowed")
    deployed.documented("kubectl label namespace monitoring gpuagent/metrics=allowed")
    deployed.cluster.kubectl("delete", "namespace", "monitoring", "--wait=false")


def test_an_upgrade_with_mutual_tls_and_the_way_back_lose_nothing(deployed: Deployment) -> None:
    deployed.documented(
        "kubectl -n gpuagent exec gpuagent-collector-0 -- collector export --parquet /var/lib/gpuagent/backup"
    )
    printed = deployed.deploy("REGISTRY=localhost:1", code=2)
    assert "gpuagent-collector-0 collector ImagePullBackOff" in printed
    assert "cannot become ready" in printed
    for node in NODES:
        for name in (f"docker.io/library/gpuagent-{image}" for image in IMAGES):
            deployed.cluster.ctr(node, "images", "tag", "--force", f"{name}:0.1.0", f"{name}:next")
    deployed.documented("kubectl -n gpuagent delete secret gpuagent-collector-tls")
    # A StatefulSet would wait for the broken pod for ever.
    deployed.deploy("TAG=next", "MUTUAL_TLS=yes")
    path = "--output=jsonpath={.items[*].spec.containers[*].image}"
    assert set(deployed.kubectl("get", "pods", path).split()) == {f"gpuagent-{image}:next" for image in IMAGES}
    deployed.goes_on()
    without = "unset GPUAGENT_CLIENT_CERT GPUAGENT_CLIENT_KEY; collector nodes"
    refused = deployed.kubectl("exec", deployed.pod, "--", "sh", "-c", without, code=1)
    assert "client certificate" in refused
    assert launch(deployed, "next")["status"] == "succeeded"
    deployed.deploy()
    assert set(deployed.kubectl("get", "pods", path).split()) == {f"gpuagent-{image}:0.1.0" for image in IMAGES}
    deployed.goes_on()
    # Another test asks for mutual TLS without it.
    deployed.kubectl("delete", "secret", "gpuagent-client-tls")


def test_a_new_token_and_a_new_certificate_are_loaded_without_a_restart(deployed: Deployment) -> None:
    before = deployed.pods()
    deployed.documented("kubectl -n gpuagent exec gpuagent-collector-0 -- collector tokens revoke gpuagent-token")
    deployed.documented("kubectl -n gpuagent delete secret gpuagent-token")
    deployed.documented("kubectl -n gpuagent delete secret gpuagent-collector-tls")
    deployed.deploy()
    deployed.documented("kubectl -n gpuagent annotate pods --all --overwrite gpuagent/renewed=$(date +%s)")
    secret = json.loads(deployed.kubectl("get", "secret", "gpuagent-collector-tls", "--output=json"))
    new = b64decode(secret["data"]["tls.crt"]).decode().partition("-----END")[0]
    address = deployed.kubectl("get", "pod", deployed.pod, "--output=jsonpath={.status.podIP}")

    def is_served() -> bool:
        served = ssl.get_server_certificate((address, 9464)).partition("-----END")[0]
        return served.split() == new.split()

    until(is_served, "the new certificate", LOADED_SECONDS)
    deployed.goes_on()
    assert deployed.pods() == before


def test_what_is_undeployed_and_deployed_again_has_its_store(deployed: Deployment) -> None:
    (row,) = deployed.ask("SELECT count(*) AS n FROM sessions")
    deployed.cluster.make("undeploy", *deployed.words)
    assert "gpuagent-agent" not in deployed.kubectl("get", "daemonsets", "--output=name")
    assert "gpuagent-launch" not in deployed.cluster.kubectl("get", "roles", "--all-namespaces", "--output=name")
    deployed.deploy()
    (again,) = deployed.ask("SELECT count(*) AS n FROM sessions")
    assert int(str(again["n"])) >= int(str(row["n"]))
    deployed.goes_on()


def test_a_killed_collector_loses_nothing_and_stores_nothing_twice(deployed: Deployment) -> None:
    before = deployed.pods()[deployed.pod]
    deployed.kill_collector()
    until(lambda: deployed.pods()[deployed.pod] == (before[0], before[1] + 1), "the restart")
    deployed.kubectl("rollout", "status", "statefulset/gpuagent-collector", "--timeout=180s")
    deployed.goes_on()
    deployed.kubectl("delete", "pod", deployed.pod, "--grace-period=0", "--force")
    deployed.kubectl("rollout", "status", "statefulset/gpuagent-collector", "--timeout=180s")
    deployed.goes_on()


def test_a_drained_node_gives_the_collector_back_when_it_returns(deployed: Deployment) -> None:
    node, uid, _ = deployed.place()
    deployed.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
    # Its volume is on that node.
    until(
        lambda: "Pending" in deployed.kubectl("get", "pod", deployed.pod, "--output=jsonpath={.status.phase}"),
        "a new pod",
    )
    deployed.kubectl("uncordon", node)
    deployed.kubectl("rollout", "status", "statefulset/gpuagent-collector", "--timeout=180s")
    assert deployed.place()[1] != uid
    deployed.goes_on()


def test_a_crash_of_the_collectors_node_loses_nothing(deployed: Deployment) -> None:
    node, uid, container = deployed.place()
    deployed.cluster.crash(node)
    deployed.cluster.up()

    def is_back() -> bool:
        try:
            return deployed.place()[2] != container
        except (AssertionError, ValueError):
            return False

    until(is_back, "a new container", LOADED_SECONDS)
    deployed.goes_on()
    assert deployed.place()[1] == uid
