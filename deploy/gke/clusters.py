"""Commands of gcloud for a cluster of GPU nodes."""

from dataclasses import dataclass

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import Shell, say
from deploy.gcp.patience import Creation
from deploy.gcp.places import Placement
from deploy.kubernetes.problems import DeployError

LABEL = "made-by=gpuagent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster to create.

    Attributes:
        accelerator: the kind of GPU of its nodes.
        count: GPUs per node.
        machine_type: of its nodes.
        driver: the driver that GKE installs: `default` or `latest`.
        spot: whether Google may stop the nodes at any time.
    """

    name: str
    accelerator: Accelerator
    count: int
    machine_type: str
    driver: str
    spot: bool

    def creation(self) -> Creation:
        """Return the commands that create and delete it."""
        return Creation(
            what=f"cluster {self.name}",
            create=self._create,
            delete=lambda place: delete(self.name, place.location),
        )

    def _create(self, place: Placement) -> list[str]:
        accelerator = f"type={self.accelerator.name},count={self.count},gpu-driver-version={self.driver}"
        return [
            *("container", "clusters", "create", self.name),
            *location_option(place.location),
            *("--node-locations", ",".join(place.zones)),
            *("--num-nodes", str(place.nodes_per_zone)),
            *("--machine-type", self.machine_type),
            *("--accelerator", accelerator),
            *("--labels", LABEL),
            *(["--spot"] if self.spot else []),
        ]


def default_name(accelerator: Accelerator, count: int) -> str:
    """Return the default name of a cluster: its GPU and the number of them per node."""
    return f"gke-gpu-{accelerator.name}-{count}-cluster"


def location_option(location: str) -> tuple[str, str]:
    """Return gcloud's option for a region such as us-central1, or a zone such as us-central1-a."""
    return ("--zone" if location.count("-") > 1 else "--region", location)


def delete(name: str, location: str) -> list[str]:
    """Return gcloud's arguments that delete a cluster."""
    return ["container", "clusters", "delete", name, *location_option(location)]


def report_disks(shell: Shell, name: str) -> None:
    """Print the disks that outlived their cluster: GKE does not always delete them, and they cost money.

    Raises:
        GcloudError: gcloud failed.
    """
    if shell.dry_run:
        return
    disks = shell.ask("compute", "disks", "list", f"--filter=labels.goog-k8s-cluster-name={name}")
    for disk in disks if isinstance(disks, list) else ():
        zone = str(disk["zone"]).rsplit("/", 1)[-1]
        say(f"disk {disk['name']} is left and costs money until you delete it:")
        say("  " + " ".join(shell.gcloud("compute", "disks", "delete", disk["name"], "--zone", zone)))


def fetch_credentials(shell: Shell, name: str, location: str) -> None:
    """Make the cluster's context kubectl's current one.

    Raises:
        GcloudError: gcloud failed.
    """
    shell.change("container", "clusters", "get-credentials", name, *location_option(location))


def find(shell: Shell, name: str) -> tuple[str, ...]:
    """Return the regions and zones that have a cluster with this name.

    Raises:
        GcloudError: gcloud failed.
    """
    answer = shell.ask("container", "clusters", "list", f"--filter=name={name}")
    clusters = answer if isinstance(answer, list) else []
    return tuple(str(cluster["location"]) for cluster in clusters if cluster.get("name") == name)


def find_one(shell: Shell, name: str) -> str:
    """Return the location of the cluster.

    Raises:
        DeployError: no cluster has this name, or several have.
        GcloudError: gcloud failed.
    """
    locations = find(shell, name)
    if not locations:
        raise DeployError(f"project {shell.project} has no cluster {name}; list all: gcloud container clusters list")
    if len(locations) > 1:
        raise DeployError(f"there are clusters {name} in {', '.join(locations)}; choose one with --location")
    return locations[0]
