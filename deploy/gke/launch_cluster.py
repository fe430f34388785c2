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
from deploy.gcp.gcloud import say, sign_in
from deploy.gcp.resources import Resource, create

_EXAMPLES = """examples:
  launch_cluster.py --accelerator_type nvidia-tesla-a100 --region us-central1 --region europe-west4 --patience 240
  launch_cluster.py --accelerator_type nvidia-tesla-t4 --nodes 1 --spot
  launch_cluster.py --accelerator_type nvidia-l4 --dry-run"""


def run(arguments: Sequence[str]) -> None:
    """Create the cluster described by the arguments, with agents.

    Raises DeployError: a step failed; anything left that costs money is printed.
    """
    given = shared.parse_machine(parser(), arguments)
    cluster, zone = launch(given)
    with cluster.reporting_leftover(zone):
        if given.registry:
            deploy_agents(cluster, zone, given)
    if not given.dry_run:
        say(f"{cluster} is up in {zone}. Deploy or update its agents with:")
        say(f"  make deploy-daemonset OVERLAY=gke CONTEXT={shlex.quote(context(cluster, zone))} REGISTRY=…")
        say("It costs money until you delete it:")
        where = f"--zone {zone} --project {cluster.shell.project}"
        say(f"  deploy/gke/delete_cluster.py --cluster {cluster.name} {where}")


def parser() -> ArgumentParser:
    """Return a parser of the options of a cluster."""
    options = shared.machine_parser(__doc__, _EXAMPLES)
    options.add_argument("--nodes", type=shared.positive, default=3, metavar="N", help="total nodes (default 3)")
    options.add_argument("--cluster", metavar="NAME", help="name (default gke-gpu-GPU-COUNT-cluster)")
    options.add_argument("--driver", choices=("default", "latest"), help="GKE's driver (default: as CUDA needs)")
    options.add_argument("--registry", metavar="ADDRESS", help="registry of the images; without it no agents")
    options.add_argument("--tag", metavar="TAG", help="tag of the images (default: this version's)")
    options.add_argument("--platform", default="gke", metavar="NAME", help="platform of the runs (default gke)")
    return options


def launch(given: Namespace) -> tuple[Resource, str]:
    """Create a cluster, and make its context kubectl's current one.

    Raises DeployError: a step failed; anything left that costs money is printed.
    """
    name, driver = given.accelerator.name, given.driver or given.accelerator.software.gke_driver
    gpus = f"type={name},count={given.count},gpu-driver-version={driver}"
    nodes = ["--num-nodes", str(given.nodes), "--machine-type", given.machine_type, "--accelerator", gpus]
    cluster = Resource(
        shell=sign_in(given.project, "kubectl", "gke-gcloud-auth-plugin", "make", dry_run=given.dry_run),
        kind=("container", "clusters"),
        name=given.cluster or f"gke-gpu-{name}-{given.count}-cluster",
        options=[*nodes, "--labels", "made-by=gpuagent", *(["--spot"] if given.spot else [])],
    )
    zone = create(cluster, given, given.nodes)
    with cluster.reporting_leftover(zone):
        cluster.shell.run(cluster.command("get-credentials", zone))
    return cluster, zone


def context(cluster: Resource, zone: str) -> str:
    """Return the cluster's name in kubectl's configuration, as set by `get-credentials`."""
    return f"gke_{cluster.shell.project}_{zone}_{cluster.name}"


def deploy_agents(cluster: Resource, zone: str, given: Namespace) -> None:
    """Deploy agents and a collector on a cluster."""
    variables = [f"CONTEXT={context(cluster, zone)}", f"REGISTRY={given.registry}", f"PLATFORM={given.platform}"]
    variables += [f"TAG={given.tag}"] if given.tag else []
    cluster.shell.run(["make", "-C", str(shared.ROOT), "deploy-daemonset", "OVERLAY=gke", *variables])


if __name__ == "__main__":
    sys.exit(shared.main(run))
