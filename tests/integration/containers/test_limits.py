"""Limits of real containers and jobs, and changes of the limits during a run."""

import json
import signal

import pytest

from tests.support.containers import Runtime
from tests.support.servers import Node, until

ENGINES = pytest.mark.parametrize("runtime", ["docker", "podman"], indirect=True)

# Works until its quota of CPU time in 100 ms has changed, then waits: limits are read every two seconds.
WAIT_FOR_MORE = """
import glob, time
def quota():
    (path,) = glob.glob("/sys/fs/cgroup/cpu*/cpu.cfs_quota_us")[:1] or ["/sys/fs/cgroup/cpu.max"]
    return open(path).read().split()[0]
print(quota(), flush=True)
while quota() == "50000":
    sum(range(100_000))
print(quota(), flush=True)
time.sleep(600)
"""

LAST = """
SELECT cpu_limit_cores, memory_limit_bytes FROM cgroup_samples
WHERE run_id IS NOT NULL AND cpu_limit_cores IS NOT NULL ORDER BY time DESC LIMIT 1
"""


@ENGINES
def test_a_container_may_use_so_much_and_more_from_when_it_is_changed(node: Node, runtime: Runtime) -> None:
    node.serve()
    options = ("--cpus", "0.5", "--memory", "256M", "--change", "cpus=1@3s")
    program = ("python3", "-c", WAIT_FOR_MORE)
    run = node.start("gpuagent", "run", "--environment", runtime.environment, *options, "--", *program, log="run.log")
    changed = [{"cpu_limit_cores": 1, "memory_limit_bytes": 256 * 2**20}]
    until(lambda: node.ask(LAST) == changed, "a sample of the limits after the change")
    assert node.stop(run, signal.SIGINT) == 130
    assert [line for line in (node.folder / "run.log").read_text().split() if line.isdigit()] == ["50000", "100000"]
    assert node.ask("SELECT limits FROM runs") == [{"limits": "cpus=0.5 memory=256M cpus=1@3s"}]
    (event,) = node.ask("SELECT name, detail FROM run_events WHERE event = 'change'")
    assert (event["name"], json.loads(str(event["detail"]))) == ("cpus", {"cpus": 1, "after_seconds": 3})


@pytest.mark.parametrize("runtime", ["charliecloud", "slurm+charliecloud"], indirect=True)
def test_a_process_of_its_own_user_runs_on_as_many_cpus_as_it_may(node: Node, runtime: Runtime) -> None:
    told = "import os; print(os.environ.get('SLURM_CPUS_PER_TASK', len(os.sched_getaffinity(0))))"
    options = ("--environment", runtime.environment, "--cpus", "1")
    assert node.run("gpuagent", "run", *options, "--", "python3", "-c", told).stdout == "1\n"


@pytest.mark.needs("taskset")
def test_a_bare_process_runs_on_as_many_cpus_as_it_may_and_has_no_limit_of_memory(node: Node) -> None:
    told = "import os; print(len(os.sched_getaffinity(0)))"
    assert node.run("gpuagent", "run", "--cpus", "1", "--", "python3", "-c", told).stdout == "1\n"
    done = node.run("gpuagent", "run", "--memory", "1G", "--", "true", code=2)
    assert "bare cannot limit memory" in done.stderr


@pytest.mark.parametrize("runtime", ["slurm"], indirect=True)
def test_slurm_is_asked_for_cpus_and_memory(node: Node, runtime: Runtime) -> None:
    told = "echo $SLURM_CPUS_PER_TASK; squeue --noheader --format=%m --jobs=$SLURM_JOB_ID; exit 3"
    run = ("gpuagent", "run", "--environment", runtime.environment, "--cpus", "1", "--memory")
    assert node.run(*run, "64M", "--", "sh", "-c", told, code=3).stdout == "1\n64M\n"
    refused = node.run(*run, "900T", "--", "true", code=1).stderr
    assert "slurm could not start it: Unable to allocate resources" in refused
