#!/usr/bin/env python3
"""Delete a GKE cluster with everything in it, and report leftover disks."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import sign_in
from deploy.gke.clusters import delete, find_one, report_disks

_EXAMPLES = """examples:
  delete_cluster.py --cluster gke-gpu-nvidia-l4-1-cluster
  delete_cluster.py --cluster gke-gpu-nvidia-l4-1-cluster --yes"""


def run(arguments: Sequence[str]) -> None:
    """Delete the cluster named by the arguments.

    Raises:
        DeployError: it does not exist, or gcloud failed.
    """
    options = shared.parser("Delete a GKE cluster with everything in it, and report leftover disks.", _EXAMPLES)
    options.add_argument("--cluster", required=True, metavar="NAME")
    options.add_argument("--location", metavar="REGION|ZONE", help="location, if several have this name")
    options.add_argument("--yes", action="store_true", help="delete without confirmation")
    shared.add_project_options(options)
    given = options.parse_args(arguments)
    shell = sign_in(given.project, dry_run=given.dry_run)
    location = given.location or find_one(shell, given.cluster)
    if not (given.yes or given.dry_run):
        shared.confirm(
            f"This deletes cluster {given.cluster} in {location} with all data of its collector;\n"
            "docs/deploy/gke.md shows how to export it."
        )
    shell.change(*delete(given.cluster, location))
    report_disks(shell, given.cluster)


if __name__ == "__main__":
    sys.exit(shared.main(run))
