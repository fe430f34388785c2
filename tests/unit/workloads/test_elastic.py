import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import NonFiniteError, WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.launch import launch
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.progress import CHECKPOINT, LOG, Position, restore, resume, save
from gpuagent_workloads.training.ranks import Ranks
from gpuagent_workloads.training.restarts import Attempt, StepLog, read_log, report_account, settle
from gpuagent_workloads.training.session import Order
from tests.unit.workloads.runs import of_kind, phases_of, read_events, results_of

CPU = torch.device("cpu")
SAMPLES = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
SECOND = 10**9


class LostError(Exception):
    """This process is gone, as far as the training is concerned."""


def config_in(directory: Path) -> TrainingConfig:
    return TrainingConfig(
        steps=12, warmup=3, batch_size=4, elastic="1:1", checkpoint=str(directory), checkpoint_every=5
    )


def train_once(config: TrainingConfig, events: Path, lost_after: float = math.inf, factor: float = 1.0) -> list[float]:
    """Train a linear layer with momentum, and return its weights; after so many steps the process is lost.

    Losses are reported multiplied by the factor.
    """
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    progress = resume(config, Ranks(), CPU, {"model": model, "optimizer": optimizer})
    batches = iter(Order(len(SAMPLES), config, progress))
    steps = itertools.count()

    def step() -> torch.Tensor:
        if next(steps) >= lost_after:
            raise LostError
        batch = SAMPLES[next(batches)]
        loss: torch.Tensor = (model(batch).squeeze(1) - batch.sum(dim=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return factor * loss

    with Reporter(events) as reporter:
        train(step, config, 1, CPU, reporter, progress=progress)
    return [weight.item() for weights in model.parameters() for weight in weights.flatten()]


def lose_and_resume(config: TrainingConfig, directory: Path, *lost_after: int) -> list[float]:
    for number, steps in enumerate(lost_after):
        with pytest.raises(LostError):
            train_once(config, directory / f"events.0.{number}.jsonl", lost_after=steps)
    return train_once(config, directory / f"events.0.{len(lost_after)}.jsonl")


# Lost in the warm-up, before the first checkpoint of the measured steps, right after one, in mid-run, and twice.
@pytest.mark.parametrize("lost_after", [(2,), (5,), (8,), (11,), (9, 3)])
def test_a_training_that_was_lost_ends_as_one_that_was_not(tmp_path: Path, lost_after: Sequence[int]) -> None:
    undisturbed = train_once(config_in(tmp_path / "undisturbed"), tmp_path / "events")
    assert lose_and_resume(config_in(tmp_path / "lost"), tmp_path, *lost_after) == undisturbed


def test_steps_go_on_from_the_checkpoint_without_a_warm_up(tmp_path: Path) -> None:
    lose_and_resume(config_in(tmp_path / "checkpoint"), tmp_path, 3 + 8)
    events = read_events(tmp_path / "events.0.1.jsonl")
    assert phases_of(events) == ["measure", "teardown", "end"]
    assert [event["step"] for event in of_kind(events, "step")] == list(range(5, 12))
    assert [event["step"] for event in of_kind(events, "metric")] == [5, 11]
    results = results_of(events)
    assert (results["steps"], results["restarts"], results["work_lost_steps"]) == (12, 1, 3)
    (recovery,) = of_kind(events, "recovery")
    assert (recovery["last_step"], recovery["resumed_step"]) == (8, 5)
    assert results["recovery_seconds"] == recovery["recovery_seconds"] > 0
    # What is left is the evidence.
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == [LOG]
    # Throughput counts what was kept by all the time that it took.
    first, last = read_log(tmp_path / "checkpoint" / LOG)
    assert results["throughput"] == pytest.approx(12 * 4 / ((last.done[12] - first.began_unix_nano) / 1e9))


def test_a_new_training_in_an_old_directory_starts_from_the_beginning(tmp_path: Path) -> None:
    config = config_in(tmp_path / "checkpoint")
    assert train_once(config, tmp_path / "first") == train_once(config, tmp_path / "second")
    assert len(read_log(tmp_path / "checkpoint" / LOG)) == 1


def test_a_failure_after_the_last_step_does_not_start_the_training_again(tmp_path: Path) -> None:
    config = config_in(tmp_path / "checkpoint")
    with pytest.raises(NonFiniteError):
        train_once(config, tmp_path / "events.0.0.jsonl", factor=math.nan)
    train_once(config, tmp_path / "events.0.1.jsonl")
    events = read_events(tmp_path / "events.0.1.jsonl")
    assert [event["step"] for event in of_kind(events, "step")] == [10, 11]
    assert results_of(events)["restarts"] == 1


def test_epochs_are_counted_over_restarts(tmp_path: Path) -> None:
    config = replace(config_in(tmp_path / "checkpoint"), steps=None, epochs=12)
    lose_and_resume(config, tmp_path, 3 + 8)
    assert results_of(read_events(tmp_path / "events.0.1.jsonl"))["steps"] == 12


def attempt(first: int, began: int, ranks: int, done: Sequence[int], saved: Sequence[tuple[int, int]] = ()) -> Attempt:
    """An attempt that did its steps at these seconds."""
    return Attempt(
        first=first,
        began_unix_nano=began * SECOND,
        ranks=ranks,
        done={first + number: second * SECOND for number, second in enumerate(done, start=1)},
        saved={step: second * SECOND for step, second in saved},
        checkpoint_seconds=float(len(saved)),
    )


def test_without_a_restart_there_is_nothing_to_recover_from() -> None:
    account = settle([attempt(0, 100, 2, range(101, 111))])
    assert (account.steps, account.batches, account.seconds, account.restarts) == (10, 20, 10, 0)
    assert (account.batches_per_second_before, account.batches_per_second_after) == (2, None)
    assert account.batches_per_second_during is None


def test_what_a_restart_costs_is_what_can_be_counted_by_hand() -> None:
    # Steps 1 to 8 at 101 s to 108 s, a checkpoint of 4 steps that was written by 105 s; from 120 s on, two ranks.
    account = settle(
        [
            attempt(0, 100, 1, range(101, 109), [(0, 100), (4, 105)]),
            attempt(4, 119, 2, [120, 122, 124, 126, 128, 130, 132, 134], [(8, 127)]),
        ]
    )
    (recovery,) = account.recoveries
    assert (recovery.recovery_seconds, recovery.lost_steps, recovery.lost_seconds) == (120 - 108, 4, 108 - 105)
    assert (recovery.during_seconds, recovery.during_batches) == (126 - 108, 2 * 4)
    assert (account.ranks_before, account.ranks_after) == (1, 2)
    assert (account.steps, account.batches, account.seconds) == (12, 4 + 2 * 8, 134 - 100)
    assert account.batches_per_second_before == 8 / 8
    assert account.batches_per_second_during == 2 * 4 / 18
    assert account.batches_per_second_after == 2 * 4 / 8
    assert (account.restarts, account.checkpoint_seconds) == (1, 3)


def test_a_restart_right_after_a_checkpoint_loses_no_work() -> None:
    (recovery,) = settle([attempt(0, 0, 1, [1, 2], [(2, 3)]), attempt(2, 8, 1, [9, 10])]).recoveries
    assert (recovery.lost_steps, recovery.recovery_seconds, recovery.during_batches) == (0, 9 - 2, 1)
    # The checkpoint was written after the last step.
    assert recovery.lost_seconds == 0


def test_a_loss_before_the_training_was_as_far_again_lasts_until_it_is() -> None:
    account = settle(
        [
            attempt(0, 0, 1, [1, 2, 3, 4, 5, 6], [(2, 2)]),
            attempt(2, 10, 1, [11, 12]),
            attempt(2, 20, 1, [21, 22, 23, 24, 25, 26]),
        ]
    )
    assert [recovery.lost_steps for recovery in account.recoveries] == [4, 2]
    assert [recovery.during_seconds for recovery in account.recoveries] == [12 - 6, 24 - 12]
    # Until step 6 was done again, at 24 s.
    assert account.batches_per_second_after == 2 / 2


def test_an_attempt_that_did_nothing_is_a_restart_but_no_recovery() -> None:
    account = settle([attempt(0, 0, 2, [1, 2]), attempt(0, 5, 1, []), attempt(0, 10, 1, [11, 12, 13])])
    assert account.restarts == 2
    (recovery,) = account.recoveries
    assert recovery.recovery_seconds == 11 - 2
    assert account.batches == 3


def test_rates_are_reported_in_items_and_those_without_evidence_are_absent() -> None:
    without, reporter = Reporter(None), Reporter(None)
    report_account(settle([attempt(0, 0, 1, [1, 2])]), 4, "items/s", without)
    assert {result.name for result in without.results} == {"restarts", "checkpoint_seconds"}
    report_account(settle([attempt(0, 0, 1, [1, 2]), attempt(0, 9, 1, [10, 11, 12])]), 4, "tokens/s", reporter)
    rates = {result.name: (result.value, result.unit) for result in reporter.results if "throughput" in result.name}
    assert rates == {
        "throughput_before": (4, "tokens/s"),
        "throughput_during": (2 * 4 / 9, "tokens/s"),
        "throughput_after": (4, "tokens/s"),
    }


def test_the_log_is_read_as_it_was_written_and_cut_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / LOG
    for first, goes_on, cut_off in ((0, False, "step 9 170"), (1, True, "step 9\n")):
        log = StepLog(path, CPU, ranks=first + 1, goes_on=goes_on)
        log.start(first)
        log.step(first + 1)
        log.checkpoint(first + 1, 0.25)
        log.close()
        with path.open("a") as file:
            file.write(cut_off)
    attempts = read_log(path)
    assert [(attempt.first, attempt.last, attempt.ranks) for attempt in attempts] == [(0, 1, 1), (1, 2, 2)]
    assert all(attempt.checkpoint_seconds == 0.25 and set(attempt.saved) == {attempt.last} for attempt in attempts)
    assert attempts[0].began_unix_nano <= attempts[0].done[1] <= attempts[0].saved[1] <= attempts[1].began_unix_nano


def parts() -> dict[str, Any]:
    model = nn.Linear(3, 2)
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters())}


