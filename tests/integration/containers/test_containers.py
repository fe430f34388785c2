"""Workloads in real containers, started as a user would."""

import json
import os
import platform
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.containers import Runtime
from tests.support.servers import Node, until

IMAGES = pytest.mark.parametrize("runtime", ["docker", "podman", "charliecloud"], indirect=True)
EVERY = pytest.mark.parametrize("runtime", ["docker", "podman", "charliecloud", "slurm"], indirect=True)
ENGINES = pytest.mark.parametrize("runtime", ["docker", "podman"], indirect=True)

LOOK = """
import os, sys
directory = os.environ["GPUAGENT_RUN_DIR"]
open(directory + "/mine", "w").close()
print(os.getuid(), os.path.exists("/bin/busybox"), os.getcwd(), flush=True)
sys.exit(3)
"""
HOLD = """
import os, time
block = bytearray(os.urandom(1 << 20)) * 200
print("holds 200 MB", flush=True)
time.sleep(600)
"""


def run(node: Node, runtime: Runtime, *words: str, code: int) -> str:
    """Return the stderr of a `gpuagent run` that ends with `code`; `words` are options, `--` and the program."""
    return node.run("gpuagent", "run", "--environment", runtime.environment, *words, code=code).stderr


def start(node: Node, runtime: Runtime) -> psutil.Process:
    program = ["--environment", runtime.environment, "--", "python3", "-c", HOLD]
    process = node.start("gpuagent", "run", *program, log="run.log")
    until(lambda: "holds 200 MB" in (node.folder / "run.log").read_text(), "the program's first line")
    return psutil.Process(process.pid)


def holders() -> list[int]:
    """Return the processes of our program, wherever they are."""
    every = psutil.process_iter(["cmdline"])
    return [process.pid for process in every if (process.info["cmdline"] or [])[1:3] == ["-c", HOLD]]


@IMAGES
def test_a_command_runs_in_the_image_as_the_agents_user(node: Node, runtime: Runtime) -> None:
    node.serve()
    program = ("python3", "-c", LOOK)
    done = node.run("gpuagent", "run", "--environment", runtime.environment, "--", *program, code=3)
    assert done.stdout == f"{os.getuid()} True {node.folder}\n"
    assert "ended with exit code 3" in done.stderr
    (directory,) = (node.folder / "spool" / "runs").iterdir()
    assert (directory / "mine").stat().st_uid == os.getuid()
    (row,) = node.ask(
        "SELECT environment, image, status, digest, architecture, size_bytes FROM runs JOIN images "
        "USING (run_id, environment, image)",
    )
    assert (f"{row['environment']}:{row['image']}", row["status"]) == (runtime.environment, "failed")
    assert row["architecture"] in (platform.machine(), None)
    assert str(row["size_bytes"]).isdecimal()
    assert runtime.containers() == []


@EVERY
def test_a_failed_program_has_a_reason(node: Node, runtime: Runtime) -> None:
    assert "ended by signal 9" in run(node, runtime, "--", "sh", "-c", "kill -9 $$", code=137)
    code = {"docker": 127, "slurm": 2}.get(runtime.environment.partition(":")[0], 1)
    reason = run(node, runtime, "--", "no-such-program", code=code)
    assert "start" in reason or "No such file" in reason
    assert runtime.containers() == []


@pytest.mark.parametrize("runtime", ["docker", "slurm"], indirect=True)
def test_a_run_past_its_timeout_leaves_no_container_and_no_process(node: Node, runtime: Runtime) -> None:
    said = run(node, runtime, "--timeout", "1.5", "--", "python3", "-c", HOLD, code=1)
    assert "stopped after 1.5 s, its timeout" in said
    assert (runtime.containers(), holders()) == ([], [])


@EVERY
def test_a_killed_agent_takes_its_container_with_it(node: Node, runtime: Runtime) -> None:
    agent = start(node, runtime)
    assert holders()
    agent.kill()
    until(lambda: not runtime.containers() and not holders(), "the container's end")


@EVERY
def test_the_samples_of_a_container_belong_to_its_run_and_an_interrupt_ends_it(node: Node, runtime: Runtime) -> None:
    node.serve()
    agent = start(node, runtime)
    enough = "SELECT processes, anonymous_bytes FROM process_samples WHERE anonymous_bytes > 200000000 LIMIT 1"
    (row,) = until(lambda: node.ask(enough), "a sample of the container's processes")
    assert row["processes"] == 1
    group = "SELECT path FROM cgroup_samples WHERE run_id IS NOT NULL AND memory_used_bytes > 200000000 LIMIT 1"
    if runtime.environment.startswith(("docker", "podman")):  # Slurm's steps have one by its cgroup plug-in only
        until(lambda: node.ask(group), "a sample of the container's control group")
    agent.send_signal(signal.SIGINT)
    agent.wait(60)
    assert (runtime.containers(), holders()) == ([], [])


@ENGINES
def test_a_container_that_exceeds_its_memory_limit_has_that_reason(node: Node, runtime: Runtime) -> None:
    node.serve()
    # It begins when the agent has found the container's first process, and listens to the kernel.
    hold = f"import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n{HOLD}"
    program = ("--environment", runtime.environment, "--memory", "64M", "--", "python3", "-c", hold)
    process = node.start("gpuagent", "run", *program, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM process_samples WHERE run_id IS NOT NULL LIMIT 1"), "a sample of it")
    (node.folder / "go").touch()
    assert process.wait(60) == 137
    assert "its memory limit (64M) ran out, and the kernel ended it" in (node.folder / "run.log").read_text()


@ENGINES
def test_a_container_that_exceeds_its_memory_limit_at_once_has_a_likely_reason(node: Node, runtime: Runtime) -> None:
    said = run(node, runtime, "--memory", "64M", "--", "python3", "-c", HOLD, code=137)
    assert re.search(r"its memory limit \(64M\) ran out", said)


@ENGINES
def test_a_missing_image_is_refused_before_anything_runs(node: Node, runtime: Runtime) -> None:
    engine = runtime.environment.partition(":")[0]
    done = node.run("gpuagent", "run", "--environment", f"{engine}:no-such-image", "mnist", code=2)
    assert "there is no image 'no-such-image' here" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(Path(node.folder).glob("spool/runs/*"))


@ENGINES
def test_options_that_the_engine_refuses_are_reported(node: Node, runtime: Runtime) -> None:
    variable = f"GPUAGENT_{runtime.environment.partition(':')[0].upper()}_ARGS"
    node.environment[variable] += " --memory nonsense"
    assert re.search(r"could not start it: .*memory", run(node, runtime, "--", "true", code=125))


@pytest.mark.parametrize("runtime", ["docker"], indirect=True)
def test_info_says_which_environments_can_be_used(node: Node, runtime: Runtime) -> None:
    found = json.loads(node.run("gpuagent", "info", "--json").stdout)["environments"]
    works = {entry["name"]: entry["works"] for entry in found}
    assert works["bare"]
    assert works[runtime.environment.partition(":")[0]]
    missing = next(entry for entry in found if not entry["works"])
    assert missing["remedy"]
