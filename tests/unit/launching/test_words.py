"""The request of a command line, experiment files, and the printing of output."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.launching.experiment_file import Answer, find_file, read_file, read_question
from gpuagent_collector.launching.runs import Printer
from gpuagent_common.cli import parse_labels
from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.errors import MisuseError
from gpuagent_common.run_spec import RUN_PARAMETERS, make_spec
from gpuagent_proto.v1.run_pb2 import CpuChange, ExperimentFile, RunSpec


def spec(workload: str | None = None, *program: str, **given: Any) -> RunSpec:
    several = dict.fromkeys(("parameters", "beside", "changes", "labels", "words"), ())
    asked = {**dict.fromkeys(RUN_PARAMETERS), **several, "repeat": 1, "environment": "bare", "observe": False, **given}
    return make_spec(workload, program, asked.pop("words"), parse_labels(asked.pop("labels")), **asked)


def test_options_become_a_run_spec() -> None:
    asked = spec(
        "mnist",
        parameters=("epochs=3",),
        words=("--data", "a=b"),
        repeat=7,
        environment="docker:lab/mnist:2",
        beside=("cpu-burn",),
        labels=("owner=ada",),
        experiment="e",
        timeout_seconds=9.0,
        cpus=2.5,
        memory="8G",
        changes=("cpus=4@60s",),
    )
    assert asked == RunSpec(
        workload="mnist",
        parameters={"epochs": "3", "data": "a=b"},
        repeats=7,
        environment="docker",
        image="lab/mnist:2",
        interference=["cpu-burn"],
        labels={"owner": "ada"},
        experiment="e",
        timeout_seconds=9.0,
        cpus=2.5,
        memory_bytes=8 * 2**30,
        cpu_changes=[CpuChange(cpus=4, after_seconds=60)],
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a workload or `-- PROGRAM`"),
        ({"workload": "mnist", "name": "mine"}, "--name is for programs of your own"),
        ({"workload": "mnist", "pattern": " "}, "--pattern is empty"),
        ({"workload": "mnist", "parameters": ("epochs",)}, "--param takes NAME=VALUE, not 'epochs'"),
        ({"workload": "mnist", "parameters": ("a=1", "a=2")}, "--param a is given twice"),
        ({"workload": "mnist", "labels": ("a=\x1b",)}, "--label takes up to 100 printable characters"),
        ({"workload": "mnist", "cpus": float("nan")}, "cpus must be 0.01 or more"),
        ({"workload": "mnist", "memory": "8"}, "such as 8G; not '8'"),
        ({"workload": "mnist", "changes": ("cpus=8",)}, "such as cpus=8@60s; not 'cpus=8'"),
    ],
)
def test_misuse_is_rejected_before_any_request(given: dict[str, Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        spec(**given)


def test_an_experiment_is_a_file_or_a_built_in_study(tmp_path: Path) -> None:
    (tmp_path / "study").touch()
    assert find_file(str(tmp_path / "study")) == tmp_path / "study"
    assert find_file("no-such.yaml") == Path("no-such.yaml")
    study = find_file("containers")
    assert study is not None
    assert study.parent.name == "experiments"
    assert [find_file(word) for word in ("mnist", "../experiments/containers", "")] == [None, None, None]


def test_a_file_that_is_too_large_is_not_sent(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"name": "other", "repeats": 3, "only": ("workload=mnist",), "force": True}
    path = tmp_path / "study.yaml"
    path.write_bytes(b"#" * MAX_EXPERIMENT_BYTES)
    sent = read_file(path, **asked)
    assert (sent.file_name, sent.content, sent.name, sent.repeats) == (str(path), path.read_bytes(), "other", 3)
    assert (list(sent.only), sent.force) == (["workload=mnist"], True)
    path.write_bytes(b"#" * (MAX_EXPERIMENT_BYTES + 1))
    with pytest.raises(MisuseError, match="has more than 1048576 bytes"):
        read_file(path, **asked)


def test_answers_get_the_file_s_experiment_and_metric_and_change_nothing() -> None:
    answers = "answer: [compare --by platform, 'Table 1': compare --metric loss, scaling --platform 'a b']"
    file = ExperimentFile(content=f"name: e\nquestion: Why?\nmetric: step_seconds\n{answers}".encode())
    question = read_question(file)
    assert (question.name, question.text, question.content) == ("e", "Why?", file.content)
    first = ("compare", "--by", "platform", "--experiment", "e", "--metric", "step_seconds")
    assert question.answers == (
        Answer(title=None, words=first),
        Answer(title="Table 1", words=("compare", "--metric", "loss", "--experiment", "e")),
        Answer(title=None, words=("scaling", "--platform", "a b", "--experiment", "e")),
    )
    renamed = read_question(ExperimentFile(content=b"name: e\nanswer: [compare]", name="other"))
    assert (renamed.name, renamed.answers[0].words) == ("other", ("compare", "--experiment", "other"))
    assert read_question(ExperimentFile(content=b"name: e")).answers == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [(content, "no experiment file") for content in ("answer: [7]", "7", "name: [", "name: e\nanswer: [{}]")],
)
def test_what_is_no_answer_is_refused(content: str, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        read_question(ExperimentFile(file_name="study.yaml", content=content.encode()))


def test_output_is_escaped_on_a_terminal_and_unchanged_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", pipe)
    printer = Printer()
    for text in ("one\ttwo\n\x1b]0;owned\x07\r\n", "10 %\r20 %\r", "30 %\nend"):
        for stream in ("stdout", "stderr"):
            printer.print(stream, text)
    printer.close()
    assert terminal.getvalue() == "one     two\n\\x1b]0;owned\\x07\n20 %\n30 %\nend\n"
    assert pipe.getvalue() == "one\ttwo\n\x1b]0;owned\x07\r\n10 %\r20 %\r30 %\nend"
