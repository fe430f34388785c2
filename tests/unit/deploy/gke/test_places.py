"""Reading what gcloud tells of zones, quotas and refusals, and choosing places by it."""

import json
import math
from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.gcp.accelerators import ACCELERATORS, RETIRED, find_accelerator
from deploy.gcp.gcloud import GcloudError, Refusal, Shell
from deploy.gcp.resources import Resource, free_gpus, parse_zones, search
from deploy.kubernetes.problems import DeployError
from tests.unit.deploy.gke import google_cloud as texts

ZONES = st.from_regex(r"[a-z]{2,9}-[a-z]{4,12}[1-9]-[a-f]", fullmatch=True)
NUMBERS = st.floats(min_value=0, max_value=1e6)


@given(st.lists(ZONES, max_size=9), st.lists(ZONES, max_size=3))
def test_zones_are_those_that_have_the_accelerator_each_once_and_in_order(here: list[str], other: list[str]) -> None:
    answer = [*json.loads(texts.offers("nvidia-l4", *here, *here)), *json.loads(texts.offers("nvidia-l4-vws", *other))]
    assert parse_zones(answer, "nvidia-l4", 8) == sorted(set(here))
    assert parse_zones(answer, "nvidia-l4", 16) == []


@given(st.dictionaries(st.sampled_from(["CPUS", "NVIDIA_L4_GPUS", "NVIDIA_T4_GPUS"]), NUMBERS))
def test_an_unknown_quota_limits_nothing(limits: dict[str, float]) -> None:
    assert free_gpus(json.loads(texts.quotas(**limits)), "NVIDIA_L4_GPUS") == limits.get("NVIDIA_L4_GPUS", math.inf)


def test_a_quota_that_was_lowered_below_its_usage_has_no_room() -> None:
    assert free_gpus({"quotas": [{"metric": "X", "limit": 1.0, "usage": 4.0}]}, "X") < 0


def test_a_search_goes_round_until_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    attempts: list[str] = []

    def attempt(_: Resource, zone: str) -> None:
        attempts.append(zone)
        raise GcloudError(["gcloud"], texts.machine_stock_out(zone))

    monkeypatch.setattr(Resource, "attempt", attempt)
    machine = Resource(shell=Shell(dry_run=True), kind=("compute", "instances"), name="m")
    with pytest.raises(DeployError, match="in 6 attempts"):
        search(machine, ["us-east1-b", "us-east1-c"], 3, clock=lambda: sum(slept), sleep=slept.append)
    assert slept == [60.0, 60.0]
    assert [zone[-1] for zone in attempts] == [*"bcbcbc"]


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        (texts.SIGNED_OUT, Refusal.OTHER),
        (texts.API_OFF, Refusal.OTHER),
        (texts.EXISTS, Refusal.EXISTS),
        (texts.ABSENT, Refusal.ABSENT),
        (texts.BUSY, Refusal.OTHER),
        (texts.QUOTA, Refusal.QUOTA),
        (texts.QUOTA_EVERYWHERE, Refusal.QUOTA_EVERYWHERE),
        (texts.cluster_stock_out("us-east1-d"), Refusal.STOCK_OUT),
        (texts.machine_stock_out("us-central1-b"), Refusal.STOCK_OUT),
        ("ERROR: Required 'container.clusters.create' permission(s)", Refusal.OTHER),
        ("", Refusal.OTHER),
    ],
)
def test_refusals_are_known_by_gcloud_s_own_words(said: str, refusal: Refusal) -> None:
    assert GcloudError(["gcloud"], said).refusal is refusal


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nvidia-t4", "nvidia-tesla-t4"),
        ("L4", "nvidia-l4"),
        ("nvidia-h100", "nvidia-h100-80gb"),
        ("☃", "there are nvidia-tesla-p4"),
    ],
)
def test_a_wrong_or_retired_accelerator_is_answered_with_one_to_use(name: str, says: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        find_accelerator(name)
    assert says in str(refused.value)


def test_the_table_is_consistent() -> None:
    names = [accelerator.name for accelerator in ACCELERATORS]
    assert len(set(names)) == len(names)
    for accelerator in ACCELERATORS:
        assert accelerator.machine_types
    assert set(RETIRED.values()) <= set(names)
