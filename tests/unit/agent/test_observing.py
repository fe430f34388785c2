"""The package in front of a program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuagent.environments.environment import Image, Job
from gpuagent.environments.slurm import Slurm
from gpuagent.experiment.conduct import check_cells
from gpuagent.experiment.file import parse_experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import spec, trials
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import Planner, observed
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.nvml_replay import NO_DRIVER

IMAGE = Image(name="an-image", digest=None, architecture=None, size_bytes=None)


def job(folder: Path, image: Image | None, **variables: str) -> Job:
    program = ["sh", "-c", 'echo "$PYTHONPATH" "$0" "$1"', "first", "a  word"]
    return Job(
        run_id="a-run",
        program=program,
        image=image,
        run_directory=folder,
        working_directory=None,
        data=(),
        variables={"PATH": os.environ["PATH"], **variables},
    )


@pytest.mark.parametrize(("own", "path"), [({}, ""), ({"PYTHONPATH": "/of/the/image:/b"}, ":/of/the/image:/b")])
@pytest.mark.parametrize("image", [None, IMAGE])
def test_its_folder_is_the_first_in_the_path_of_the_program_inside(
    image: Image | None, own: dict[str, str], path: str, tmp_path: Path
) -> None:
    asked = observed(job(tmp_path, image, **own))
    done = subprocess.run(asked.program, env=dict(asked.variables), capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/observe{path} first a  word\n"
    assert (tmp_path / "observe/sitecustomize.py").is_file()
    assert (tmp_path / "observe/gpuagent_report/observe.py").is_file()


def test_keys_of_an_experiment_reach_its_runs() -> None:
    file = b"""
name: a
workloads:
  - {command: [python, train.py], observe: true, pattern: "step {step}", items_per_step: 8}
"""
    experiment = parse_experiment(file, "a.yaml")
    trial = trials(experiment)[0][0]
    asked = spec(trial, experiment, "/work")
    assert (asked.observe, asked.pattern, asked.items_per_step) == (True, "step {step}", 8)


@pytest.mark.parametrize(
    "asked",
    [
        RunSpec(workload="mnist", observe=True),
        RunSpec(workload="mnist", pattern="nanogpt"),
        RunSpec(command=["ls"], items_per_step=-1),
        RunSpec(command=["ls"], items_per_step=float("nan")),
        RunSpec(command=["ls"], pattern="unheard"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: RunSpec) -> None:
    with pytest.raises(MisuseError):
        Planner(Catalogue(sys.executable), allow_commands=True).plan(asked)


def test_lines_of_a_command_are_not_held_back_unless_its_user_says_so(tmp_path: Path) -> None:
    planner = Planner(Catalogue(sys.executable), allow_commands=True)
    for variables, pattern, expected in (
        ({"PATH": os.environ["PATH"]}, "", "1"),
        ({"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": ""}, "", ""),
        ({"PATH": os.environ["PATH"]}, "none", None),
    ):
        (plan,) = planner.plan(RunSpec(command=["ls"], pattern=pattern), variables=variables)
        assert plan.job_in(tmp_path).variables.get("PYTHONUNBUFFERED") == expected


def test_checking_an_experiment_of_observed_commands_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = b"name: a\nrepeats: 1\nworkloads: [{command: [sh], observe: true}]\n"
    monkeypatch.setattr(shutil, "copytree", None)
    plan_runs = Planner(Catalogue(sys.executable), allow_commands=True).plan
    assert check_cells(parse_experiment(file, "a.yaml"), plan_runs, NodeGpus(NO_DRIVER)) == {}


def test_checking_an_experiment_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.runs.planning._NO_DIRECTORY", tmp_path)
    monkeypatch.setattr(Slurm, "check", lambda _slurm: None)
    file = b"name: a\nrepeats: 1\nworkloads: [{command: [sh]}]\nenvironments: [slurm]\n"
    plan_runs = Planner(Catalogue(sys.executable), allow_commands=True).plan
    assert check_cells(parse_experiment(file, "a.yaml"), plan_runs, NodeGpus(NO_DRIVER)) == {}
    assert list(tmp_path.iterdir()) == []
