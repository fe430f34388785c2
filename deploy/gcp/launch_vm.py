#!/usr/bin/env python3
"""Make a virtual machine with NVIDIA's driver and gpuagent in a zone with a free GPU.

Needs a signed-in gcloud CLI, and Python's standard library alone. See docs/deploy/gcp-vm.md.
"""

import re
import shlex
import subprocess
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import options as shared
from deploy.gcp.accelerators import find_accelerator
from deploy.gcp.gcloud import Shell, say, sign_in
from deploy.gcp.places import Creation, find_zones, placements, search, with_quota
from deploy.kubernetes.problems import DeployError, MisuseError

ROOT = Path(__file__).resolve().parents[2]

_EXAMPLES = """examples:
  launch_vm.py --accelerator_type nvidia-l4 --delete-after 8h
  launch_vm.py --accelerator_type nvidia-tesla-t4 --spot --patience 60
  launch_vm.py --accelerator_type nvidia-tesla-a100 --region us-central1 --dry-run"""

_READY = "test -e /var/lib/gpuagent-machine/ready"


def run(arguments: Sequence[str]) -> None:
    """Make the machine described by the arguments.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    options = shared.parser("Make a virtual machine with NVIDIA's driver and gpuagent.", _EXAMPLES)
    shared.add_machine_options(options, platform="gcp-vm")
    options.add_argument("--name", metavar="NAME", help="name of the machine (default gpuagent-GPU)")
    options.add_argument(
        "--delete-after", type=_duration, metavar="TIME", help="delete it after this time, as in 1d12h"
    )
    options.add_argument("--wheel", type=Path, metavar="FILE", help="gpuagent's wheel (default: that of `make wheel`)")
    options.add_argument("--no-agent", action="store_true", help="do not install gpuagent")
    given = options.parse_args(arguments)
    accelerator = find_accelerator(given.accelerator_type)
    machine_type = given.machine_type or accelerator.machine_type(given.count)
    name = given.name or f"gpuagent-{accelerator.name}"
    wheel = None if given.no_agent else _find_wheel(given.wheel)
    shell = sign_in(given.project, dry_run=given.dry_run)
    offers = find_zones(shell, accelerator, given.count, regions=given.region, zones=given.zone)
    offers = list(with_quota(shell, offers, accelerator, given.count, spot=given.spot))
    say(f"machine {name}: {machine_type} with {given.count} {accelerator.name}")
    creation = Creation(
        shell=shell,
        what=f"machine {name}",
        create=lambda place: _create(name, machine_type, given, place.zones[0]),
        delete=lambda place: ["compute", "instances", "delete", name, "--zone", place.zones[0]],
    )
    place = search(creation, placements(offers, 1), given.patience)
    with creation.reporting_leftover(place):
        if wheel:
            _install(shell, name, place.zones[0], wheel)
    if not shell.dry_run:
        tunnel = ["--project", str(shell.project), "--ssh-flag=-R 50051:127.0.0.1:50051"]
        login = shlex.join(["gcloud", "compute", "ssh", name, "--zone", place.zones[0], *tunnel])
        say(f"machine {name} is up in {place}. Log in, with your collector's port forwarded:\n  {login}")
        say(creation.leftover(place))


def _create(name: str, machine_type: str, given: Namespace, zone: str) -> list[str]:
    # Other machine types include their GPUs.
    has_none = machine_type.startswith("n1-")
    ending = ["--max-run-duration", given.delete_after] if given.delete_after else []
    return [
        *("compute", "instances", "create", name, "--zone", zone, "--machine-type", machine_type),
        *(["--accelerator", f"type={given.accelerator_type},count={given.count}"] if has_none else []),
        *("--image-family", "ubuntu-2404-lts-amd64", "--image-project", "ubuntu-os-cloud"),
        *("--boot-disk-size", "100GB", "--maintenance-policy", "TERMINATE", "--labels", "made-by=gpuagent"),
        *("--metadata-from-file", f"startup-script={Path(__file__).with_name('vm_startup.sh').resolve()}"),
        *(["--provisioning-model", "SPOT"] if given.spot else []),
        *([*ending, "--instance-termination-action", "DELETE"] if given.spot or ending else []),
    ]


def _duration(text: str) -> str:
    if not text or not re.fullmatch(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?", text):
        raise ArgumentTypeError(f"{text!r} is not a time such as 8h or 1d12h")
    return text


def _find_wheel(named: Path | None) -> Path:
    wheels = [named] if named else sorted(ROOT.glob("dist/gpuagent-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels or not wheels[-1].is_file():
        raise MisuseError(f"{named or 'dist/gpuagent-*.whl'} does not exist; run `make wheel`, or give --no-agent")
    return wheels[-1]


def _install(shell: Shell, name: str, zone: str, wheel: Path) -> None:
    if not shell.dry_run:
        wait_until_ready(shell, name, zone)
    shell.change("compute", "scp", str(wheel), f"{name}:{wheel.name}", "--zone", zone)
    install = f"sudo /opt/gpuagent/bin/pip install --quiet ./{wheel.name}"
    shell.change("compute", "ssh", name, "--zone", zone, "--command", install)


def wait_until_ready(
    shell: Shell,
    name: str,
    zone: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait up to 20 minutes until the startup script has installed the driver; raise DeployError if it has not."""
    say("waiting for the driver, up to 20 minutes")
    end = clock() + 20 * 60
    look = shell.gcloud("compute", "ssh", name, "--zone", zone, "--command", _READY)
    while subprocess.run(look, capture_output=True, check=False).returncode:
        if clock() > end:
            log = shell.gcloud("compute", "instances", "get-serial-port-output", name, "--zone", zone)
            raise DeployError(f"the driver is not installed after 20 minutes; see the log with:\n  {shlex.join(log)}")
        sleep(15)


if __name__ == "__main__":
    sys.exit(shared.main(run))
