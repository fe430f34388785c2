"""A signed-in user of a project with quota, by the stand-in."""

from pathlib import Path

import pytest

from tests.unit.deploy.gke.google_cloud import GoogleCloud, offers, out, quotas, regions

US_CENTRAL = ("us-central1-a", "us-central1-b", "us-central1-c")


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoogleCloud:
    """A project where everything works, with L4s in three zones of us-central1 and one of europe-west4."""
    folder = tmp_path / "bin"
    folder.mkdir()
    cloud = GoogleCloud(folder=folder)
    cloud.install()
    cloud.answers("auth list", out('[{"account": "someone@example.org", "status": "ACTIVE"}]'))
    cloud.answers("config get project", out('"p-1"'))
    cloud.answers("clusters list", out("[]"))
    cloud.answers("instances list", out("[]"))
    cloud.answers("disks list", out("[]"))
    cloud.answers("accelerator-types list", out(offers("nvidia-l4", *US_CENTRAL, "europe-west4-a")))
    cloud.answers("project-info describe", out(quotas(GPUS_ALL_REGIONS=16.0)))
    cloud.answers("regions list", out(regions(quotas(NVIDIA_L4_GPUS=8.0, PREEMPTIBLE_NVIDIA_L4_GPUS=8.0))))
    monkeypatch.setenv("PATH", str(folder))
    return cloud
