"""What is found inside real containers and jobs: which they are, and what runs beside the workload there."""

import json
import sys

import pytest

from gpuagent.facts import Surroundings, collect_node_facts
from tests.integration.containers.asking import ask
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
def test_an_agent_inside_knows_every_layer_around_it(node: Node, runtime: Runtime, expected: list[str | None]) -> None:
    python = sys.executable if runtime.environment == "slurm" else "python3"
    program = ("--environment", runtime.environment, "--", python, "-c", DETECT)
    here = collect_node_facts(Surroundings())
    around = [expected[0] or here.container, expected[1]]
    assert json.loads(node.run("gpuagent", "run", *program).stdout) == [here.virtualization, *around]


@pytest.mark.parametrize("runtime", ["podman", "charliecloud"], indirect=True)
def test_what_runs_beside_is_in_the_same_image_and_tells_its_load(node: Node, runtime: Runtime) -> None:
    node.serve()
    node.run("gpuagent", "run", "--environment", runtime.environment, "--with", "cpu-burn", "--", "true")
    (beside,) = ask(node, "SELECT name, detail FROM run_events WHERE event = 'interference'")
    assert beside["name"] == "cpu-burn"
    assert json.loads(str(beside["detail"]))["achieved_load"] > 0
    assert runtime.containers() == []


@pytest.mark.parametrize("runtime", ["docker"], indirect=True)
def test_what_runs_beside_has_a_container_of_its_own_that_goes_with_the_agent(node: Node, runtime: Runtime) -> None:
    options = ("--environment", runtime.environment, "--with", "cpu-burn", "--cpus", "1")
    agent = node.start("gpuagent", "run", *options, "--", "sleep", "600", log="run.log")
    names = until(lambda: found if len(found := runtime.containers()) == 2 else None, "both containers")
    assert {name.endswith("-with-cpu-burn") for name in names} == {True, False}
    agent.kill()
    until(lambda: not runtime.containers(), "the containers' end")
