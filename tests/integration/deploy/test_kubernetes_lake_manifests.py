"""Several collectors on a lake, as the manifests have them, and how long samples are kept."""

import pytest

from tests.support.manifests import jobs_of, one, pod_of, pods, render

pytestmark = pytest.mark.needs("kubectl")

# What has several collectors.
LAKES = ("overlays/scale", "openshift, a lake, mutual TLS by cert-manager")


@pytest.mark.parametrize("lake", LAKES)
def test_several_collectors_keep_nothing_and_the_one_with_a_volume_is_not_there(lake: str) -> None:
    kinds = {each["kind"] for each in render(lake)}
    assert "Deployment" in kinds
    assert "StatefulSet" not in kinds
    deployment = one(lake, "Deployment", "gpuagent-collector")
    assert not {"serviceName", "volumeClaimTemplates"} & deployment["spec"].keys()
    volumes = [set(volume) - {"name"} for volume in (pod_of(deployment) or {})["volumes"]]
    assert {kind for volume in volumes for kind in volume} == {"emptyDir", "secret"}
    assert one(lake, "PodDisruptionBudget", "gpuagent-collector")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("lake", LAKES)
def test_nothing_that_opens_the_lake_stands_in_a_manifest(lake: str) -> None:
    for container in pods(lake):
        of_lake = container.name in ("collector", "compact")
        assert container.spec.get("envFrom", []) == ([{"secretRef": {"name": "gpuagent-lake"}}] if of_lake else [])
    assert not [each for each in render(lake) if each["kind"] == "Secret"]


@pytest.mark.parametrize("lake", LAKES)
def test_compaction_runs_every_hour_and_never_twice_at_once_and_is_no_collector_to_the_service(lake: str) -> None:
    job = one(lake, "CronJob", "gpuagent-compact")
    assert job["spec"]["schedule"].split()[1:] == ["*", "*", "*", "*"]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    labels = jobs_of(job)["template"]["metadata"]["labels"]
    selector = one(lake, "Service", "gpuagent-collector")["spec"]["selector"]
    assert not selector.items() <= labels.items()


def test_what_the_user_says_of_a_lake_stands_where_collectors_and_compaction_read_it() -> None:
    lake = LAKES[1]
    (settings,) = (each for each in render(lake) if each["metadata"]["name"].startswith("gpuagent-lake-"))
    assert settings["data"] == {"store": "ducklake:postgres:host=db1 dbname=lake user=lake", "data": "s3://bucket/lake"}
    assert one(lake, "Deployment", "gpuagent-collector")["spec"]["replicas"] == 5
    (compact,) = (each for each in pods(lake) if each.name == "compact")
    assert compact.spec["args"] == ["compact", "--store=$(STORE)", "--keep-raw=7d", "--keep=90d"]


def test_one_collector_thins_out_its_own_store() -> None:
    (collector,) = (each for each in pods("mutual TLS") if each.name == "collector")
    assert collector.spec["args"][-2:] == ["--keep-raw=7d", "--keep=90d"]
