import itertools
import pickle
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.progress import Position, Progress
from gpuagent_workloads.training.ranks import AgreedEnd, Ranks, parallel

CPU = torch.device("cpu")


def order(
    samples: int, batch_size: int, *, rank: int = 0, size: int = 1, taken: int = 0, seed: int = 1, drawn: bool = False
) -> Order:
    progress = Progress(Ranks(rank=rank, size=size))
    progress.position = Position(measured_samples=taken)
    return Order(samples, TrainingConfig(batch_size=batch_size, seed=seed), progress, drawn=drawn)


def take(batches: Order, count: int) -> list[int]:
    return [position for batch in itertools.islice(batches, count) for position in batch]


@given(samples=st.integers(8, 40), batch_size=st.integers(1, 4), size=st.sampled_from([1, 2]), drawn=st.booleans())
def test_ranks_share_the_batches_that_one_rank_would_take(
    samples: int, batch_size: int, size: int, drawn: bool
) -> None:
    shares = [order(samples, batch_size, rank=rank, size=size, drawn=drawn) for rank in range(size)]
    alone = order(samples, batch_size * size, drawn=drawn)
    for whole, *parts in itertools.islice(zip(alone, *shares, strict=True), 30):
        assert whole == [position for part in parts for position in part]


def test_an_epoch_has_every_sample_once_and_the_next_one_begins_within_a_batch() -> None:
    positions = take(order(10, 4), 5)
    assert sorted(positions[:10]) == sorted(positions[10:]) == list(range(10))
    assert positions[:10] != positions[10:]


@given(taken=st.integers(0, 200), batch_size=st.integers(1, 7), drawn=st.booleans())
def test_the_order_goes_on_anywhere_in_batches_of_any_size(taken: int, batch_size: int, drawn: bool) -> None:
    from_the_beginning = take(order(30, 1, drawn=drawn), taken + 3 * batch_size)
    assert take(order(30, batch_size, taken=taken, drawn=drawn), 3) == from_the_beginning[taken:]


def test_the_seed_decides_the_order_and_it_can_be_handed_to_another_process() -> None:
    one = order(30, 5)
    assert take(one, 6) == take(pickle.loads(pickle.dumps(one)), 6)  # noqa: S301 - our own
    assert take(one, 6) != take(order(30, 5, seed=2), 6)


def test_an_epoch_has_as_many_steps_as_whole_global_batches() -> None:
    assert order(64, 5, size=3).steps_per_epoch == 4
    # Seven steps of all ranks lie behind: one epoch and three steps.
    assert order(64, 5, size=3, taken=7 * 15).steps_to_next_epoch == 1


def test_a_global_batch_that_is_larger_than_the_data_is_misuse_unless_samples_may_come_again() -> None:
    with pytest.raises(MisuseError, match="--batch-size 6 on 2 ranks is more than the 10 training samples"):
        order(10, 6, size=2)
    assert len(take(order(10, 6, size=2, drawn=True), 1)) == 6


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, Ranks()),
        ({"WORLD_SIZE": "1"}, Ranks()),
        (
            {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "1"},
            Ranks(rank=3, size=4, local_size=2),
        ),
    ],
)
def test_torchruns_variables_say_which_rank_this_is(environment: Mapping[str, str], ranks: Ranks) -> None:
    assert Ranks.from_environment(environment) == ranks


@pytest.mark.parametrize(
    ("environment", "remedy"),
    [
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "node"}, "MASTER_PORT is not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
    ],
)
def test_variables_that_make_no_sense_are_misuse(environment: Mapping[str, str], remedy: str) -> None:
    with pytest.raises(MisuseError, match=remedy):
        Ranks.from_environment(environment)


def test_one_rank_alone_meets_nobody_and_agrees_with_itself() -> None:
    ranks, model = Ranks(), nn.Linear(2, 2)
    ranks.join(CPU)
    assert ranks.agree(3.5) == 3.5
    assert parallel(model, ranks, CPU) is model
    ranks.leave()


@given(step_seconds=st.lists(st.floats(0.001, 3), min_size=20, max_size=20))
def test_a_phase_ends_when_its_time_is_over_after_few_agreements(step_seconds: list[float]) -> None:
    asked: list[float] = []

    class Counting(Ranks):
        def agree(self, value: float) -> float:
            asked.append(value)
            return value

    end, seconds = AgreedEnd(Counting(), least_seconds=10), 0.0
    for steps, lasted in enumerate(itertools.cycle(step_seconds), start=1):
        seconds += lasted
        if end(steps, seconds):
            break
    assert seconds >= 10
    # Twice the logarithm, and some where step times vary a thousandfold.
    assert len(asked) <= 2 * steps.bit_length() + 20


def test_no_step_is_taken_before_the_first_is_asked_for() -> None:
    assert not AgreedEnd(Ranks(), least_seconds=0)(0, 0)
    assert AgreedEnd(Ranks(), least_seconds=0)(1, 0)
