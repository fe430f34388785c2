"""Workloads in real containers and jobs, and in Kubernetes by a stand-in for kubectl, started as a user would."""

import json
import os
import platform
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from gpuagent.facts import Surroundings, collect_node_facts
from gpuagent.sources.support.cgroups import parse_mounts
from gpuagent.sources.support.units import Unit, parse_unit
from gpuagent.sources.support.work import Groups
from tests.support.containers import Runtime, on
from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow


@pytest.fixture
def node(sharing: Node) -> Node:
    return sharing


LOOK = """
import os, sys
directory = os.environ["GPUAGENT_RUN_DIR"]
open(directory + "/mine", "w").close()
print(os.getuid(), os.path.exists("/bin/busybox"), os.getcwd(), flush=True)
sys.exit(3)
"""
# Its text names who runs these tests: others may run them on the same machine.
HOLD = f"""
import os, time  # for process {os.getpid()}
block = bytearray(os.urandom(1 << 20)) * 200
print("holds 200 MB", flush=True)
time.sleep(600)
"""


def run(node: Node, runtime: Runtime, *words: str, code: int) -> str:
    """Return the stderr of a `gpuagent run` that ends with `code`; `words` are options, `--` and the program."""
    return node.run("gpuagent", "run", "--environment", runtime.environment, *words, code=code).stderr


def name_of(runtime: Runtime) -> str:
    """Return the name of the runtime's environment, without the image."""
    return runtime.environment.partition(":")[0]


def start(node: Node, runtime: Runtime) -> psutil.Process:
    program = ["--environment", runtime.environment, "--", "python3", "-c", HOLD]
    process = node.start("gpuagent", "run", *program, log="run.log")
    until(lambda: "holds 200 MB" in (node.folder / "run.log").read_text(), "the program's first line")
    return psutil.Process(process.pid)


def holders() -> list[int]:
    """Return the processes of our program, wherever they are."""
    every = psutil.process_iter(["cmdline"])
    return [process.pid for process in every if (process.info["cmdline"] or [])[1:3] == ["-c", HOLD]]


@on("docker", "podman", "charliecloud", "apptainer", "singularity")
def test_a_command_runs_in_the_image_as_the_agents_user(node: Node, runtime: Runtime) -> None:
    done = node.run("gpuagent", "run", "--environment", runtime.environment, "--", "python3", "-c", LOOK, code=3)
    assert done.stdout == f"{os.getuid()} True {node.folder}\n"
    assert "exit code 3" in done.stderr
    (directory,) = (node.folder / "spool" / "runs").iterdir()
    assert (directory / "mine").stat().st_uid == os.getuid()
    (row,) = node.ask(
        "SELECT environment, image, status, digest, architecture, size_bytes FROM runs JOIN images "
        "USING (run_id, environment, image)"
    )
    assert (f"{row['environment']}:{row['image']}", row["status"]) == (runtime.environment, "failed")
    assert row["architecture"] in (platform.machine(), None)
    assert str(row["size_bytes"]).isdecimal()
    assert runtime.containers() == []


@on("docker", "podman", "charliecloud", "apptainer", "slurm", "slurm+apptainer")
def test_a_failed_program_has_a_reason(node: Node, runtime: Runtime) -> None:
    assert "ended by signal 9" in run(node, runtime, "--", "sh", "-c", "kill -9 $$", code=137)
    code = {"docker": 127, "slurm": 2, "apptainer": 255, "slurm+apptainer": 255}.get(name_of(runtime), 1)
    reason = run(node, runtime, "--", "no-such-program", code=code)
    assert "start" in reason or "No such file" in reason
    assert runtime.containers() == []


@on("docker", "apptainer", "slurm")
def test_a_run_past_its_timeout_leaves_no_container_and_no_process(node: Node, runtime: Runtime) -> None:
    said = run(node, runtime, "--timeout", "1.5", "--", "python3", "-c", HOLD, code=1)
    assert "stopped after 1.5 s, its timeout" in said
    assert (runtime.containers(), holders()) == ([], [])


