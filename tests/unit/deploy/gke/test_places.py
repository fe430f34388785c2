"""Reading what gcloud tells of zones, quotas and refusals, and choosing places by it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.gcp.accelerators import ACCELERATORS, find_accelerator
from deploy.gcp.gcloud import GcloudError, Refusal, refusal_of
from deploy.gcp.places import Offer, parse_offers, parse_quota, placements
from deploy.gke.idle import IdleWatch, pods_with_gpus
from deploy.kubernetes.problems import MisuseError
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
    assert [offer.zone for offer in parse_offers(answer, "nvidia-l4")] == sorted(set(here))


@given(ANYTHING)
def test_an_answer_of_another_form_has_no_zones_and_no_quotas(answer: Any) -> None:
    assert all(isinstance(offer, Offer) for offer in parse_offers(answer, "nvidia-l4"))
    assert parse_quota(answer, "NVIDIA_L4_GPUS") is None


@given(st.dictionaries(st.sampled_from(["CPUS", "NVIDIA_L4_GPUS", "NVIDIA_T4_GPUS"]), NUMBERS))
def test_a_quota_is_told_or_absent_but_never_made_up(limits: dict[str, float]) -> None:
    found = parse_quota(json.loads(texts.quotas(**limits)), "NVIDIA_L4_GPUS")
    assert (found and found.limit) == limits.get("NVIDIA_L4_GPUS")


def test_what_is_left_of_a_quota_is_never_less_than_nothing() -> None:
    found = parse_quota({"quotas": [{"metric": "X", "limit": 1.0, "usage": 4.0}]}, "X")
    assert found and found.free == 0


@given(st.sets(ZONES, min_size=1, max_size=5), st.integers(1, 8))
def test_every_placement_has_all_nodes_in_zones_of_one_region(zones: set[str], nodes: int) -> None:
    offers = [Offer(zone=zone, most=8) for zone in sorted(zones)]
    places = list(placements(offers, nodes))
    assert all(len(place.zones) * place.nodes_per_zone == nodes for place in places)
    assert all({zone.rsplit("-", 1)[0] for zone in place.zones} == {place.region} for place in places)
    assert {place.zones[0] for place in places if len(place.zones) == 1} == zones
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("said", "refusal", "zones"),
    [
        (texts.SIGNED_OUT, Refusal.SIGNED_OUT, set()),
        (texts.API_OFF, Refusal.API_OFF, set()),
        (texts.EXISTS, Refusal.EXISTS, set()),
        (texts.ABSENT, Refusal.ABSENT, set()),
        (texts.BUSY, Refusal.BUSY, set()),
        (texts.QUOTA, Refusal.QUOTA, set()),
        (texts.QUOTA_EVERYWHERE, Refusal.QUOTA_EVERYWHERE, set()),
        (texts.cluster_stock_out("us-east1-d"), Refusal.STOCK_OUT, {"us-east1-d"}),
        (texts.machine_stock_out("us-central1-b"), Refusal.STOCK_OUT, {"us-central1-b"}),
        ("ERROR: Required 'container.clusters.create' permission(s)", Refusal.FORBIDDEN, set()),
        ("", Refusal.OTHER, set()),
    ],
)
def test_refusals_are_known_by_gcloud_s_own_words(said: str, refusal: Refusal, zones: set[str]) -> None:
    error = GcloudError(["gcloud"], said)
    assert (refusal_of(said), error.refusal, set(error.empty_zones)) == (refusal, refusal, zones)


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


def pod(phase: str, gpus: int | None) -> dict[str, Any]:
    limits = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    return {"status": {"phase": phase}, "spec": {"containers": [{"resources": {"limits": limits}}, {}]}}


def test_only_pods_that_hold_or_await_gpus_keep_a_cluster() -> None:
    pods = [pod("Running", 1), pod("Pending", 2), pod("Succeeded", 1), pod("Failed", 1), pod("Running", None)]
    assert pods_with_gpus({"items": pods}) == 2


def test_a_cluster_is_idle_when_it_was_so_for_the_whole_time_and_could_be_asked() -> None:
    looks = iter([0, 1, 0, None, 0, 0, 0])
    slept: list[float] = []
    IdleWatch(minutes=3, look=lambda: next(looks), clock=lambda: sum(slept), sleep=slept.append).wait()
    assert not list(looks)
