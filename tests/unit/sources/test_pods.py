"""What is known of pods: the GPUs that are allocated to them, their names, and what made them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuagent.sources.owners import Owners
from gpuagent.sources.source import Account, Cluster, Value
from gpuagent.sources.support.pod_resources import Kubelet
from gpuagent.sources.support.pods import Pods
from gpuagent_collector.trust.authority import Authority
from gpuagent_common.keys import key
from tests.support.kubelets import ApiObjects, KubeletList, serve_api, serve_kubelet
from tests.support.nvml_replay import FIRST, SECOND, NvmlRecording
from tests.support.pid_namespaces import plant_process
from tests.support.sources import OpenSource
from tests.support.trees import instant, plant

WEB, TRAIN, OTHER = (f"{digit * 8}-4e5f-4a6b-8c7d-9e0f1a2b3c4d" for digit in "123")
NOBODY = Account()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node with a kubelet, and its API server."""

    folder: Path
    kubelet: KubeletList
    objects: ApiObjects
    account: Account
    servers: ExitStack

    @property
    def socket(self) -> Path:
        return self.folder / "k/kubelet.sock"

    def cluster(self, **changes: Any) -> Cluster:
        known: dict[str, Any] = {"socket": self.socket, "logs": self.folder / "logs", "account": self.account}
        return Cluster(**(known | changes))

    def pods(self, **changes: Any) -> Pods:
        return Pods(self.cluster(**changes), lambda socket: Kubelet(socket, (FIRST, SECOND), {0: SECOND, 1: FIRST}))

    def add_pod(self, name: str, uid: str, owner: tuple[str, str, str, str] | None = None, **more: Any) -> None:
        """Add a pod of the namespace team to the API server."""
        self.objects.add(f"/api/v1/namespaces/team/pods/{name}", uid, owner, **more)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    kubelet, objects = KubeletList(), ApiObjects()
    with ExitStack() as servers:
        account = servers.enter_context(serve_api(tmp_path / "account", objects))
        found = Place(folder=tmp_path, kubelet=kubelet, objects=objects, account=account, servers=servers)
        servers.enter_context(serve_kubelet(found.socket, kubelet))
        yield found


def look(pods: Pods, *present: str) -> dict[str, tuple[str, tuple[str, ...] | None, str | None]]:
    """Return of each known pod its name, its GPUs and what made it."""
    pods.note_present(frozenset(present))
    pods.look()
    return {uid: (f"{pod.namespace}/{pod.name}", pod.gpus, pod.maker) for uid, pod in pods.known.items()}


@pytest.mark.parametrize(
    ("devices", "claims", "gpus"),
    [
        ({"nvidia.com/gpu": [FIRST, SECOND]}, {}, (FIRST, SECOND)),
        ({"nvidia.com/gpu": [f"{FIRST}::0", f"{FIRST}::1"]}, {}, (FIRST,)),  # time-slicing
        ({"nvidia.com/mig-1g.10gb": ["MIG-11111111-aaaa-4aaa-8aaa-111111111111"]}, {}, ("MIG-" + FIRST[4:],)),
        ({"nvidia.com/gpu": ["1"]}, {}, (SECOND,)),
        ({"nvidia.com/gpu": ["nvidia1"]}, {}, (FIRST,)),
        ({"nvidia.com/gpu": ["nvidia0/vgpu1"]}, {}, (SECOND,)),
        ({}, {"gpu.nvidia.com": ["gpu-0", "gpu-1"]}, (SECOND, FIRST)),
        ({}, {"compute-domain.nvidia.com": ["channel-0"]}, ()),
        ({"vendor.com/nic": ["0"]}, {}, ()),
        ({}, {}, ()),
        # Not to be named here, so which ones it has is unknown.
        ({"nvidia.com/gpu": [FIRST, "nvidia0/gi1"]}, {}, None),
        ({"nvidia.com/gpu": ["7"]}, {}, None),
    ],
)
def test_the_kubelet_names_the_gpus_of_a_pod(
    place: Place, devices: Mapping[str, list[str]], claims: Mapping[str, list[str]], gpus: tuple[str, ...] | None
) -> None:
    place.kubelet.devices["team", "web-0"] = devices
    place.kubelet.claims["team", "web-0"] = claims
    place.add_pod("web-0", WEB)
    assert look(place.pods(), WEB) == {WEB: ("team/web-0", gpus, None)}


OWNERS = {
    "deployment": ("apps/v1", "ReplicaSet", "web-5d4", "rs"),
    "job": ("batch/v1", "Job", "train-0", "job"),
    "set": ("apps/v1", "StatefulSet", "db", "sts"),
}