@on("docker", "podman", "charliecloud", "apptainer", "slurm", "slurm+apptainer")
def test_a_killed_agent_takes_its_container_with_it(node: Node, runtime: Runtime) -> None:
    agent = start(node, runtime)
    assert holders()
    agent.kill()
    until(lambda: not runtime.containers() and not holders(), "the container's end")


@on("docker", "podman", "charliecloud", "apptainer", "slurm", "slurm+apptainer")
def test_the_samples_of_a_container_belong_to_its_run_and_an_interrupt_ends_it(node: Node, runtime: Runtime) -> None:
    agent = start(node, runtime)
    enough = "SELECT processes, anonymous_bytes FROM process_samples WHERE anonymous_bytes > 200000000 LIMIT 1"
    (row,) = until(lambda: node.ask(enough), "a sample of the container's processes")
    # Apptainer has a process of its own beside the program.
    assert row["processes"] == 1 + ("apptainer" in runtime.environment)
    group = "SELECT path FROM cgroup_samples WHERE run_id IS NOT NULL AND memory_used_bytes > 200000000 LIMIT 1"
    if runtime.environment.startswith(("docker", "podman")):  # Slurm's steps have one by its cgroup plug-in only
        until(lambda: node.ask(group), "a sample of the container's control group")
        check_owner(runtime)
    agent.send_signal(signal.SIGINT)
    agent.wait(LIMIT_SECONDS)
    assert (runtime.containers(), holders()) == ([], [])


def check_owner(runtime: Runtime) -> None:
    """Check that the container is the owner of the program, with its CPU time and memory."""
    (pid,) = until(lambda: [pid for pid in holders() if unit_of(pid).kind != "user"], "the program in its group")
    unit = unit_of(pid)
    assert (unit.kind, len(unit.name)) == (name_of(runtime), 64)
    memberships = Path(f"/proc/{pid}/cgroup").read_text()
    groups = Groups.find(memberships, unit.group, parse_mounts(Path("/proc/self/mountinfo").read_text()))
    assert groups
    assert groups.read_cpu_seconds()
    memory = groups.read_memory()
    assert memory
    assert (memory.anonymous_bytes or 0) > 200_000_000


def unit_of(pid: int) -> Unit:
    return parse_unit(Path(f"/proc/{pid}/cgroup").read_text()) or Unit("user", "")


