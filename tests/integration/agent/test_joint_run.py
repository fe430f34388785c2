"""One run on two nodes, each with an agent of its own; both are this machine."""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.servers import LIMIT_SECONDS, Node

MNIST = ("mnist", "--device", "cpu", "--threads", "1", "--batch-size", "4", "--steps", "3", "--warmup", "1", "--data")


@pytest.fixture
def nodes(node: Node, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """A node with a collector, and another that delivers to it."""
    node.serve()
    (tmp_path / "other").mkdir()
    with closing(Node(tmp_path / "other")) as other:
        for name in ("GPUAGENT_TOKEN_FILE", "GPUAGENT_COLLECTOR"):
            other.environment[name] = node.environment[name]
        for number, each in enumerate((node, other)):
            each.environment |= {"GPUAGENT_NODE_ID": f"node-{number}", "GPUAGENT_NODE_NAME": f"host{number}"}
        yield node, other


@pytest.fixture
def meeting() -> Iterator[str]:
    """A port that nobody else is given: it stays bound, beside whoever listens there, as both allow that."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def begin(node: Node, *what: str) -> "subprocess.Popen[str]":
    return node.start("gpuagent", "run", "--nodes", "2", "--job", "secret", *what, log="run.log")


def ended(node: Node, process: "subprocess.Popen[str]") -> int:
    code = process.wait(timeout=2 * LIMIT_SECONDS)
    return node.stop(process) or code


def ask(node: Node, *command: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(node.run("collector", *command, "--json").stdout)
    return rows


def test_ranks_on_two_nodes_are_one_run_with_the_samples_of_both(
    nodes: tuple[Node, Node], meeting: str, digits: Path
) -> None:
    processes = [begin(node, *MNIST, str(digits), "--rendezvous", meeting) for node in nodes]
    codes = [ended(node, process) for node, process in zip(nodes, processes, strict=True)]
    assert codes == [0, 0], [(node.folder / "run.log").read_text() for node in nodes]
    node, _ = nodes
    (run,) = ask(node, "runs")
    assert (run["status"], run["node_count"]) == ("succeeded", 2)
    parts = [(part["hostname"], part["status"]) for part in ask(node, "runs", "--parts")]
    assert parts == [("host0", "succeeded"), ("host1", "succeeded")]
    (seen,) = node.ask(
        """SELECT
            (SELECT count(DISTINCT (rank, node_id)) FROM steps WHERE phase = 'measure') AS ranks,
            (SELECT count(*) FROM steps WHERE phase = 'measure') AS steps,
            (SELECT count(DISTINCT node_id) FROM process_samples) AS sampled,
            (SELECT value FROM metrics WHERE metric = 'throughput')
                = (SELECT sum(value) FROM results WHERE name = 'throughput') AS whole""",
    )
    assert seen == {"ranks": 2, "steps": 6, "sampled": 2, "whole": True}


def test_a_node_has_one_part_and_a_failed_part_fails_the_run(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    joint = ("gpuagent", "run", "--nodes", "2", "--job", "secret", "--", "sh", "-c")
    first.run(*joint, "exit 0")
    refused = first.run(*joint, "exit 0", code=1)
    assert "already has a part in run sh-" in refused.stderr
    assert [run["status"] for run in ask(first, "runs")] == ["running"]
    second.run(*joint, "exit 3", code=3)
    (run,) = ask(first, "runs")
    assert (run["status"], run["exit_code"], run["reason"]) == ("failed", 3, "ended with exit code 3")
