import itertools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import NonFiniteError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import gpu_uuid, is_built_for
from gpuagent_workloads.training.loop import run_window, train
from gpuagent_workloads.training.precision import Precision, refusal
from gpuagent_workloads.training.progress import Position, Progress
from gpuagent_workloads.training.ranks import AgreedEnd, Ranks, parallel
from gpuagent_workloads.training.session import Order, set_up
from tests.unit.workloads.runs import Event, of_kind, phases_of, read_events, reported, results_of

CPU = torch.device("cpu")
CONFIG = TrainingConfig(steps=25, warmup=3, batch_size=4)


class Steps:
    """A training step that only counts: its losses are the given ones, the last of them for ever."""

    def __init__(self, *losses: float) -> None:
        self.taken = 0
        self._losses = losses

    def __call__(self) -> torch.Tensor:
        loss = self._losses[min(self.taken, len(self._losses) - 1)]
        self.taken += 1
        return torch.tensor(loss)


def train_steps(folder: Path, step: Steps, config: TrainingConfig = CONFIG) -> list[Event]:
    path = folder / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        train(step, config, 10, CPU, reporter)
    return read_events(path)


def test_measured_steps_are_those_that_were_asked_for_and_their_throughput_is_reported(tmp_path: Path) -> None:
    step = Steps(1.0)
    events = train_steps(tmp_path, step)
    assert step.taken == 3 + 25
    assert [(event["phase"], event["step"]) for event in of_kind(events, "step")] == [
        *(("warmup", number) for number in range(3)),
        *(("measure", number) for number in range(25)),
    ]
    began, ended = (event["t"] for event in of_kind(events, "phase") if event["name"] in ("measure", "teardown"))
    measured = [event for event in of_kind(events, "step") if event["phase"] == "measure"]
    assert all(began <= event["t"] <= ended for event in measured)
    assert sum(event["wall_seconds"] for event in measured) <= (ended - began) / 1e9
    assert results_of(events)["throughput"] <= 25 * 4 / sum(event["wall_seconds"] for event in measured)
    assert results_of(events)["measure_short"] == 1


def test_without_a_warm_up_the_first_step_is_measured(tmp_path: Path) -> None:
    step = Steps(1.0)
    events = train_steps(tmp_path, step, replace(CONFIG, warmup=0))
    assert step.taken == 25
    assert phases_of(events) == ["measure", "teardown", "end"]
    assert [event["step"] for event in of_kind(events, "step")] == list(range(25))
    first = of_kind(events, "step")[0]["wall_seconds"]
    assert first <= results_of(events)["time_to_first_step"] < 60


def test_epochs_are_counted_in_measured_steps() -> None:
    step, reporter = Steps(1.0), Reporter(None)
    train(step, replace(CONFIG, steps=None, epochs=2), 7, CPU, reporter)
    assert step.taken == 3 + 2 * 7
    assert reported(reporter)["items_per_epoch"] == 7 * 4


@pytest.mark.parametrize(("steps", "kept"), [(25, [(0, 0.0), (10, 10.0), (20, 20.0), (24, 24.0)]), (0, [])])
def test_every_tenth_loss_and_the_last_are_kept(steps: int, kept: list[tuple[int, float]]) -> None:
    window = run_window(Steps(*map(float, range(25))), lambda count, _seconds: count == steps, CPU)
    assert [(number, figures["loss"].item()) for number, figures in window.figures] == kept
    assert len(list(window.steps)) == steps


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_fails_the_run_and_says_at_which_step(loss: float, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="loss at step 10 is"):
        train_steps(tmp_path, Steps(*[1.0] * 8, loss))
    assert phases_of(read_events(tmp_path / "events.0.0.jsonl"))[-1] == "end"


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (["sm_70", "sm_80"], (8, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["sm_75", "sm_80"], (3, 7), False),
        (["sm_80", "compute_80"], (9, 0), True),
        (["compute_90"], (8, 9), False),
        (["sm_90a"], (9, 0), True),
        (["sm_100f", "compute_120"], (12, 0), True),
        (["sm_90a", "compute_90a"], (10, 0), False),
        (["gfx90a"], (9, 0), False),
        ([], (9, 0), False),
    ],
)
def test_code_runs_on_the_gpus_it_was_built_for(built: Sequence[str], capability: tuple[int, int], runs: bool) -> None:
    assert is_built_for(built, capability) is runs


@pytest.mark.parametrize(
    ("name", "visible_devices", "uuid"),
    [
        ("NVIDIA H200", "", "GPU-12ab"),
        ("NVIDIA H200", "2,3", "GPU-12ab"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "", "MIG-12ab"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "MIG-12ab", "MIG-12ab"),
        ("A100-SXM4-40GB MIG 1g.5gb", "MIG-GPU-34cd/7/0,MIG-GPU-34cd/8/0", "MIG-GPU-34cd/7/0"),
    ],
)
def test_a_gpu_or_mig_instance_is_reported_as_nvidia_smi_names_it(name: str, visible_devices: str, uuid: str) -> None:
    assert gpu_uuid(SimpleNamespace(name=name, uuid="12ab"), visible_devices) == uuid


def test_a_torch_that_does_not_tell_the_uuid_is_no_failure() -> None:
    assert gpu_uuid(SimpleNamespace(name="NVIDIA H200"), "") is None


@pytest.mark.parametrize(
    ("precision", "capability", "refused"),
    [
        ("default", None, False),
        ("fp32", None, False),
        ("bf16", None, False),
        ("tf32", None, True),
        ("fp16", None, True),
        ("fp32", (3, 7), False),
        ("fp16", (7, 0), False),
        ("bf16", (7, 5), True),
        ("tf32", (7, 5), True),
        ("bf16", (8, 0), False),
        ("tf32", (9, 0), False),
        ("fp8", None, True),
        ("fp8", (8, 6), True),
        ("fp8", (8, 9), False),
        ("fp8", (9, 0), False),
    ],
)
def test_a_precision_that_the_hardware_does_not_have_is_refused(
    precision: str, capability: tuple[int, int] | None, refused: bool
) -> None:
    assert (refusal(precision, capability) is not None) is refused


def test_mixed_precision_computes_in_the_type_that_was_asked_for() -> None:
    with Precision("bf16", CPU).autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.bfloat16


def test_ranks_that_contradict_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MisuseError, match="--ranks 3 contradicts"):
        set_up(replace(CONFIG, ranks=3), Reporter(None))


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
def test_ranks_share_the_batches_of_one_rank(samples: int, batch_size: int, size: int, drawn: bool) -> None:
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
    with pytest.raises(MisuseError, match="10 training samples"):
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
