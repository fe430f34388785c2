"""The main path with real processes, as a user starts them: the others are beside, in test_end_to_end."""

import json
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.servers import Node

QUIET = (sys.executable, "-c", "print('hello')")


@pytest.fixture
def forks() -> bool:
    """Start the commands of a node as processes, not as forks."""
    return False


def test_a_command_becomes_a_stored_run_with_samples(sharing: Node) -> None:
    done = sharing.run("gpuagent", "run", "--platform", "here", "--label", "k=v", "--", *QUIET)
    assert done.stdout == "hello\n"
    assert "stored by the" in done.stderr
    columns = "platform, status, exit_code, environment, interference, labels->>'k' AS k"
    (run,) = sharing.ask(f"SELECT {columns} FROM runs")
    assert list(run.values()) == ["here", "succeeded", 0, "bare", "none", "v"]
    (counts,) = sharing.ask("SELECT count(*) AS rows, min(memory_total_bytes) AS memory FROM host_samples")
    assert counts["rows"]
    assert counts["memory"] == psutil.virtual_memory().total


def test_a_built_in_workload_reports_steps_and_results(sharing: Node, digits: Path) -> None:
    short = ("--steps", "3", "--warmup", "1", "--data", str(digits))
    done = sharing.run("gpuagent", "run", "mnist", *short, "--json")
    (run,) = json.loads(done.stdout)
    assert (run["status"], run["results"]["parameters"]) == ("succeeded", 1_199_882)
    measured = "phase = 'measure' AND wall_seconds > 0"
    steps = sharing.ask(f"SELECT run_id, count(*) AS steps FROM steps WHERE {measured} GROUP BY ALL")
    assert steps == [{"run_id": run["run_id"], "steps": 3}]


def test_runs_of_two_sides_become_a_report_and_a_figure_also_on_a_lake(node: Node) -> None:
    node.serve(options=("--store", f"ducklake:{node.store}"))
    for side in ("left", "right"):
        node.run("gpuagent", "run", "--repeat", "2", "--label", f"side={side}", "--", "true")
    node.collector("report", "report.html", "--by", "label:side")
    page = (node.folder / "report.html").read_text()
    assert page.count("<h2") > 1
    assert all(side in page for side in ("left", "right"))
    node.collector("plot", "run_seconds", "--by", "label:side", "-o", "figure.svg")
    assert "</svg>" in (node.folder / "figure.svg").read_text()
