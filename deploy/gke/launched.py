"""A running cluster, which costs money."""

import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from deploy.gcp.gcloud import Shell, say
from deploy.gcp.places import Placement
from deploy.gke.clusters import Cluster, report_disks

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A running cluster and its place."""

    shell: Shell
    cluster: Cluster
    place: Placement

    @property
    def context(self) -> str:
        """Its name in kubectl's configuration, as set by `get-credentials`."""
        return f"gke_{self.shell.project}_{self.place.location}_{self.cluster.name}"

    def deploy_agents(self, registry: str, tag: str | None, platform: str) -> None:
        """Deploy agents and a collector on it.

        Raises:
            GcloudError: make failed.
        """
        variables = {"CONTEXT": self.context, "REGISTRY": registry, "TAG": tag, "PLATFORM": platform}
        given = [f"{name}={value}" for name, value in variables.items() if value]
        self.shell.run(["make", "-C", str(_ROOT), "deploy-daemonset", "OVERLAY=gke", *given])

    def delete(self) -> None:
        """Delete it, and report leftover disks.

        Raises:
            LeftoverError: it could not be deleted.
            GcloudError: gcloud failed to list the disks.
        """
        self.cluster.creation().remove(self.shell, self.place)
        report_disks(self.shell, self.cluster.name)

    def reporting_leftover(self) -> AbstractContextManager[None]:
        """Print that it exists and costs money if the block raises."""
        return self.cluster.creation().reporting_leftover(self.shell, self.place)

    def print_next_steps(self) -> None:
        """Print the cluster's place and the next commands."""
        if self.shell.dry_run:
            return
        name, project = self.cluster.name, self.shell.project
        say(f"cluster {name} is up in {self.place}. Deploy or update its agents with:")
        say(f"  make deploy-daemonset OVERLAY=gke CONTEXT={shlex.quote(self.context)} REGISTRY=…")
        say("It costs money until you delete it:")
        say(f"  deploy/gke/delete_cluster.py --cluster {name} --project {project}")
