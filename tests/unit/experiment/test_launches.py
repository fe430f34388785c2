"""Experiment files as an agent receives them, and launched experiments with runs that end at once."""

import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from tests.support.nvml_replay import NO_DRIVER
from tests.support.servers import until
from tests.support.sources import Runs as NodeRuns
from tests.unit.experiment.experiments import experiment

CONTENT = b"name: study\nworkloads: [{command: ['true']}]\n"


@pytest.fixture
def launches(tmp_path: Path) -> Launches:
    return Launches(
        directory=tmp_path,
        place="laptop on node",
        planner=Planner(Catalogue(sys.executable), allow_commands=True),
        # Nothing runs on the node.
        runner=cast("Runner", NodeRuns()),
        python=sys.executable,
        open_nvml=NO_DRIVER,
    )


def order(content: bytes = CONTENT) -> ExperimentOrder:
    return ExperimentOrder(request_id="1", launch=ExperimentFile(file_name="study.yaml", content=content))


def test_one_of_several_launches_succeeds_and_a_stopping_agent_refuses_all(launches: Launches, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as several:
        replies = list(several.map(launches.answer, [order()] * 8))
    assert [reply.state.status for reply in replies if reply.has_begun] == ["queued"]
    refusals = [reply.refusal for reply in replies if not reply.has_begun]
    assert len(refusals) == 7
    assert all("runs of study" in refusal for refusal in refusals)
    launches.close()
    assert launches.answer(ExperimentOrder(look="study")).state.status == "cancelled"
    assert "is stopping; try" in launches.answer(order()).refusal
    lock(tmp_path / "study.lock", held="held").close()


def test_an_invalid_name_is_refused_and_nothing_is_written(launches: Launches, tmp_path: Path) -> None:
    for name in (b"../study", b"/study", b"a/b", b"", b"two words"):
        refusal = launches.answer(order(CONTENT.replace(b"study", b"'" + name + b"'"))).refusal
        assert refusal.startswith("study.yaml:1:1: name cannot be ")
    renamed = order()
    renamed.launch.name = "../study"
    assert launches.answer(renamed).refusal.startswith("an experiment's name")
    assert list(tmp_path.rglob("*")) == []


def test_a_launch_names_what_the_node_skips_before_anything_runs(launches: Launches) -> None:
    both = CONTENT.replace(b"]}]", b"]}, {workload: mnist, parameters: {device: cuda}}]")
    state = launches.answer(order(both)).state
    assert (state.status, state.reason) == ("queued", "skipped 1 cell of mnist: no GPU answers here")
    launches.close()


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
    journal = Journal(folder / "journal.jsonl", experiment(more=more))
    return LaunchedExperiment(journal, lock(folder / "lock", held="held"), force=True)


def carry_out(one: LaunchedExperiment, runs: Runs) -> None:
    one.carry_out(runs.follow, runs.cancel, NodeGpus(NO_DRIVER), "python")


@contextmanager
def carried_out(one: LaunchedExperiment, runs: Runs) -> Iterator[None]:
    """Carry out an experiment beside this, and wait for its end."""
    thread = threading.Thread(target=carry_out, args=(one, runs))
    thread.start()
    yield
    thread.join()


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


def test_runs_of_other_cells_do_not_count_among_those_of_a_part(tmp_path: Path) -> None:
    whole = experiment("name: x\nrepeats: 2\nworkloads: [{workload: mnist}, {workload: gpt}]\n")
    for name in ("mnist", "gpt"):
        part = plan.narrowed(whole, [f"workload={name}"])
        journal = Journal(tmp_path / "journal.jsonl", whole, part)
        one = LaunchedExperiment(journal, lock(tmp_path / "lock", held="held"), force=True)
        before = one.state()
        carry_out(one, Runs())
        assert (before.ended_runs, one.state().ended_runs, one.state().planned_runs) == (0, 2, 2)
    assert len(journal.done) == 4


def test_cancelling_stops_the_current_run_which_does_not_count_as_made(tmp_path: Path) -> None:
    one, runs = launched(tmp_path), Runs(held="run-3")
    with carried_out(one, runs):
        runs.is_held.wait()
        stood = one.cancel()
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
    with carried_out(warm, runs):
        until(lambda: warm.state().doing == "cools down for 600 s", "the cool-down")
        warm.cancel()
    assert (queued.state().status, warm.state().status, runs.begun) == ("cancelled", "cancelled", [])


@pytest.mark.parametrize(
    ("more", "broken", "status", "ended_runs", "reason"),
    [
        ("", "run-5", "failed", 4, "docker has gone"),
        ("budget: {hours: 1.0e-9}\n", "", "incomplete", 4, "the budget ends it after 1 of "),
    ],
    ids=["failed", "ended by its budget"],
)
def test_an_experiment_that_is_not_completed_has_a_reason(
    tmp_path: Path, more: str, broken: str, status: str, ended_runs: int, reason: str
) -> None:
    one = launched(tmp_path, more=more)
    carry_out(one, Runs(broken=broken))
    state = one.state()
    assert (state.status, state.ended_runs) == (status, ended_runs)
    assert state.reason.startswith(reason)
    assert is_free(tmp_path)
