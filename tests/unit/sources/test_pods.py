"""Pods and containers by the names of control groups, as kubelets and engines write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.support.gpu_processes import Place, parse_place

ID = "3f1c" * 16
UID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
SLICE_UID = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
IN_POD = Place(pod_uid=UID, container_id=ID)
NOWHERE = Place(pod_uid=None, container_id=None)

GUARANTEED = f"kubepods-pod{SLICE_UID}.slice"
BEST_EFFORT = f"kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE_UID}.slice"
V1 = f"/kubepods/besteffort/pod{UID}/{ID}\n"
V2_SYSTEMD = f"kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"


PODS = {
    "containerd-v2": f"0::/kubepods.slice/kubepods-burstable.slice/{V2_SYSTEMD}\n",
    "guaranteed-v2": f"0::/kubepods.slice/kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope\n",
    "cri-o-v2": f"0::/kubepods.slice/{BEST_EFFORT}/crio-{ID}.scope/container\n",
    "cgroupfs-v2": f"0::/kubepods/burstable/pod{UID}/{ID}\n",
    "below-its-container-v2": f"0::/kubepods/pod{UID}/{ID}/init.scope\n",
    "kind-v2": f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-{GUARANTEED}/cri-containerd-{ID}.scope\n",
    "cgroupfs-v1": f"12:memory:{V1}1:name=systemd:{V1}0::/\n",
    "docker-v1": f"4:memory:/kubepods.slice/kubepods-pod{SLICE_UID}.slice/docker-{ID}.scope\n",
    "unparsed-slice-v1": f"1:name=systemd:/system.slice/containerd.service/{GUARANTEED}:cri-containerd:{ID}\n",
}


@pytest.mark.parametrize("cgroup", PODS.values(), ids=PODS)
def test_a_pods_process_has_its_pod_and_container(cgroup: str) -> None:
    assert parse_place(cgroup) == IN_POD


def test_an_agent_in_a_cgroup_namespace_sees_the_same_names() -> None:
    assert parse_place(f"0::/../../{V2_SYSTEMD}\n") == IN_POD
    assert parse_place(f"0::/../../../besteffort/pod{UID}/{ID}\n") == IN_POD


def test_a_static_pod_has_the_hash_of_its_file() -> None:
    assert parse_place(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n").pod_uid == STATIC


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/system.slice/docker-{ID}.scope\n",
        f"1:name=systemd:/docker/{ID}\n",
        f"0::/machine.slice/libpod-{ID}.scope/c",
    ],
)
def test_a_container_outside_of_kubernetes_is_in_no_pod(cgroup: str) -> None:
    assert parse_place(cgroup) == Place(pod_uid=None, container_id=ID)


@pytest.mark.parametrize("cgroup", ["", "0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", "nonsense"])
def test_a_process_outside_of_containers_is_nowhere(cgroup: str) -> None:
    assert parse_place(cgroup) == NOWHERE


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    place = parse_place(f"0::/{text}")
    assert place.container_id is None or len(place.container_id) == 64
