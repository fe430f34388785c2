"""Reading what gcloud tells of zones, quotas and refusals, and choosing places by it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.gcp.accelerators import ACCELERATORS, find_accelerator
from deploy.gcp.gcloud import GcloudError, Refusal, Shell
from deploy.gcp.places import Creation, Placement, parse_quota, parse_zones, placements, region_of, search
from deploy.kubernetes.problems import DeployError, MisuseError
from tests.unit.deploy.gke import google_cloud as texts

ZONES = st.from_regex(r"[a-z]{2,9}-[a-z]{4,12}[1-9]-[a-f]", fullmatch=True)
NUMBERS = st.floats(min_value=0, max_value=1e6)
_SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
ANYTHING = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["quotas", "metric", "limit", "name", "zone"]), inner)
    ),
    max_leaves=8,
)


@given(st.lists(ZONES, max_size=9), st.lists(ZONES, max_size=3))
def test_zones_are_those_that_have_the_accelerator_each_once_and_in_order(here: list[str], other: list[str]) -> None:
    answer = [*json.loads(texts.offers("nvidia-l4", *here, *here)), *json.loads(texts.offers("nvidia-l4-vws", *other))]
    assert parse_zones(answer, "nvidia-l4", 8) == sorted(set(here))
    assert parse_zones(answer, "nvidia-l4", 16) == []


@given(ANYTHING)
def test_an_answer_of_another_form_has_no_zones_and_no_quotas(answer: Any) -> None:
    assert all(isinstance(zone, str) for zone in parse_zones(answer, "nvidia-l4", 1))
    assert parse_quota(answer, "NVIDIA_L4_GPUS") is None


@given(st.dictionaries(st.sampled_from(["CPUS", "NVIDIA_L4_GPUS", "NVIDIA_T4_GPUS"]), NUMBERS))
def test_a_quota_is_told_or_absent_but_never_made_up(limits: dict[str, float]) -> None:
    found = parse_quota(json.loads(texts.quotas(**limits)), "NVIDIA_L4_GPUS")
    assert (found and found.limit) == limits.get("NVIDIA_L4_GPUS")


def test_a_quota_that_was_lowered_below_its_usage_has_no_room() -> None:
    found = parse_quota({"quotas": [{"metric": "X", "limit": 1.0, "usage": 4.0}]}, "X")
    assert found and found.lacks(1)


def test_a_search_goes_round_until_its_time_is_up() -> None:
    slept: list[float] = []
    attempts: list[Placement] = []

    def create(place: Placement) -> list[str]:
        attempts.append(place)
        raise GcloudError(["gcloud"], texts.machine_stock_out(place.zones[0]))

    creation = Creation(shell=Shell(dry_run=True), what="machine m", create=create, delete=lambda _: ["delete"])
    places = placements(["us-east1-b", "us-east1-c"], 1)
    with pytest.raises(DeployError, match="out of stock: machine m could not be created in 6 attempts"):
        search(creation, places, 3, clock=lambda: sum(slept), sleep=slept.append)
    assert slept == [60.0, 60.0]
    assert [place.zones[0][-1] for place in attempts] == [*"bcbcbc"]


@given(st.sets(ZONES, min_size=1, max_size=5), st.integers(1, 8))
def test_every_placement_has_all_nodes_in_zones_of_one_region(zones: set[str], nodes: int) -> None:
    places = list(placements(sorted(zones), nodes))
    assert all(len(place.zones) * place.nodes_per_zone == nodes for place in places)
    assert all({*map(region_of, place.zones)} == {place.zones[0].rsplit("-", 1)[0]} for place in places)
    assert {place.zones[0] for place in places if len(place.zones) == 1} == zones
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("said", "refusal", "zones"),
    [
        (texts.SIGNED_OUT, Refusal.OTHER, set()),
        (texts.API_OFF, Refusal.OTHER, set()),
        (texts.EXISTS, Refusal.EXISTS, set()),
        (texts.ABSENT, Refusal.ABSENT, set()),
        (texts.BUSY, Refusal.OTHER, set()),
        (texts.QUOTA, Refusal.QUOTA, set()),
        (texts.QUOTA_EVERYWHERE, Refusal.QUOTA_EVERYWHERE, set()),
        (texts.cluster_stock_out("us-east1-d"), Refusal.STOCK_OUT, {"us-east1-d"}),
        (texts.machine_stock_out("us-central1-b"), Refusal.STOCK_OUT, {"us-central1-b"}),
        ("ERROR: Required 'container.clusters.create' permission(s)", Refusal.OTHER, set()),
        ("", Refusal.OTHER, set()),
    ],
)
def test_refusals_are_known_by_gcloud_s_own_words(said: str, refusal: Refusal, zones: set[str]) -> None:
    error = GcloudError(["gcloud"], said)
    assert (error.refusal, set(error.empty_zones)) == (refusal, zones)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nvidia-t4", "nvidia-tesla-t4"),
        ("L4", "nvidia-l4"),
        ("nvidia-h100", "nvidia-h100-80gb"),
        ("☃", "there are nvidia-tesla-k80"),
        ("nvidia-tesla-k80", "is retired by Google Cloud; use nvidia-tesla-t4 instead"),
    ],
)
def test_a_wrong_or_retired_accelerator_is_answered_with_one_to_use(name: str, says: str) -> None:
    with pytest.raises(MisuseError) as refused:
        find_accelerator(name)
    assert says in str(refused.value)


def test_the_table_is_consistent() -> None:
    names = [accelerator.name for accelerator in ACCELERATORS]
    assert len(set(names)) == len(names)
    for accelerator in ACCELERATORS:
        assert accelerator.machine_types
        assert bool(accelerator.software) != bool(accelerator.instead)
        if accelerator.instead:
            assert find_accelerator(accelerator.instead).instead is None
