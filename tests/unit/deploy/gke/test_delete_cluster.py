"""delete_cluster.py, command by command, against a stand-in for gcloud."""

import pytest

from deploy.gcp.options import finish
from deploy.gke import delete_cluster
from tests.unit.deploy.gke.google_cloud import GoogleCloud, out

NAME = "gke-gpu-nvidia-l4-1-cluster"


def delete(place: str) -> str:
    return f"gcloud container clusters delete {NAME} {place} --project p-1 --quiet"


def remove(*arguments: str) -> int:
    return finish(delete_cluster.run, ["--cluster", NAME, *arguments])


def test_a_cluster_is_found_and_deleted_and_a_disk_that_is_left_is_named(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("clusters list", out(f'[{{"name": "{NAME}", "location": "us-central1-a"}}]'))
    cloud.answers("disks list", out('[{"name": "pvc-1", "zone": "https://…/zones/us-central1-a"}]'))
    assert remove("--yes") == 0
    assert cloud.changes == [delete("--zone us-central1-a")]
    assert "gcloud compute disks delete pvc-1 --zone us-central1-a --project p-1 --quiet" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130), (None, 130)])
def test_deleting_asks_first(
    cloud: GoogleCloud, monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int
) -> None:
    def typed(_: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", typed)
    assert remove("--location", "us-central1") == code
    assert cloud.changes == ([delete("--region us-central1")] if code == 0 else [])


def test_a_cluster_that_is_not_there_is_said_to_be_missing(
    cloud: GoogleCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remove("--yes") == 1
    assert f"project p-1 has no cluster {NAME}" in capsys.readouterr().err
