"""Processes inside and outside PID namespaces, and their pods and containers by the names of control groups."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.gpu_processes import GpuProcesses, Holder, Place, parse_place
from gpuagent.sources.support.processes import PidView, pid_view, process_of, translate_runs
from tests.support.pid_namespaces import plant_process, plant_view, run_inside
from tests.support.sources import Runs
from tests.support.trees import plant


@pytest.mark.parametrize(
    ("numbers", "of_host", "expected"),
    [
        ((4711,), True, PidView(depth=0, of_host=True)),
        ((7,), False, PidView(depth=0, of_host=False)),
        ((4711, 7), True, PidView(depth=1, of_host=True)),
        ((4711, 30, 7), True, PidView(depth=2, of_host=True)),
        ((30, 7), False, PidView(depth=1, of_host=False)),
    ],
    ids=["host", "container", "container with the host's proc", "nested, with the host's proc", "nested"],
)
def test_the_agent_recognises_its_pid_namespace(
    tmp_path: Path, numbers: Sequence[int], of_host: bool, expected: PidView
) -> None:
    assert pid_view(plant_view(tmp_path, *numbers, of_host=of_host)) == expected


def test_without_a_proc_the_namespace_is_unknown_and_without_nspid_its_depth_0(tmp_path: Path) -> None:
    assert pid_view(tmp_path) == PidView(depth=0, of_host=False)
    plant_view(tmp_path, 4711, of_host=True)
    (tmp_path / "self/status").write_text("Name:\tx\n")
    assert pid_view(tmp_path).depth == 0


def test_supervisors_are_found_among_the_agents_children(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    plant(procfs(tmp_path), {"stat": "btime 1700000000\n"})
    plant_process(tmp_path, 900, 5)
    (tmp_path / "self").symlink_to("900")
    (tmp_path / "900/ns").mkdir()
    (tmp_path / "900/ns/pid").symlink_to("pid:[4026532999]")
    plant_process(tmp_path, 901, 6, parent=900)
    # Another container has a process with the same number inside.
    plant_process(tmp_path, 800, 6, parent=700)
    context = translate_runs(SourceContext(proc=tmp_path, runs=Runs(("run", 6))))
    assert context.runs.processes() == [("run", 901)]
    assert translate_runs(SourceContext(proc=tmp_path, runs=Runs(("run", 60)))).runs.processes() == []
    # On the host numbers stay as they are.
    on_host = SourceContext(proc=plant_view(tmp_path / "host", 4711, of_host=True), runs=Runs(("run", 6)))
    assert translate_runs(on_host) is on_host


def test_on_the_host_a_process_is_found_by_its_number_or_that_of_a_thread(tmp_path: Path) -> None:
    plant_view(tmp_path, 50, of_host=True)
    plant_process(tmp_path, 100)
    (tmp_path / "104").mkdir()
    (tmp_path / "104/status").write_text("Name:\tpython\nTgid:\t100\n")
    processes = GpuProcesses(tmp_path)
    assert processes.sees_all
    assert processes.find(100, {100: "run"}) == processes.find(104, {100: "run"}) == Holder(pid=100, run_id="run")
    assert processes.find(100, {}) == Holder(pid=100, run_id=None)
    assert processes.find(999, {100: "run"}) == Holder(pid=999, run_id=None)


def test_in_a_container_only_a_process_that_uses_cuda_is_found(tmp_path: Path) -> None:
    plant_view(tmp_path, 7, of_host=False)
    plant_process(tmp_path, 20, uses_cuda=True)
    plant_process(tmp_path, 30)
    processes = GpuProcesses(tmp_path)
    assert not processes.sees_all
    assert processes.find(20, {20: "run", 30: "run"}) == Holder(pid=20, run_id="run")
    # A number of the host's that happens to be that of a shell of the run.
    assert processes.find(30, {20: "run", 30: "run"}) == Holder(pid=30, run_id=None)
    assert processes.find(645_400, {20: "run"}) == Holder(pid=645_400, run_id=None)
    # A process whose files may not be seen.
    (tmp_path / "20/fd/3").unlink()
    (tmp_path / "20/fd").rmdir()
    assert GpuProcesses(tmp_path).find(20, {20: "run"}).run_id is None


def test_with_the_hosts_proc_both_numbers_find_the_process(tmp_path: Path) -> None:
    plant_view(tmp_path, 900, 5, of_host=True)
    plant_process(tmp_path, 645_400, 20, uses_cuda=True)
    plant_process(tmp_path, 20)
    processes = GpuProcesses(tmp_path)
    run_of = {645_400: "run"}
    assert processes.find(645_400, run_of) == processes.find(20, run_of) == Holder(pid=645_400, run_id="run")
    assert processes.find(700, run_of) == Holder(pid=700, run_id=None)


_INSIDE = """
import json, subprocess, sys, threading
from pathlib import Path
from gpuagent.clock import SystemClock
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.gpu_processes import GpuProcesses
from gpuagent.sources.support.processes import RunProcesses, pid_view, translate_runs

