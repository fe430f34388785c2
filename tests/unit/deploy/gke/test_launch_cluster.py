"""launch_cluster.py and delete_cluster.py, command by command, against a stand-in for gcloud."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.gcp.options import HANG_UP_FILE, finish
from deploy.gke import delete_cluster, launch_cluster
from tests.unit.deploy.gke.google_cloud import (
    ABSENT,
    BUSY,
    EXISTS,
    HANG,
    QUOTA,
    QUOTA_EVERYWHERE,
    GoogleCloud,
    cluster_stock_out,
    offers,
    out,
    quotas,
    refuse,
    regions,
)

NAME = "gke-gpu-nvidia-l4-1-cluster"
ROOT = Path(__file__).resolve().parents[4]
SCRIPT = (str(ROOT / "deploy/gke/launch_cluster.py"), "--accelerator_type", "nvidia-l4")


def create(zone: str, *more: str) -> str:
    return " ".join(
        [
            f"gcloud container clusters create {NAME} --zone {zone} --num-nodes 3",
            "--machine-type g2-standard-4 --accelerator type=nvidia-l4,count=1,gpu-driver-version=default",
            "--labels made-by=gpuagent",
            *more,
            "--project p-1 --quiet",
        ]
    )


def delete(zone: str) -> str:
    return f"gcloud container clusters delete {NAME} --zone {zone} --project p-1 --quiet"


def credentials(zone: str) -> str:
    return f"gcloud container clusters get-credentials {NAME} --zone {zone} --project p-1 --quiet"


def agents(location: str) -> str:
    return (
        f"make -C {ROOT} deploy-daemonset OVERLAY=gke CONTEXT=gke_p-1_{location}_{NAME} REGISTRY=example.org/r "
        "PLATFORM=gke"
    )


FIRST = create("us-central1-a")
DELETE_FIRST = delete("us-central1-a")


def launch(*arguments: str) -> int:
    return finish(launch_cluster.run, ["--accelerator_type", "nvidia-l4", *arguments])


def test_three_nodes_come_up_in_a_zone_with_agents(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("--registry", "example.org/r") == 0
    assert cloud.calls == [
        "gcloud auth list --filter=status:ACTIVE --format=json --quiet",
        "gcloud config get project --format=json --quiet",
        f"gcloud container clusters list --filter=name={NAME} --format=json --project p-1 --quiet",
        "gcloud compute accelerator-types list --filter=name=nvidia-l4 --format=json --project p-1 --quiet",
        "gcloud compute project-info describe --format=json --project p-1 --quiet",
        "gcloud compute regions list --format=json --project p-1 --quiet",
        FIRST,
        credentials("us-central1-a"),
        agents("us-central1-a"),
    ]
    said = capsys.readouterr().out
    assert f"cluster {NAME}: 3 × g2-standard-4 with 1 nvidia-l4" in said
    assert f"deploy/gke/delete_cluster.py --cluster {NAME} --zone us-central1-a --project p-1" in said


def test_a_dry_run_prints_commands_and_changes_nothing(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("--dry-run", "--spot") == 0
    asked = ["auth list --filter=status:ACTIVE", "config get project", "compute accelerator-types list"]
    asked += ["compute project-info describe", "compute regions list"]
    assert [" ".join(call.split()[1:4]) for call in cloud.calls] == asked
    printed = [line.removeprefix("$ ") for line in capsys.readouterr().out.splitlines() if line.startswith("$ ")]
    assert printed == [FIRST.replace(" --project", " --spot --project"), credentials("us-central1-a")]


@pytest.mark.parametrize("without", ["account", "project", "gcloud"])
def test_a_dry_run_needs_no_account_and_plans_for_the_named_or_usual_places(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str], without: str
) -> None:
    if without == "account":
        cloud.answers("auth list", out("[]"))
    elif without == "project":
        cloud.answers("config get project", out('""'))
    else:
        for program in cloud.folder.iterdir():
            program.unlink()
    assert launch("--dry-run", "--registry", "example.org/r") == 0
    said = capsys.readouterr().out
    assert "stock and quotas" in said
    assert f"$ {FIRST.replace('--project p-1', '--project PROJECT')}" in said.splitlines()
    assert f"CONTEXT=gke_PROJECT_us-central1-a_{NAME}" in said
    asked = {call for call in cloud.calls if "auth list" not in call and "config get" not in call}
    assert not asked
    assert launch("--dry-run", "--zone", "asia-east1-c", "--nodes", "2") == 0
    assert "--zone asia-east1-c --num-nodes 2" in capsys.readouterr().out


def test_what_is_out_of_stock_is_deleted_and_looked_for_in_the_next_zone(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("clusters create", refuse(cluster_stock_out("us-central1-a")), {})
    assert launch() == 0
    assert cloud.changes == [FIRST, DELETE_FIRST, create("us-central1-b"), credentials("us-central1-b")]
    assert "us-central1-a: out of" in capsys.readouterr().out


def test_each_zone_is_tried_once_and_nothing_is_left(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    zones = ("us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a")
    cloud.answers("clusters create", *(refuse(cluster_stock_out(zone)) for zone in zones))
    assert launch() == 1
    assert cloud.changes == [change for zone in zones for change in (create(zone), delete(zone))]
    assert "in 4 attempts" in capsys.readouterr().err


def test_nothing_is_created_or_deleted_where_the_name_is_taken(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("clusters list", out(f'[{{"name": "{NAME}", "location": "us-central1-a"}}]'))
    assert launch() == 1
    assert not cloud.changes
    assert f"cluster {NAME} exists already" in capsys.readouterr().err


def test_a_region_that_the_quota_does_not_allow_is_passed_over(cloud: GoogleCloud) -> None:
    cloud.answers("regions list", out(regions(quotas(NVIDIA_L4_GPUS=2.0), europe_west4=quotas(NVIDIA_L4_GPUS=3.0))))
    assert launch() == 0
    assert cloud.changes[0] == create("europe-west4-a")


def test_a_quota_that_only_gke_knows_of_closes_the_region(cloud: GoogleCloud) -> None:
    cloud.answers("clusters create", refuse(QUOTA), {})
    assert launch() == 0
    assert [call for call in cloud.changes if " create " in call] == [FIRST, create("europe-west4-a")]


@pytest.mark.parametrize(
    ("call", "answer", "code", "says"),
    [
        ("auth list", out("[]"), 1, "gcloud is not signed in; sign in with: gcloud auth login"),
        ("config get project", out("[]"), 1, "no project is set; give --project"),
        ("accelerator-types list", out("[]"), 1, "no zone offers 1 nvidia-l4 in one machine"),
        (
            "accelerator-types list",
            out(offers("nvidia-l4", "us-east4-a")),
            2,
            "not offered in us-central1; use one of us-east4",
        ),
        ("project-info describe", out(quotas(GPUS_ALL_REGIONS=0)), 1, "GPUS_ALL_REGIONS has 0 left, 3 needed"),
        ("regions list", out(regions(quotas(NVIDIA_L4_GPUS=1))), 1, "no region has quota for 3 more nvidia-l4"),
    ],
)
def test_what_is_known_to_fail_is_said_before_anything_is_created(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str], call: str, answer: dict[str, object], code: int, says: str
) -> None:
    cloud.answers(call, answer)
    assert launch("--region", "us-central1") == code
    assert says in capsys.readouterr().err
    assert not cloud.changes


@pytest.mark.parametrize("missing", ["gcloud", "kubectl", "gke-gcloud-auth-plugin", "make"])
def test_a_missing_program_is_named_with_where_to_get_it(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    (cloud.folder / missing).unlink()
    assert launch() == 1
    assert f"{missing} is not installed; " in capsys.readouterr().err
    assert not cloud.calls


@pytest.mark.parametrize(
    ("create_answer", "delete_answer", "changes", "says"),
    [
        pytest.param(EXISTS, None, [FIRST], "it exists already", id="somebody else's cluster is never deleted"),
        pytest.param(
            QUOTA_EVERYWHERE, ABSENT, [FIRST, DELETE_FIRST], "GPUs (all regions)", id="no other place would help"
        ),
        pytest.param(
            cluster_stock_out("us-central1-a"),
            BUSY,
            [FIRST, DELETE_FIRST],
            f"may exist and cost money until you delete it:\n  {DELETE_FIRST}\n",
            id="what cannot be deleted is named with the command that does",
        ),
    ],
)
def test_some_refusals_end_the_search(
    cloud: GoogleCloud,
    capsys: pytest.CaptureFixture[str],
    create_answer: str,
    delete_answer: str | None,
    changes: list[str],
    says: str,
) -> None:
    cloud.answers("clusters create", refuse(create_answer))
    if delete_answer:
        cloud.answers("clusters delete", refuse(delete_answer))
    assert launch() == 1
    assert cloud.changes == changes
    assert says in "".join(capsys.readouterr())


def test_agents_that_cannot_be_deployed_leave_the_cluster_and_say_what_it_costs_on(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("make deploy-daemonset", refuse("no image\n"))
    assert launch("--registry", "example.org/r") == 1
    assert DELETE_FIRST not in cloud.changes
    assert DELETE_FIRST in capsys.readouterr().out


def test_ctrl_c_during_creation_deletes_what_there_is(cloud: GoogleCloud) -> None:
    cloud.answers("clusters create", HANG)
    with subprocess.Popen(
        [sys.executable, *SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        (cloud.folder / "hangs").read_text()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert process.returncode == 130, said
    assert cloud.changes == [FIRST, DELETE_FIRST]


def test_the_scripts_run_as_they_are_on_the_system_s_python(tmp_path: Path) -> None:
    for script in ("gke/launch_cluster.py", "gke/delete_cluster.py", "gcp/launch_vm.py"):
        path = ROOT / "deploy" / script
        assert os.access(path, os.X_OK)
        helped: Sequence[str] = [sys.executable, "-S", str(path), "--help"]
        assert "--dry-run" in subprocess.run(helped, capture_output=True, text=True, check=True, cwd=tmp_path).stdout


def remove(*arguments: str) -> int:
    return finish(delete_cluster.run, ["--cluster", NAME, "--zone", "us-central1-a", *arguments])


def test_a_cluster_is_deleted_and_a_disk_left_is_named(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.answers("disks list", out('[{"name": "pvc-1", "zone": "https://…/zones/us-central1-a"}]'))
    assert remove("--yes") == 0
    assert cloud.changes == [DELETE_FIRST]
    assert "delete pvc-1 --zone us-central1-a" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130), (None, 130)])
def test_deleting_asks_first(
    cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int
) -> None:
    def typed(_: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", typed)
    assert remove() == code
    assert cloud.changes == ([DELETE_FIRST] if code == 0 else [])


def test_deleting_a_cluster_that_does_not_exist_fails(cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.answers("clusters delete", refuse(ABSENT))
    assert remove("--yes") == 1
    assert "clusters delete" in capsys.readouterr().err


RUN = """import fcntl, runpy, signal, sys, termios
exec(sys.argv.pop(1))
del sys.argv[0]
runpy.run_path(sys.argv[0], None, "__main__")"""
# Begins a command that does what the next word says, and then is the script that comes behind it.
AFTER = (sys.executable, "-c", RUN)
# Also where nohup started the tests.
HEARS_HANG_UP = "signal.signal(signal.SIGHUP, signal.SIG_DFL)"


def test_a_terminal_that_is_closed_during_creation_is_as_ctrl_c_and_a_file_tells_of_it(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cloud.answers("clusters create", HANG)
    cloud.answers("clusters delete", refuse(BUSY))
    ours, its = os.openpty()
    # The terminal of its session: the kernel tells by SIGHUP when it goes.
    command = [*AFTER, f"{HEARS_HANG_UP}; fcntl.ioctl(0, termios.TIOCSCTTY, 0)", *SCRIPT]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        (cloud.folder / "hangs").read_text()
        os.close(ours)
    assert process.returncode == 1
    assert cloud.changes == [FIRST, DELETE_FIRST]
    said = (tmp_path / HANG_UP_FILE).read_text()
    assert "terminal was closed" in said
    assert "cost money until" in said
    assert f"delete it:\n  {DELETE_FIRST}\n" in said


def test_a_read_only_home_keeps_nobody_from_cleaning_up(cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/no/such/home")
    cloud.answers("clusters create", HANG)
    command = [*AFTER, HEARS_HANG_UP, *SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        (cloud.folder / "hangs").read_text()
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 130
    assert cloud.changes == [FIRST, DELETE_FIRST]


def test_a_script_that_nohup_runs_goes_on_without_its_terminal(cloud: GoogleCloud) -> None:
    cloud.answers("clusters create", HANG)
    with subprocess.Popen(
        [*AFTER, "signal.signal(signal.SIGHUP, signal.SIG_IGN)", *SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        (cloud.folder / "hangs").read_text()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "the terminal was closed" not in said
    assert said.endswith("interrupted\n")
