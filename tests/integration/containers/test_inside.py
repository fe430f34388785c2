"""The inside of real containers and jobs: their detection, and neighbours of the workload there."""

import json
import sys

import pytest

from gpuagent.facts import Surroundings, collect_node_facts
from tests.support.containers import Runtime
from tests.support.servers import Node, until

DETECT = """
import json
from gpuagent.facts import Surroundings, collect_node_facts
facts = collect_node_facts(Surroundings())
print(json.dumps([facts.virtualization, facts.container, facts.orchestrator]))
"""


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("docker", ["docker", "none"]),
        ("podman", ["podman", "none"]),
        ("charliecloud", ["charliecloud", "none"]),
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


@pytest.mark.parametrize("runtime", ["podman", "charliecloud"], indirect=True)
def test_a_neighbour_is_in_the_same_image_and_reports_its_load(node: Node, runtime: Runtime) -> None:
    node.serve()
    node.run("gpuagent", "run", "--environment", runtime.environment, "--with", "cpu-burn", "--", "true")
    (beside,) = node.ask("SELECT name, detail FROM run_events WHERE event = 'interference'")
    assert beside["name"] == "cpu-burn"
    assert json.loads(str(beside["detail"]))["achieved_load"] > 0
    assert runtime.containers() == []


@pytest.mark.parametrize("runtime", ["docker"], indirect=True)
def test_a_neighbour_has_a_container_of_its_own_that_ends_with_the_agent(node: Node, runtime: Runtime) -> None:
    options = ("--environment", runtime.environment, "--with", "cpu-burn", "--cpus", "1")
    agent = node.start("gpuagent", "run", *options, "--", "sleep", "600", log="run.log")
    names = until(lambda: found if len(found := runtime.containers()) == 2 else None, "both containers")
    assert {name.endswith("-with-cpu-burn") for name in names} == {True, False}
    agent.kill()
    until(lambda: not runtime.containers(), "the containers' end")
