"""The agent on other processors, under emulation and with Debian's packages, beside a collector on this machine's."""

import platform
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gpuagent.images.recipe import write_wheel
from tests.fault.agent_site import STEPS, steps_written
from tests.support.containers import short_folder
from tests.support.emulation import ARCHITECTURES, inside, make_debian
from tests.support.images import write_wheels
from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An agent in a root file system of another processor."""

    machine: str
    root: Path
    program: str

    def command(self, node: Node, *words: str) -> list[str]:
        """Return a command of `gpuagent` there, in the node's folder."""
        return [*inside(self.root, node.folder), self.program, *words]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def installed(request: pytest.FixtureRequest) -> Iterator[Installed]:
    """The agent, installed as docs/deploy/power.md says; of pip's packages, those that Debian has not."""
    machine = str(request.param)
    root = make_debian(machine)
    with short_folder() as folder:
        wheels = write_wheels(folder / "wheels", ["gpuagent"])
        there = inside(root, folder)
        # Without pip, and what it compiles: that takes twice the time here, where the system's pip is as good.
        venv = ["-m", "venv", "--without-pip", "--system-site-packages", "gpuagent"]
        subprocess.run([*there, "python3", *venv], check=True)
        options = ["--quiet", "--no-compile", "--no-index", f"--find-links={wheels}"]
        pip = ["-m", "pip", "--python", "gpuagent/bin/python3", "install", *options, str(write_wheel(wheels))]
        subprocess.run([*there, "python3", *pip], check=True)
        yield Installed(machine=machine, root=root, program=f"{folder}/gpuagent/bin/gpuagent")


def test_an_agent_there_is_killed_and_every_step_is_stored_once(installed: Installed, node: Node) -> None:
    node.serve()
    assert installed.machine in node.run(*installed.command(node, "info")).stdout
    work = installed.command(node, "run", "--", "/usr/bin/python3", "-c", STEPS)
    agent = node.start(*work, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM steps LIMIT 1"), "the first step")
    children = psutil.Process(agent.pid).children(recursive=True)
    node.stop(agent, signal.SIGKILL)
    psutil.wait_procs(children, timeout=LIMIT_SECONDS)
    (run_directory,) = (node.folder / "spool" / "runs").iterdir()
    written = steps_written(run_directory)
    node.run(*installed.command(node, "run", "--", "true"))
    (steps,) = node.ask("SELECT count(*) AS rows, count(DISTINCT step) AS different, max(step) AS last FROM steps")
    assert steps == {"rows": written, "different": written, "last": written - 1}
    runs = node.ask("SELECT status, architecture FROM runs JOIN sessions USING (session_id) ORDER BY status")
    assert runs == [{"status": status, "architecture": installed.machine} for status in ("lost", "succeeded")]


def test_platforms_of_two_processors_are_compared(installed: Installed, node: Node) -> None:
    node.serve()
    options = ["--repeat", "2", "--name", "nothing"]
    node.run(*installed.command(node, "run", "--platform", "satori", *options, "--", "true"))
    node.environment["GPUAGENT_SPOOL_DIR"] = str(node.folder / "spool of another node")
    node.run("gpuagent", "run", "--platform", "openshift", *options, "--", "true")
    compared = node.collector("compare", "satori", "openshift", "--all").stdout
    assert {"satori", "openshift", installed.machine, platform.machine()} <= set(compared.split())
