"""What a command line asks for, and what a run wrote as it is printed."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.errors import MisuseError
from gpuagent_collector.launching.output import Printer
from gpuagent_collector.launching.spec import run_spec
from gpuagent_proto.v1.run_pb2 import CpuChange, RunSpec


def spec(workload: str | None = None, *program: str, **given: Any) -> RunSpec:
    asked: dict[str, Any] = {
        "parameters": (),
        "repeat": 1,
        "environment": "bare",
        "beside": (),
        "labels": (),
        "experiment": None,
        "timeout_seconds": None,
        "cpus": None,
        "memory": None,
        "changes": (),
    }
    return run_spec(workload, program, **{**asked, **given})


def test_options_become_what_agents_are_asked_for() -> None:
    asked = spec(
        "mnist",
        parameters=("epochs=3", "data=a=b"),
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
    assert spec(None, "/usr/bin/env", "x").experiment.startswith("env-20")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a workload or `-- PROGRAM`"),
        ({"workload": "study.yaml"}, "there: gpuagent experiment run study.yaml"),
        ({"workload": "mnist", "parameters": ("epochs",)}, "--param takes NAME=VALUE, not 'epochs'"),
        ({"workload": "mnist", "parameters": ("a=1", "a=2")}, "--param a is given twice"),
        ({"workload": "mnist", "labels": ("a=\x1b",)}, "--label takes up to 100 printable characters"),
        ({"workload": "mnist", "cpus": float("nan")}, "cpus must be 0.01 or more"),
        ({"workload": "mnist", "memory": "8"}, "as 8G, not '8'"),
        ({"workload": "mnist", "changes": ("cpus=8",)}, "as cpus=8@60s, not 'cpus=8'"),
        ({"workload": "mnist", "experiment": "x" * 101}, "--experiment takes up to 100 printable characters"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        spec(**given)


def test_a_file_without_a_suffix_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "study").touch()
    with pytest.raises(MisuseError, match="is a file"):
        spec(str(tmp_path / "study"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_output_harmlessly_and_a_pipe_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", pipe)
    printer = Printer()
    for text in ("one\ttwo\n\x1b]0;owned\x07\r\n", "10 %\r20 %\r", "30 %\nend"):
        for stream in ("stdout", "stderr"):
            printer.print(stream, text)
    printer.close()
    assert terminal.getvalue() == "one     two\n\\x1b]0;owned\\x07\n20 %\n30 %\nend\n"
    assert pipe.getvalue() == "one\ttwo\n\x1b]0;owned\x07\r\n10 %\r20 %\r30 %\nend"
