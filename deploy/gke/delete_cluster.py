#!/usr/bin/env python3
"""Delete a GKE cluster with everything in it, and report leftover disks."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import sign_in
from deploy.gcp.places import Placement
from deploy.gke.clusters import Cluster
from deploy.kubernetes.problems import DeployError

_EXAMPLES = "examples:\n  delete_cluster.py --cluster gke-gpu-nvidia-l4-1-cluster --yes"


def run(arguments: Sequence[str]) -> None:
    """Delete the cluster named by the arguments; raise DeployError if it does not exist, or gcloud failed."""
    options = shared.parser("Delete a GKE cluster with everything in it, and report leftover disks.", _EXAMPLES)
    options.add_argument("--cluster", required=True, metavar="NAME")
    options.add_argument("--location", metavar="REGION|ZONE", help="location, if several have this name")
    options.add_argument("--yes", action="store_true", help="delete without confirmation")
    given = options.parse_args(arguments)
    shell = sign_in(given.project, dry_run=given.dry_run)
    cluster = Cluster(shell=shell, name=given.cluster)
    there = [given.location or "LOCATION"] if given.location or not shell.has_account else cluster.find()
    if len(there) != 1:
        found = f"there are {len(there)} clusters {given.cluster} in project {shell.project}"
        raise DeployError(f"{found}: {', '.join(there) or 'none'}; list all: gcloud container clusters list")
    location = there[0]
    if not (given.yes or given.dry_run):
        shared.confirm(
            f"This deletes cluster {given.cluster} in {location} with all data of its collector;\n"
            "docs/deploy/gke.md shows how to export it."
        )
    # A region has the form of a zone's beginning: one zone is enough to name either.
    cluster.delete(Placement((location,), 0))


if __name__ == "__main__":
    sys.exit(shared.main(run))