class OneRun:
    is_busy = True

    def processes(self):
        return (("run", supervisor.pid),)

    def programs(self):
        return ()

WORKLOAD = "import os, sys; file = open(sys.argv[1]); print(os.getpid(), flush=True); sys.stdin.read()"
SUPERVISOR = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKLOAD!r}, sys.argv[1]])"
proc, view = Path("/proc"), pid_view(Path("/proc"))
supervisor = subprocess.Popen(
    [sys.executable, "-c", SUPERVISOR, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
own = int(supervisor.stdout.readline())
context = translate_runs(SourceContext(proc=proc, runs=OneRun()))
run_of = RunProcesses(context).run_of(SystemClock().now())
holder = GpuProcesses(proc).find(own, run_of)
print(json.dumps({"depth": view.depth, "of_host": view.of_host, "supervisor": supervisor.pid, "own": own,
    "supervisor_in_proc": context.runs.processes()[0][1], "run_of": run_of, "holder": [holder.pid, holder.run_id]}))
supervisor.communicate("")
"""


@pytest.mark.parametrize("own_proc", [True, False], ids=["its own proc", "the proc outside"])
def test_in_a_real_namespace_a_run_and_its_process_on_the_gpu_are_found(tmp_path: Path, own_proc: bool) -> None:
    # A file of that name replaces CUDA's device: only whether a process has it open counts.
    device = tmp_path / "nvidia-uvm"
    device.touch()
    seen = json.loads(run_inside(_INSIDE, str(device), own_proc=own_proc))
    (workload,) = map(int, seen["run_of"])
    assert seen["holder"] == [workload, "run"]
    assert seen["own"] < 100
    if own_proc:
        assert (seen["depth"], seen["of_host"]) == (0, False)
        assert (workload, seen["supervisor_in_proc"]) == (seen["own"], seen["supervisor"])
    else:
        assert seen["depth"] == 1
        assert seen["of_host"] == pid_view(Path("/proc")).of_host
        assert workload > seen["own"]
        assert seen["supervisor_in_proc"] > seen["supervisor"]


def test_a_threads_number_leads_to_its_process() -> None:
    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(threading.get_native_id).result()
        assert thread != os.getpid()
        assert process_of(Path("/proc"), thread) == os.getpid()
    assert process_of(Path("/proc"), 2**22 + 1) is None


ID = "3f1c" * 16
UID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
SLICE_UID = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
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
    "in-a-cgroup-namespace-v2": f"0::/../../{V2_SYSTEMD}\n",
    "cgroupfs-in-a-cgroup-namespace-v2": f"0::/../../../besteffort/pod{UID}/{ID}\n",
    "cgroupfs-v1": f"12:memory:{V1}1:name=systemd:{V1}0::/\n",
    "docker-v1": f"4:memory:/kubepods.slice/kubepods-pod{SLICE_UID}.slice/docker-{ID}.scope\n",
    "unparsed-slice-v1": f"1:name=systemd:/system.slice/containerd.service/{GUARANTEED}:cri-containerd:{ID}\n",
}


@pytest.mark.parametrize("cgroup", PODS.values(), ids=PODS)
def test_a_pods_process_has_its_pod_and_container(cgroup: str) -> None:
    assert parse_place(cgroup) == Place(pod_uid=UID, container_id=ID)


def test_a_static_pod_has_the_hash_of_its_file() -> None:
    assert parse_place(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n").pod_uid == STATIC


@pytest.mark.parametrize(
    ("cgroup", "container_id"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", ID),
        (f"1:name=systemd:/docker/{ID}\n", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/c", ID),
        *((cgroup, None) for cgroup in ("", "0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", "nonsense")),
    ],
)
def test_a_process_outside_of_kubernetes_is_in_no_pod(cgroup: str, container_id: str | None) -> None:
    assert parse_place(cgroup) == Place(pod_uid=None, container_id=container_id)


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    place = parse_place(f"0::/{text}")
    assert place.container_id is None or len(place.container_id) == 64
