"""The places of a GPU, by what gcloud offers and the project's quota, and the search for one in stock."""

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import QUOTA_PAGE, GcloudError, Refusal, Shell, say
from deploy.kubernetes.problems import DeployError, MisuseError

# The default region, with the most kinds of GPUs.
FIRST_REGION = "us-central1"

_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_PAUSE_SECONDS = 60.0


class Quota(NamedTuple):
    """A project's limit and usage of GPUs."""

    limit: float
    usage: float

    def lacks(self, gpus: int) -> bool:
        """Return whether so many more do not fit."""
        return self.limit - self.usage < gpus


def region_of(zone: str) -> str:
    """Return the region of a zone."""
    return zone.rpartition("-")[0]


def parse_zones(answer: Any, accelerator: str, count: int) -> list[str]:
    """Return the zones in `gcloud compute accelerator-types list --format=json` with so many in a machine, by name."""
    zones = set()
    for entry in answer if isinstance(answer, list) else ():
        if isinstance(entry, dict) and entry.get("name") == accelerator and not entry.get("deprecated"):
            zone, most = str(entry.get("zone", "")).rpartition("/")[2], entry.get("maximumCardsPerInstance")
            if _ZONE.fullmatch(zone) and (not isinstance(most, int) or most >= count):
                zones.add(zone)
    return sorted(zones)


def parse_quota(answer: Any, metric: str) -> Quota | None:
    """Return a quota in an entry of `gcloud compute regions list`, or in `project-info describe`; None: unknown."""
    quotas = answer.get("quotas") if isinstance(answer, dict) else None
    for entry in quotas if isinstance(quotas, list) else ():
        if isinstance(entry, dict) and entry.get("metric") == metric:
            limit, usage = entry.get("limit"), entry.get("usage", 0.0)
            if isinstance(limit, int | float) and isinstance(usage, int | float):
                return Quota(limit, usage)
    return None


def find_zones(
    shell: Shell, accelerator: Accelerator, count: int, *, regions: Sequence[str], zones: Sequence[str]
) -> list[str]:
    """Return the zones to try, in the order of the user's names, or `FIRST_REGION` before all others.

    Without an account to ask: the named ones, or three zones of each region.

    Raises:
        DeployError: no zone, or no named one, has `count` of the GPU in one machine.
    """
    if not shell.has_account:
        return [
            *zones,
            *(f"{region}-{zone}" for region in (regions or ([] if zones else [FIRST_REGION])) for zone in "abc"),
        ]
    answer = shell.ask("compute", "accelerator-types", "list", f"--filter=name={accelerator.name}")
    offered = parse_zones(answer, accelerator.name, count)
    if not offered:
        raise DeployError(f"no zone offers {count} {accelerator.name} in one machine to this project any more")
    wanted = [zone for zone in offered if not (regions or zones) or zone in zones or region_of(zone) in regions]
    if not wanted:
        places = sorted({zone if zones else region_of(zone) for zone in offered})
        raise MisuseError(
            f"{accelerator.name} is not offered in {', '.join((*zones, *regions))}; use one of {', '.join(places)}"
        )
    order = [*zones, *regions, FIRST_REGION]
    rank = {name: place for place, name in reversed(list(enumerate(order)))}
    return sorted(wanted, key=lambda zone: min(rank.get(zone, 99), rank.get(region_of(zone), 99)))


def with_quota(shell: Shell, zones: Sequence[str], accelerator: Accelerator, gpus: int, *, spot: bool) -> Sequence[str]:
    """Return the zones in regions with quota for this number of GPUs; print the skipped regions.

    A region with an unknown quota stays; Google Cloud rejects the machine later if the quota is too small.

    Raises:
        DeployError: every quota is too small.
    """
    if not shell.has_account:
        return zones
    everywhere = parse_quota(shell.ask("compute", "project-info", "describe"), "GPUS_ALL_REGIONS")
    if everywhere and everywhere.lacks(gpus):
        raise DeployError(
            f"the project uses {everywhere.usage:g} of {everywhere.limit:g} GPUs over all regions; {gpus} more need a "
            f"larger GPUS_ALL_REGIONS: {QUOTA_PAGE}"
        )
    if accelerator.quota is None:
        say(f"quota: the API has no metric for {accelerator.name}; Google Cloud fails later if it is too small")
        return zones
    metric = f"PREEMPTIBLE_{accelerator.quota}" if spot else accelerator.quota
    answer = shell.ask("compute", "regions", "list")
    quotas = {each.get("name"): parse_quota(each, metric) for each in answer} if isinstance(answer, list) else {}
    left: list[str] = []
    for region, here in itertools.groupby(zones, region_of):
        if (quota := quotas.get(region)) and quota.lacks(gpus):
            say(f"quota: skipping {region}: {metric} is {quota.limit:g}, {quota.usage:g} in use, {gpus} needed")
        else:
            left += here
    if not left:
        raise DeployError(
            f"no region has quota for {gpus} more {accelerator.name}; request more {metric} at {QUOTA_PAGE}"
        )
    return left