def test_a_checkpoint_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="write the checkpoint"):
        save(tmp_path / "no" / "directory" / CHECKPOINT, Position(), parts())


class Hostile:
    """Runs code when it is unpickled by those who let it."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, ("1 / 0",)


# Made when a test runs: the first optimizer of a process takes seconds, in which every process would collect the tests.
@pytest.mark.parametrize(
    "make_content",
    [
        Hostile,
        lambda: {"position": {"step": 3}},
        lambda: {"position": {"step": 3}, "parts": {"model": nn.Linear(4, 2).state_dict(), "optimizer": {}}},
        lambda: {"position": {"lap": 3}, "parts": {name: part.state_dict() for name, part in parts().items()}},
    ],
)
def test_a_checkpoint_of_something_else_is_refused_with_a_remedy(
    tmp_path: Path, make_content: Callable[[], object]
) -> None:
    torch.save(make_content(), tmp_path / CHECKPOINT)
    with pytest.raises(WorkloadError, match="give an empty --checkpoint directory"):
        restore(tmp_path / CHECKPOINT, parts())


def test_half_a_checkpoint_is_refused_and_there_may_be_none_yet(tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    assert restore(path, parts()) is None
    save(path, Position(step=3), parts())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(WorkloadError, match="cannot continue from"):
        restore(path, parts())


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"elastic": "1:1"}, "give --steps or --epochs"),
        *(({"elastic": text, "steps": 1}, "MIN:MAX nodes") for text in ("2", "2:1", "0:1", "a:b", "1:2:3", "")),
        ({"elastic": "1:2", "steps": 1}, "--rendezvous HOST:PORT"),
        ({"elastic": "1:2", "steps": 1, "rendezvous": "127.0.0.1:29400"}, "--checkpoint DIRECTORY"),
        *(
            ({"elastic": "1:1", "steps": 1, "rendezvous": text}, "needs HOST:PORT")
            for text in ("node1", ":29400", "node1:", "node1:http", "node1:65536", "node1:0")
        ),
        ({"checkpoint": "somewhere"}, "--checkpoint is for --elastic"),
        ({"rendezvous": "127.0.0.1:29400"}, "--rendezvous is for several nodes"),
        ({"nodes": 2}, "--nodes 2 needs --rendezvous"),
        ({"nodes": 2, "rendezvous": "node1"}, "needs HOST:PORT"),
        (
            {"elastic": "1:2", "nodes": 3, "steps": 1, "rendezvous": "node1:29400", "checkpoint": "somewhere"},
            "--nodes 3 contradicts --elastic 1:2",
        ),
        ({"ranks": 0}, "--ranks must be at least 1"),
    ],
)
def test_elastic_parameters_that_make_no_sense_are_misuse(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        TrainingConfig(**parameters)


def test_where_others_start_the_ranks_the_checkpoint_directory_must_be_given() -> None:
    with pytest.raises(WorkloadError, match="needs --checkpoint"):
        resume(TrainingConfig(elastic="1:1", steps=1), Ranks(), CPU, {})


def test_a_checkpoint_directory_that_cannot_be_written_to_is_refused_before_ranks_are_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MisuseError, match="File exists"):
        launch("mnist", config_in(tmp_path / "file"))
