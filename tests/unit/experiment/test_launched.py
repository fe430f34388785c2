"""An experiment that was launched, with runs that end at once."""

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.experiment import plan
from gpuagent.experiment.journal import Journal
from gpuagent.experiment.launched import LaunchedExperiment
from gpuagent.locations import lock
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate
from tests.support.servers import until
from tests.unit.experiment.experiments import experiment
from tests.unit.experiment.test_conduct import no_gpus


@dataclass(slots=True)
class Runs:
    """Ends every run as it was told; a run named in `held` only when it is cancelled."""

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
    one.carry_out(runs.follow, runs.cancel, no_gpus(), "python")


def is_free(folder: Path) -> bool:
    try:
        lock(folder / "lock", held="held").close()
    except GpuAgentError:
        return False
    return True


def test_it_tells_how_it_stands_and_lets_go_when_it_has_ended(tmp_path: Path) -> None:
    one, runs = launched(tmp_path), Runs()
    before = one.state()
    assert (before.status, before.planned_runs, before.HasField("left_seconds")) == ("queued", 12, False)
    assert not is_free(tmp_path)
    carry_out(one, runs)
    after = one.state()
    assert (after.status, after.ended_runs, after.failed_runs, after.doing) == ("complete", 12, 0, "")
    assert is_free(tmp_path)
    assert one.cancel() is None


def test_cancelling_stops_the_run_that_is_made_and_it_does_not_count_as_made(tmp_path: Path) -> None:
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


def test_what_is_cancelled_in_the_queue_or_while_it_cools_down_makes_no_run(tmp_path: Path) -> None:
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


def test_it_says_why_it_could_not_go_on(tmp_path: Path) -> None:
    one = launched(tmp_path)
    carry_out(one, Runs(broken="run-5"))
    state = one.state()
    assert (state.status, state.reason, state.ended_runs) == ("failed", "docker has gone", 4)
    assert is_free(tmp_path)


def test_what_the_budget_ends_is_incomplete(tmp_path: Path) -> None:
    one = launched(tmp_path, more="budget: {hours: 1.0e-9}\n")
    carry_out(one, Runs())
    assert one.state().status == "incomplete"
    assert one.state().reason.startswith("the budget ends it before repeat 2: it would have taken")
