"""What the stand-in for gcloud answers, written from its documented formats and from reports of its errors."""

import json
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("gcloud", "kubectl", "gke-gcloud-auth-plugin", "make", "collector")

SIGNED_OUT = """ERROR: (gcloud.container.clusters.create) You do not currently have an active account selected.
Please run:

  $ gcloud auth login

to obtain new credentials.
"""
API_OFF = (
    "ERROR: (gcloud.container.clusters.list) ResponseError: code=403, message=Kubernetes Engine API has not been used "
    "in project p-1 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/"
    "container.googleapis.com/overview?project=p-1 then retry.\n"
)
EXISTS = (
    "ERROR: (gcloud.container.clusters.create) ResponseError: code=409, message=Already exists: "
    "projects/p-1/locations/us-central1/clusters/c.\n"
)
BUSY = (
    "ERROR: (gcloud.container.clusters.delete) ResponseError: code=400, message=Cluster is running incompatible "
    "operation operation-1700000000000-0a1b2c3d.\n"
)
ABSENT = (
    "ERROR: (gcloud.container.clusters.delete) ResponseError: code=404, message=Not found: "
    "projects/p-1/zones/us-central1-a/clusters/c.\n"
)
QUOTA = (
    "ERROR: (gcloud.container.clusters.create) ResponseError: code=403, message=Insufficient regional quota to satisfy "
    "request: resource \"NVIDIA_L4_GPUS\": request requires '3.0' and is short '2.0'. project has a quota of '1.0' "
    "with '1.0' available. View and manage quotas at https://console.cloud.google.com/iam-admin/quotas?usage=USED.\n"
)
QUOTA_EVERYWHERE = (
    "ERROR: (gcloud.compute.instances.create) Could not fetch resource:\n"
    " - Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.\n"
)


def cluster_stock_out(zone: str) -> str:
    """Return how GKE says that a zone has no GPU left, after half an hour."""
    return (
        "ERROR: (gcloud.container.clusters.create) Operation [<Operation>] finished with error: Google Compute Engine: "
        "Not all instances running in IGM after 35m4.033429035s. Expected 1, running 0, transitioning 1. Current "
        "errors: [GCE_STOCKOUT]: Instance 'gke-c-default-pool-97da88a9-8gmv' creation failed: The zone "
        f"'projects/p-1/zones/{zone}' does not have enough resources available to fulfill the request. "
        "'(resource type:compute)'.\n"
    )


def machine_stock_out(zone: str) -> str:
    """Return how Compute Engine says it, at once and folded."""
    return f"""ERROR: (gcloud.compute.instances.create) Could not fetch resource:
---
code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS
errorDetails:
- localizedMessage:
    locale: en-US
    message: A n1-standard-4 VM instance with 1 nvidia-tesla-t4 accelerator(s) is
      currently unavailable in the {zone} zone. Consider trying your request
      in the us-central1-f zone(s), which currently has capacity to
      accommodate your request.
- errorInfo:
    domain: compute.googleapis.com
    metadatas:
      zone: {zone}
      zonesAvailable: us-central1-f
    reason: resource_availability
message: The zone 'projects/p-1/zones/{zone}'
  does not have enough resources available to fulfill the request.
"""


def offers(accelerator: str, *zones: str, most: int = 8) -> str:
    """Return `gcloud compute accelerator-types list --format=json`."""
    address = "https://www.googleapis.com/compute/v1/projects/p-1/zones/"
    return json.dumps(
        [
            {
                "kind": "compute#acceleratorType",
                "name": accelerator,
                "maximumCardsPerInstance": most,
                "zone": address + zone,
            }
            for zone in zones
        ]
    )


def quotas(**limits: float) -> str:
    """Return `gcloud compute project-info describe --format=json` of a project that uses nothing."""
    return json.dumps(
        {"quotas": [{"limit": limit, "metric": metric, "usage": 0.0} for metric, limit in limits.items()]}
    )


def regions(quota: str, **others: str) -> str:
    """Return `gcloud compute regions list --format=json`: us-central1 with its `quotas`, and others, with _ for -."""
    each = {"us-central1": quota, **{name.replace("_", "-"): other for name, other in others.items()}}
    return json.dumps([{"name": name, **json.loads(other)} for name, other in each.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleCloud:
    """The stand-in in a folder.

    Attributes:
        folder: on PATH, with nothing else.
        script: what it answers; the first entry that fits counts.
    """

    folder: Path
    script: list[tuple[list[str], list[dict[str, Any]]]] = field(default_factory=list)

    def install(self) -> None:
        """Put the stand-in there under all its names."""
        source = Path(__file__).with_name("gcloud_stand_in.py").read_text()
        for program in PROGRAMS:
            path = self.folder / program
            path.write_text(f"#!{sys.executable} -IS\n{source}")
            path.chmod(0o755)
        os.mkfifo(self.folder / "hangs")
        self._write()

    def answers(self, words: str, *answers: dict[str, Any]) -> None:
        """Answer calls that have these words in this order, one answer after the other."""
        self.script.insert(
            0, (shlex.split(words), [{"out": "", "err": "", "code": 0, "hangs": False, **a} for a in answers])
        )
        for given in self.folder.glob("given-*"):
            given.unlink()
        self._write()

    def _write(self) -> None:
        (self.folder / "script.json").write_text(json.dumps(self.script))

    @property
    def calls(self) -> list[str]:
        """All calls so far, as one would type them."""
        path = self.folder / "calls.jsonl"
        return [shlex.join(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def changes(self) -> list[str]:
        """The calls that changed something: those that did not ask for JSON."""
        return [call for call in self.calls if "=json" not in call]


def refuse(err: str) -> dict[str, Any]:
    """Return the answer of a gcloud that fails."""
    return {"err": err, "code": 1}


def out(text: str) -> dict[str, Any]:
    """Return the answer of a gcloud that succeeds."""
    return {"out": text}


HANG: dict[str, Any] = {"hangs": True}
