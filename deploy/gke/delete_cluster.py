#!/usr/bin/env python3
"""Deletes a GKE cluster with everything in it, and says what it leaves behind."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import Shell, say, sign_in
from deploy.gke.clusters import delete, find_one

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
    _tell_disks(shell, given.cluster)


def _tell_disks(shell: Shell, cluster: str) -> None:
    """Name the volumes that outlived their cluster: GKE does not always delete them, and they go on costing money."""
    if shell.dry_run:
        return
    disks = shell.ask("compute", "disks", "list", f"--filter=labels.goog-k8s-cluster-name={cluster}")
    for disk in disks if isinstance(disks, list) else ():
        zone = str(disk["zone"]).rsplit("/", 1)[-1]
        say(f"disk {disk['name']} is left and costs money until you delete it:")
        say("  " + " ".join(shell.gcloud("compute", "disks", "delete", disk["name"], "--zone", zone)))


if __name__ == "__main__":
    sys.exit(shared.main(run))
