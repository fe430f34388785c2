"""Creation of a machine or cluster where its GPU is in stock and the quota allows it, and deletion whatever happens."""

import contextlib
import math
import re
import shlex
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import QUOTA_PAGE, GcloudError, Refusal, Shell, say
from deploy.kubernetes.problems import DeployError, MisuseError

# The default region, with the most kinds of GPUs.
FIRST_REGION = "us-central1"

# Without zones for AI alone, such as us-central1-ai1a.
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")


def region_of(zone: str) -> str:
    """Return the region of a zone."""
    return zone.rpartition("-")[0]


def parse_zones(answer: Any, accelerator: str, count: int) -> list[str]:
    """Return the zones in `gcloud compute accelerator-types list --format=json` with so many in a machine, by name."""
    zones = {
        entry["zone"].rpartition("/")[2]
        for entry in answer or ()
        if entry["name"] == accelerator
        and not entry.get("deprecated")
        and entry.get("maximumCardsPerInstance", count) >= count
    }
    return sorted(filter(_ZONE.fullmatch, zones))


def free_gpus(answer: Any, metric: str) -> float:
    """Return what a quota leaves, in an entry of `gcloud compute regions list` or in `project-info describe`.

    Infinite where the quota is unknown: Google Cloud rejects the machine later if it is too small.
    """
    quotas = (quota for quota in answer.get("quotas") or () if quota["metric"] == metric)
    return next((quota["limit"] - quota.get("usage", 0.0) for quota in quotas), math.inf)


def with_quota(shell: Shell, zones: list[str], accelerator: Accelerator, gpus: int, *, spot: bool) -> list[str]:
    """Return the zones in regions with quota for this number of GPUs; print the skipped regions.

    Raises DeployError: every quota is too small.
    """
    if not shell.has_account:
        return zones
    everywhere = free_gpus(shell.ask("compute", "project-info", "describe"), "GPUS_ALL_REGIONS")
    if everywhere < gpus:
        raise DeployError(f"GPUS_ALL_REGIONS has {everywhere:g} left, {gpus} needed; request more at {QUOTA_PAGE}")
    if accelerator.quota is None:
        say(f"quota: the API has no metric for {accelerator.name}; Google Cloud fails later if it is too small")
        return zones
    metric = f"PREEMPTIBLE_{accelerator.quota}" if spot else accelerator.quota
    free = {each["name"]: free_gpus(each, metric) for each in shell.ask("compute", "regions", "list") or ()}
    for region in dict.fromkeys(map(region_of, zones)):
        if free.get(region, math.inf) < gpus:
            say(f"quota: skipping {region}: {metric} has {free[region]:g} left, {gpus} needed")
    left = [zone for zone in zones if free.get(region_of(zone), math.inf) >= gpus]
    if not left:
        raise DeployError(f"no region has quota for {gpus} more {accelerator.name}; request {metric} at {QUOTA_PAGE}")
    return left


