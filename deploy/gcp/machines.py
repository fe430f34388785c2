"""Commands of gcloud for a virtual machine with GPUs."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.gcp.accelerators import Accelerator
from deploy.gcp.gcloud import Shell, say
from deploy.gcp.patience import Creation
from deploy.gcp.places import Placement
from deploy.kubernetes.problems import DeployError

_STARTUP_SCRIPT = Path(__file__).with_name("vm_startup.sh")
_READY = "test -e /var/lib/gpuagent-machine/ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine to create.

    Attributes:
        accelerator: its kind of GPU.
        count: number of GPUs.
        spot: whether Google may stop it at any time.
        delete_after: time after which Compute Engine deletes it, such as `8h`; None: never.
    """

    name: str
    accelerator: Accelerator
    count: int
    machine_type: str
    spot: bool
    delete_after: str | None

    def creation(self) -> Creation:
        """Return the commands that create and delete it."""
        return Creation(
            what=f"machine {self.name}", create=self._create, delete=lambda place: delete(self.name, place.zones[0])
        )

    def _create(self, place: Placement) -> list[str]:
        # Other machine types include their GPUs.
        accelerator = ["--accelerator", f"type={self.accelerator.name},count={self.count}"]
        ending = ["--max-run-duration", self.delete_after] if self.delete_after else []
        return [
            *("compute", "instances", "create", self.name, "--zone", place.zones[0]),
            *("--machine-type", self.machine_type),
            *(accelerator if self.machine_type.startswith("n1-") else []),
            *("--image-family", "ubuntu-2404-lts-amd64", "--image-project", "ubuntu-os-cloud"),
            *("--boot-disk-size", "100GB", "--maintenance-policy", "TERMINATE", "--labels", "made-by=gpuagent"),
            *("--metadata-from-file", f"startup-script={_STARTUP_SCRIPT}"),
            *(["--provisioning-model", "SPOT"] if self.spot else []),
            *([*ending, "--instance-termination-action", "DELETE"] if self.spot or ending else []),
        ]


def delete(name: str, zone: str) -> list[str]:
    """Return gcloud's arguments that delete a machine with its disk."""
    return ["compute", "instances", "delete", name, "--zone", zone]


def find(shell: Shell, name: str) -> tuple[str, ...]:
    """Return the zones that have a machine with this name.

    Raises:
        GcloudError: gcloud failed.
    """
    answer = shell.ask("compute", "instances", "list", f"--filter=name={name}")
    machines = answer if isinstance(answer, list) else []
    return tuple(str(machine["zone"]).rsplit("/", 1)[-1] for machine in machines if machine.get("name") == name)


def ssh(shell: Shell, name: str, zone: str, command: str) -> list[str]:
    """Return the command that runs `command` on the machine."""
    return shell.gcloud("compute", "ssh", name, "--zone", zone, "--command", command)


def copy(shell: Shell, name: str, zone: str, source: Path) -> list[str]:
    """Return the command that copies a file into the user's home on the machine."""
    return shell.gcloud("compute", "scp", str(source), f"{name}:{source.name}", "--zone", zone)


def wait_until_ready(
    shell: Shell,
    name: str,
    zone: str,
    *,
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the startup script has installed the driver.

    Raises:
        DeployError: it has not after this time.
    """
    say(f"waiting for the driver, up to {minutes:g} minutes")
    end = clock() + minutes * 60
    while subprocess.run(ssh(shell, name, zone, _READY), capture_output=True, check=False).returncode:
        if clock() > end:
            raise DeployError(
                f"the driver is not installed after {minutes:g} minutes; see the log with:\n  "
                + " ".join(shell.gcloud("compute", "instances", "get-serial-port-output", name, "--zone", zone))
            )
        sleep(15)
