"""The agent on other processors, under emulation and with Debian's packages, beside a collector on this machine's."""

import platform
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fault.agent_site import STEPS, steps_written
from tests.support.containers import short_folder
from tests.support.emulation import ARCHITECTURES, EmulatedAgent, inside, install_by_pip, make_debian
from tests.support.installers import make_installer
from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow


@pytest.fixture(params=ARCHITECTURES)
def installed(request: pytest.FixtureRequest) -> Iterator[EmulatedAgent]:
    """An agent of that processor: of POWER by the one-file installer, else by pip as docs/deploy/power.md says."""
    machine = str(request.param)
    with short_folder() as folder:
        install = install_by_file if machine == "ppc64le" else install_by_pip
        yield install(machine, folder)


def install_by_file(machine: str, folder: Path) -> EmulatedAgent:
    made, root = make_installer(folder / "file", "--machine", machine), make_debian(machine)
    subprocess.run([*inside(root, folder), "bash", made, "--prefix", f"{folder}/prefix"], check=True)
    agent = EmulatedAgent(machine=machine, root=root, program=f"{folder}/prefix/bin/gpuagent")
    info = [*inside(root, folder), agent.program, "info"]
    assert machine in subprocess.run(info, check=True, capture_output=True, text=True).stdout
    return agent


def test_an_agent_there_is_killed_every_step_is_stored_once_and_its_platform_is_compared(
    installed: EmulatedAgent, node: Node
) -> None:
    node.serve()
    work = installed.command(node, "run", "--", "/usr/bin/python3", "-c", STEPS)
    agent = node.start(*work, log="run.log")
    until(lambda: node.ask("SELECT 1 FROM steps LIMIT 1"), "the first step")
    children = psutil.Process(agent.pid).children(recursive=True)
    node.stop(agent, signal.SIGKILL)
    psutil.wait_procs(children, timeout=LIMIT_SECONDS)
    (run_directory,) = (node.folder / "spool" / "runs").iterdir()
    written = steps_written(run_directory)
    options = ["--repeat", "2", "--name", "nothing"]
    node.run(*installed.command(node, "run", "--platform", "satori", *options, "--", "true"))
    (steps,) = node.ask("SELECT count(*) AS rows, count(DISTINCT step) AS different, max(step) AS last FROM steps")
    assert steps == {"rows": written, "different": written, "last": written - 1}
    runs = node.ask("SELECT status, architecture FROM runs JOIN sessions USING (session_id) ORDER BY status")
    assert runs == [{"status": status, "architecture": installed.machine} for status in ("lost", *2 * ["succeeded"])]
    node.environment["GPUAGENT_SPOOL_DIR"] = str(node.folder / "spool of another node")
    node.run("gpuagent", "run", "--platform", "openshift", *options, "--", "true")
    compared = node.collector("compare", "satori", "openshift", "--all").stdout
    assert {"satori", "openshift", installed.machine, platform.machine()} <= set(compared.split())
