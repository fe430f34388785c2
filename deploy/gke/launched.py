"""A cluster that is up and costs money."""

import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from deploy.gcp.gcloud import Shell, say
from deploy.gcp.places import Placement
from deploy.gke.clusters import Cluster, tell_disks

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Where the cluster is, and what can be done with it.

    Attributes:
        shell: of its project.
        cluster: what it was created as.
        place: where.
    """

    shell: Shell
    cluster: Cluster
    place: Placement

    @property
    def context(self) -> str:
        """What `get-credentials` calls it in kubectl's configuration."""
        return f"gke_{self.shell.project}_{self.place.location}_{self.cluster.name}"

    def deploy_agents(self, registry: str, tag: str | None, platform: str) -> None:
        """Put agents and a collector on it.

        Raises:
            GcloudError: make failed, and what it said.
        """
        variables = {"CONTEXT": self.context, "REGISTRY": registry, "TAG": tag, "PLATFORM": platform}
        given = [f"{name}={value}" for name, value in variables.items() if value]
        self.shell.run(["make", "-C", str(_ROOT), "deploy-daemonset", "OVERLAY=gke", *given])

    def delete(self) -> None:
        """Delete it, and name what it leaves behind.

        Raises:
            LeftoverError: it could not be deleted.
            GcloudError: gcloud refused to tell what is left.
        """
        self.cluster.creation().remove(self.shell, self.place)
        tell_disks(self.shell, self.cluster.name)

    def said_if_not_finished(self) -> AbstractContextManager[None]:
        """Say that it is there and costs money when the block ends by an exception."""
        return self.cluster.creation().said_if_not_finished(self.shell, self.place)

    def tell(self) -> None:
        """Tell the user what there is and how to go on."""
        if self.shell.dry_run:
            return
        name, project = self.cluster.name, self.shell.project
        say(f"cluster {name} is up in {self.place}. Agents can be put on it, or renewed, with:")
        say(f"  make deploy-daemonset OVERLAY=gke CONTEXT={shlex.quote(self.context)} REGISTRY=…")
        say("It costs money until you delete it:")
        say(f"  deploy/gke/delete_cluster.py --cluster {name} --project {project}")
