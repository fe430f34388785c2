"""A cluster of GPU nodes: the commands that create, find, use and delete it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.gcp.gcloud import Shell, say
from deploy.gcp.places import Creation, Placement

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that is to be created, is up, or is to be deleted.

    Attributes:
        nodes: the options of its nodes: machine type, GPUs and their driver.
    """

    shell: Shell
    name: str
    nodes: tuple[str, ...] = ()

    @property
    def creation(self) -> Creation:
        """The commands that create and delete it."""
        return Creation(
            shell=self.shell,
            what=f"cluster {self.name}",
            create=lambda place: [
                *("container", "clusters", "create", self.name, *location_option(place.location)),
                *("--node-locations", ",".join(place.zones), "--num-nodes", str(place.nodes_per_zone)),
                *self.nodes,
            ],
            delete=lambda place: ["container", "clusters", "delete", self.name, *location_option(place.location)],
        )

    def context(self, place: Placement) -> str:
        """Return its name in kubectl's configuration, as set by `get-credentials`."""
        return f"gke_{self.shell.project}_{place.location}_{self.name}"

    def fetch_credentials(self, place: Placement) -> None:
        """Make its context kubectl's current one."""
        self.shell.change("container", "clusters", "get-credentials", self.name, *location_option(place.location))

    def deploy_agents(self, place: Placement, registry: str, tag: str | None, platform: str) -> None:
        """Deploy agents and a collector on it."""
        variables = {"CONTEXT": self.context(place), "REGISTRY": registry, "TAG": tag, "PLATFORM": platform}
        given = [f"{name}={value}" for name, value in variables.items() if value]
        self.shell.run(["make", "-C", str(_ROOT), "deploy-daemonset", "OVERLAY=gke", *given])

    def delete(self, place: Placement) -> None:
        """Delete it, and print the disks that outlived it: GKE does not always delete them, and they cost money."""
        self.creation.remove(place)
        if not self.shell.dry_run:
            mine = f"--filter=labels.goog-k8s-cluster-name={self.name}"
            for disk in self.shell.ask("compute", "disks", "list", mine) or ():
                zone = str(disk["zone"]).rpartition("/")[2]
                command = " ".join(self.shell.gcloud("compute", "disks", "delete", disk["name"], "--zone", zone))
                say(f"disk {disk['name']} is left and costs money until you delete it:\n  {command}")

    def find(self) -> list[str]:
        """Return the regions and zones that have a cluster with this name."""
        found = self.shell.ask("container", "clusters", "list", f"--filter=name={self.name}") or []
        return [str(cluster["location"]) for cluster in found if cluster.get("name") == self.name]


def location_option(location: str) -> tuple[str, str]:
    """Return gcloud's option for a region such as us-central1, or a zone such as us-central1-a."""
    return ("--zone" if location.count("-") > 1 else "--region", location)


def ask_kubectl(context: str, *arguments: str) -> str | None:
    """Return kubectl's answer for a context's cluster; None: no answer, and its error is printed."""
    result = subprocess.run(
        ["kubectl", f"--context={context}", *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        say(f"kubectl: {result.stderr.strip()}")
    return None if result.returncode else result.stdout
