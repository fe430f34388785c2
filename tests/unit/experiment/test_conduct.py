import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.environments.environment import EnvironmentUnavailableError, ImageUnavailableError
from gpuagent.experiment import plan
from gpuagent.experiment.conduct import (
    ChangedProgramError,
    Conductor,
    Done,
    Journal,
    check_cells,
    environment_concerns,
    occupant_concerns,
)
from gpuagent.experiment.file import CoolDown, Experiment, find_file, read_experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import PlannedRun, Planner
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate
from tests.support.nvml_replay import FIRST, NO_DRIVER, NvmlRecording
from tests.unit.experiment.experiments import TWO_BY_TWO, InstantRuns, Recorded, experiment


def conductor(
    wanted: Experiment,
    folder: Path,
    runs: InstantRuns,
    recorded: Recorded | None = None,
    lacking: Mapping[str, str] = MappingProxyType({}),
    place: str | None = None,
) -> Conductor:
    return Conductor(
        journal=Journal(folder / "journal.jsonl", wanted, lacking=lacking, place=place),
        gpus=NodeGpus(NO_DRIVER),
        submit=runs,
        observer=recorded or Recorded(),
        working_directory="/somewhere",
    )


def planned(wanted: Experiment) -> list[RunSpec]:
    return [plan.spec(trial, wanted, "/somewhere") for block in plan.trials(wanted) for trial in block]


def done(trial: plan.Trial, seconds: float) -> Done:
    return Done(cell=trial.cell.key, repeat=1, run_id="r", status="succeeded", seconds=seconds, gpu_joules=None)


def test_all_runs_are_made_in_the_planned_order_and_another_experiment_of_the_name_refused(tmp_path: Path) -> None:
    wanted, runs = experiment(), InstantRuns()
    assert conductor(wanted, tmp_path, runs).run()
    assert runs.specs == planned(wanted)
    with pytest.raises(MisuseError, match="another --name"):
        conductor(experiment(more="seed: 2\n"), tmp_path, InstantRuns())


@pytest.mark.parametrize("stop_at", range(12))
def test_an_interrupted_experiment_resumes(tmp_path: Path, stop_at: int) -> None:
    wanted, first, second = experiment(), InstantRuns(stop_at=stop_at), InstantRuns()
    with pytest.raises(KeyboardInterrupt):
        conductor(wanted, tmp_path, first).run()
    assert conductor(wanted, tmp_path, second).run()
    assert first.specs + second.specs == planned(wanted)


@pytest.mark.parametrize("command", ["python SCRIPT.py", "sh -c 'sh SCRIPT.py | cat; true'", "SCRIPT.py 3"])
def test_an_experiment_whose_program_has_changed_does_not_resume(tmp_path: Path, command: str) -> None:
    script, written = tmp_path / "script.py", tmp_path / "written.txt"
    wanted = experiment(
        f"name: changing\nrepeats: 3\nworkloads:\n  - command: {json.dumps(shlex.split(command))}\n".replace(
            "SCRIPT.py", str(script)
        )
    )
    script.write_text("1")
    with pytest.raises(KeyboardInterrupt):
        conductor(wanted, tmp_path, InstantRuns(stop_at=2)).run()
    journal = Journal(tmp_path / "journal.jsonl", wanted)
    written.write_text("what a run wrote")
    assert not journal.changed_programs()
    script.write_text("2")
    assert journal.changed_programs() == str(script)
    with pytest.raises(ChangedProgramError, match="another --name"):
        Journal(tmp_path / "journal.jsonl", wanted)
    script.write_text("1")
    conductor(wanted, tmp_path, InstantRuns()).run()
    # Its answer is printed again.
    script.write_text("2")
    assert not Journal(tmp_path / "journal.jsonl", wanted).left()


def test_each_platform_makes_its_own_runs_once_and_those_of_an_older_journal_are_not_repeated(tmp_path: Path) -> None:
    wanted, sides = experiment(), ("satori on a-node", "openshift on a-node", "satori on another")
    for place in sides:
        runs = InstantRuns()
        assert conductor(wanted, tmp_path, runs, place=place).run()
        assert runs.specs == planned(wanted)
    for place in sides:
        again = InstantRuns()
        assert conductor(wanted, tmp_path, again, place=place).run()
        assert again.specs == []
    plan_line, *lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    older = [{key: value for key, value in json.loads(line).items() if key != "place"} for line in lines[:12]]
    (tmp_path / "journal.jsonl").write_text("\n".join([plan_line, *map(json.dumps, older), ""]))
    again = InstantRuns()
    assert conductor(wanted, tmp_path, again, place=sides[0]).run()
    assert again.specs == []


