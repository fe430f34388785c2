#!/usr/bin/env python3
"""Make a virtual machine with NVIDIA's driver and gpuagent in a zone with a free GPU.

Needs a signed-in gcloud CLI, and Python's standard library alone. See docs/deploy/gcp-vm.md.
"""

import shlex
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.gcloud import say, sign_in
from deploy.gcp.resources import Resource, create
from deploy.kubernetes.problems import DeployError, MisuseError

_EXAMPLES = """examples:
  launch_vm.py --accelerator_type nvidia-l4 --delete-after 8h
  launch_vm.py --accelerator_type nvidia-tesla-t4 --spot --patience 60
  launch_vm.py --accelerator_type nvidia-tesla-a100 --region us-central1 --dry-run"""


def run(arguments: Sequence[str]) -> None:
    """Make the machine described by the arguments.

    Raises DeployError: a step failed; anything left that costs money is printed.
    """
    options = shared.machine_parser(__doc__, _EXAMPLES)
    options.add_argument("--name", metavar="NAME", help="name of the machine (default gpuagent-GPU)")
    options.add_argument("--delete-after", metavar="TIME", help="delete it after this time, such as 1d12h")
    options.add_argument("--wheel", type=Path, metavar="FILE", help="gpuagent's wheel (default: that of `make wheel`)")
    options.add_argument("--no-agent", action="store_true", help="do not install gpuagent")
    given = shared.parse_machine(options, arguments)
    wheel: Path | None = given.wheel
    if wheel is None and not given.no_agent:
        built = shared.ROOT.glob("dist/gpuagent-*.whl")
        wheel = max(built, key=lambda path: path.stat().st_mtime, default=None)
    if not given.no_agent and not (wheel and wheel.is_file()):
        raise MisuseError(f"{wheel or 'dist/gpuagent-*.whl'} does not exist; run `make wheel`, or give --no-agent")
    shell = sign_in(given.project, dry_run=given.dry_run)
    machine = Resource(
        shell=shell,
        kind=("compute", "instances"),
        name=given.name or f"gpuagent-{given.accelerator.name}",
        options=list(_options(given)),
    )
    zone = create(machine, given, 1)
    login = ["compute", "ssh", machine.name, "--zone", zone]
    with machine.reporting_leftover(zone):
        if wheel and not given.no_agent:
            if not shell.dry_run:
                wait_until_ready(machine, zone)
            shell.run(shell.gcloud("compute", "scp", str(wheel), f"{machine.name}:{wheel.name}", "--zone", zone))
            shell.run(shell.gcloud(*login, "--command", f"sudo /opt/gpuagent/bin/pip install --quiet ./{wheel.name}"))
    if not shell.dry_run:
        tunnel = ["--project", str(shell.project), "--ssh-flag=-R 50051:127.0.0.1:50051"]
        say(f"{machine} is up in {zone}. Log in, with your collector's port forwarded:")
        say(f"  {shlex.join(['gcloud', *login, *tunnel])}\n{machine.leftover(zone)}")


def _options(given: Namespace) -> Iterator[str]:
    yield from ("--machine-type", given.machine_type)
    # Other machine types include their GPUs.
    if given.machine_type.startswith("n1-"):
        yield from ("--accelerator", f"type={given.accelerator.name},count={given.count}")
    yield from ("--image-family", "ubuntu-2404-lts-amd64", "--image-project", "ubuntu-os-cloud")
    yield from ("--boot-disk-size", "100GB", "--maintenance-policy", "TERMINATE", "--labels", "made-by=gpuagent")
    yield from ("--metadata-from-file", f"startup-script={shared.ROOT / 'deploy/gcp/vm_startup.sh'}")
    if given.spot:
        yield from ("--provisioning-model", "SPOT")
    if given.delete_after:
        yield from ("--max-run-duration", given.delete_after)
    if given.spot or given.delete_after:
        yield from ("--instance-termination-action", "DELETE")


def wait_until_ready(machine: Resource, zone: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait about 20 minutes until the startup script has installed the driver; raise DeployError if it has not."""
    say("waiting for the driver, up to 20 minutes")
    ready = ["--command", "test -e /var/lib/gpuagent-machine/ready"]
    look = machine.shell.gcloud("compute", "ssh", machine.name, "--zone", zone, *ready)
    for _ in range(60):
        if not subprocess.run(look, capture_output=True, check=False).returncode:
            return
        sleep(15)
    log = shlex.join(machine.command("get-serial-port-output", zone))
    raise DeployError(f"the driver is not installed after 20 minutes; see the log with:\n  {log}")


if __name__ == "__main__":
    sys.exit(shared.main(run))
