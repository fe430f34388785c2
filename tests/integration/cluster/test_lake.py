"""From one collector to several on a lake of PostgreSQL and a bucket, in a real Kubernetes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.buckets import Buckets, buckets
from tests.support.cluster import HOST, Cluster, on
from tests.support.deployment import LOADED_SECONDS, Deployment
from tests.support.postgres import Postgres, postgres
from tests.support.servers import Node

pytestmark = [pytest.mark.timeout(1500), pytest.mark.needs("make", "psql"), on("plain")]

COLLECTORS = "--selector=app.kubernetes.io/component=collector"


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Postgres]:
    with postgres(address=HOST) as running:
        yield running


@pytest.fixture(scope="module")
def s3(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buckets]:
    folder = tmp_path_factory.mktemp("s3") / "buckets"
    (folder / "bucket").mkdir(parents=True)
    with buckets(folder, HOST) as running:
        yield running


def test_several_collectors_take_over_from_one(cluster: Cluster, server: Postgres, s3: Buckets, tmp_path: Path) -> None:
    one = Deployment(cluster=cluster)
    one.deploy()
    one.goes_on()
    lake = f"ducklake:postgres:{server.database()}"
    (tmp_path / "lake.env").write_text("".join(f"{name}={value}\n" for name, value in s3.environment.items()))

    # As docs/deploy/scale.md has it.
    def documented(command: str, page: str = "scale.md") -> str:
        return one.documented(command, page, tmp_path)

    documented("kubectl -n gpuagent delete daemonset gpuagent-agent")
    to_export = "collector export --parquet /var/lib/gpuagent/export"
    documented(f"kubectl -n gpuagent exec gpuagent-collector-0 -- {to_export}")
    sessions = one.ask("SELECT count(*) AS n FROM sessions")
    documented("kubectl cp gpuagent/gpuagent-collector-0:/var/lib/gpuagent/export export")
    cluster.make("undeploy", *one.words)
    documented("kubectl -n gpuagent delete secret gpuagent-token")
    words = ("OVERLAY=no-gpu", "PLATFORM=lab", f"STORE={lake}", "DATA=s3://bucket/lake", "REPLICAS=2")
    several = Deployment(cluster=cluster, words=words, pod="deployment/gpuagent-collector")
    several.deploy(f"LAKE_FILE={tmp_path / 'lake.env'}")
    with Node(tmp_path) as here:
        here.environment |= s3.environment
        here.run("collector", "import", "export", "--store", lake)
    documented("kubectl -n gpuagent delete pvc store-gpuagent-collector-0")
    several.goes_on()
    (row,) = several.ask("SELECT count(*) AS n FROM sessions")
    assert int(str(row["n"])) >= int(str(sessions[0]["n"])) + 2
    assert "nothing would change" in cluster.make("diff", *words)

    # One of two may be taken at a time.
    names = several.kubectl("get", "pods", COLLECTORS, "--output=jsonpath={.items[*].metadata.name}").split()
    assert len(names) == 2
    assert evict(several, names[0], code=0)
    assert "pod's disruption budget" in evict(several, names[1], code=1)
    several.kubectl("rollout", "status", several.pod, "--timeout=180s")

    # One is killed while agents deliver to it.
    held = "SELECT count(*) AS n FROM session_owners"
    assert several.ask(held)
    victim = several.kubectl("get", "pods", COLLECTORS, "--output=jsonpath={.items[0].metadata.name}")
    Deployment(cluster=cluster, pod=victim).kill_collector()
    several.kubectl("rollout", "status", several.pod, "--timeout=180s")
    several.goes_on()

    documented("kubectl -n gpuagent create job compact-now --from=cronjob/gpuagent-compact")
    several.kubectl("wait", "job/compact-now", "--for=condition=Complete", f"--timeout={LOADED_SECONDS:.0f}s")
    assert "files" in several.kubectl("logs", "job/compact-now")
    assert list(s3.folder.glob("bucket/lake/main/host_samples/**/*.parquet"))
    several.check_counts()

    cluster.make("undeploy", *words)
    documented("kubectl --context=lab delete namespace gpuagent", "kubernetes.md")


def evict(deployment: Deployment, pod: str, *, code: int) -> str:
    metadata = {"name": pod, "namespace": "gpuagent"}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/gpuagent/pods/{pod}/eviction"
    return deployment.kubectl("create", "--raw", path, "--filename=-", text=json.dumps(eviction), code=code)
