"""Experiment files as an agent is given them; nothing of them is run here."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from gpuagent.experiment.launches import Launches
from gpuagent.locations import lock
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.sources.support.nvml_api import Nvml, NvmlError
from gpuagent_proto.v1.run_pb2 import ExperimentFile
from gpuagent_proto.v1.telemetry_pb2 import ExperimentOrder

CONTENT = b"name: study\nworkloads: [{command: ['true']}]\n"


class Idle:
    """A runner that has nothing to do."""

    def processes(self) -> Sequence[tuple[str, int]]:
        return []


def no_driver() -> Nvml:
    raise NvmlError(12, "no library")


@pytest.fixture
def launches(tmp_path: Path) -> Launches:
    return Launches(
        directory=tmp_path,
        planner=Planner(Catalogue(sys.executable), allow_commands=True),
        runner=cast("Runner", Idle()),
        python=sys.executable,
        open_nvml=no_driver,
    )


def order(content: bytes = CONTENT) -> ExperimentOrder:
    return ExperimentOrder(request_id="1", launch=ExperimentFile(file_name="study.yaml", content=content))


def test_of_those_who_launch_it_at_once_one_does(launches: Launches) -> None:
    with ThreadPoolExecutor(8) as several:
        replies = list(several.map(launches.answer, [order()] * 8))
    assert [reply.state.status for reply in replies if reply.has_begun] == ["queued"]
    refusals = [reply.refusal for reply in replies if not reply.has_begun]
    assert len(refusals) == 7
    assert all("the runs of study are being made on this node already" in refusal for refusal in refusals)
    launches.close()


def test_an_agent_that_stops_takes_none_and_lets_go_of_those_it_had(launches: Launches, tmp_path: Path) -> None:
    launches.answer(order())
    launches.close()
    assert launches.answer(ExperimentOrder(look="study")).state.status == "cancelled"
    assert launches.answer(order()).refusal == "the agent on this node is stopping; try again"
    lock(tmp_path / "study.lock", held="held").close()


def test_what_cannot_be_kept_is_refused_and_nothing_is_outside_of_the_folder(
    launches: Launches, tmp_path: Path
) -> None:
    for name in (b"../study", b"/study", b"a/b", b"", b"two words"):
        refusal = launches.answer(order(CONTENT.replace(b"study", b"'" + name + b"'"))).refusal
        assert refusal.startswith("study.yaml:1:1: name cannot be ")
    renamed = order()
    renamed.launch.name = "../study"
    assert launches.answer(renamed).refusal.startswith("an experiment's name has up to 100 letters")
    assert list(tmp_path.rglob("*")) == []
