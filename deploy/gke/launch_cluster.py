#!/usr/bin/env python3
"""Create a GKE cluster of GPU nodes where they are in stock, with gpuagent's agents.

Needs a signed-in gcloud CLI, and Python's standard library alone. See docs/deploy/gke.md.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.accelerators import find_accelerator
from deploy.gcp.gcloud import require, say, sign_in
from deploy.gcp.money import describe_cost
from deploy.gcp.patience import Patience, Search
from deploy.gcp.places import find_offers, placements, with_quota
from deploy.gke.clusters import Cluster, default_name, fetch_credentials, find
from deploy.gke.idle import IdleWatch, busy_pods
from deploy.gke.launched import Launched
from deploy.kubernetes.problems import DeployError

_EXAMPLES = """examples:
  launch_cluster.py --accelerator_type nvidia-l4
  launch_cluster.py --accelerator_type nvidia-tesla-a100 --region us-central1 --region europe-west4 --patience 240
  launch_cluster.py --accelerator_type nvidia-tesla-t4 --nodes 1 --spot --idle-delete 30
  launch_cluster.py --accelerator_type nvidia-l4 --dry-run"""


def run(arguments: Sequence[str]) -> None:
    """Create the cluster described by the arguments, with agents, and watch it if asked to.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    options = parser()
    options.add_argument(
        "--idle-delete",
        type=shared.minutes,
        metavar="MINUTES",
        help="stay, and delete the cluster with its data once no pod has requested a GPU for this long",
    )
    given = options.parse_args(arguments)
    launched = launch(given)
    with launched.reporting_leftover():
        if given.registry:
            launched.deploy_agents(given.registry, given.tag, given.platform)
        if given.idle_delete is not None and not launched.shell.dry_run:
            # By its own context: kubectl's current one may have changed.
            IdleWatch(minutes=given.idle_delete, look=lambda: busy_pods(launched.context)).wait()
    if given.idle_delete is not None and not launched.shell.dry_run:
        launched.delete()
    else:
        launched.print_next_steps()


def launch(given: Namespace) -> Launched:
    """Create a cluster, and make its context kubectl's current one.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    accelerator = find_accelerator(given.accelerator_type)
    software = accelerator.software
    cluster = Cluster(
        name=given.cluster or default_name(accelerator, given.count),
        accelerator=accelerator,
        count=given.count,
        machine_type=given.machine_type or accelerator.machine_type(given.count),
        driver=given.driver or (software.gke_driver if software else "default"),
        spot=given.spot,
    )
    require("gcloud", "kubectl", "gke-gcloud-auth-plugin", "make")
    shell = sign_in(given.project, dry_run=given.dry_run)
    if locations := find(shell, cluster.name):
        raise DeployError(
            f"cluster {cluster.name} exists in {', '.join(locations)}; choose another with --cluster, "
            f"or delete it: deploy/gke/delete_cluster.py --cluster {cluster.name}"
        )
    gpus = given.nodes * given.count
    offers = find_offers(shell, accelerator, given.count, regions=given.region, zones=given.zone)
    offers = with_quota(shell, offers, accelerator, gpus, spot=given.spot)
    _describe(cluster, given)
    search = Search(creation=cluster.creation())
    place = search.run(shell, placements(offers, given.nodes), Patience(minutes=given.patience))
    launched = Launched(shell=shell, cluster=cluster, place=place)
    with launched.reporting_leftover():
        fetch_credentials(shell, cluster.name, place.location)
    return launched


def parser() -> ArgumentParser:
    """Return a parser of the options of a cluster."""
    options = shared.parser(
        "Create a GKE cluster of GPU nodes where they are in stock, with gpuagent's agents.", _EXAMPLES
    )
    shared.add_machine_options(options, platform="gke")
    options.add_argument("--nodes", type=shared.positive, default=3, metavar="N", help="total nodes (default 3)")
    options.add_argument("--cluster", metavar="NAME", help="name (default gke-gpu-GPU-COUNT-cluster)")
    options.add_argument(
        "--driver", choices=("default", "latest"), help="driver that GKE installs (default: as the GPU's CUDA needs)"
    )
    options.add_argument(
        "--registry",
        metavar="ADDRESS",
        help="registry of the images, such as us-docker.pkg.dev/PROJECT/REPOSITORY; without it no agents",
    )
    options.add_argument("--tag", metavar="TAG", help="tag of the images (default: this version's)")
    shared.add_project_options(options)
    return options


def _describe(cluster: Cluster, given: Namespace) -> None:
    gpus = f"{cluster.count} {cluster.accelerator.name}"
    say(f"cluster {cluster.name}: {given.nodes} × {cluster.machine_type} with {gpus}")
    if software := cluster.accelerator.software:
        say(
            f"driver: GKE's {cluster.driver}; PyTorch's {software.torch_build} (CUDA {software.cuda}) for this GPU "
            f"needs {software.driver_branch} or newer"
        )
    say(
        describe_cost(
            given.prices,
            platform=given.platform,
            machine_type=cluster.machine_type,
            machines=given.nodes,
            spot=given.spot,
        )
    )


if __name__ == "__main__":
    sys.exit(shared.main(run))
