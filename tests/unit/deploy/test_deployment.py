"""What a user may say of a deployment, and what contradicts itself."""

import os
from typing import Any

import pytest

from deploy.kubernetes.composition import Deployment, Lake, Retention
from deploy.kubernetes.problems import MisuseError
from gpuagent_common.connection import is_open_to_others

STORE = "ducklake:postgres:host=db1 dbname=lake"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"store": "runs.duckdb"}, "STORE takes a catalog in PostgreSQL"),
        ({"store": f"{STORE} password=x"}, "STORE has a password"),
        ({"store": "ducklake:postgres:postgresql://lake:x@db1/lake"}, "STORE has a password"),
        ({"store": STORE, "data": "/lake"}, "DATA takes a bucket"),
        ({"store": STORE, "replicas": 0}, "REPLICAS takes a whole number of at least 1; not 0"),
    ],
)
def test_what_pods_cannot_share_or_everybody_could_read_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        Lake(**said)


@pytest.mark.parametrize(("variable", "time"), [("keep", "90"), ("keep_raw", "0d"), ("keep_seconds", "")])
def test_a_time_that_the_collector_would_not_take_is_refused(variable: str, time: str) -> None:
    with pytest.raises(
        MisuseError, match=f"{variable.upper()} takes a number and h, d or w, such as 90d; not '{time}'"
    ):
        Retention(**{variable: time})


def test_what_would_be_kept_for_longer_than_what_it_becomes_is_refused_here_and_not_by_the_pod() -> None:
    assert Retention(keep_raw="36h", keep_seconds="2d", keep="1w").arguments() == [
        "--keep-raw=36h",
        "--keep-seconds=2d",
        "--keep=1w",
    ]
    with pytest.raises(MisuseError, match=r"^KEEP_RAW .* KEEP$"):
        Retention(keep_raw="2w", keep="14d")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"lake": Lake(replicas=3)}, "give STORE as well"),
        ({"retention": Retention(keep="90d"), "collector": "c:1"}, "leave KEEP, KEEP_RAW, KEEP_SECONDS out"),
        ({"lake": Lake(store=STORE), "collector": "c:1"}, "leave OVERLAY=scale and STORE out"),
        ({"overlay": "scale", "collector": "c:1"}, "leave OVERLAY=scale and STORE out"),
    ],
)
def test_one_collector_and_several_contradict_each_other(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        Deployment(**{"overlay": "generic", **said})


def test_a_lake_without_catalog_or_bucket_is_complete_enough_to_be_taken_away_but_not_to_run() -> None:
    assert Deployment(overlay="scale").collectors == "deployment/gpuagent-collector"
    with pytest.raises(MisuseError, match="several collectors need"):
        Lake(store=STORE).need_store()


POD = 65532


@pytest.mark.parametrize(
    ("mode", "owner", "user", "is_open"),
    [
        (0o100440, 0, POD, False),
        (0o100400, 0, 0, False),
        (0o100600, POD, POD, False),
        (0o100440, 0, 0, True),
        (0o100440, POD, POD, True),
        (0o100460, 0, POD, True),
        (0o100444, 0, POD, True),
    ],
)
def test_only_a_pods_group_may_read_what_is_roots(
    monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, user: int, is_open: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert is_open_to_others(os.stat_result((mode, 0, 0, 0, owner, 0, 0, 0, 0, 0))) is is_open
