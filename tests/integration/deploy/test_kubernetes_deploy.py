"""`make deploy-daemonset` and its kin: what they refuse, and what they do, in order, to a stand-in for a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.cluster import troubles
from tests.support.manifests import KUBERNETES
from tests.support.servers import BIN, LIMIT_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl", "make")]

ROOT = KUBERNETES.parents[1]

Make = Callable[..., "subprocess.CompletedProcess[str]"]
Asked = Callable[[], Sequence[tuple[list[str], str]]]

LAKE = ("STORE=ducklake:postgres:host=db1 dbname=lake user=lake", "DATA=s3://bucket/lake")

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "current-context": "lab",
}

# A stand-in for kubectl and the cluster behind it. The real one renders and reads the kubeconfig; what else is asked it
# writes down, and it keeps the names of Secrets in a file.
STAND_IN = """#!{python} -IS
import json, os, pathlib, sys
words = [word for word in sys.argv[1:] if not word.startswith(("--context=", "--namespace="))]
if words[0] in ("kustomize", "config", "version"):
    os.execv({kubectl!r}, ["kubectl", *words])
folder = pathlib.Path({folder!r})
secrets = folder / "secrets"
reads = words[0] in ("apply", "delete", "diff") or "--from-file=token=/dev/stdin" in words
told = sys.stdin.read() if reads else ""
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps([sys.argv[1:], told]) + "\\n")
names = secrets.read_text().split() if secrets.exists() else []
if words[:2] == ["get", "secret"]:
    print("secret/" + words[2] if words[2] in names else "", end="")
elif words[:3] == ["create", "secret", "generic"]:
    secrets.write_text(" ".join([*names, words[3]]))
elif words[:2] == ["get", {other!r}]:
    print(words[1] + "/" + words[2], end="")
elif words[0] == "exec":
    print("gpuagent_agent_made-by-the-collector")
elif words[0] == "get" and words[-1].endswith("matchLabels}}"):
    print("{{}}", end="")
