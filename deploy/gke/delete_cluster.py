#!/usr/bin/env python3
"""Delete a GKE cluster with everything in it, and report leftover disks."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import say, sign_in
from deploy.gcp.resources import Resource
from deploy.kubernetes.problems import confirm


def run(arguments: Sequence[str]) -> None:
    """Delete the cluster named by the arguments; raise DeployError if it does not exist, or gcloud failed."""
    options = shared.parser(__doc__, "list all: gcloud container clusters list")
    options.add_argument("--cluster", required=True, metavar="NAME")
    options.add_argument("--zone", required=True, metavar="ZONE", help="as launch_cluster.py printed it")
    options.add_argument("--yes", action="store_true", help="delete without confirmation")
    given = options.parse_args(arguments)
    say(f"This deletes cluster {given.cluster} in {given.zone} with all data of its collector.")
    if not (given.yes or given.dry_run or confirm("Is the data exported (docs/deploy/gke.md)? Delete it?")):
        raise KeyboardInterrupt
    shell = sign_in(given.project, dry_run=given.dry_run)
    delete(Resource(shell=shell, kind=("container", "clusters"), name=given.cluster), given.zone)


def delete(cluster: Resource, zone: str) -> None:
    """Delete a cluster, and print the disks that outlived it: GKE does not always delete them, and they cost money."""
    shell, mine = cluster.shell, f"--filter=labels.goog-k8s-cluster-name={cluster.name}"
    with cluster.reporting_leftover(zone):
        shell.run(cluster.command("delete", zone))
    for disk in () if shell.dry_run else shell.ask("compute", "disks", "list", mine) or ():
        command = shlex.join(shell.gcloud("compute", "disks", "delete", disk["name"], "--zone", zone))
        say(f"disk {disk['name']} is left and costs money until you delete it:\n  {command}")


if __name__ == "__main__":
    sys.exit(shared.main(run))
