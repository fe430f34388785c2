"""The agent on other processors, under emulation and with Debian's packages, beside a collector on this machine's."""

import platform
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.fault.agent_site import STEPS, steps_written
from tests.support.emulation import ARCHITECTURES, EmulatedAgent, emulated_agent
from tests.support.servers import LIMIT_SECONDS, Node, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=ARCHITECTURES)
def installed(request: pytest.FixtureRequest) -> Iterator[EmulatedAgent]:
    with emulated_agent(str(request.param)) as agent:
        yield agent


def test_an_agent_there_is_killed_and_every_step_is_stored_once(installed: EmulatedAgent, node: Node) -> None:
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


def test_platforms_of_two_processors_are_compared(installed: EmulatedAgent, node: Node) -> None:
    node.serve()
    options = ["--repeat", "2", "--name", "nothing"]
    node.run(*installed.command(node, "run", "--platform", "satori", *options, "--", "true"))
    node.environment["GPUAGENT_SPOOL_DIR"] = str(node.folder / "spool of another node")
    node.run("gpuagent", "run", "--platform", "openshift", *options, "--", "true")
    compared = node.collector("compare", "satori", "openshift", "--all").stdout
    assert {"satori", "openshift", installed.machine, platform.machine()} <= set(compared.split())
