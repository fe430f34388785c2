"""Where a GPU can be had: the zones that offer it, and the quota that the project has there."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import QUOTA_PAGE, Shell, say
from deploy.kubernetes.problems import DeployError, MisuseError

# Tried first where the user names no region: it has the most kinds of GPUs.
FIRST_REGION = "us-central1"

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A zone that has a kind of GPU.

    Attributes:
        zone: its name.
        most: GPUs that one machine there can have; None: not told.
    """

    zone: str
    most: int | None

    @property
    def region(self) -> str:
        """The region that it lies in."""
        return self.zone.rsplit("-", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many GPUs a project may have, and has."""

    metric: str
    limit: float
    usage: float

    @property
    def free(self) -> float:
        """What is left; never less than nothing, though a limit can be lowered below what is in use."""
        return max(0.0, self.limit - self.usage)


def parse_offers(answer: Any, accelerator: str) -> tuple[Offer, ...]:
    """Return the zones in `gcloud compute accelerator-types list --format=json`, by name.

    What is no zone, of another accelerator or being retired there is passed over.
    """
    offers = {}
    for entry in answer if isinstance(answer, list) else ():
        if not isinstance(entry, dict) or entry.get("name") != accelerator or entry.get("deprecated"):
            continue
        zone = str(entry.get("zone", "")).rsplit("/", 1)[-1]
        if _ZONE.fullmatch(zone):
            most = entry.get("maximumCardsPerInstance")
            offers[zone] = Offer(zone=zone, most=most if isinstance(most, int) else None)
    return tuple(offers[zone] for zone in sorted(offers))


def parse_quota(answer: Any, metric: str) -> Quota | None:
    """Return one quota of a region in `gcloud compute regions list`, or of `project-info describe`; None: not told."""
    quotas = answer.get("quotas") if isinstance(answer, dict) else None
    for entry in quotas if isinstance(quotas, list) else ():
        if isinstance(entry, dict) and entry.get("metric") == metric:
            limit, usage = entry.get("limit"), entry.get("usage", 0.0)
            if isinstance(limit, int | float) and isinstance(usage, int | float):
                return Quota(metric=metric, limit=limit, usage=usage)
    return None


def find_offers(
    shell: Shell, accelerator: Accelerator, count: int, *, regions: Sequence[str], zones: Sequence[str]
) -> tuple[Offer, ...]:
    """Return the zones to try, in this order: as the user named them, or else `FIRST_REGION` and then all others.

    Args:
        count: GPUs of one machine.
        regions: only in these, where some are named.
        zones: only these, where some are named.

    Raises:
        MisuseError: the GPU is nowhere among what was named, and where it is.
        DeployError: no zone has it any more.
        GcloudError: gcloud refused to tell.
    """
    answer = shell.ask("compute", "accelerator-types", "list", f"--filter=name={accelerator.name}")
    offers = [offer for offer in parse_offers(answer, accelerator.name) if offer.most is None or offer.most >= count]
    if not offers:
        raise DeployError(f"no zone offers {count} {accelerator.name} in one machine to this project any more")
    wanted = [offer for offer in offers if not (regions or zones) or offer.zone in zones or offer.region in regions]
    if not wanted:
        places = sorted({offer.zone if zones else offer.region for offer in offers})
        raise MisuseError(
            f"{accelerator.name} is not offered in {', '.join((*zones, *regions))}, but in {', '.join(places)}"
        )
    order = [*zones, *regions, FIRST_REGION]
    rank = {name: place for place, name in reversed(list(enumerate(order)))}
    return tuple(sorted(wanted, key=lambda offer: min(rank.get(offer.zone, 99), rank.get(offer.region, 99))))


def with_quota(
    shell: Shell, offers: Iterable[Offer], accelerator: Accelerator, gpus: int, *, spot: bool
) -> tuple[Offer, ...]:
    """Return the offers in regions whose quota has room for so many GPUs; say which have none.

    Where the API tells no quota, the region stays: Google Cloud refuses then if it must.

    Raises:
        DeployError: nowhere is room.
        GcloudError: gcloud refused to tell.
    """
    offers = tuple(offers)
    _check_everywhere(parse_quota(shell.ask("compute", "project-info", "describe"), "GPUS_ALL_REGIONS"), gpus)
    if accelerator.quota is None:
        say(f"quota: the API has no metric for {accelerator.name}; Google Cloud refuses later if it is too small")
        return offers
    metric = f"PREEMPTIBLE_{accelerator.quota}" if spot else accelerator.quota
    answer = shell.ask("compute", "regions", "list")
    told = {each.get("name"): parse_quota(each, metric) for each in answer} if isinstance(answer, list) else {}
    regions = dict.fromkeys(offer.region for offer in offers)
    rooms = {region: _has_room(region, told.get(region), gpus) for region in regions}
    left = tuple(offer for offer in offers if rooms[offer.region])
    if not left:
        raise DeployError(
            f"no region has quota for {gpus} more {accelerator.name}; ask for more {metric} at {QUOTA_PAGE}"
        )
    return left


def _check_everywhere(quota: Quota | None, gpus: int) -> None:
    if quota and quota.free < gpus:
        raise DeployError(
            f"the project may have {quota.limit:g} GPUs over all regions and has {quota.usage:g}; {gpus} more are "
            f"needed: ask for more GPUS_ALL_REGIONS at {QUOTA_PAGE}"
        )


def _has_room(region: str, quota: Quota | None, gpus: int) -> bool:
    if quota and quota.free < gpus:
        say(f"quota: {region} is passed over: {quota.metric} is {quota.limit:g}, {quota.usage:g} in use, {gpus} needed")
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Machines in one or several zones of a region, equally many in each.

    Attributes:
        zones: where they are.
        nodes_per_zone: machines in each.
    """

    zones: tuple[str, ...]
    nodes_per_zone: int

    @property
    def region(self) -> str:
        """The region that all zones lie in."""
        return self.zones[0].rsplit("-", 1)[0]

    @property
    def location(self) -> str:
        """The zone, or the region where there are several."""
        return self.region if len(self.zones) > 1 else self.zones[0]

    def __str__(self) -> str:
        return f"{', '.join(self.zones)} ({self.nodes_per_zone} in each)" if len(self.zones) > 1 else self.zones[0]


def placements(offers: Sequence[Offer], nodes: int) -> Iterator[Placement]:
    """Yield where so many machines can go, region by region: over as many zones as divide them, then in single ones."""
    for region in dict.fromkeys(offer.region for offer in offers):
        zones = [offer.zone for offer in offers if offer.region == region]
        spread = max(parts for parts in range(1, min(nodes, len(zones)) + 1) if nodes % parts == 0)
        for parts in dict.fromkeys((spread, 1)):
            for chosen in itertools.combinations(zones, parts):
                yield Placement(zones=chosen, nodes_per_zone=nodes // parts)