@on("docker", "podman", "apptainer")
def test_a_container_that_exceeds_its_memory_limit_has_that_reason(node: Node, runtime: Runtime) -> None:
    # It begins when its processes are sampled.
    hold = f"import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n{HOLD}"
    program = ("--environment", runtime.environment, "--memory", "64M", "--", "python3", "-c", hold)
    process = node.start("gpuagent", "run", *program, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM process_samples WHERE run_id IS NOT NULL LIMIT 1"), "a sample of it")
    (node.folder / "go").touch()
    assert process.wait(LIMIT_SECONDS) == 137
    assert "memory limit (64M)" in (node.folder / "run.log").read_text()
    # The reason is a likely one where the program exceeds the limit at once.
    at_once = run(node, runtime, "--memory", "64M", "--", "python3", "-c", HOLD, code=137)
    assert "its memory limit (64M) ran out" in at_once


@on("docker", "podman")
def test_a_missing_image_and_wrong_options_are_reported(node: Node, runtime: Runtime) -> None:
    engine = runtime.environment.partition(":")[0]
    done = node.run("gpuagent", "run", "--environment", f"{engine}:no-such-image", "mnist", code=2)
    assert "image 'no-such-image'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(Path(node.folder).glob("spool/runs/*"))
    node.environment[f"GPUAGENT_{engine.upper()}_ARGS"] += " --memory nonsense"
    assert re.search(r"could not start it: .*memory", run(node, runtime, "--", "true", code=125))


@on("docker")
def test_info_says_which_environments_can_be_used(node: Node, runtime: Runtime) -> None:
    found = json.loads(node.run("gpuagent", "info", "--json").stdout)["environments"]
    works = {entry["name"]: entry["works"] for entry in found}
    assert works["bare"]
    assert works[runtime.environment.partition(":")[0]]
    missing = next(entry for entry in found if not entry["works"])
    assert missing["remedy"]


DETECT = """
import json
from gpuagent.facts import Surroundings, collect_node_facts
from gpuagent.sources.support.cgroups import parse_mounts
from gpuagent.sources.support.work import Groups
from gpuagent.sources.support.units import Unit, parse_unit
facts = collect_node_facts(Surroundings())
print(json.dumps([facts.virtualization, facts.container, facts.orchestrator]))
"""


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("docker", ["docker", "none"]),
        ("podman", ["podman", "none"]),
        ("charliecloud", ["charliecloud", "none"]),
        ("apptainer", ["apptainer", "none"]),
        ("slurm+charliecloud", ["charliecloud", "slurm"]),
    ],
    indirect=["runtime"],
)
def test_an_agent_inside_detects_every_layer(node: Node, runtime: Runtime, expected: list[str | None]) -> None:
    python = sys.executable if runtime.environment == "slurm" else "python3"
    program = ("--environment", runtime.environment, "--", python, "-c", DETECT)
    here = collect_node_facts(Surroundings())
    around = [expected[0] or here.container, expected[1]]
    assert json.loads(node.run("gpuagent", "run", *program).stdout) == [here.virtualization, *around]


@on("podman", "charliecloud", "apptainer")
def test_a_neighbour_is_in_the_same_image_and_reports_its_load(node: Node, runtime: Runtime) -> None:
    node.run("gpuagent", "run", "--environment", runtime.environment, "--with", "cpu-burn", "--", "true")
    (beside,) = node.ask("SELECT name, detail FROM run_events WHERE event = 'interference'")
    assert beside["name"] == "cpu-burn"
    assert json.loads(str(beside["detail"]))["achieved_load"] > 0
    assert runtime.containers() == []


@on("docker")
def test_a_neighbour_has_a_container_of_its_own_that_ends_with_the_agent(node: Node, runtime: Runtime) -> None:
    options = ("--environment", runtime.environment, "--with", "cpu-burn", "--cpus", "1")
    agent = node.start("gpuagent", "run", *options, "--", "sleep", "600", log="run.log")
    names = until(lambda: found if len(found := runtime.containers()) == 2 else None, "both containers")
    assert {name.endswith("-with-cpu-burn") for name in names} == {True, False}
    agent.kill()
    until(lambda: not runtime.containers(), "the containers' end")


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


@on("docker", "podman")
def test_a_container_may_use_so_much_and_more_from_when_it_is_changed(node: Node, runtime: Runtime) -> None:
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


@on("charliecloud", "slurm+charliecloud")
def test_a_process_of_its_own_user_runs_on_as_many_cpus_as_it_may(node: Node, runtime: Runtime) -> None:
    told = "import os; print(os.environ.get('SLURM_CPUS_PER_TASK', len(os.sched_getaffinity(0))))"
    options = ("--environment", runtime.environment, "--cpus", "1")
    assert node.run("gpuagent", "run", *options, "--", "python3", "-c", told).stdout == "1\n"


@pytest.mark.needs("taskset")
def test_a_bare_process_runs_on_as_many_cpus_as_it_may_and_has_no_limit_of_memory(node: Node) -> None:
    told = "import os; print(len(os.sched_getaffinity(0)))"
    assert node.run("gpuagent", "run", "--cpus", "1", "--", "python3", "-c", told).stdout == "1\n"
    done = node.run("gpuagent", "run", "--memory", "1G", "--", "true", code=2)
    assert "limit memory" in done.stderr


@on("slurm")
def test_slurm_is_asked_for_cpus_and_memory(node: Node, runtime: Runtime) -> None:
    told = "echo $SLURM_CPUS_PER_TASK; squeue --noheader --format=%m --jobs=$SLURM_JOB_ID; exit 3"
    run = ("gpuagent", "run", "--environment", runtime.environment, "--cpus", "1", "--memory")
    assert node.run(*run, "64M", "--", "sh", "-c", told, code=3).stdout == "1\n64M\n"
    refused = node.run(*run, "900T", "--", "true", code=1).stderr
    assert "allocate resources" in refused