elif words[0] == "get" and words[1].startswith("daemonset"):
    print("3", end="")
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Runs make with a kubeconfig of its own, without a terminal."""
    (tmp_path / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("CONTEXT", "OVERLAY", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
        # What make would have installed is not what is tested here.
        command = ["make", "--silent", f"BIN={BIN}", *words]
        place: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **({"PATH": path} if path else {})}}
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, **place, **quiet, timeout=LIMIT_SECONDS, check=False)

    return run


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Asked:
    """Puts the stand-in on PATH; returns what it was asked so far, and was given on its standard input.

    A parameter is the kind of which the cluster has an object of any name.
    """
    real = subprocess.run(["which", "kubectl"], capture_output=True, text=True, check=True).stdout.strip()
    stand_in = tmp_path / "bin/kubectl"
    stand_in.parent.mkdir()
    other = getattr(request, "param", "")
    stand_in.write_text(STAND_IN.format(python=sys.executable, kubectl=real, folder=str(tmp_path), other=other))
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    file = tmp_path / "asked"

    def read() -> list[tuple[list[str], str]]:
        lines = file.read_text().splitlines() if file.exists() else []
        found = [(words, told) for words, told in map(json.loads, lines)]
        # Manifests name their namespaces themselves.
        return [(words if words[1].startswith("--") else [words[0], "", *words[1:]], told) for words, told in found]

    return read


def test_an_unreachable_cluster_is_named_and_nothing_else_is_tried(make: Make) -> None:
    done = make("deploy-daemonset", "OVERLAY=gke", "CONTEXT=lab")
    assert done.returncode == 2
    assert "context   lab\nserver    https://127.0.0.1:1\n" in done.stdout
    assert "context lab (https://127.0.0.1:1)" in done.stderr
    assert "with: kubectl --context=lab get nodes\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("deploy-daemonset", "CONTEXT=elsewhere"), "kubectl has no context elsewhere; there are: lab"),
        (("undeploy",), "lab is only kubectl's current context; to use it, give CONTEXT=lab"),
        (("diff", "OVERLAY=eks", "CONTEXT=lab"), "no overlay 'eks'; there are: generic, gke, no-gpu, openshift, scale"),
        (("render", "COLLECTOR=c:1", "CERTIFICATES=cert-manager"), "leave CERTIFICATES=cert-manager out"),
        (("deploy-daemonset", "OVERLAY=scale", "CONTEXT=lab"), "several collectors need a shared store"),
        (("diff", "OVERLAY=gke", LAKE[0], "CONTEXT=lab"), "DATA=s3://bucket/path"),
        (("render", "STORE=runs.duckdb"), "STORE takes a catalog in PostgreSQL, such as 'ducklake:postgres:host=db1"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(make: Make, words: Sequence[str], expected: str) -> None:
    done = make(*words)
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_missing_kubectl_is_said(make: Make, tmp_path: Path) -> None:
    for program in ("bash", "make", "tr"):
        found = subprocess.run(["which", program], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / program).symlink_to(found)
    done = make("deploy-daemonset", path=str(tmp_path))
    assert done.returncode == 2
    assert "not on PATH" in done.stderr


def test_rendering_needs_no_cluster_and_takes_what_the_user_decides(make: Make) -> None:
    image = ("REGISTRY=r.example/lab/", "TAG=7")
    done = make("render", "OVERLAY=gke", *image, "PLATFORM=gke-l4", "COLLECTOR=c.example:443")
    assert done.returncode == 0, done.stderr
    images = {line.split()[-1] for line in done.stdout.splitlines() if " image: " in line}
    assert images == {"r.example/lab/gpuagent-agent:7"}
    assert "platform: gke-l4" in done.stdout
    assert "collector: c.example:443" in done.stdout
    assert "kind: StatefulSet" not in done.stdout
    # cert-manager's certificate goes to the Secret that pods mount.
    done = make("render", "OVERLAY=generic", "CERTIFICATES=cert-manager")
    assert "secretName: gpuagent-collector-tls" in done.stdout
    assert "- gpuagent-collector.gpuagent.svc\n" in done.stdout


def test_deploying_makes_what_is_missing_in_an_order_that_works_and_nothing_twice(make: Make, asked: Asked) -> None:
    done = make("deploy-daemonset", "OVERLAY=gke", "CONTEXT=lab", "HOST=c.example")
    assert done.returncode == 0, done.stderr
    assert all(words[0] == "--context=lab" for words, _ in asked())
    did = [" ".join(words[2:6]) for words, _ in asked() if words[2] not in ("get",)]
    assert [each.split(" --")[0] for each in did] == [
        "apply",
        "create secret generic gpuagent-collector-tls",
        "apply",
        "rollout status statefulset/gpuagent-collector",
        "exec gpuagent-collector-0",
        "create secret generic gpuagent-token",
        "apply",
        "rollout status daemonset/gpuagent-agent",
    ]
    # Agents come when their token is there, and their SCC; the namespace keeps its labels in between.
    namespace, others, agents = [told for words, told in asked() if words[2] == "apply"]
    assert "pod-security.kubernetes.io/enforce: privileged" in namespace
    assert ("kind: DaemonSet" in others, "kind: DaemonSet" in agents) == (False, True)
    given = {" ".join(words[2:6]): told for words, told in asked()}
    assert given["create secret generic gpuagent-token"] == "gpuagent_agent_made-by-the-collector\n"
    assert "made-by-the-collector" not in done.stdout + done.stderr
    assert "3 nodes have" in done.stdout
    before = len(asked())
    assert make("deploy-daemonset", "OVERLAY=gke", "CONTEXT=lab").returncode == 0
    assert not [words for words, _ in asked()[before:] if words[2] in ("create", "exec")]


def test_several_collectors_get_one_token_file_and_what_opens_the_lake_before_they_start(
    make: Make, asked: Asked, tmp_path: Path
) -> None:
    words = ("deploy-daemonset", "OVERLAY=scale", *LAKE, "MUTUAL_TLS=yes", "CONTEXT=lab")
    refused = make(*words)
    assert refused.returncode == 2
    assert "Secret gpuagent-lake yet" in refused.stderr
    before = len(asked())
    (tmp_path / "lake.env").write_text("PGPASSWORD=secret\n")
    done = make(*words, f"LAKE_FILE={tmp_path / 'lake.env'}")
    assert done.returncode == 0, done.stderr
    did = [" ".join(words[2:6]).split(" --")[0] for words, _ in asked()[before:] if words[2] != "get"]
    assert did == [
        "apply",
        "create secret generic gpuagent-lake",
        "create secret generic gpuagent-token",
        "create secret generic gpuagent-owner",
        "delete secret gpuagent-client-tls",
        "create secret generic gpuagent-client-tls",
        "create secret generic gpuagent-collector-tls",
        "apply",
        "rollout status deployment/gpuagent-collector",
        "apply",
        "rollout status daemonset/gpuagent-agent",
    ]
    given = {" ".join(words[2:6]): told for words, told in asked()}
    assert given["create secret generic gpuagent-token"].startswith("gpuagent_agent_")
    assert "exec deployment/gpuagent-collector -- collector nodes" in done.stdout
    assert "gpuagent_agent_" not in done.stdout + done.stderr
    before = len(asked())
    assert make(*words).returncode == 0
    assert not [words for words, _ in asked()[before:] if words[2] in ("create", "delete", "exec")]


@pytest.mark.parametrize(
    ("asked", "words"), [("statefulset", ("OVERLAY=scale", *LAKE)), ("deployment", ())], indirect=["asked"]
)
def test_a_collector_with_another_store_is_not_joined_by_more(make: Make, asked: Asked, words: Sequence[str]) -> None:
    done = make("deploy-daemonset", *words, "CONTEXT=lab")
    assert done.returncode == 2
    assert "gpuagent-collector with another" in done.stderr
    assert not [each for each, _ in asked() if each[2] in ("apply", "create")]


def test_a_token_that_collectors_would_not_know_is_not_replaced(make: Make, asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("gpuagent-lake gpuagent-token")
    done = make("deploy-daemonset", "OVERLAY=scale", *LAKE, "CONTEXT=lab")
    assert done.returncode == 2
    assert "Secret gpuagent-token" in done.stderr
    assert not [each for each, _ in asked() if each[2] == "create"]


def test_mutual_tls_wants_a_certificate_of_a_ca_whose_key_is_gone(make: Make, asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("gpuagent-collector-tls")
    done = make("deploy-daemonset", "MUTUAL_TLS=yes", "CONTEXT=lab")
    assert done.returncode == 2
    assert "delete secret gpuagent-collector-tls" in done.stderr
    # What was applied until then leaves the namespace its labels.
    (namespace,) = [told for words, told in asked() if words[2] == "apply"]
    assert "pod-security.kubernetes.io/enforce: privileged" in namespace


def test_images_may_do_without_an_index_where_make_itself_needs_one(make: Make) -> None:
    show = "--eval=show: ; @echo $${PIP_NO_INDEX:-none} $${PIP_EXTRA_INDEX_URL:-none} $(call image_arguments)"
    done = make(show, "show", "PIP_NO_INDEX=1", "PIP_EXTRA_INDEX_URL=https://wheels.example")
    assert done.stdout.startswith("none none "), done.stderr
    assert "--build-arg PIP_NO_INDEX=1" in done.stdout


def test_what_keeps_a_pod_from_running_is_found_in_its_status() -> None:
    def pod(reason: str, restarts: int = 0, message: str = "") -> dict[str, Any]:
        state = {"waiting": {"reason": reason, "message": "back-off"}}
        last = {"terminated": {"exitCode": 1, "message": message}} if restarts else {}
        status = {"name": "agent", "state": state, "lastState": last, "restartCount": restarts}
        return {"metadata": {"name": "agent-x"}, "status": {"containerStatuses": [status]}}

    assert not list(troubles(pod("ContainerCreating")))
    (missing,) = troubles(pod("ImagePullBackOff"))
    assert (missing.words, missing.is_hopeless) == ("back-off", True)
    # Its two reasons alternate, and are one trouble, which lasts until a second attempt has failed.
    assert list(troubles(pod("ErrImagePull"))) == [missing]
    (first,), (fourth,) = troubles(pod("CrashLoopBackOff", 1)), troubles(pod("CrashLoopBackOff", 4))
    assert (first.words, first.is_hopeless, fourth.is_hopeless) == ("it ended with exit code 1", False, True)
    (program,) = troubles(pod("CrashLoopBackOff", 1, "exec /opt/gpuagent/bin/gpuagent: no such file or directory"))
    assert program.is_hopeless
    assert missing.looks > program.looks


def test_undeploying_leaves_the_namespace_with_the_store_and_says_so(make: Make, asked: Asked) -> None:
    done = make("undeploy", "OVERLAY=openshift", "CONTEXT=lab")
    assert done.returncode == 0, done.stderr
    (_, deleted), (left, _) = [(words, told) for words, told in asked() if words[2] == "delete"]
    assert left[3:5] == ["statefulset,deployment,cronjob,configmap", "--selector=app.kubernetes.io/name=gpuagent"]
    assert "kind: DaemonSet" in deleted
    assert "kind: Namespace" not in deleted
    assert "delete namespace gpuagent" in done.stdout


def test_a_collector_elsewhere_needs_its_token_and_its_ca(make: Make, asked: Asked, tmp_path: Path) -> None:
    words = ("deploy-daemonset", "CONTEXT=lab", "COLLECTOR=c.example:443")
    refused = make(*words)
    assert refused.returncode == 2
    assert "elsewhere by TOKEN_FILE=FILE" in refused.stderr
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text(name)
    done = make(*words, f"TOKEN_FILE={tmp_path / 'token'}", f"CA_FILE={tmp_path / 'ca.crt'}")
    assert done.returncode == 0, done.stderr
    assert not [each for each, _ in asked() if each[2] == "exec"]
