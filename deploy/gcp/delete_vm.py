#!/usr/bin/env python3
"""Delete a virtual machine with its disk."""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.gcp import machines
from deploy.gcp import options as shared
from deploy.gcp.gcloud import sign_in
from deploy.kubernetes.problems import DeployError

_EXAMPLES = """examples:
  delete_vm.py --name gpuagent-nvidia-l4"""


def run(arguments: Sequence[str]) -> None:
    """Delete the machine named by the arguments.

    Raises:
        DeployError: it does not exist, or gcloud failed.
    """
    options = shared.parser("Delete a virtual machine with its disk.", _EXAMPLES)
    options.add_argument("--name", required=True, metavar="NAME")
    options.add_argument("--zone", metavar="ZONE", help="zone, if several have this name")
    options.add_argument("--yes", action="store_true", help="delete without confirmation")
    shared.add_project_options(options)
    given = options.parse_args(arguments)
    shell = sign_in(given.project, dry_run=given.dry_run)
    zones = (given.zone,) if given.zone else machines.find(shell, given.name)
    if not zones:
        raise DeployError(
            f"project {shell.project} has no machine {given.name}; list all: gcloud compute instances list"
        )
    if len(zones) > 1:
        raise DeployError(f"there are machines {given.name} in {', '.join(zones)}; choose one with --zone")
    if not (given.yes or given.dry_run):
        shared.confirm(f"This deletes machine {given.name} in {zones[0]} with its disk and all data on it.")
    shell.change(*machines.delete(given.name, zones[0]))


if __name__ == "__main__":
    sys.exit(shared.main(run))