@pytest.mark.parametrize(
    ("owner", "forbidden", "maker"),
    [
        ("deployment", (), "Deployment/web"),
        ("job", (), "TrainJob/train"),
        ("set", (), "StatefulSet/db"),
        ("deployment", ("replicasets",), "ReplicaSet/web-5d4"),
        ("job", ("jobsets",), "JobSet/train"),
    ],
)
def test_the_api_server_knows_what_made_a_pod(place: Place, owner: str, forbidden: tuple[str, ...], maker: str) -> None:
    place.kubelet.devices["team", "web-0"] = {}
    place.add_pod("web-0", WEB, OWNERS[owner])
    apis = "/apis/{}/namespaces/team/{}"
    objects = place.objects
    objects.add(apis.format("apps/v1", "replicasets/web-5d4"), "rs", ("apps/v1", "Deployment", "web", "deployment"))
    jobset = ("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "jobset")
    objects.add(apis.format("batch/v1", "jobs/train-0"), "job", jobset)
    train = ("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", "trainjob")
    objects.add(apis.format("jobset.x-k8s.io/v1alpha2", "jobsets/train"), "jobset", train)
    objects.add(apis.format("apps/v1", "statefulsets/db"), "sts")
    objects.forbidden.update(forbidden)
    pods = place.pods()
    for _ in range(3):
        assert look(pods, WEB)[WEB] == ("team/web-0", (), maker)
    assert len(set(objects.asked)) == len(objects.asked), "nothing is asked twice"
    # Of a second pod with the same owner the pod alone is asked.
    before = len(objects.asked)
    place.kubelet.devices["team", "web-1"] = {}
    place.add_pod("web-1", TRAIN, OWNERS[owner])
    assert look(pods, WEB, TRAIN)[TRAIN][2] == maker
    assert len(objects.asked) == before + 1


def test_a_pod_that_takes_the_name_of_an_earlier_one_is_another(place: Place) -> None:
    place.kubelet.devices["team", "web-0"] = {"nvidia.com/gpu": [FIRST]}
    place.add_pod("web-0", WEB)
    pods = place.pods()
    assert set(look(pods, WEB)) == {WEB}
    place.add_pod("web-0", TRAIN)
    assert look(pods, TRAIN) == {TRAIN: ("team/web-0", (FIRST,), None)}
    del place.kubelet.devices["team", "web-0"]
    assert look(pods) == {}


def test_a_pod_out_of_a_file_of_the_node_has_the_hash_of_it(place: Place) -> None:
    place.kubelet.devices["team", "proxy"] = {}
    place.add_pod("proxy", WEB, ("v1", "Node", "n1", "n1"), annotations={"kubernetes.io/config.hash": "ab" * 16})
    assert look(place.pods(), "ab" * 16) == {"ab" * 16: ("team/proxy", (), "Node/n1")}


def test_names_come_from_the_kubelets_logs_as_well(place: Place) -> None:
    for folder in (f"team_web-0_{WEB}", f"team_web-0_{OTHER}", f"team_db-0_{TRAIN}", "pods.log"):
        (place.folder / "logs" / folder).mkdir(parents=True)
    place.kubelet.devices["team", "web-0"] = {"nvidia.com/gpu": [FIRST]}
    found = look(place.pods(account=NOBODY), WEB, TRAIN)
    assert {uid: found[uid][:2] for uid in (WEB, TRAIN)} == {WEB: ("team/web-0", (FIRST,)), TRAIN: ("team/db-0", None)}


def test_without_the_kubelets_socket_and_an_account_all_is_missing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    pods = place.pods(socket=place.folder / "none/kubelet.sock", account=NOBODY)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert look(pods, WEB) == {}
    assert [each.what for each in pods.check()] == ["GPUs of pods", "owners of pods", "UIDs of pods"]
    assert [f"{place.folder}/none" in each.remedy for each in pods.check()] == [True, False, True]
    assert len(caplog.records) == 3, "each is said once"


def test_without_names_the_kubelets_list_helps_nobody(place: Place) -> None:
    place.kubelet.devices["team", "web-0"] = {}
    assert [each.what for each in place.pods(account=NOBODY).check()] == ["owners of pods", "UIDs of pods"]


def test_an_account_that_may_read_pods_leaves_nothing_missing(place: Place) -> None:
    place.kubelet.devices["team", "web-0"] = {}
    assert place.pods().check() == []
    place.objects.forbidden.add("pods")
    assert {each.what for each in place.pods().check()} == {"owners of pods", "UIDs of pods"}


def test_an_account_that_may_read_no_pods_is_not_used_again(place: Place) -> None:
    place.objects.forbidden.add("pods")
    place.kubelet.devices["team", "web-0"] = {}
    pods = place.pods()
    for _ in range(3):
        assert look(pods, WEB) == {}
    assert len(place.objects.asked) == 1
    assert ("owners of pods", "403") in [(each.what, each.reason[-4:-1]) for each in pods.missing]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        (None, "", "does not answer"),
        ("ca.crt", Authority.create().pair.certificate.decode(), "does not answer"),
        ("token", "another", "401"),
        ("token", "secret\nof lines", "is no token"),
    ],
)
def test_an_api_server_that_does_not_answer_is_said(place: Place, file: str | None, content: str, reason: str) -> None:
    account = place.account
    if file is None:
        account = Account(folder=account.folder, host="127.0.0.1", port=1)
    else:
        (account.folder / file).write_text(content)
    place.kubelet.devices["team", "web-0"] = {}
    pods = place.pods(account=account)
    assert look(pods, WEB) == {}
    (missing,) = (each for each in pods.missing if each.what == "owners of pods")
    assert reason in missing.reason
    assert "secret" not in missing.reason