def test_a_failed_run_is_not_repeated_and_a_cell_that_fails_often_is_given_up(tmp_path: Path) -> None:
    wanted, runs, recorded = experiment(more="failures: 1\n"), InstantRuns(beside="failed"), Recorded()
    assert conductor(wanted, tmp_path, runs, recorded).run()
    assert sum(1 for spec in runs.specs if spec.interference) == 2
    assert sum(1 for spec in runs.specs if not spec.interference) == 6
    assert sum("given up after 1 failure:" in line for line in recorded.lines) == 2
    again = InstantRuns()
    assert conductor(wanted, tmp_path, again).run()
    assert again.specs == []


def test_a_repeat_beyond_the_budget_does_not_begin(tmp_path: Path) -> None:
    wanted, recorded = experiment(more="budget: {hours: 1}\n"), Recorded()
    one = conductor(wanted, tmp_path, InstantRuns(), recorded)
    for trial in plan.trials(wanted)[0]:
        one.journal.add(done(trial, seconds=500.0))
    assert not one.run()
    (line,) = recorded.lines
    assert line.startswith(f"the budget ends it after 1 of {wanted.repeats} repeats: ")
    assert line.endswith("would have taken 1 h 06 min of 1 h 00 min")


def test_an_energy_budget_without_energy_counters_ends_after_the_first_repeat(tmp_path: Path) -> None:
    recorded = Recorded()
    assert not conductor(experiment(more="budget: {kilowatt_hours: 1}\n"), tmp_path, InstantRuns(), recorded).run()
    assert recorded.lines[-1].endswith("kilowatt_hours is limited")


def test_the_expected_time_comes_from_the_same_cell_or_from_all(tmp_path: Path) -> None:
    slow, quick, unknown, *_ = plan.trials(experiment())[0]
    journal = Journal(tmp_path / "journal.jsonl", experiment())
    assert journal.expected_seconds([slow]) == 0
    journal.add(done(slow, seconds=30.0))
    journal.add(done(quick, seconds=10.0))
    assert journal.expected_seconds([slow, quick, unknown]) == 30 + 10 + 20


def test_a_truncated_journal_keeps_its_whole_lines(tmp_path: Path) -> None:
    wanted, path = experiment(), tmp_path / "journal.jsonl"
    conductor(wanted, tmp_path, InstantRuns()).run()
    whole = path.read_bytes()

    @given(cut=st.integers(1, len(whole)))
    def check(cut: int) -> None:
        path.write_bytes(whole[:-cut])
        left = Journal(path, wanted).done
        assert len(left) == max(0, path.read_bytes().count(b"\n") - 1)
        again = InstantRuns()
        assert conductor(wanted, tmp_path, again).run()
        assert len(again.specs) == 12 - len(left)

    check()


def test_a_cool_gpu_causes_no_wait_and_a_warm_one_a_wait_up_to_the_limit_and_one_report() -> None:
    recording = NvmlRecording.load("h200_idle")
    gpus = NodeGpus(recording.open)
    recorded: list[str] = []
    slept: list[float] = []
    wanted = CoolDown(seconds=2.0, celsius_above_start=0.0, limit_seconds=10.0)
    assert gpus.cool_down(wanted, recorded.append, slept.append) == 2.0
    assert (recorded, slept) == (["cools down for 2 s"], [2.0])
    (cool,) = gpus.temperatures().values()
    call = next(call for call in recording.outcomes if call.startswith("nvmlDeviceGetTemperature"))
    recording.outcomes[call] = [{"answer": 90}]
    recorded.clear()
    wanted = CoolDown(seconds=0.0, celsius_above_start=5.0, limit_seconds=4.0)
    assert gpus.cool_down(wanted, recorded.append, slept.append) == 4.0
    assert recorded == [f"cools down: GPU 90 °C, waits for {cool + 5:.0f} °C, for 4 s at most"]
    assert gpus.cool_down(replace(wanted, celsius_above_start=None), recorded.append, slept.append) == 0.0
    recorded.clear()
    settled = replace(wanted, celsius_above_start=100.0, celsius=45.0)
    assert gpus.cool_down(settled, recorded.append, slept.append) == 4.0
    assert recorded == ["cools down: GPU 90 °C, waits for 45 °C, for 4 s at most"]