_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A machine or cluster, removed if its creation fails.

    Attributes:
        kind: gcloud's words for it, such as container clusters.
        options: gcloud's further options that create it.
    """

    shell: Shell
    kind: tuple[str, str]
    name: str
    options: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.kind[1].removesuffix('s')} {self.name}"

    def command(self, verb: str, zone: str, *options: str) -> list[str]:
        """Return the gcloud command with this verb, such as `delete`."""
        return self.shell.gcloud(*self.kind, verb, self.name, "--zone", zone, *options)

    def attempt(self, zone: str) -> None:
        """Create it; if that fails or is interrupted, delete its remains, but never what existed before.

        Raises:
            GcloudError: it could not be created, and nothing is left of it.
            DeployError: it could not be deleted either.
        """
        try:
            self.shell.run(self.command("create", zone, *self.options))
        except BaseException as error:
            if not (isinstance(error, GcloudError) and error.refusal is Refusal.EXISTS):
                self.remove(zone)
            raise

    def remove(self, zone: str) -> None:
        """Delete it, if it exists; raise DeployError if that failed."""
        with self.reporting_leftover(zone):
            try:
                self.shell.run(self.command("delete", zone))
            except GcloudError as error:
                if error.refusal is not Refusal.ABSENT:
                    raise DeployError(str(error)) from error

    @contextlib.contextmanager
    def reporting_leftover(self, zone: str) -> Iterator[None]:
        """Print that it exists and costs money if the block raises."""
        try:
            yield
        except BaseException:
            say(self.leftover(zone))
            raise

    def leftover(self, zone: str) -> str:
        """Return a text that names it, and the command that deletes it."""
        command = shlex.join(self.command("delete", zone))
        return f"{self} in {zone} may exist and cost money until you delete it:\n  {command}"


def create(resource: Resource, given: Namespace, nodes: int) -> str:
    """Create a resource with this number of machines where the GPU of the options is in stock; return the zone.

    Raises DeployError: it exists already, or could not be created.
    """
    shell, accelerator = resource.shell, given.accelerator
    # An attempt that fails is deleted by its name.
    if not shell.dry_run and shell.ask(*resource.kind, "list", f"--filter=name={resource.name}"):
        raise DeployError(f"{resource} exists already; delete it, or choose another name")
    # The zones to try, in the order of the user's names, or `FIRST_REGION` before all others.
    regions = given.region
    if not shell.has_account:
        regions = regions or ([] if given.zone else [FIRST_REGION])
        zones = [*given.zone, *(f"{region}-{zone}" for region in regions for zone in "abc")]
    else:
        answer = shell.ask("compute", "accelerator-types", "list", f"--filter=name={accelerator.name}")
        offered = parse_zones(answer, accelerator.name, given.count)
        if not offered:
            raise DeployError(
                f"no zone offers {given.count} {accelerator.name} in one machine to this project any more"
            )
        named = [*given.zone, *regions] or [FIRST_REGION, *map(region_of, offered)]
        wanted = [zone for name in named for zone in offered if name in (zone, region_of(zone))]
        if not wanted:
            places = sorted({zone if given.zone else region_of(zone) for zone in offered})
            raise MisuseError(
                f"{accelerator.name} is not offered in {', '.join(named)}; use one of {', '.join(places)}"
            )
        zones = list(dict.fromkeys(wanted))
    zones = with_quota(shell, zones, accelerator, nodes * given.count, spot=given.spot)
    say(f"{resource}: {nodes} × {given.machine_type} with {given.count} {accelerator.name}")
    return search(resource, zones, given.patience)


def search(
    resource: Resource,
    zones: Sequence[str],
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Return the first zone where the creation succeeds; each is tried once, and again until `minutes` have passed.

    Raises DeployError: it is out of stock everywhere, every quota is too small, or an error holds in every zone.
    """
    full, tried, end = set[str](), 0, clock() + 60 * minutes
    while True:
        for zone in zones:
            if region_of(zone) in full:
                continue
            tried += 1
            say(f"attempt {tried}: {zone}")
            try:
                resource.attempt(zone)
            except GcloudError as error:
                if error.refusal is Refusal.QUOTA:
                    full.add(region_of(zone))
                elif error.refusal is not Refusal.STOCK_OUT:
                    raise
                say(f"{zone}: {error.refusal.value[0]}")
            else:
                return zone
        if full.issuperset(map(region_of, zones)):
            raise DeployError(f"the quota of every region is too small for {resource}")
        if clock() + _PAUSE_SECONDS >= end:
            raise DeployError(
                f"out of stock: {resource} could not be created in {tried} attempts, and nothing is left; "
                "try later, with more --patience, in more regions, or with --spot"
            )
        say(f"out of stock everywhere; again in {_PAUSE_SECONDS:g} s")
        sleep(_PAUSE_SECONDS)
