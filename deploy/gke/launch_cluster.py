#!/usr/bin/env python3
"""Create a GKE cluster of GPU nodes where they are in stock, with gpuagent's agents.

Needs a signed-in gcloud CLI, and Python's standard library alone. See docs/deploy/gke.md.
"""

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.accelerators import find_accelerator
from deploy.gcp.gcloud import say, sign_in
from deploy.gcp.places import Placement, find_zones, placements, search, with_quota
from deploy.gke.clusters import Cluster

_EXAMPLES = """examples:
  launch_cluster.py --accelerator_type nvidia-l4
  launch_cluster.py --accelerator_type nvidia-tesla-a100 --region us-central1 --region europe-west4 --patience 240
  launch_cluster.py --accelerator_type nvidia-tesla-t4 --nodes 1 --spot
  launch_cluster.py --accelerator_type nvidia-l4 --dry-run"""


def run(arguments: Sequence[str]) -> None:
    """Create the cluster described by the arguments, with agents, and watch it if asked to.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    given = parser().parse_args(arguments)
    cluster, place = launch(given)
    with cluster.creation.reporting_leftover(place):
        if given.registry:
            cluster.deploy_agents(place, given.registry, given.tag, given.platform)
    name, project = cluster.name, cluster.shell.project
    if not given.dry_run:
        say(f"cluster {name} is up in {place}. Deploy or update its agents with:")
        say(f"  make deploy-daemonset OVERLAY=gke CONTEXT={shlex.quote(cluster.context(place))} REGISTRY=…")
        say(f"It costs money until you delete it:\n  deploy/gke/delete_cluster.py --cluster {name} --project {project}")


def launch(given: Namespace) -> tuple[Cluster, Placement]:
    """Create a cluster, and make its context kubectl's current one.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    accelerator, count = find_accelerator(given.accelerator_type), given.count
    software = accelerator.software
    machine_type = given.machine_type or accelerator.machine_type(count)
    driver = given.driver or (software.gke_driver if software else "default")
    gpus = f"type={accelerator.name},count={count},gpu-driver-version={driver}"
    nodes = ("--machine-type", machine_type, "--accelerator", gpus, "--labels", "made-by=gpuagent")
    shell = sign_in(given.project, "kubectl", "gke-gcloud-auth-plugin", "make", dry_run=given.dry_run)
    cluster = Cluster(
        shell=shell,
        name=given.cluster or f"gke-gpu-{accelerator.name}-{count}-cluster",
        nodes=(*nodes, "--spot") if given.spot else nodes,
    )
    zones = find_zones(shell, accelerator, count, regions=given.region, zones=given.zone)
    zones = list(with_quota(shell, zones, accelerator, given.nodes * count, spot=given.spot))
    say(f"cluster {cluster.name}: {given.nodes} × {machine_type} with {count} {accelerator.name}")
    if software:
        say(f"driver: GKE's {driver}; PyTorch's {software.torch_build} needs {software.driver_branch} or newer")
    place = search(cluster.creation, placements(zones, given.nodes), given.patience)
    with cluster.creation.reporting_leftover(place):
        cluster.fetch_credentials(place)
    return cluster, place


def parser() -> ArgumentParser:
    """Return a parser of the options of a cluster."""
    options = shared.parser(
        "Create a GKE cluster of GPU nodes where they are in stock, with gpuagent's agents.", _EXAMPLES
    )
    shared.add_machine_options(options, platform="gke")
    options.add_argument("--nodes", type=shared.positive, default=3, metavar="N", help="total nodes (default 3)")
    options.add_argument("--cluster", metavar="NAME", help="name (default gke-gpu-GPU-COUNT-cluster)")
    options.add_argument("--driver", choices=("default", "latest"), help="GKE's driver (default: as CUDA needs)")
    options.add_argument("--registry", metavar="ADDRESS", help="registry of the images; without it no agents")
    options.add_argument("--tag", metavar="TAG", help="tag of the images (default: this version's)")
    return options


if __name__ == "__main__":
    sys.exit(shared.main(run))
