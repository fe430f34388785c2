"""The times of runs in real containers and jobs: those of the program, not of what starts and removes them."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.containers import Runtime, on
from tests.support.servers import Node

pytestmark = pytest.mark.slow


@pytest.fixture
def node(sharing: Node) -> Node:
    return sharing


# It notes its own first and last moment.
PROGRAM = """
import json, os, time
began = time.time_ns()
with open(os.environ["GPUAGENT_RUN_DIR"] + "/own.json", "w") as file:
    json.dump({"began": began, "last": time.time_ns()}, file)
"""
# Takes the place of a client, and notes when it was called and when it had ended.
CLIENT = """#!/bin/sh
case " $* " in
*own.json*) date +%s%N >> {log}; {client} "$@"; code=$?; date +%s%N >> {log}; exit $code ;;
*) exec {client} "$@" ;;
esac
"""


def stand_in_front(client: str, folder: Path) -> Path:
    """Make a program that calls `client`; the log of its times is beside it."""
    program = folder / Path(shlex.split(client)[0]).name
    program.write_text(CLIENT.format(client=client, log=folder / "times"))
    program.chmod(0o755)
    return program


@on("docker", "podman", "charliecloud", "slurm")
def test_a_run_lasts_as_long_as_its_program(node: Node, runtime: Runtime, tmp_path: Path) -> None:
    name = runtime.environment.partition(":")[0]
    variable = f"GPUAGENT_{name.upper()}"
    if variable in node.environment:
        node.environment[variable] = str(stand_in_front(node.environment[variable], tmp_path))
    elif name == "slurm":
        stand_in_front(shutil.which("srun") or "", tmp_path)
        node.environment["PATH"] = f"{tmp_path}{os.pathsep}{node.environment.get('PATH', os.environ['PATH'])}"
    node.run("gpuagent", "run", "--environment", runtime.environment, "--", "python3", "-c", PROGRAM)
    (directory,) = (node.folder / "spool" / "runs").iterdir()
    own = json.loads((directory / "own.json").read_text())
    (row,) = node.ask("SELECT epoch_ns(started_at) AS started, epoch_ns(ended_at) AS ended FROM runs")
    assert row["started"] <= own["began"]
    assert own["last"] // 1000 <= row["ended"] // 1000
    if name != "charliecloud":  # whose process becomes the program
        called, returned = (int(line) for line in (tmp_path / "times").read_text().split())
        assert called < row["started"]
        assert row["ended"] < returned
