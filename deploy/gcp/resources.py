"""Creation of a machine or cluster where its GPU is in stock, and deletion whatever happens."""

import contextlib
import shlex
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deploy.gcp.gcloud import GcloudError, Refusal, Shell, say
from deploy.gcp.places import find_zones, region_of, with_quota
from deploy.kubernetes.problems import DeployError

_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A machine or cluster, removed if its creation fails.

    Attributes:
        kind: gcloud's words for it, such as container clusters.
        options: gcloud's further options that create it.
    """

    shell: Shell
    kind: tuple[str, str]
    name: str
    options: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.kind[1].removesuffix('s')} {self.name}"

    def command(self, verb: str, zone: str, *options: str) -> list[str]:
        """Return the gcloud command with this verb, such as `delete`."""
        return self.shell.gcloud(*self.kind, verb, self.name, "--zone", zone, *options)

    def attempt(self, zone: str) -> None:
        """Create it; if that fails or is interrupted, delete its remains, but never what existed before.

        Raises:
            GcloudError: it could not be created, and nothing is left of it.
            DeployError: it could not be deleted either.
        """
        try:
            self.shell.run(self.command("create", zone, *self.options))
        except BaseException as error:
            if not (isinstance(error, GcloudError) and error.refusal is Refusal.EXISTS):
                self.remove(zone)
            raise

    def remove(self, zone: str) -> None:
        """Delete it, if it exists; raise DeployError if that failed."""
        with self.reporting_leftover(zone):
            try:
                self.shell.run(self.command("delete", zone))
            except GcloudError as error:
                if error.refusal is not Refusal.ABSENT:
                    raise DeployError(str(error)) from error

    @contextlib.contextmanager
    def reporting_leftover(self, zone: str) -> Iterator[None]:
        """Print that it exists and costs money if the block raises."""
        try:
            yield
        except BaseException:
            say(self.leftover(zone))
            raise

    def leftover(self, zone: str) -> str:
        """Return a text that names it, and the command that deletes it."""
        command = shlex.join(self.command("delete", zone))
        return f"{self} in {zone} may exist and cost money until you delete it:\n  {command}"


def create(resource: Resource, given: Namespace, nodes: int) -> str:
    """Create a resource with this number of machines where the GPU of the options is in stock; return the zone.

    Raises:
        DeployError: it exists already, or could not be created.
    """
    shell, accelerator = resource.shell, given.accelerator
    # An attempt that fails is deleted by its name.
    if not shell.dry_run and shell.ask(*resource.kind, "list", f"--filter=name={resource.name}"):
        raise DeployError(f"{resource} exists already; delete it, or choose another name")
    zones = find_zones(shell, accelerator, given.count, regions=given.region, zones=given.zone)
    zones = with_quota(shell, zones, accelerator, nodes * given.count, spot=given.spot)
    say(f"{resource}: {nodes} × {given.machine_type} with {given.count} {accelerator.name}")
    return search(resource, zones, given.patience)


def search(
    resource: Resource,
    zones: Sequence[str],
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Return the first zone where the creation succeeds; each is tried once, and again until `minutes` have passed.

    Raises:
        DeployError: it is out of stock everywhere, every quota is too small, or an error holds in every zone.
    """
    full, tried, end = set[str](), 0, clock() + 60 * minutes
    while True:
        for zone in zones:
            if region_of(zone) in full:
                continue
            tried += 1
            say(f"attempt {tried}: {zone}")
            try:
                resource.attempt(zone)
            except GcloudError as error:
                if error.refusal is Refusal.QUOTA:
                    full.add(region_of(zone))
                elif error.refusal is not Refusal.STOCK_OUT:
                    raise
                say(f"{zone}: {error.refusal.value[0]}")
            else:
                return zone
        if full.issuperset(map(region_of, zones)):
            raise DeployError(f"the quota of every region is too small for {resource}")
        if clock() + _PAUSE_SECONDS >= end:
            raise DeployError(
                f"out of stock: {resource} could not be created in {tried} attempts, and nothing is left; "
                "try later, with more --patience, in more regions, or with --spot"
            )
        say(f"out of stock everywhere; again in {_PAUSE_SECONDS:g} s")
        sleep(_PAUSE_SECONDS)
