"""What a user may say of a deployment, and what contradicts itself."""

from typing import Any

import pytest

from deploy.kubernetes.composition import Deployment
from deploy.kubernetes.lake import Lake
from deploy.kubernetes.problems import MisuseError

STORE = "ducklake:postgres:host=db1 dbname=lake"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"store": "runs.duckdb"}, "STORE names a catalog in PostgreSQL"),
        ({"store": f"{STORE} password=x"}, "no password in STORE"),
        ({"store": "ducklake:postgres:postgresql://lake:x@db1/lake"}, "no password in STORE"),
        ({"store": STORE, "data": "/lake"}, "DATA names a bucket"),
        ({"store": STORE, "replicas": 0}, "REPLICAS takes a whole number from 1, not 0"),
        ({"store": STORE, "keep": "90"}, "KEEP takes a number and h, d or w, as 90d, not '90'"),
        ({"store": STORE, "keep": "0d"}, "KEEP takes a number"),
    ],
)
def test_what_pods_cannot_share_or_everybody_could_read_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        Lake(**said)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"lake": Lake(replicas=3)}, "name its STORE as well"),
        ({"lake": Lake(store=STORE), "collector": "c:1"}, "leave OVERLAY=scale and STORE out"),
        ({"overlay": "scale", "collector": "c:1"}, "leave OVERLAY=scale and STORE out"),
    ],
)
def test_one_collector_and_several_contradict_each_other(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        Deployment(**{"overlay": "generic", **said})


def test_a_lake_without_catalog_or_bucket_is_complete_enough_to_be_taken_away_but_not_to_run() -> None:
    assert Deployment(overlay="scale").collectors == "deployment/gpuagent-collector"
    with pytest.raises(MisuseError, match="several collectors need a store"):
        Lake(store=STORE).need_store()
