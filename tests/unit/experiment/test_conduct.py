from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Conductor, expected_seconds
from gpuagent.experiment.file import CoolDown, Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.journal import Done, Journal
from gpuagent.sources.support.nvml_api import NvmlError
from gpuagent_common.errors import MisuseError
from tests.support.nvml_replay import NvmlRecording
from tests.unit.experiment.experiments import Asked, Told, experiment


def no_gpus() -> NodeGpus:
    def fail() -> None:
        raise NvmlError(12, "no library")

    return NodeGpus(fail)  # type: ignore[arg-type]


def conductor(wanted: Experiment, folder: Path, asked: Asked, told: Told | None = None) -> Conductor:
    return Conductor(
        experiment=wanted,
        journal=Journal(folder / "journal.jsonl", plan.fingerprint(wanted)),
        gpus=no_gpus(),
        submit=asked,
        teller=told or Told(),
        working_directory="/somewhere",
    )


def test_all_runs_are_made_in_the_planned_order(tmp_path: Path) -> None:
    wanted, asked = experiment(), Asked()
    assert conductor(wanted, tmp_path, asked).run()
    planned = [plan.spec(trial, wanted, "/somewhere") for block in plan.trials(wanted) for trial in block]
    assert asked.specs == planned


@pytest.mark.parametrize("stop_at", range(12))
def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path: Path, stop_at: int) -> None:
    wanted, first, second = experiment(), Asked(stop_at=stop_at), Asked()
    with pytest.raises(KeyboardInterrupt):
        conductor(wanted, tmp_path, first).run()
    assert conductor(wanted, tmp_path, second).run()
    whole = Asked()
    conductor(wanted, tmp_path / "whole", whole).run()
    assert first.specs + second.specs == whole.specs


def test_what_failed_is_not_made_again_and_a_cell_that_fails_often_is_given_up(tmp_path: Path) -> None:
    wanted, asked, told = experiment(more="failures: 2\n"), Asked(beside="failed"), Told()
    assert conductor(wanted, tmp_path, asked, told).run()
    assert sum(1 for spec in asked.specs if spec.interference) == 4
    assert sum(1 for spec in asked.specs if not spec.interference) == 6
    assert sum("given up after 2 failures" in line for line in told.lines) == 2
    again = Asked()
    assert conductor(wanted, tmp_path, again).run()
    assert again.specs == []


def test_a_repeat_that_would_exceed_the_budget_is_not_begun(tmp_path: Path) -> None:
    wanted, told = experiment(more="budget: {hours: 1}\n"), Told()
    one = conductor(wanted, tmp_path, Asked(), told)
    for trial in plan.trials(wanted)[0]:
        done = {"cell": trial.cell.key, "repeat": 1, "run_id": "r", "status": "succeeded", "gpu_joules": None}
        one.journal.add(Done(seconds=500.0, **done))  # type: ignore[arg-type]
    assert not one.run()
    assert told.lines == ["the budget ends it before repeat 2: it would have taken 1.11 of 1 hours"]


def test_an_energy_budget_without_energy_counters_ends_after_the_first_repeat(tmp_path: Path) -> None:
    told = Told()
    assert not conductor(experiment(more="budget: {kilowatt_hours: 1}\n"), tmp_path, Asked(), told).run()
    assert told.lines[-1].endswith("the GPUs do not count energy, and kilowatt_hours is limited")


def test_the_time_that_is_left_goes_by_the_same_cell_where_it_has_run() -> None:
    slow, quick, *_ = plan.cells(experiment())
    done = [
        Done(cell=cell.key, repeat=1, run_id="r", status="succeeded", seconds=seconds, gpu_joules=None)
        for cell, seconds in ((slow, 30.0), (quick, 10.0))
    ]
    unknown = plan.cells(experiment())[2]
    assert expected_seconds(done, [slow, quick, unknown]) == 30 + 10 + 20
    assert expected_seconds([], [slow]) == 0


@given(cut=st.integers(1, 400))
def test_a_journal_that_was_cut_short_has_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder, wanted = tmp_path_factory.mktemp("journal"), experiment()
    conductor(wanted, folder, Asked()).run()
    path = folder / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: -min(cut, len(whole))])
    left = Journal(path, plan.fingerprint(wanted)).done
    assert len(left) == max(0, path.read_bytes().count(b"\n") - 1)
    again = Asked()
    assert conductor(wanted, folder, again).run()
    assert len(again.specs) == 12 - len(left)


def test_another_experiment_of_the_same_name_is_refused(tmp_path: Path) -> None:
    conductor(experiment(), tmp_path, Asked()).run()
    with pytest.raises(MisuseError, match="another name"):
        conductor(experiment(more="seed: 2\n"), tmp_path, Asked())


def test_a_gpu_that_is_as_cool_as_at_the_start_is_not_waited_for() -> None:
    gpus = NodeGpus(NvmlRecording.load("h200_idle").open)
    told: list[str] = []
    slept: list[float] = []
    wanted = CoolDown(seconds=2.0, celsius_above_start=0.0, limit_seconds=10.0)
    assert gpus.cool_down(wanted, told.append, slept.append) == 2.0
    assert (told, slept) == (["cools down for 2 s"], [2.0])


def test_a_warm_gpu_is_waited_for_until_the_limit_and_told_of_once() -> None:
    recording = NvmlRecording.load("h200_idle")
    gpus = NodeGpus(recording.open)
    call = next(call for call in recording.outcomes if call.startswith("nvmlDeviceGetTemperature"))
    (cool,) = gpus.temperatures().values()
    recording.outcomes[call] = [{"answer": 90}]
    told: list[str] = []
    slept: list[float] = []
    wanted = CoolDown(seconds=0.0, celsius_above_start=5.0, limit_seconds=4.0)
    assert gpus.cool_down(wanted, told.append, slept.append) == 4.0
    assert told == [f"cools down: GPU 90 °C, waits for {cool + 5:.0f} °C, for 4 s at most"]
    assert gpus.cool_down(replace(wanted, celsius_above_start=None), told.append, slept.append) == 0.0


def test_a_node_without_gpus_has_no_energy_and_no_occupants() -> None:
    assert (no_gpus().joules(), no_gpus().occupants(), dict(no_gpus().temperatures())) == (None, [], {})
