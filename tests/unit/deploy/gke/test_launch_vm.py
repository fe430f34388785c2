"""launch_vm.py, command by command, against a stand-in for gcloud."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.gcp import launch_vm
from deploy.gcp.gcloud import Shell
from deploy.gcp.options import finish
from deploy.gcp.resources import Resource
from deploy.kubernetes.problems import DeployError
from tests.unit.deploy.gke.google_cloud import GoogleCloud, machine_stock_out, offers, out, quotas, refuse, regions

ROOT = Path(__file__).resolve().parents[4]
NAME = "gpuagent-nvidia-tesla-t4"
IN_PROJECT = "--project p-1 --quiet"


@pytest.fixture
def wheel(cloud: GoogleCloud, tmp_path: Path) -> Path:
    """A wheel, in a project with T4s in three zones."""
    cloud.answers("accelerator-types list", out(offers("nvidia-tesla-t4", *(f"us-central1-{zone}" for zone in "abf"))))
    cloud.answers("regions list", out(regions(quotas(NVIDIA_T4_GPUS=1.0, PREEMPTIBLE_NVIDIA_T4_GPUS=0.0))))
    wheel = tmp_path / "gpuagent-0.1.0-py3-none-any.whl"
    wheel.touch()
    return wheel


def create(zone: str, *more: str) -> str:
    return " ".join(
        [
            f"gcloud compute instances create {NAME} --zone {zone} --machine-type n1-standard-4",
            "--accelerator type=nvidia-tesla-t4,count=1",
            "--image-family ubuntu-2404-lts-amd64 --image-project ubuntu-os-cloud",
            "--boot-disk-size 100GB --maintenance-policy TERMINATE --labels made-by=gpuagent",
            f"--metadata-from-file startup-script={ROOT}/deploy/gcp/vm_startup.sh",
            *more,
            IN_PROJECT,
        ]
    )


def delete(zone: str) -> str:
    return f"gcloud compute instances delete {NAME} --zone {zone} {IN_PROJECT}"


def launch(wheel: Path, *arguments: str) -> int:
    return finish(launch_vm.run, ["--accelerator_type", "nvidia-tesla-t4", "--wheel", str(wheel), *arguments])


def test_the_first_zone_with_a_gpu_gets_it(cloud: GoogleCloud, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.answers("instances create us-central1-a", refuse(machine_stock_out("us-central1-a")))
    assert launch(wheel, "--delete-after", "8h") == 0
    ending = "--max-run-duration 8h --instance-termination-action DELETE"
    assert cloud.changes == [
        create("us-central1-a", ending),
        delete("us-central1-a"),
        create("us-central1-b", ending),
        f"gcloud compute ssh {NAME} --zone us-central1-b --command "
        f"'test -e /var/lib/gpuagent-machine/ready' {IN_PROJECT}",
        f"gcloud compute scp {wheel} {NAME}:{wheel.name} --zone us-central1-b {IN_PROJECT}",
        f"gcloud compute ssh {NAME} --zone us-central1-b --command "
        f"'sudo /opt/gpuagent/bin/pip install --quiet ./{wheel.name}' {IN_PROJECT}",
    ]
    said = capsys.readouterr().out
    assert "us-central1-a: out of" in said
    assert f"gcloud compute ssh {NAME} --zone us-central1-b --project p-1 '--ssh-flag=-R 50051:127.0.0.1:50051'" in said
    assert delete("us-central1-b") in said


def test_a_dry_run_changes_nothing(cloud: GoogleCloud, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(wheel, "--dry-run") == 0
    assert not cloud.changes
    assert f"$ {create('us-central1-a')}" in capsys.readouterr().out.splitlines()


def test_spot_machines_have_their_quota(cloud: GoogleCloud, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(wheel, "--spot") == 1
    assert "request PREEMPTIBLE_NVIDIA_T4_GPUS" in capsys.readouterr().err
    assert not cloud.changes


def test_machine_types_with_gpus_of_their_own_get_no_others(cloud: GoogleCloud) -> None:
    arguments = ["--accelerator_type", "nvidia-l4", "--no-agent", "--spot"]
    assert finish(launch_vm.run, arguments) == 0
    (created,) = cloud.changes
    assert "--machine-type g2-standard-4 --image-family" in created
    assert "--provisioning-model SPOT --instance-termination-action DELETE" in created


def test_a_machine_without_gpuagent_is_named_with_the_command_that_deletes_it(
    cloud: GoogleCloud, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("compute scp", refuse("ssh: connect to host: Connection timed out\n"))
    assert launch(wheel) == 1
    assert delete("us-central1-a") in capsys.readouterr().out
    assert delete("us-central1-a") not in cloud.changes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--wheel", "/nowhere.whl"], "/nowhere.whl does not exist; run `make wheel`"),
        (
            ["--zone", "mars-north1-a"],
            "is not offered in mars-north1-a; use one of us-central1-a, us-central1-b, us-central1-f",
        ),
    ],
)
def test_options_that_make_no_sense_are_said_to(
    cloud: GoogleCloud, wheel: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert launch(wheel, *arguments) == 2
    assert says in capsys.readouterr().err
    assert not cloud.changes


def test_more_gpus_than_a_machine_has_are_refused(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch(Path("unread"), "--count", "3")
    assert "a node has 1 or 2 or 4 of nvidia-tesla-t4, not 3" in capsys.readouterr().err
    assert not cloud.calls


def test_a_driver_that_never_comes_ends_the_waiting_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Resource(shell=Shell(project="p-1"), kind=("compute", "instances"), name="m")
    slept: list[float] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(DeployError, match="get-serial-port-output m --zone z"):
        launch_vm.wait_until_ready(machine, "z", sleep=slept.append)
    assert sum(slept) == 15 * 60


def test_the_startup_script_is_one_that_bash_can_read() -> None:
    subprocess.run([shutil.which("bash") or "bash", "-n", ROOT / "deploy/gcp/vm_startup.sh"], check=True)
