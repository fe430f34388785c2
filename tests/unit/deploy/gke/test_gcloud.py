"""Every command line of gcloud in the scripts and their pages, judged by the real gcloud without an account."""

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.gcp import launch_vm
from deploy.gcp.accelerators import ACCELERATORS
from deploy.gcp.options import finish
from deploy.gke import delete_cluster, launch_cluster
from tests.unit.deploy.gke.google_cloud import GoogleCloud, offers, out, refuse

ROOT = Path(__file__).resolve().parents[4]
# Found before the stand-in takes its place.
GCLOUD, PATH = shutil.which("gcloud"), os.environ["PATH"]

WITHOUT = "needs gcloud; install: https://cloud.google.com/sdk/docs/install"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(GCLOUD is None, reason=WITHOUT)]


def verdicts(commands: set[str], folder: Path) -> dict[str, str | None]:
    """Return what gcloud says against each of its commands; None: nothing."""
    file = folder / "commands.json"
    file.write_text(json.dumps([{"command_string": command} for command in sorted(commands)]))
    environment = {**os.environ, "PATH": PATH, "CLOUDSDK_CONFIG": str(folder / "gcloud")}
    lint = [str(GCLOUD), "meta", "lint-gcloud-commands", f"--commands-file={file}"]
    done = subprocess.run(lint, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    return {judged["command_string"]: judged.get("error_message") for judged in json.loads(done.stdout)}


def one_of_each(commands: set[str]) -> set[str]:
    """Return a command of each set of words and options: gcloud takes half a second for each, and knows no values."""
    shape = re.compile(r"^gcloud [^-]+|--[a-z-]+")
    return set({tuple(shape.findall(command)): command for command in sorted(commands)}.values())


def shown_commands(text: str, before: str = "") -> set[str]:
    """Return the commands that a page shows, each on a line of its own; a script has `before` in front of them."""
    return set(re.findall(rf"^{before}(gcloud .+)$", text, re.MULTILINE))


def test_gcloud_accepts_every_command_that_the_scripts_run_or_print(
    cloud: GoogleCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_gcloud:
        without_gcloud.setenv("PATH", str(tmp_path))
        for accelerator in ACCELERATORS:
            for count, spot in itertools.product(accelerator.machine_types, ([], ["--spot"])):
                asked = ["--accelerator_type", accelerator.name, "--count", str(count), *spot, "--dry-run"]
                codes = [
                    *(finish(launch_cluster.run, [*asked, *place]) for place in ([], ["--zone", "europe-west4-a"])),
                    finish(launch_vm.run, [*asked, "--no-agent", "--delete-after", "1d12h"]),
                ]
                assert codes == [0] * 3
    cloud.answers("disks list", out('[{"name": "pvc-1", "zone": "https://…/zones/us-central1-a"}]'))
    cloud.answers("accelerator-types list", out(offers("nvidia-tesla-t4", "us-central1-a")))
    cloud.answers("regions list", out("[]"))
    # What is left over is printed with the command that deletes it.
    cloud.answers("compute scp", refuse("Connection timed out\n"))
    wheel = tmp_path / "gpuagent.whl"
    wheel.touch()
    finish(launch_vm.run, ["--accelerator_type", "nvidia-tesla-t4", "--no-agent"])
    finish(launch_vm.run, ["--accelerator_type", "nvidia-tesla-t4", "--wheel", str(wheel)])
    finish(delete_cluster.run, ["--cluster", "c", "--yes", "--zone", "us-central1-a"])
    commands = {call for call in cloud.calls if call.startswith("gcloud ")} | shown_commands(
        capsys.readouterr().out, r"(?:\$ |  )"
    )
    for verb in ("create", "delete", "get-credentials", "ssh", "scp", "list", "describe"):
        assert any(f" {verb}" in command for command in commands), verb
    assert {command: said for command, said in verdicts(one_of_each(commands), tmp_path).items() if said} == {}


def test_gcloud_accepts_every_command_of_the_pages(tmp_path: Path) -> None:
    pages = [(ROOT / "docs/deploy" / name).read_text() for name in ("gke.md", "gcp-vm.md")]
    commands = shown_commands("\n".join(pages))
    assert len(commands) >= 3
    assert {command: said for command, said in verdicts(commands, tmp_path).items() if said} == {}


def test_gcloud_rejects_a_wrong_option_and_a_wrong_value(tmp_path: Path) -> None:
    create = "gcloud container clusters create c"
    wrong = {f"{create} --regoin=us-central1", f"{create} --num-nodes=many", f"{create} --accelerator=kind=nvidia-l4"}
    assert all(verdicts(wrong, tmp_path).values())
