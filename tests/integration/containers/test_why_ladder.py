"""A ladder from the node to a container: planned from runs, made, and the ratio divided."""

import json
from pathlib import Path

import pytest

from tests.support.containers import Runtime, on
from tests.support.servers import Node

pytestmark = pytest.mark.slow

FACTS = {"podman": ["container and image", "shared memory", "network"], "charliecloud": ["environment and image"]}


@on("podman", "charliecloud")
def test_the_file_of_a_ladder_into_a_container_runs_and_divides_the_ratio(node: Node, runtime: Runtime) -> None:
    node.serve()
    kind = runtime.environment.partition(":")[0]
    program = ("--name", "own", "--", "python3", "-c", "print(sum(range(1000)))")
    for environment in ("bare", runtime.environment):
        node.run("gpuagent", "run", "--repeat", "2", "--environment", environment, *program)
    why = ("--why", "bare", kind, "--by", "environment")
    node.collector("plan", "own", *why, "-o", "why.yaml")
    made = node.run("gpuagent", "experiment", "run", "why.yaml", "--repeats", "2", "--name", "ladder")
    assert "unexplained rest" in made.stdout
    runs = node.ask("SELECT labels->>'rung' AS rung, environment, status FROM runs WHERE experiment = 'ladder'")
    assert {run["status"] for run in runs} == {"succeeded"}
    rungs = {run["rung"]: run["environment"] for run in runs}
    assert rungs == {"0 bare": "bare"} | {f"{number} {fact}": kind for number, fact in enumerate(FACTS[kind], 1)}
    divided = json.loads(node.collector("plan", "own", *why, "--experiment", "ladder", "--json").stdout)
    parts = [part["part"] for part in divided["parts"]]
    assert parts[: parts.index("all rungs")] == FACTS[kind]
    assert (Path(node.folder) / "ladder-answer" / "answer.md").exists()