@dataclass(frozen=True, slots=True)
class Placement:
    """Machines in one or several zones of a region, the same number in each."""

    zones: tuple[str, ...]
    nodes_per_zone: int

    @property
    def location(self) -> str:
        """The zone, or the region of several zones."""
        return region_of(self.zones[0]) if len(self.zones) > 1 else self.zones[0]

    def __str__(self) -> str:
        return f"{', '.join(self.zones)} ({self.nodes_per_zone} in each)" if len(self.zones) > 1 else self.zones[0]


def placements(zones: Sequence[str], nodes: int) -> Iterator[Placement]:
    """Yield placements of `nodes` machines by region: over the most zones that divide them, then in single zones."""
    for region in dict.fromkeys(map(region_of, zones)):
        here = [zone for zone in zones if region_of(zone) == region]
        spread = max(parts for parts in range(1, min(nodes, len(here)) + 1) if nodes % parts == 0)
        for parts in dict.fromkeys((spread, 1)):
            for chosen in itertools.combinations(here, parts):
                yield Placement(chosen, nodes // parts)


class LeftoverError(DeployError):
    """Something may be left that costs money; names it, and the command that deletes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A resource to create in a place, removed if its creation fails.

    Attributes:
        what: its name in messages, such as `cluster NAME`.
        create: gcloud's arguments that create it there.
        delete: gcloud's arguments that delete it there.
    """

    shell: Shell
    what: str
    create: Callable[[Placement], Sequence[str]]
    delete: Callable[[Placement], Sequence[str]]

    def attempt(self, place: Placement) -> None:
        """Create it; if that fails or is interrupted, delete its remains, but never what existed before.

        Raises:
            GcloudError: it could not be created, and nothing is left of it.
            LeftoverError: it could not be deleted either.
        """
        try:
            self.shell.change(*self.create(place))
        except BaseException as error:
            if not (isinstance(error, GcloudError) and error.refusal is Refusal.EXISTS):
                self.remove(place)
            raise

    def remove(self, place: Placement) -> None:
        """Delete it; raise LeftoverError if that failed."""
        try:
            self.shell.change(*self.delete(place))
        except GcloudError as error:
            if error.refusal is not Refusal.ABSENT:
                raise LeftoverError(f"{error}\n{self.leftover(place)}") from error
        except KeyboardInterrupt:
            say(self.leftover(place))
            raise

    @contextlib.contextmanager
    def reporting_leftover(self, place: Placement) -> Iterator[None]:
        """Print that it exists and costs money if the block raises."""
        try:
            yield
        except BaseException:
            say(self.leftover(place))
            raise

    def leftover(self, place: Placement) -> str:
        """Return a text that names it, and the command that deletes it."""
        command = " ".join(self.shell.gcloud(*self.delete(place)))
        return f"{self.what} in {place} may exist and cost money until you delete it:\n  {command}"


def search(
    creation: Creation,
    places: Iterable[Placement],
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Placement:
    """Return the first place where the creation succeeds; each is tried once, and again until `minutes` have passed.

    Raises:
        DeployError: it is out of stock everywhere, every quota is too small, or an error holds in every place.
    """
    places, full, tried, end = tuple(places), set[str](), 0, clock() + 60 * minutes
    while True:
        empty: set[str] = set()
        for place in places:
            region = region_of(place.zones[0])
            if region in full or empty.intersection(place.zones):
                continue
            tried += 1
            say(f"attempt {tried}: {place}")
            try:
                creation.attempt(place)
            except GcloudError as error:
                if error.refusal is Refusal.QUOTA:
                    full.add(region)
                    say(f"skipping {region}: its quota is too small")
                elif error.refusal is Refusal.STOCK_OUT:
                    here = error.empty_zones or frozenset(place.zones if len(place.zones) == 1 else ())
                    empty |= here
                    say(f"out of stock: {', '.join(sorted(here)) or place}")
                else:
                    raise
            else:
                return place
        if all(region_of(place.zones[0]) in full for place in places):
            raise DeployError(f"the quota of every region is too small for {creation.what}")
        if clock() + _PAUSE_SECONDS >= end:
            raise DeployError(
                f"out of stock: {creation.what} could not be created in {tried} attempts, and nothing is left; "
                "try later, with more --patience, in more regions, or with --spot"
            )
        say(f"out of stock everywhere; again in {_PAUSE_SECONDS:g} s")
        sleep(_PAUSE_SECONDS)
