#!/usr/bin/env python3
"""Deletes a GKE cluster with everything in it, and says what it leaves behind."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import sign_in
from deploy.gke.clusters import delete, find_one, tell_disks

_EXAMPLES = """examples:
  delete_cluster.py --cluster gke-gpu-nvidia-l4-1-cluster
  delete_cluster.py --cluster gke-gpu-nvidia-l4-1-cluster --yes"""


def run(arguments: Sequence[str]) -> None:
    """Delete the cluster that the arguments name.

    Raises:
        DeployError: it is not there, or gcloud refused.
    """
    options = shared.parser("Deletes a GKE cluster with everything in it, and says what it leaves behind.", _EXAMPLES)
    options.add_argument("--cluster", required=True, metavar="NAME")
    options.add_argument("--location", metavar="REGION|ZONE", help="where, if there are several of the name")
    options.add_argument("--yes", action="store_true", help="do not ask")
    shared.add_project_options(options)
    given = options.parse_args(arguments)
    shell = sign_in(given.project, dry_run=given.dry_run)
    location = given.location or find_one(shell, given.cluster)
    if not (given.yes or given.dry_run):
        shared.confirm(
            f"This deletes cluster {given.cluster} in {location} with all that its collector has stored;\n"
            "docs/deploy/gke.md says how to take it out."
        )
    shell.change(*delete(given.cluster, location))
    tell_disks(shell, given.cluster)


if __name__ == "__main__":
    sys.exit(shared.main(run))
