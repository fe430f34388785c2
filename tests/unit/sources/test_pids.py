"""Numbers of processes inside and outside PID namespaces."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.gpu_processes import GpuProcesses, Holder
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


def test_without_a_proc_the_namespace_is_unknown(tmp_path: Path) -> None:
    assert pid_view(tmp_path) == PidView(depth=0, of_host=False)


def test_a_kernel_without_nspid_has_depth_0(tmp_path: Path) -> None:
    plant_view(tmp_path, 4711, of_host=True)
    (tmp_path / "self/status").write_text("Name:\tx\n")
    assert pid_view(tmp_path).depth == 0


def test_supervisors_are_found_in_the_hosts_proc_among_the_agents_children(
    tmp_path: Path, procfs: Callable[[Path], Path]
) -> None:
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


def test_on_the_host_numbers_stay_as_they_are(tmp_path: Path) -> None:
    context = SourceContext(proc=plant_view(tmp_path, 4711, of_host=True), runs=Runs(("run", 6)))
    assert translate_runs(context) is context


def test_on_the_host_a_process_is_found_by_its_number_or_that_of_a_thread(tmp_path: Path) -> None:
    plant_view(tmp_path, 50, of_host=True)
    plant_process(tmp_path, 100)
    (tmp_path / "104").mkdir()
    (tmp_path / "104/status").write_text("Name:\tpython\nTgid:\t100\n")
    processes = GpuProcesses(tmp_path)
    assert processes.sees_all
    assert processes.find(100, {100: "run"}) == Holder(pid=100, run_id="run")
    assert processes.find(104, {100: "run"}) == Holder(pid=100, run_id="run")
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


def test_with_the_hosts_proc_both_numbers_find_the_process(tmp_path: Path) -> None:
    plant_view(tmp_path, 900, 5, of_host=True)
    plant_process(tmp_path, 645_400, 20, uses_cuda=True)
    plant_process(tmp_path, 20)
    processes = GpuProcesses(tmp_path)
    run_of = {645_400: "run"}
    assert processes.find(645_400, run_of) == Holder(pid=645_400, run_id="run")
    assert processes.find(20, run_of) == Holder(pid=645_400, run_id="run")
    assert processes.find(700, run_of) == Holder(pid=700, run_id=None)


def test_a_forbidden_process_is_not_assigned_to_a_run(tmp_path: Path) -> None:
    plant_view(tmp_path, 7, of_host=False)
    plant_process(tmp_path, 20, uses_cuda=True)
    (tmp_path / "20/fd/3").unlink()
    (tmp_path / "20/fd").rmdir()
    assert GpuProcesses(tmp_path).find(20, {20: "run"}).run_id is None


_INSIDE = """
import json, subprocess, sys, threading
from pathlib import Path
from gpuagent.clock import SystemClock
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.gpu_processes import GpuProcesses
from gpuagent.sources.support.processes import RunProcesses, pid_view, translate_runs

class OneRun:
    def processes(self):
        return (("run", supervisor.pid),)

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
