"""The zones of a GPU, by what gcloud offers and the project's quota."""

import math
import re
from collections.abc import Sequence
from typing import Any

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import QUOTA_PAGE, Shell, say
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


def find_zones(
    shell: Shell, accelerator: Accelerator, count: int, *, regions: Sequence[str], zones: Sequence[str]
) -> list[str]:
    """Return the zones to try, in the order of the user's names, or `FIRST_REGION` before all others.

    Without an account to ask: the named ones, or three zones of each region.

    Raises:
        DeployError: no zone, or no named one, has `count` of the GPU in one machine.
    """
    if not shell.has_account:
        regions = regions or ([] if zones else [FIRST_REGION])
        return [*zones, *(f"{region}-{zone}" for region in regions for zone in "abc")]
    answer = shell.ask("compute", "accelerator-types", "list", f"--filter=name={accelerator.name}")
    offered = parse_zones(answer, accelerator.name, count)
    if not offered:
        raise DeployError(f"no zone offers {count} {accelerator.name} in one machine to this project any more")
    named = [*zones, *regions] or [FIRST_REGION, *map(region_of, offered)]
    wanted = [zone for name in named for zone in offered if name in (zone, region_of(zone))]
    if not wanted:
        places = sorted({zone if zones else region_of(zone) for zone in offered})
        raise MisuseError(f"{accelerator.name} is not offered in {', '.join(named)}; use one of {', '.join(places)}")
    return list(dict.fromkeys(wanted))


def with_quota(shell: Shell, zones: list[str], accelerator: Accelerator, gpus: int, *, spot: bool) -> list[str]:
    """Return the zones in regions with quota for this number of GPUs; print the skipped regions.

    Raises:
        DeployError: every quota is too small.
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