def test_a_kubelet_that_restarts_is_asked_again(place: Place) -> None:
    place.kubelet.devices["team", "web-0"] = {"nvidia.com/gpu": [FIRST]}
    place.add_pod("web-0", WEB)
    pods = place.pods()
    place.socket.rename(place.folder / "away")
    assert WEB not in look(pods, WEB)
    place.socket.touch()
    look(pods, WEB)
    assert "does not answer" in pods.missing[0].reason
    (place.folder / "away").rename(place.socket)
    assert look(pods, WEB)[WEB][1] == (FIRST,)
    assert pods.missing == []


def open_pods(place: Place, open_source: OpenSource, **context: Any) -> Owners:
    """Open the source on a node with three pods, of which two share a GPU and one has none; none is at work."""
    proc = place.folder / "proc"
    plant(place.folder, {"proc/self/stat": "", "proc/sys/kernel/random/boot_id": "boot\n"})
    for pid, uid in ((50, WEB), (51, TRAIN), (52, OTHER)):
        plant_process(proc, pid)
        plant(proc, {f"{pid}/cgroup": f"0::/kubepods/pod{uid}/{'ab' * 32}\n", f"{pid}/cmdline": "python"})
    place.kubelet.devices |= {
        ("team", "web-0"): {"nvidia.com/gpu": [f"{FIRST}::0"]},
        ("team", "train-0"): {"nvidia.com/gpu": [f"{FIRST}::1"]},
        ("team", "other"): {},
    }
    place.add_pod("web-0", WEB, OWNERS["set"])
    place.add_pod("train-0", TRAIN)
    place.add_pod("other", OTHER)
    recording = NvmlRecording(
        {
            "open()": [{"answer": None}],
            "devices()": [{"answer": [FIRST, SECOND]}],
            f"nvmlDeviceGetMinorNumber({FIRST})": [{"answer": 0}],
            f"nvmlDeviceGetMinorNumber({SECOND})": [{"answer": 1}],
        }
    )
    return open_source(Owners, proc=proc, open_nvml=recording.open, cluster=place.cluster(), **context)


def read_states(source: Owners, seconds: float) -> dict[tuple[Value, Value], dict[str, Value]]:
    """Return the states of owners by their name and GPU."""
    rows = [dict(reading.values) for reading in source.read(instant(seconds)) if reading.table == "owners"]
    return {(row["job"], row.get("device_id")): row for row in rows}


def test_pods_hold_their_gpus_without_a_process_on_them(place: Place, open_source: OpenSource) -> None:
    source = open_pods(place, open_source)
    read_states(source, 0)
    assert source.check_pods() == []
    states = read_states(source, 1)
    assert set(states) == {(pod, gpu) for pod in ("team/web-0", "team/train-0") for gpu in (None, key(FIRST))}
    assert {row["is_held"] for row in states.values()} == {1}
    own = states["team/web-0", None]
    assert [own[name] for name in ("kind", "title", "place")] == ["pod", "StatefulSet/db", "team"]
    assert read_states(source, 2) == {}, "nothing has changed"
    # Neither the kubelet's end nor its environment takes away what is known.
    place.servers.close()
    plant(place.folder, {"proc/51/environ": f"NVIDIA_VISIBLE_DEVICES={SECOND}", "proc/loadavg": "0 0 0 1/9 99"})
    source.check_pods()
    assert read_states(source, 62)["team/train-0", key(FIRST)]["is_held"] == 1


def test_without_names_a_pod_has_its_uid_and_its_gpus(place: Place, open_source: OpenSource) -> None:
    source = open_pods(place, open_source, owners="ids")
    read_states(source, 0)
    source.check_pods()
    states = read_states(source, 1)
    assert states[WEB, key(FIRST)]["is_held"] == 1
    assert [states[WEB, None][name] for name in ("title", "place")] == [None, None]


def test_a_node_without_kubernetes_has_no_pods(place: Place, open_source: OpenSource) -> None:
    proc = plant(place.folder, {"proc/self/stat": ""}) / "proc"
    nowhere = Cluster(socket=place.folder / "none/s", logs=place.folder / "none", account=NOBODY)
    assert open_source(Owners, proc=proc, cluster=nowhere).check_pods() is None
