"""bench_gke.py, command by command, against a stand-in for gcloud, kubectl, make and collector."""

import json
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.gcp.accelerators import find_accelerator
from deploy.gcp.options import finish
from deploy.gke import bench_gke
from deploy.kubernetes.cluster import Cluster, Context
from tests.unit.deploy.gke.google_cloud import GoogleCloud, cluster_stock_out, offers, out, quotas, refuse, regions

# Found before the stand-in takes its place.
KUSTOMIZE = shutil.which("kubectl")
KUBECTL = "kubectl --context=gke_p-1_us-central1-a_gke-gpu-nvidia-{}-1-cluster --namespace=gpuagent"


@pytest.fixture
def bench(cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with L4s and T4s where Jobs end well; return the folder that is given for the data."""
    zones = ("us-central1-a", "us-central1-b", "us-central1-c")
    cloud.answers("accelerator-types list --filter=name=nvidia-tesla-t4", out(offers("nvidia-tesla-t4", *zones)))
    cloud.answers("regions list", out(regions(quotas(NVIDIA_L4_GPUS=8, NVIDIA_T4_GPUS=8))))
    cloud.answers("kubectl get job/gpuagent-experiment", out(""), out(job("Complete")))
    monkeypatch.setenv("KUBECONFIG", "the user's own")
    monkeypatch.setattr(bench_gke, "_collector", lambda: "collector")
    monkeypatch.setattr(bench_gke.wait_for_job, "__defaults__", (lambda _: None,))
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "runs.duckdb").touch()
    return folder


def job(condition: str) -> str:
    return json.dumps([{"type": condition, "status": "True", "message": "BackoffLimit"}])


def run(folder: Path, accelerators: str, *more: str) -> int:
    arguments = ["--accelerators", accelerators, "--registry", "example.org/r", "--folder", str(folder), *more]
    return finish(bench_gke.run, arguments)


def kinds(cloud: GoogleCloud) -> list[str]:
    """Return what the calls that changed something did, in a word or two each."""
    known = (
        "create",
        "get-credentials",
        "deploy-daemonset",
        "apply",
        "logs",
        "export",
        "cp",
        "import",
        "delete",
        "compare",
    )
    return [next(kind for kind in known if kind in call.split()) for call in cloud.changes]


ONE = ["create", "get-credentials", "deploy-daemonset", "apply", "export", "cp", "import", "delete"]


def test_each_accelerator_gets_a_cluster_and_all_are_compared_by_device(cloud: GoogleCloud, bench: Path) -> None:
    assert run(bench, "nvidia-l4,nvidia-tesla-t4") == 0
    assert kinds(cloud) == [*ONE, *ONE, "compare"]
    l4 = KUBECTL.format("l4")
    inside = "exec gpuagent-collector-0 -- collector export --parquet /var/lib/gpuagent/bench-export"
    assert cloud.changes[4:7] == [
        f"{l4} {inside} --experiment accelerators",
        f"{l4} cp gpuagent/gpuagent-collector-0:/var/lib/gpuagent/bench-export {bench}/nvidia-l4",
        f"collector import {bench}/nvidia-l4 --store {bench}/runs.duckdb",
    ]
    assert cloud.changes[-1] == (f"collector compare --by device --experiment accelerators --store {bench}/runs.duckdb")


def test_a_dry_run_prints_commands_alone(cloud: GoogleCloud, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(bench, "nvidia-l4", "--dry-run", "--", "--nodes", "1", "--spot") == 0
    assert not cloud.changes
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("$ ")]
    assert len(printed) == len(ONE) + 1
    assert "--num-nodes 1 " in printed[0]
    assert " --spot " in printed[0]


@pytest.mark.parametrize("broken", ["deploy-daemonset", "apply", "import"])
def test_the_cluster_goes_whatever_fails(
    cloud: GoogleCloud, bench: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    cloud.answers(broken, refuse("it broke\n"))
    assert run(bench, "nvidia-l4") == 1
    assert kinds(cloud) == [*ONE[: ONE.index(broken) + 1], "delete", "compare"]
    said = capsys.readouterr()
    assert "it broke" in said.out
    assert "failed: nvidia-l4; see" in said.err


def test_after_ctrl_c_what_fails_in_cleaning_up_leads_to_no_further_cluster(
    cloud: GoogleCloud, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_gke.wait_for_job, "__defaults__", (interrupted,))
    cloud.answers("collector export", refuse("no data\n"))
    assert run(bench, "nvidia-l4,nvidia-tesla-t4") == 130
    assert kinds(cloud) == [*ONE[:5], "delete"]


def test_a_failed_experiment_leaves_what_it_measured_and_no_cluster(
    cloud: GoogleCloud, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers("kubectl get job/gpuagent-experiment", out(job("Failed")))
    assert run(bench, "nvidia-l4") == 1
    assert kinds(cloud) == [*ONE[:4], "logs", *ONE[4:], "compare"]
    assert "BackoffLimit\n$ kubectl" in capsys.readouterr().out


def test_an_accelerator_that_is_nowhere_in_stock_costs_the_others_nothing(cloud: GoogleCloud, bench: Path) -> None:
    cloud.answers("clusters create type=nvidia-l4,count=1,gpu-driver-version=default", refuse(cluster_stock_out("x")))
    assert run(bench, "nvidia-l4,nvidia-tesla-t4", "--", "--zone", "us-central1-a") == 1
    assert kinds(cloud) == ["create", "delete", *ONE, "compare"]


@pytest.mark.parametrize(
    ("accelerators", "more", "says"),
    [
        ("nvidia-l4,nvidia-tesla-k80", [], "nvidia-tesla-k80 is retired by Google Cloud; use nvidia-tesla-t4"),
        (",", [], "there is no accelerator ''; there are nvidia-tesla-p4, "),
        ("nvidia-l4", ["--registry", ""], "--registry is empty"),
        ("nvidia-l4", ["--", "--nodes", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_misuse_is_refused_before_anything_is_asked(
    cloud: GoogleCloud, bench: Path, capsys: pytest.CaptureFixture[str], accelerators: str, more: list[str], says: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(bench, accelerators, *more)
    assert says in capsys.readouterr().err
    assert not cloud.calls


@pytest.mark.needs("kubectl")
def test_the_job_runs_the_experiment_once_on_each_node_with_the_image_of_the_gpu_s_pytorch(tmp_path: Path) -> None:
    given = Namespace(registry="example.org:5000/r", repeats=5, hours=2)
    asked = Namespace(nodes=3, platform="gke", accelerator=find_accelerator("nvidia-l4"))
    (tmp_path / "kustomization.yaml").write_text(json.dumps(bench_gke.kustomization(tmp_path, given, asked)))
    command = [str(KUSTOMIZE), "kustomize", str(tmp_path)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    job = yaml.safe_load(rendered)
    assert job["metadata"] | {"labels": None} == {"name": bench_gke.JOB, "namespace": "gpuagent", "labels": None}
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["activeDeadlineSeconds"]) == (3, 3, 7200)
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == {"batch.kubernetes.io/job-name": bench_gke.JOB}
    (container,) = pod["containers"]
    assert container["image"] == "example.org:5000/r/gpuagent-workloads:cu126"
    assert container["command"] == ["gpuagent", "experiment", "run", "accelerators", "--repeats=5"]
    assert container["args"] == ["--label=namespace=$(POD_NAMESPACE)", "--label=pod=$(POD_NAME)"]
    assert {"name": "GPUAGENT_PLATFORM", "value": "gke"} in container["env"]


def wait(*answers: dict[str, Any], cloud: GoogleCloud) -> tuple[str | None, list[float]]:
    cloud.answers("kubectl get job/gpuagent-experiment", *answers)
    slept: list[float] = []
    return bench_gke.wait_for_job(Cluster(Context(name="c", server="")), 0.01, sleep=slept.append), slept


def test_a_cluster_that_does_not_answer_for_a_while_is_asked_again(cloud: GoogleCloud) -> None:
    assert wait(refuse("Unable to connect\n"), out(job("Failed")), cloud=cloud) == ("BackoffLimit", [30.0])


def test_a_cluster_that_never_answers_again_is_given_up_after_the_job_s_time(cloud: GoogleCloud) -> None:
    failure, slept = wait(refuse("Unable to connect\n"), cloud=cloud)
    assert failure == "no end after 0.01 h"
    assert sum(slept) == 630
