"""Experiment files as an agent receives them, and launched experiments with runs that end at once."""

import sys
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Journal
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.launches import LaunchedExperiment, Launches
from gpuagent.locations import lock
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import ExperimentFile, RunSpec, RunUpdate
from gpuagent_proto.v1.telemetry_pb2 import ExperimentOrder
from tests.support.servers import until
from tests.unit.experiment.experiments import experiment, no_driver

CONTENT = b"name: study\nworkloads: [{command: ['true']}]\n"


class Idle:
    """A runner that has nothing to do."""

    def processes(self) -> Sequence[tuple[str, int]]:
        return []


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


def test_one_of_several_launches_at_once_succeeds(launches: Launches) -> None:
    with ThreadPoolExecutor(8) as several:
        replies = list(several.map(launches.answer, [order()] * 8))
    assert [reply.state.status for reply in replies if reply.has_begun] == ["queued"]
    refusals = [reply.refusal for reply in replies if not reply.has_begun]
    assert len(refusals) == 7
    assert all("the runs of study are being made on this node already" in refusal for refusal in refusals)
    launches.close()


def test_a_stopping_agent_refuses_experiments_and_releases_its_own(launches: Launches, tmp_path: Path) -> None:
    launches.answer(order())
    launches.close()
    assert launches.answer(ExperimentOrder(look="study")).state.status == "cancelled"
    assert launches.answer(order()).refusal == "the agent on this node is stopping; try again"
    lock(tmp_path / "study.lock", held="held").close()


def test_an_invalid_name_is_refused_and_nothing_is_written(launches: Launches, tmp_path: Path) -> None:
    for name in (b"../study", b"/study", b"a/b", b"", b"two words"):
        refusal = launches.answer(order(CONTENT.replace(b"study", b"'" + name + b"'"))).refusal
        assert refusal.startswith("study.yaml:1:1: name cannot be ")
    renamed = order()
    renamed.launch.name = "../study"
    assert launches.answer(renamed).refusal.startswith("an experiment's name has up to 100 letters")
    assert list(tmp_path.rglob("*")) == []


@dataclass(slots=True)
class Runs:
    """Ends every run at once; the run named in `held` only when it is cancelled."""

    held: str = ""
    broken: str = ""
    begun: list[str] = field(default_factory=list)
    is_held: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def follow(self, _spec: RunSpec) -> Generator[RunUpdate, None, None]:
        run_id = f"run-{len(self.begun) + 1}"
        if run_id == self.broken:
            raise GpuAgentError("docker has gone")
        self.begun.append(run_id)
        yield RunUpdate(run_id=run_id, status="running")
        if run_id == self.held:
            self.is_held.set()
            self.cancelled.wait()
        yield RunUpdate(run_id=run_id, status="cancelled" if run_id == self.held else "succeeded")

    def cancel(self, run_id: str) -> None:
        if run_id == self.held:
            self.cancelled.set()


def launched(folder: Path, *, more: str = "") -> LaunchedExperiment:
    wanted = experiment(more=more)
    journal = Journal(folder / "journal.jsonl", plan.fingerprint(wanted))
    return LaunchedExperiment(wanted, journal, lock(folder / "lock", held="held"), force=True)


def carry_out(one: LaunchedExperiment, runs: Runs) -> None:
    one.carry_out(runs.follow, runs.cancel, NodeGpus(no_driver), "python")


def is_free(folder: Path) -> bool:
    try:
        lock(folder / "lock", held="held").close()
    except GpuAgentError:
        return False
    return True


def test_an_experiment_has_a_state_and_releases_its_lock_at_its_end(tmp_path: Path) -> None:
    one, runs = launched(tmp_path), Runs()
    before = one.state()
    assert (before.status, before.planned_runs, before.HasField("left_seconds")) == ("queued", 12, False)
    assert not is_free(tmp_path)
    carry_out(one, runs)
    after = one.state()
    assert (after.status, after.ended_runs, after.failed_runs, after.doing) == ("complete", 12, 0, "")
    assert is_free(tmp_path)
    assert one.cancel() is None


def test_cancelling_stops_the_current_run_which_does_not_count_as_made(tmp_path: Path) -> None:
    one, runs = launched(tmp_path), Runs(held="run-3")
    thread = threading.Thread(target=carry_out, args=(one, runs))
    thread.start()
    runs.is_held.wait()
    stood = one.cancel()
    thread.join()
    assert stood is not None
    assert (stood.status, stood.ended_runs, stood.run_id) == ("running", 2, "run-3")
    assert (one.state().status, one.state().ended_runs, len(runs.begun)) == ("cancelled", 2, 3)
    rest = Runs()
    carry_out(launched(tmp_path), rest)
    assert len(rest.begun) == 10


def test_an_experiment_cancelled_in_the_queue_or_cool_down_makes_no_run(tmp_path: Path) -> None:
    queued, runs = launched(tmp_path), Runs()
    queued.cancel()
    assert is_free(tmp_path)
    carry_out(queued, runs)
    warm = launched(tmp_path, more="cool_down: {seconds: 600}\n")
    thread = threading.Thread(target=carry_out, args=(warm, runs))
    thread.start()
    until(lambda: warm.state().doing == "cools down for 600 s", "the cool-down")
    warm.cancel()
    thread.join()
    assert (queued.state().status, warm.state().status, runs.begun) == ("cancelled", "cancelled", [])


def test_a_failed_experiment_has_a_reason(tmp_path: Path) -> None:
    one = launched(tmp_path)
    carry_out(one, Runs(broken="run-5"))
    state = one.state()
    assert (state.status, state.reason, state.ended_runs) == ("failed", "docker has gone", 4)
    assert is_free(tmp_path)


def test_an_experiment_that_the_budget_ends_is_incomplete(tmp_path: Path) -> None:
    one = launched(tmp_path, more="budget: {hours: 1.0e-9}\n")
    carry_out(one, Runs())
    assert one.state().status == "incomplete"
    assert one.state().reason.startswith("the budget ends it before repeat 2: it would have taken")
