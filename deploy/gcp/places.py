"""The places of a GPU: zones that offer it, and the project's quota there."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import QUOTA_PAGE, Shell, say
from deploy.kubernetes.problems import DeployError, MisuseError

# The default region, with the most kinds of GPUs.
FIRST_REGION = "us-central1"

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A zone that has a kind of GPU.

    Attributes:
        most: GPUs that one machine there can have; None: unknown.
    """

    zone: str
    most: int | None

    @property
    def region(self) -> str:
        """The region of the zone."""
        return self.zone.rsplit("-", 1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A project's limit and usage of GPUs."""

    metric: str
    limit: float
    usage: float

    @property
    def free(self) -> float:
        """The unused part, at least 0: a limit can be lowered below the usage."""
        return max(0.0, self.limit - self.usage)


def parse_offers(answer: Any, accelerator: str) -> tuple[Offer, ...]:
    """Return the zones in `gcloud compute accelerator-types list --format=json`, by name.

    Entries of other accelerators, retired ones, and those without a zone are skipped.
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
    """Return a quota in an entry of `gcloud compute regions list`, or in `project-info describe`; None: unknown."""
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
    """Return the zones to try, in the order of the user's names, or `FIRST_REGION` before all others.

    Args:
        count: GPUs of one machine.
        regions: only in these; empty: any.
        zones: only these; empty: any.

    Raises:
        MisuseError: no named place has the GPU.
        DeployError: no zone has it any more.
        GcloudError: gcloud failed.
    """
    answer = shell.ask("compute", "accelerator-types", "list", f"--filter=name={accelerator.name}")
    offers = [offer for offer in parse_offers(answer, accelerator.name) if offer.most is None or offer.most >= count]
    if not offers:
        raise DeployError(f"no zone offers {count} {accelerator.name} in one machine to this project any more")
    wanted = [offer for offer in offers if not (regions or zones) or offer.zone in zones or offer.region in regions]
    if not wanted:
        places = sorted({offer.zone if zones else offer.region for offer in offers})
        raise MisuseError(
            f"{accelerator.name} is not offered in {', '.join((*zones, *regions))}; use one of {', '.join(places)}"
        )
    order = [*zones, *regions, FIRST_REGION]
    rank = {name: place for place, name in reversed(list(enumerate(order)))}
    return tuple(sorted(wanted, key=lambda offer: min(rank.get(offer.zone, 99), rank.get(offer.region, 99))))


def with_quota(
    shell: Shell, offers: Iterable[Offer], accelerator: Accelerator, gpus: int, *, spot: bool
) -> tuple[Offer, ...]:
    """Return the offers in regions with quota for this number of GPUs; print the skipped regions.

    A region with an unknown quota stays; Google Cloud rejects the machine later if the quota is too small.

    Raises:
        DeployError: every quota is too small.
        GcloudError: gcloud failed.
    """
    offers = tuple(offers)
    _check_everywhere(parse_quota(shell.ask("compute", "project-info", "describe"), "GPUS_ALL_REGIONS"), gpus)
    if accelerator.quota is None:
        say(f"quota: the API has no metric for {accelerator.name}; Google Cloud fails later if it is too small")
        return offers
    metric = f"PREEMPTIBLE_{accelerator.quota}" if spot else accelerator.quota
    answer = shell.ask("compute", "regions", "list")
    quotas = {each.get("name"): parse_quota(each, metric) for each in answer} if isinstance(answer, list) else {}
    regions = dict.fromkeys(offer.region for offer in offers)
    rooms = {region: _has_room(region, quotas.get(region), gpus) for region in regions}
    left = tuple(offer for offer in offers if rooms[offer.region])
    if not left:
        raise DeployError(
            f"no region has quota for {gpus} more {accelerator.name}; request more {metric} at {QUOTA_PAGE}"
        )
    return left


def _check_everywhere(quota: Quota | None, gpus: int) -> None:
    if quota and quota.free < gpus:
        raise DeployError(
            f"the project uses {quota.usage:g} of {quota.limit:g} GPUs over all regions; {gpus} more need a larger "
            f"GPUS_ALL_REGIONS: {QUOTA_PAGE}"
        )


def _has_room(region: str, quota: Quota | None, gpus: int) -> bool:
    if quota and quota.free < gpus:
        say(f"quota: skipping {region}: {quota.metric} is {quota.limit:g}, {quota.usage:g} in use, {gpus} needed")
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Machines in one or several zones of a region, the same number in each."""

    zones: tuple[str, ...]
    nodes_per_zone: int

    @property
    def region(self) -> str:
        """The region of all zones."""
        return self.zones[0].rsplit("-", 1)[0]

    @property
    def location(self) -> str:
        """The zone, or the region of several zones."""
        return self.region if len(self.zones) > 1 else self.zones[0]

    def __str__(self) -> str:
        return f"{', '.join(self.zones)} ({self.nodes_per_zone} in each)" if len(self.zones) > 1 else self.zones[0]


def placements(offers: Sequence[Offer], nodes: int) -> Iterator[Placement]:
    """Yield placements of `nodes` machines by region: over the most zones that divide them, then in single zones."""
    for region in dict.fromkeys(offer.region for offer in offers):
        zones = [offer.zone for offer in offers if offer.region == region]
        spread = max(parts for parts in range(1, min(nodes, len(zones)) + 1) if nodes % parts == 0)
        for parts in dict.fromkeys((spread, 1)):
            for chosen in itertools.combinations(zones, parts):
                yield Placement(zones=chosen, nodes_per_zone=nodes // parts)
