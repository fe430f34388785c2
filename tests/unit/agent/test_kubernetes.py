"""Jobs of Kubernetes: their exact manifests, and the causes of an end in a pod's status."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuagent import facts
from gpuagent.environments import find_environment
from gpuagent.environments.environment import Elsewhere, Ending, EnvironmentUnavailableError, Home, Image, Job
from gpuagent.environments.kubernetes import find_pod
from gpuagent.environments.support import common, job_client
from gpuagent.environments.support.job_client import JobError, disruption, short_reason, terminated, waiting_reason
from gpuagent.environments.support.job_manifest import Site, job_manifest, job_name
from gpuagent.runs.elsewhere import read_report
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import NO_LIMITS, Limits
from gpuagent_common.statuses import RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate

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
          command: [python3, -m, gpuagent_workloads, $$(HOME), $$$$]
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


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node called gpu-7 with a GPU, whose kubectl gives the exit codes in the file `codes`, one a call."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nread code <codes\nsed -i 1d codes\ncat refusal >&2 2>/dev/null\nexit $code\n"
    )
    kubectl.chmod(0o755)
    (tmp_path / "refusal").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GPUAGENT_KUBERNETES", str(kubectl))
    monkeypatch.setenv("GPUAGENT_NODE_NAME", "gpu-7")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for name in ("KUBERNETES_SERVICE_HOST", "GPUAGENT_KUBERNETES_ARGS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(common, "user_name", lambda: "ada")
    monkeypatch.setattr("gpuagent.environments.support.job_manifest.user_name", lambda: "ada")
    monkeypatch.setattr("gpuagent.environments.kubernetes.has_nvidia_gpu", lambda: True)
    (tmp_path / "data").mkdir()
    return tmp_path


def job(folder: Path, limits: Limits = NO_LIMITS) -> Job:
    return Job(
        run_id="mnist-1a2b",
        program=("python3", "-m", "gpuagent_workloads", "$(HOME)", "$$"),
        image=Image(name="registry/torch:2.5", digest=None, architecture=None, size_bytes=None),
        run_directory=folder / "run",
        working_directory=None,
        data=[folder / "data"],
        limits=limits,
    )


def home(folder: Path, collector: str = "collector.example:50051") -> Home:
    return Home(collector=collector, token_file=folder / "token", tls=None, platform="lab", rate_hz=10)


def pod_of(task: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(task)["job"]["spec"]["template"]["spec"]
    return spec


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
    more = "--priority low --node-selector gpu=h200 --toleration batch=yes:NoSchedule --toleration spot"
    monkeypatch.setenv("GPUAGENT_KUBERNETES_ARGS", f"{words} {more} --pull-secret registry --volume data:/data:ro")
    pod = pod_of(KUBERNETES.launch(job(node)).command[5])
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "2"}
    assert (pod["runtimeClassName"], pod["serviceAccountName"], pod["priorityClassName"]) == ("nvidia", "bench", "low")
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "registry"}], {"gpu": "h200"})
    assert pod["tolerations"][1:] == [
        {"key": "batch", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert container["volumeMounts"][-1] == {"name": "claim-0", "mountPath": "/data", "readOnly": True}
    assert "gpu-8" in json.dumps(pod["affinity"])
    kubernetes_validate.validate(json.loads(KUBERNETES.launch(job(node)).command[5])["job"], "1.32", strict=True)
    one = pod_of(KUBERNETES.launch(replace(job(node), options=("--gpus", "1"))).command[5])
    assert one["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    for wrong in ("--gpus many", "--volume data", "--node-selector h200"):
        monkeypatch.setenv("GPUAGENT_KUBERNETES_ARGS", wrong)
        with pytest.raises(GpuAgentError, match="cannot read GPUAGENT_KUBERNETES_ARGS: argument --"):
            KUBERNETES.launch(job(node))


def test_a_neighbour_asks_for_no_gpu_and_a_job_is_deleted_after_every_end(node: Path) -> None:
    (delete,) = KUBERNETES.launch(job(node)).afterwards
    assert delete[4:6] == ["delete", "gpuagent-mnist-1a2b"]
    beside = replace(job(node), run_id="mnist-1a2b-with-cpu-burn")
    launch = KUBERNETES.launch_beside(beside)
    assert json.loads(launch.command[5])["job"]["metadata"]["name"] == "gpuagent-mnist-1a2b-with-cpu-burn"
    assert pod_of(launch.command[5])["containers"][0]["resources"] == {}


PSA = (
    'Error from server (Forbidden): error when creating "STDIN": pods "x" is forbidden: violates PodSecurity '
    '"restricted:latest": restricted volume types (volumes "place-0", "place-1" use restricted volume type "hostPath")'
)


def test_who_measures_is_chosen_by_what_the_namespace_admits(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(codes: str, collector: str = "collector.example:50051") -> Elsewhere | None:
        (node / "codes").write_text("\n".join(codes.split()) + "\n")
        return KUBERNETES.find_elsewhere(job(node), home(node, collector))

    assert find("0") is None
    (node / "refusal").write_text(PSA)
    found = find("1 0")
    assert found
    assert (found.user, found.reason[:44]) == (65532, 'violates PodSecurity "restricted:latest": re')
    found = find("1 1 0")  # as OpenShift, which chooses the user
    assert found
    assert found.user is None
    with pytest.raises(GpuAgentError, match="run: violates PodSecurity"):
        find("1 1 1")
    with pytest.raises(MisuseError, match="reach the collector"):
        find("1", "127.0.0.1:50051")
    monkeypatch.delenv("GPUAGENT_NODE_NAME")
    found = find("1 0")
    assert found
    assert "no node of" in found.reason
    monkeypatch.setenv("GPUAGENT_KUBERNETES_ARGS", "--measured-by node")
    assert find("") is None


def test_a_pod_that_measures_itself_asks_for_nothing_that_is_restricted(node: Path) -> None:
    elsewhere = Elsewhere(reason="hostPath", user=None, home=home(node), plan={"run_id": "mnist-1a2b"})
    launch = KUBERNETES.launch(replace(job(node), elsewhere=elsewhere))
    task = json.loads(launch.command[5])
    kubernetes_validate.validate(task["job"], "1.32", strict=True)
    pod = pod_of(launch.command[5])
    assert {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]} == {"emptyDir", "secret"}
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["initContainers"][0]["image"] == "registry/gpuagent-agent:0.1.0"
    assert "affinity" in pod
    assert task["secret"]["token"] == {"file": str(node / "token")}
    assert json.loads(task["secret"]["settings.json"]["text"])["plan"] == {"run_id": "mnist-1a2b"}
    assert launch.find_root
    assert launch.find_root() is None


def test_several_nodes_are_pods_that_find_each_other(node: Path) -> None:
    elsewhere = Elsewhere(reason="hostPath", user=None, home=home(node))
    run_id = f"{'a-long-name-' * 6}0123456789"
    launch = KUBERNETES.launch(replace(job(node), run_id=run_id, elsewhere=elsewhere, nodes=2))
    task = json.loads(launch.command[5])
    kubernetes_validate.validate(task["job"], "1.32", strict=True)
    kubernetes_validate.validate(task["service"], "1.32", strict=True)
    spec, name = task["job"]["spec"], task["job"]["metadata"]["name"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    found = pod_of(launch.command[5])
    assert list(found["affinity"]) == ["podAntiAffinity"]
    assert (found["subdomain"], task["service"]["metadata"]["name"]) == (name, name)
    given = {each["name"]: each.get("value") for each in found["containers"][0]["env"]}
    assert (given["PET_NNODES"], given["PET_MASTER_ADDR"]) == ("2", f"{name}-0.{name}")
    assert KUBERNETES.meeting_point(run_id) == f"{name}-0.{name}:29400"
    assert len(f"{name}-0") <= 63  # a host name
    assert len(set(task["reports"])) == 2


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    containers = {"containerStatuses": [{"state": state}]} if state else {}
    return {"metadata": {"name": "p-x7"}, "status": {**containers, **status}}


def test_the_causes_of_an_end_are_read_from_a_pod() -> None:
    assert terminated(pod({"running": {}})) is None
    assert terminated(pod({"terminated": {"exitCode": 3, "reason": "Error"}})) == {"exitCode": 3, "reason": "Error"}
    with pytest.raises(JobError, match="Evicted: The node"):
        terminated(pod(phase="Failed", reason="Evicted", message="The node was low"))
    failed = {"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no space left"}}}
    with pytest.raises(JobError, match="pod: no space"):
        terminated(pod(initContainerStatuses=[failed]))
    with pytest.raises(JobError, match="ImagePullBackOff: Back-off"):
        waiting_reason(pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}))
    assert waiting_reason(pod(conditions=[{"reason": "Unschedulable", "message": "no gpu"}])) == "no gpu"
    for reason, words in (
        ("PreemptionByScheduler", "a pod of higher priority took its place (why)"),
        ("DeletionByTaintManager", "its node is gone, or was closed to it (why)"),
        ("SomethingNew", "SomethingNew (why)"),
    ):
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}
        assert disruption(pod(conditions=[condition])) == words
    assert disruption(pod(phase="Running")) is None


def test_a_refusal_is_one_short_line() -> None:
    assert short_reason(PSA).startswith('violates PodSecurity "restricted:latest": restricted volume types')
    assert len(short_reason(PSA)) <= 111
    constraints = (
        'pods "x" is forbidden: unable to validate against any security context constraint: [provider "anyuid": '
        "Forbidden: not usable by user or serviceaccount, provider restricted-v2: .spec.securityContext.fsGroup: "
        'Invalid value: 65532 is not an allowed group, provider "privileged": Forbidden: not usable by user]'
    )
    assert "provider restricted-v2" in short_reason(constraints)
    assert "Unable to connect" in short_reason("Unable to connect to the server")


def test_a_stream_of_objects_is_read_wherever_it_is_cut() -> None:
    text = json.dumps({"a": 1}, indent=1) + "\n" + json.dumps({"b": {"c": "}"}}) + json.dumps({"d": 2})

    def chunks(size: int) -> Iterator[bytes]:
        return (text[at : at + size].encode() for at in range(0, len(text), size))

    for size in (1, 7, 1000):
        assert list(job_client._objects(chunks(size))) == [{"a": 1}, {"b": {"c": "}"}}, {"d": 2}]


def test_the_end_of_a_run_elsewhere_is_its_own_unless_somebody_else_ended_it(tmp_path: Path) -> None:
    own = {"node_uuid": "n", "hostname": "n1", "status": "succeeded", "exit_code": 0}
    done, failed = RunUpdate(status=RunStatus.SUCCEEDED, exit_code=0), RunUpdate(status=RunStatus.FAILED, exit_code=1)

    def end(found: RunUpdate, **learned: Any) -> tuple[str, str]:
        (tmp_path / "pod-0.json").write_text(json.dumps(learned))
        ended = read_report(tmp_path).end(found)
        return ended.status, ended.reason

    assert end(done, message=json.dumps(own), reason="Completed") == ("succeeded", "")
    lost = json.dumps({**own, "undelivered": 7})
    assert end(done, message=lost) == ("failed", "the collector did not accept 7 messages before the pod ended")
    assert end(failed, message="", reason="Error") == ("failed", "the agent in the pod ended without a word")
    running = json.dumps({**own, "status": "running", "exit_code": None})
    memory = RunUpdate(
        status=RunStatus.FAILED, exit_code=-9, reason="its memory limit ran out, and the kernel ended it"
    )
    assert end(memory, message=running, reason="OOMKilled") == ("failed", memory.reason)
    cancelled = json.dumps({**own, "status": "cancelled"})
    assert end(failed, message=cancelled, disruption="it was evicted") == ("failed", "kubernetes: it was evicted")
    assert end(RunUpdate(status=RunStatus.CANCELLED), message=running) == ("cancelled", "")
    gone = RunUpdate(status=RunStatus.FAILED, exit_code=125, reason="kubernetes: its node is gone")
    assert end(gone, began_on="n2", failure="its node is gone") == ("failed", gone.reason)
    known = read_report(tmp_path, "lab").own
    assert known
    # As the agent there names its node, so that this end is the run's.
    assert (known.hostname, known.status) == ("n2", "running")
    assert known.node_uuid == facts.node_uuid(facts.Surroundings(), "lab/n2")
    assert "without a word" in str(end(failed, began_on="n2", reason="Error")[1])
    assert read_report(tmp_path, "lab").own is None


def test_a_program_is_found_by_its_group_where_its_variables_cannot_be_read(
    tmp_path: Path, procfs: Callable[[Path], Path]
) -> None:
    (report := tmp_path / "pod-0.json").write_text(json.dumps({"container_id": f"containerd://{'a' * 64}"}))
    proc = tmp_path / "proc"
    for number, parent, group in ((7, 1, "b" * 64), (20, 7, "a" * 64), (21, 20, "a" * 64)):
        (proc / str(number)).mkdir(parents=True)
        (proc / str(number) / "cgroup").write_text(f"0::/kubepods/pod1/{group}\n")
        (proc / str(number) / "stat").write_text(f"{number} (x) S {parent} 0 0 {'0 ' * 40}\n")
    (proc / "stat").write_text("btime 1\n")
    procfs(proc)
    assert find_pod("mnist-1a2b", report) == 20


def test_a_program_that_is_missing_and_a_missing_right_are_said_plainly(node: Path) -> None:
    raw = 'kubernetes: StartError failed to create: exec: "train": executable file not found in $PATH'
    reason = KUBERNETES.explain(Ending(exit_code=127, stderr=raw, afterwards=""))
    assert 'program: "train": executable' in str(reason)
    (node / "codes").write_text("0\n1\n")
    KUBERNETES.check()
    with pytest.raises(EnvironmentUnavailableError, match="create Jobs"):
        KUBERNETES.check()
