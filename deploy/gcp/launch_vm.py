#!/usr/bin/env python3
"""Make a virtual machine with NVIDIA's driver and gpuagent in a zone with a free GPU.

Needs a signed-in gcloud CLI, and Python's standard library alone. See docs/deploy/gcp-vm.md.
"""

import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import machines
from deploy.gcp import options as shared
from deploy.gcp.accelerators import find_accelerator
from deploy.gcp.gcloud import Shell, say, sign_in
from deploy.gcp.money import describe_cost
from deploy.gcp.patience import Patience, Search
from deploy.gcp.places import Placement, find_offers, placements, with_quota
from deploy.kubernetes.problems import DeployError, MisuseError

ROOT = Path(__file__).resolve().parents[2]

_EXAMPLES = """examples:
  launch_vm.py --accelerator_type nvidia-l4 --delete-after 8h
  launch_vm.py --accelerator_type nvidia-tesla-t4 --spot --patience 60
  launch_vm.py --accelerator_type nvidia-tesla-a100 --region us-central1 --dry-run"""

_WAIT_MINUTES = 20


def run(arguments: Sequence[str]) -> None:
    """Make the machine described by the arguments.

    Raises:
        DeployError: a step failed; names anything left that costs money.
    """
    options = shared.parser(
        "Make a virtual machine with NVIDIA's driver and gpuagent in a zone with a free GPU.",
        _EXAMPLES,
    )
    shared.add_machine_options(options, platform="gcp-vm")
    options.add_argument("--name", metavar="NAME", help="name of the machine (default gpuagent-GPU)")
    options.add_argument(
        "--delete-after",
        type=_duration,
        metavar="TIME",
        help="delete the machine this long after its start, such as 8h or 1d12h",
    )
    options.add_argument("--wheel", type=Path, metavar="FILE", help="gpuagent's wheel (default: that of `make wheel`)")
    options.add_argument("--no-agent", action="store_true", help="do not install gpuagent")
    shared.add_project_options(options)
    given = options.parse_args(arguments)
    accelerator = find_accelerator(given.accelerator_type)
    machine = machines.Machine(
        name=given.name or f"gpuagent-{accelerator.name}",
        accelerator=accelerator,
        count=given.count,
        machine_type=given.machine_type or accelerator.machine_type(given.count),
        spot=given.spot,
        delete_after=given.delete_after,
    )
    wheel = None if given.no_agent else _find_wheel(given.wheel)
    shell = sign_in(given.project, dry_run=given.dry_run)
    if zones := machines.find(shell, machine.name):
        raise DeployError(f"machine {machine.name} exists in {', '.join(zones)}; choose another --name")
    offers = find_offers(shell, machine.accelerator, given.count, regions=given.region, zones=given.zone)
    offers = with_quota(shell, offers, machine.accelerator, given.count, spot=given.spot)
    _describe(machine, given)
    place = Search(creation=machine.creation()).run(shell, placements(offers, 1), Patience(minutes=given.patience))
    _finish(shell, machine, place, wheel)


def _duration(text: str) -> str:
    if not text or not re.fullmatch(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?", text):
        raise ArgumentTypeError(f"{text!r} is not a time such as 8h or 1d12h")
    return text


def _find_wheel(named: Path | None) -> Path:
    wheels = [named] if named else sorted(ROOT.glob("dist/gpuagent-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels or not wheels[-1].is_file():
        raise MisuseError(f"{named or 'dist/gpuagent-*.whl'} does not exist; run `make wheel`, or give --no-agent")
    return wheels[-1]


def _describe(machine: machines.Machine, given: Namespace) -> None:
    say(f"machine {machine.name}: {machine.machine_type} with {machine.count} {machine.accelerator.name}")
    say(
        describe_cost(
            given.prices, platform=given.platform, machine_type=machine.machine_type, machines=1, spot=given.spot
        )
    )


def _finish(shell: Shell, machine: machines.Machine, place: Placement, wheel: Path | None) -> None:
    """Install gpuagent; print in any case that the machine costs money."""
    name, (zone,) = machine.name, place.zones
    with machine.creation().reporting_leftover(shell, place):
        if wheel:
            if not shell.dry_run:
                machines.wait_until_ready(shell, name, zone, minutes=_WAIT_MINUTES)
            shell.run(machines.copy(shell, name, zone, wheel))
            shell.run(machines.ssh(shell, name, zone, f"sudo /opt/gpuagent/bin/pip install --quiet ./{wheel.name}"))
    if not shell.dry_run:
        tunnel = " ".join(["gcloud", "compute", "ssh", machine.name, "--zone", zone, "--project", str(shell.project)])
        until = f" at the latest after {machine.delete_after}, or when" if machine.delete_after else " until"
        say(f"machine {machine.name} is up in {zone}. Log in, with your collector's port forwarded:")
        say(f"  {tunnel} -- -R 50051:127.0.0.1:50051")
        say(f"It costs money{until} you delete it:")
        say(f"  deploy/gcp/delete_vm.py --name {machine.name} --project {shell.project}")


if __name__ == "__main__":
    sys.exit(shared.main(run))
