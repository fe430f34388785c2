"""Jobs of Kubernetes: their exact manifests, and their ends by the answers of a stand-in for kubectl."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.environments import Ending, EnvironmentUnavailableError, Image, Job, find_environment
from gpuagent.environments.support import inside, job_client
from gpuagent.environments.support.job_manifest import Site, job_manifest, job_name
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.limits import NO_LIMITS, Limits
from tests.support import kubectl_stand_in

KUBERNETES = find_environment("kubernetes")
MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {{name: gpuagent-mnist-1a2b, labels: &labels {{app.kubernetes.io/managed-by: gpuagent}}}}
spec:
  backoffLimit: 0
  ttlSecondsAfterFinished: 3600
  template:
    metadata: {{labels: *labels}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 10
      automountServiceAccountToken: false
      enableServiceLinks: false
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [matchFields: [{{key: metadata.name, operator: In, values: [gpu-7]}}]]
      tolerations: [{{key: nvidia.com/gpu, operator: Exists}}]
      securityContext: {{runAsUser: {uid}, runAsGroup: {gid}}}
      containers:
        - name: workload
          image: registry/torch:2.5
          imagePullPolicy: IfNotPresent
          command: [python3, -m, gpuagent_workloads, $$(HOME)]
          workingDir: {node}/run
          env:
            - {{name: GPUAGENT_RUN_ID, value: mnist-1a2b}}
            - {{name: GPUAGENT_RUN_DIR, value: {node}/run}}
            - {{name: HOME, value: {cache}}}
            - {{name: USER, value: ada}}
          resources:
            limits: &resources {{cpu: "2.5", memory: "8589934592", nvidia.com/gpu: "2"}}
            requests: *resources
          volumeMounts:
            - {{name: place-0, mountPath: {cache}, readOnly: false}}
            - {{name: place-1, mountPath: {node}/run, readOnly: false}}
            - {{name: place-2, mountPath: {node}/data, readOnly: true}}
            - {{name: shared-memory, mountPath: /dev/shm}}
      volumes:
        - {{name: place-0, hostPath: {{path: {cache}, type: Directory}}}}
        - {{name: place-1, hostPath: {{path: {node}/run, type: Directory}}}}
        - {{name: place-2, hostPath: {{path: {node}/data, type: Directory}}}}
        - {{name: shared-memory, emptyDir: {{medium: Memory}}}}
      runtimeClassName: nvidia
"""
Answer = tuple[int, str, str]
Execute = Callable[..., tuple[int, str, str | None]]


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node called gpu-7 with a GPU, whose kubectl is the stand-in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STAND_IN_FOLDER", str(tmp_path))
    monkeypatch.setenv("GPUAGENT_KUBERNETES", f"{sys.executable} {kubectl_stand_in.__file__}")
    monkeypatch.setenv("GPUAGENT_NODE_NAME", "gpu-7")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for name in ("KUBERNETES_SERVICE_HOST", "GPUAGENT_KUBERNETES_ARGS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(inside, "user_name", lambda: "ada")
    monkeypatch.setattr("gpuagent.environments.kubernetes.has_nvidia_gpu", lambda: True)
    (tmp_path / "data").mkdir()
    return tmp_path


def job(folder: Path, limits: Limits = NO_LIMITS) -> Job:
    return Job(
        run_id="mnist-1a2b",
        program=("python3", "-m", "gpuagent_workloads", "$(HOME)"),
        image=Image(name="registry/torch:2.5", digest=None, architecture=None, size_bytes=None),
        run_directory=folder / "run",
        working_directory=None,
        data=[folder / "data"],
        limits=limits,
    )


def test_the_manifest_of_a_job(node: Path) -> None:
    asked = job(node, Limits(cpus=2.5, memory_bytes=8 * 2**30))
    assert asked.image
    manifest = job_manifest(asked, asked.image, Site(node="gpu-7", gpus=2, pod={"runtimeClassName": "nvidia"}))
    cache = node / "cache/gpuagent/containers/kubernetes"
    assert manifest == yaml.safe_load(MANIFEST.format(node=node, cache=cache, uid=os.getuid(), gid=os.getgid()))
    kubernetes_validate.validate(manifest, "1.32", strict=True)


@given(st.text(min_size=1, max_size=120))
def test_a_job_has_a_valid_and_unique_name(name: str) -> None:
    made = job_name(f"{name}-0123456789")
    assert len(made) <= 63
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert made.endswith("0123456789")


def test_a_site_has_options_of_its_pods(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--gpus 2 --gpu-resource nvidia.com/mig-1g.10gb --runtime-class nvidia --service-account bench --node gpu-8"
    monkeypatch.setenv("GPUAGENT_KUBERNETES_ARGS", f"{words} --pull-secret registry")
    manifest = json.loads(KUBERNETES.launch(job(node)).command[4])
    pod = manifest["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "2"}
    assert (pod["runtimeClassName"], pod["serviceAccountName"]) == ("nvidia", "bench")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "gpu-8" in json.dumps(pod["affinity"])
    kubernetes_validate.validate(manifest, "1.32", strict=True)
    monkeypatch.setenv("GPUAGENT_KUBERNETES_ARGS", "--gpus many")
    with pytest.raises(GpuAgentError, match="cannot read GPUAGENT_KUBERNETES_ARGS: argument --gpus"):
        KUBERNETES.launch(job(node))


def test_a_neighbour_asks_for_no_gpu_and_a_job_is_deleted_with_its_pod_after_every_end(node: Path) -> None:
    (delete,) = KUBERNETES.launch(job(node)).afterwards
    words = ["delete", "job", "gpuagent-mnist-1a2b", "--ignore-not-found", "--cascade=foreground", "--timeout=50s"]
    assert delete[-len(words) :] == words
    beside = replace(job(node), run_id="mnist-1a2b-with-cpu-burn")
    manifest = json.loads(KUBERNETES.launch_beside(beside).command[4])
    assert manifest["metadata"]["name"] == "gpuagent-mnist-1a2b-with-cpu-burn"
    assert manifest["spec"]["template"]["spec"]["containers"][0]["resources"] == {}


def pod(state: dict[str, Any] | None = None, **status: Any) -> Answer:
    """Return the answer of a `get pods` with one pod."""
    containers = {"containerStatuses": [{"state": state}]} if state else {}
    return 0, json.dumps({"items": [{"metadata": {"name": "p-x7"}, "status": {**containers, **status}}]}), ""


def ended(code: int, reason: str, message: str = "") -> Answer:
    return pod({"terminated": {"exitCode": code, "reason": reason, "message": message}})


NO_POD = (0, '{"items": []}', "")
PENDING = pod(phase="Pending")
RUNNING = pod({"running": {}}, phase="Running")
CREATED = (0, "job.batch/gpuagent-mnist-1a2b created\n", "")
UNSCHEDULABLE = pod(conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "Insufficient gpu"}])
BACK_OFF = {"reason": "ImagePullBackOff", "message": "Back-off pulling"}
QUOTA = 'pods "gpuagent-mnist-1a2b-" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'
NO_RIGHT = 'Error from server (Forbidden): jobs.batch is forbidden: User "ada" cannot create resource\n'


@pytest.fixture
def execute(node: Path, capfd: pytest.CaptureFixture[str]) -> Execute:
    """Return what runs a Job against the stand-in's answers: the exit code, its output, and the reason in words."""

    def run(
        pods: Sequence[Answer], create: Answer = CREATED, events: Sequence[str] = ()
    ) -> tuple[int, str, str | None]:
        listed = 0, json.dumps({"items": [{"message": message} for message in events]}), ""
        answers = {"create": [create], "get pods": pods, "get events": [listed], "logs": [[0, "step 1\n", ""]]}
        (node / "answers.json").write_text(json.dumps(answers))
        code = job_client.main(KUBERNETES.launch(job(node)).command[4:], sleep=lambda _seconds: None)
        out, err = capfd.readouterr()
        ending = Ending(exit_code=code, stderr=err, afterwards="")
        return KUBERNETES.exit_code(code), out, KUBERNETES.explain(ending)

    return run


def test_a_job_is_made_and_followed_and_ends_as_its_program(node: Path, execute: Execute) -> None:
    code, out, reason = execute([NO_POD, PENDING, UNSCHEDULABLE, RUNNING, RUNNING, ended(0, "Completed")])
    assert (code, out) == (0, "step 1\n")
    first, *_, last = calls = [json.loads(line) for line in (node / "calls.jsonl").read_text().splitlines()]
    assert json.loads(first["stdin"])["metadata"]["name"] == "gpuagent-mnist-1a2b"
    assert last["words"] == ["get", "pods", "--selector=job-name=gpuagent-mnist-1a2b", "--output=json"]
    assert ["logs", "--follow", "p-x7"] in [call["words"] for call in calls]
    assert reason is None


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ({"pods": [UNSCHEDULABLE, ended(3, "Error")]}, 3, None),
        ({"pods": [RUNNING, ended(137, "OOMKilled")]}, -9, "its memory limit ran out, and the kernel ended it"),
        ({"pods": [ended(128, "StartError", 'exec: "python3": not found')]}, 128, "StartError exec:"),
        ({"pods": [PENDING, pod({"waiting": BACK_OFF})]}, 125, "kubernetes: ImagePullBackOff: Back-off pulling"),
        ({"pods": [pod(phase="Failed", reason="Evicted", message="The node was low")]}, 125, "Evicted: The node"),
        ({"pods": [RUNNING, NO_POD]}, 125, "its pod was deleted"),
        ({"pods": [NO_POD], "events": [QUOTA]}, 125, "docs/environments.md"),
        ({"pods": [NO_POD], "create": (1, "", NO_RIGHT)}, 125, 'User "ada" cannot create resource; see'),
        ({"pods": [RUNNING, (1, "", "Unable to connect\n"), ended(0, "Completed")]}, 0, None),
    ],
)
def test_the_end_of_a_job_is_reported(execute: Execute, answers: dict[str, Any], code: int, words: str | None) -> None:
    found, _, reason = execute(**answers)
    assert found == code
    assert reason is None if words is None else words in str(reason)


def test_a_silent_api_server_or_a_pod_that_never_starts_ends_the_run(
    execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_client, "_SILENCE_SECONDS", 0.0)
    code, _, reason = execute([(1, "", "Unable to connect to the server\n")])
    assert (code, reason) == (125, "kubernetes: no answer for 0 s: Unable to connect to the server")
    monkeypatch.setattr(job_client, "_START_SECONDS", -1.0)
    code, _, reason = execute([PENDING])
    assert (code, reason) == (125, "kubernetes: the pod did not start within -1 s: the reason is unknown")


def test_a_missing_right_or_an_unknown_node_is_reported(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "answers.json").write_text(json.dumps({"auth": [[0, "yes\n", ""], [1, "no\n", ""]]}))
    KUBERNETES.check()
    with pytest.raises(EnvironmentUnavailableError, match="may not create Jobs"):
        KUBERNETES.check()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("GPUAGENT_NODE_NAME")
    with pytest.raises(EnvironmentUnavailableError, match="does not know its node") as caught:
        KUBERNETES.check()
    assert "spec.nodeName" in caught.value.remedy