def test_a_node_without_gpus_has_no_energy_and_no_occupants() -> None:
    gpus = NodeGpus(NO_DRIVER)
    assert (gpus.joules(), list(gpus.occupants()), gpus.temperatures()) == (None, [], {})


SERVED = """
name: served
workloads:
  - workload: serve-load
    parameters: {url: "http://127.0.0.1:8000", rate: [1, 2], gpus: "GPUS"}
"""


STARTED = """serve: {command: "program {port}"}
    parameters: {"""


def test_a_gpu_of_the_server_that_is_measured_is_not_busy() -> None:
    gpus = NodeGpus(NvmlRecording.load("busy").open)
    (reason,) = occupant_concerns(experiment(CELLS), gpus)
    assert reason == f"{FIRST} is in use: 1 program"
    assert not list(occupant_concerns(experiment(SERVED.replace("GPUS", f"GPU-other, {FIRST}")), gpus))
    for unlike in (
        SERVED.replace("GPUS", "GPU-other"),
        SERVED.replace("GPUS", FIRST).replace('parameters: {url: "http://127.0.0.1:8000", ', STARTED),
        SERVED.replace("GPUS", FIRST) + "  - {workload: mnist}\n",
    ):
        assert list(occupant_concerns(experiment(unlike), gpus)) == [reason]


CELLS = """
name: cells
repeats: 2
workloads:
  - {workload: mnist, environments: [bare, "docker:a"]}
  - {workload: mnist, parameters: {ranks: 2}}
  - {workload: mnist, parameters: {ranks: 2, device: cpu}}
  - {workload: mnist, parameters: {device: cuda, seed: 2}}
  - {workload: memory-limit}
  - {workload: memory-limit, parameters: {split: 2, limit-bytes: 1000000000}}
"""


def planner(*, docker: bool = False) -> Callable[[RunSpec], list[PlannedRun]]:
    """Plan on a node without an engine, or where the daemon has no such image."""
    of_node = Planner(Catalogue(sys.executable), allow_commands=True)

    def plan(spec: RunSpec) -> list[PlannedRun]:
        if spec.environment == "docker":
            error = ImageUnavailableError("there is no image 'a' here") if docker else None
            raise error or EnvironmentUnavailableError("docker cannot be used here", "install it")
        return of_node.plan(spec)

    return plan


def skipped(gpus: NodeGpus, *, docker: bool = False) -> dict[str, str]:
    wanted = experiment(CELLS)
    by_key = {cell.key: cell.describe() for cell in wanted.cells}
    return {by_key[key]: reason for key, reason in check_cells(wanted, planner(docker=docker), gpus).items()}


def test_cells_for_which_the_node_lacks_something_are_found() -> None:
    assert skipped(NodeGpus(NO_DRIVER)) == {
        "mnist · docker:a": "docker cannot be used here",
        "mnist device=cuda seed=2 · bare": "no GPU answers here",
        "memory-limit · bare": "without a GPU, memory-limit needs --param limit-bytes=BYTES",
        "memory-limit limit-bytes=1000000000 split=2 · bare": "no GPU answers here",
    }
    assert skipped(NodeGpus(NvmlRecording.load("h200_idle").open), docker=True) == {
        "mnist · docker:a": "there is no image 'a' here",
        "mnist ranks=2 · bare": "it needs 2 GPUs, and this node has 1",
        "memory-limit limit-bytes=1000000000 split=2 · bare": "it needs 2 GPUs, and this node has 1",
    }


def test_the_check_of_a_fleet_trains_only_where_there_is_a_gpu() -> None:
    wanted = read_experiment(find_file(Path("fleet-check")))
    by_key = {cell.key: cell.name for cell in wanted.cells}
    assert [by_key[key] for key in check_cells(wanted, planner(), NodeGpus(NO_DRIVER))] == ["resnet50"]
    assert not check_cells(wanted, planner(), NodeGpus(NvmlRecording.load("h200_idle").open))


def test_an_experiment_for_which_the_node_lacks_everything_is_refused() -> None:
    wanted = plan.narrowed(experiment(CELLS), ["environment=docker"])
    with pytest.raises(GpuAgentError, match="docker cannot be"):
        check_cells(wanted, planner(), NodeGpus(NO_DRIVER))
    assert len(check_cells(wanted, planner(), NodeGpus(NO_DRIVER), may_lack_all=True)) == 1


