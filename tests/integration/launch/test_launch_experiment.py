"""Experiment files on real agents, over real gRPC."""

import json
import shlex
import signal
from pathlib import Path

import pytest

from gpuagent_collector.cli import launch
from gpuagent_collector.launching import progress
from tests.integration.launch.lab import Lab
from tests.support.servers import until

LENIENT = ("--on", "node=lenient")
ALL_MADE = [(1, "failed", 1), (1, "succeeded", 1), (2, "failed", 1), (2, "succeeded", 1)]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let our commands look more often, and write answers into a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(launch, "_DELIVERY_LOOK_SECONDS", 0.05)


def study(folder: Path, name: str, *, first: str = "true", second: str) -> str:
    """Write an experiment of two programs, each twice; return its file."""
    path = folder / f"{name}.yaml"
    programs = "".join(f"  - command: [sh, -c, {json.dumps(script)}]\n" for script in (first, second))
    path.write_text(
        f"name: {name}\nmetric: run_seconds\nrepeats: 2\nworkloads:\n{programs}answer: [compare --by environment]\n"
    )
    return str(path)


def made(lab: Lab, experiment: str) -> list[tuple[int, str, int]]:
    """Return (repeat, status, how many) of an experiment's runs."""
    sql = f"SELECT repeat, status, count(*) AS n FROM runs WHERE experiment = '{experiment}' GROUP BY ALL ORDER BY ALL"
    return [(row["repeat"], row["status"], row["n"]) for row in lab.ask(sql)]


def test_a_file_is_run_once_and_answered(lab: Lab, tmp_path: Path) -> None:
    file = study(tmp_path, "quick", second="exit 3")
    said = lab.command("launch", file, *LENIENT, "--wait", code=1)
    assert "collector: lenient: complete, 4 of 4 runs made, 2 failed\n" in said.err
    assert "$ collector compare --by environment --experiment quick --metric run_seconds\n" in said.err
    answer = " ".join(f"{said.out} {said.err}".split())
    assert "There is no other side, so nothing was compared." in answer
    assert (tmp_path / "quick-answer" / "answer.md").read_text().startswith("# quick\n")
    assert ["lenient", "openshift", "complete", "4", "of", "4"] in [line.split()[:6] for line in said.out.splitlines()]
    assert made(lab, "quick") == ALL_MADE
    again = lab.command("launch", file, *LENIENT, "--wait", "--json", code=1).json()
    assert again["answers"] == ["compare --by environment --experiment quick --metric run_seconds"]
    assert [(each["status"], each["failed_runs"]) for each in again["agents"]] == [("complete", 2)]
    place = ("--node-id", "lenient", "--spool", str(lab.node.folder / "lenient"))
    on_node = lab.node.run("gpuagent", "experiment", "run", file, *place, code=1)
    assert "all 4 runs" in on_node.stderr
    assert made(lab, "quick") == ALL_MADE
    changed = lab.command("launch", file, *LENIENT, "--repeat", "3", code=1).err
    assert "begun here with" in changed


def test_every_chosen_agent_runs_it_and_json_has_its_state(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "burn.yaml"
    file.write_text(
        "name: burn\nworkloads:\n"
        "  - {workload: cpu-burn, parameters: {duration: 0.1, cores: 1, load: 10}}\n"
        "  - {workload: cpu-burn, parameters: {duration: 0.1, cores: 1, load: 20}, environments: [docker]}\n"
    )
    only = ("--only", "environment=bare", "--repeat", "1", "--experiment", "renamed")
    answer = lab.command("launch", str(file), "--all", *only, "--wait", "--json").json()
    ended = [(each["node"], each["status"], each["ended_runs"]) for each in answer["agents"]]
    assert ended == [("lenient", "complete", 1), ("strict", "complete", 1)]
    assert (answer["experiment"], answer["refusals"], answer["answers"]) == ("renamed", [], [])
    assert made(lab, "renamed") == [(1, "succeeded", 2)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: bad\nworkloads:\n  - workload: mnist\n    parametres: {a: 1}\n", ".yaml:4:5: there is no 'parametres'"),
        ("name: bad\nworkloads: [}\n", ".yaml:2:13: "),
        ("name: bad\nworkloads: [{workload: mnits}]\n", "mnits: unknown workload 'mnits'; did you mean 'mnist'?"),
        ("name: bad\nworkloads: [{command: ['true']}]\n", "this agent does not accept commands"),
        (
            "name: bad\nworkloads: [{workload: mnist, environments: ['docker:x']}]\n",
            "this agent does not accept images",
        ),
    ],
)
def test_an_agent_reports_errors_in_a_file_and_runs_nothing(lab: Lab, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    said = lab.command("launch", str(tmp_path / "bad.yaml"), "--on", "node=strict", "--wait", code=1)
    assert words in said.err
    assert said.out == ""
    assert made(lab, "bad") == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("{file}", "--epochs", "3"), "unexpected argument '--epochs'"),
        (("{wrong}",), "answer `compare --by colour --experiment x`: --by colour is unknown"),
        (("no-such.yaml",), "cannot read no-such.yaml: No such file or directory"),
        (("{file}", "--cpus", "2", "--with", "cpu-burn"), "--with, --cpus: not with an experiment file"),
        (("--platform", "lab", "--", "true"), "--on chooses the agents: collector launch --on platform=lab"),
        (("cpu-burn", "--node=n1"), "--on chooses the agents: collector launch --on node=n1"),
        (("cpu-burn", "--force"), "--force: only with an experiment file"),
        (("{file}", "--", "true"), "give either a workload or `-- PROGRAM`"),
    ],
)
def test_misuse_is_rejected_before_any_request(lab: Lab, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    file = study(tmp_path, "unused", second="exit 3")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: x\nworkloads: [{workload: cpu-burn}]\nanswer: [compare --by colour]\n")
    assert why in lab.command("launch", *(word.format(file=file, wrong=wrong) for word in words), code=2).err


def test_a_cancelled_experiment_resumes_when_it_is_launched_again(lab: Lab, tmp_path: Path, gate: Path) -> None:
    waits = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done"
    file = study(tmp_path, "halted", first=waits, second=f"{waits}; true")
    command = lab.node.start("collector", "launch", file, *LENIENT, "--wait", log="halted.log")
    until(lambda: made(lab, "halted") == [(1, "running", 1)], "the first run")
    assert lab.node.stop(command, signal.SIGINT) == 130
    told = (lab.node.folder / "halted.log").read_text()
    assert "collector cancel --experiment" in told
    twice = lab.command("launch", file, *LENIENT, code=1).err
    assert "runs of halted" in twice
    stopped = lab.command("cancel", "--experiment", "halted")
    assert "halted on 1 node" in stopped.out.splitlines()[0]
    until(lambda: made(lab, "halted") == [(1, "cancelled", 1)], "the end of the run")
    until(lambda: "no run of" in lab.command("cancel", "--experiment", "halted").err, "the end of the experiment")
    gate.touch()
    lab.command("launch", file, *LENIENT, "--wait")
    assert made(lab, "halted") == [(1, "cancelled", 1), (1, "succeeded", 2), (2, "succeeded", 2)]
