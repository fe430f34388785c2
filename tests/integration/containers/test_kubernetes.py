"""A run in Kubernetes as a user would start it, with a stand-in for kubectl, for there is no cluster here."""

import json
import sys
from pathlib import Path

from tests.support import kubectl_stand_in
from tests.support.servers import Node, until

RUNNING = {"items": [{"metadata": {"name": "p-x7"}, "status": {"containerStatuses": [{"state": {"running": {}}}]}}]}


def stand_in(node: Node, **answers: list[tuple[int, str, str]]) -> Path:
    """Have the commands in `node` use the stand-in; return where it writes down its calls."""
    node.environment["GPUAGENT_KUBERNETES"] = f"{sys.executable} {kubectl_stand_in.__file__}"
    node.environment["STAND_IN_FOLDER"] = str(node.folder)
    fixed = {"auth": [(0, "yes\n", "")], "create": [(0, "", "")], "delete": [(0, "", "")]}
    pods = {"get pods": [(0, json.dumps(RUNNING), "")]}
    (node.folder / "answers.json").write_text(json.dumps({**fixed, **pods, **answers}))
    return node.folder / "calls.jsonl"


def commands(calls: Path) -> list[str]:
    return [json.loads(line)["command"] for line in calls.read_text().splitlines()] if calls.exists() else []


def test_a_job_is_deleted_even_when_the_agent_is_killed(node: Node) -> None:
    calls = stand_in(node, logs=[(0, "wait", "")])
    agent = node.start("gpuagent", "run", "--environment", "kubernetes:torch:2.5", "--", "train", log="run.log")
    until(lambda: "logs" in commands(calls), "the pod's log")
    agent.kill()
    until(lambda: "delete" in commands(calls), "the Job's end")


def test_a_refused_job_is_a_failed_run_with_the_clusters_words(node: Node) -> None:
    node.serve()
    calls = stand_in(node, create=[(1, "", "Error from server (Forbidden): jobs.batch is forbidden\n")])
    node.run("gpuagent", "run", "--environment", "kubernetes:torch:2.5", "--", "train", code=125)
    (run,) = node.ask("SELECT environment, image, status, exit_code, reason FROM runs")
    assert (run["environment"], run["image"], run["status"], run["exit_code"]) == (
        "kubernetes",
        "torch:2.5",
        "failed",
        125,
    )
    assert "jobs.batch is forbidden" in str(run["reason"])
    assert commands(calls)[-1] == "delete"