@pytest.mark.parametrize(
    ("answer", "is_left_alone"),
    [("compare --by environment --all", True), ("compare", False), ("profile bare docker --by environment", False)],
)
def test_a_comparison_of_environments_of_which_one_is_left_needs_force(answer: str, is_left_alone: bool) -> None:
    wanted = experiment(CELLS, f"answer: [{answer}]\n")
    lacking = check_cells(wanted, planner(), NodeGpus(NO_DRIVER))
    words = ["only bare can run here, so no environments can be compared"]
    assert list(environment_concerns(wanted, lacking)) == (words if is_left_alone else [])
    assert not list(environment_concerns(wanted, {}))
    assert not list(environment_concerns(plan.narrowed(wanted, ["environment=bare"]), lacking))


def test_skipped_cells_are_not_run_and_made_later_where_they_can_be(tmp_path: Path) -> None:
    wanted, first, second = experiment(), InstantRuns(), InstantRuns()
    lacking = {wanted.cells[0].key: "no image"}
    assert conductor(wanted, tmp_path, first, lacking=lacking).run()
    assert len(first.specs) == 9
    assert conductor(wanted, tmp_path, second).run()
    assert len(second.specs) == 3


UNTIL = "until: 2%\nanswer: [compare --by interference]\n"


def sequential(more: str = "repeats: 20\n") -> Experiment:
    return experiment(TWO_BY_TWO.replace("repeats: 3\n", more), UNTIL)


def test_an_experiment_stops_only_at_looks_that_were_planned_before_its_first_run(tmp_path: Path) -> None:
    wanted, runs, asked = sequential(), InstantRuns(), []
    assert plan.looks(wanted) == [8, 12, 18, 20]

    def is_narrow() -> bool:
        asked.append(max(spec.first_repeat for spec in runs.specs))
        return len(asked) == 2

    whole = conductor(wanted, tmp_path, runs)
    whole.is_narrow = is_narrow
    assert whole.run()
    assert (asked, whole.has_stopped, len(runs.specs)) == ([8, 12], True, 12 * 4)
    assert {spec.labels["until"] for spec in runs.specs} == {"2% at 8,12,18,20"}
    # Resumed, it stops where it stopped.
    again = conductor(wanted, tmp_path, runs)
    again.is_narrow = lambda: True
    assert again.run()
    assert len(runs.specs) == 12 * 4


def test_an_experiment_that_may_stop_is_another_one_than_that_which_may_not(tmp_path: Path) -> None:
    assert conductor(sequential(), tmp_path, InstantRuns()).run()
    with pytest.raises(MisuseError, match="another --name"):
        conductor(replace(sequential(), until=None), tmp_path, InstantRuns())


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (sequential("repeats: 8\n"), "more than 8 repeats"),
        (replace(sequential(), answers=()), "its intervals decide"),
        (replace(sequential(), labels={"until": "x"}), "the label 'until'"),
    ],
)
def test_an_experiment_that_could_not_stop_by_its_rule_is_refused(wanted: Experiment, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        plan.narrowed(wanted, [])


@pytest.mark.parametrize(("ends", "took"), [(("running", "succeeded"), 2), (("cancelled",), 0)])
def test_a_wait_behind_other_runs_is_not_part_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Sequence[str], took: float
) -> None:
    seconds = 0.0
    monkeypatch.setattr("time.monotonic", lambda: seconds)
    monkeypatch.setattr(NodeGpus, "joules", lambda _: 100 * seconds)

    def queued_for_a_minute(_: RunSpec) -> Iterator[RunUpdate]:
        nonlocal seconds
        yield RunUpdate(run_id="r", status="queued", reason="another agent's run")
        seconds += 60
        for status in ends[:-1]:
            yield RunUpdate(run_id="r", status=status)
            seconds += 2
        yield RunUpdate(run_id="r", status=ends[-1])

    recorded, wanted = Recorded(), experiment()
    one = conductor(wanted, tmp_path, InstantRuns(), recorded)
    one.submit = queued_for_a_minute
    assert one.run()
    assert {(done.seconds, done.gpu_joules) for done in one.journal.done} == {(took, 100 * took)}
    assert recorded.begun == len(one.journal.done) * (2 if took else 1)
    waited = ["1 waited 60 s behind other runs"] if took else []
    assert recorded.lines[: len(waited) + 2] == ["1 waits: another agent's run", *waited, f"1 {ends[-1]}"]
