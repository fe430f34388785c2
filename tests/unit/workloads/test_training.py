from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import NonFiniteError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import gpu_uuid, is_built_for
from gpuagent_workloads.training.loop import run_window, train
from gpuagent_workloads.training.model import count_flops
from gpuagent_workloads.training.precision import Precision, refusal
from gpuagent_workloads.training.session import set_up
from tests.unit.workloads.runs import of_kind, phases_of, read_events, results_of

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


def test_training_takes_exactly_the_steps_that_were_asked_for(tmp_path: Path) -> None:
    step = Steps(1.0)
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        train(step, CONFIG, 10, CPU, reporter)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert step.taken == 3 + 25
    assert [(event["phase"], event["step"]) for event in of_kind(events, "step")] == [
        *(("warmup", number) for number in range(3)),
        *(("measure", number) for number in range(25)),
    ]


def test_without_a_warm_up_the_first_step_is_measured(tmp_path: Path) -> None:
    step = Steps(1.0)
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        train(step, replace(CONFIG, warmup=0), 10, CPU, reporter)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert step.taken == 25
    assert phases_of(events) == ["measure", "teardown", "end"]
    assert [event["step"] for event in of_kind(events, "step")] == list(range(25))
    first = of_kind(events, "step")[0]["wall_seconds"]
    assert first <= results_of(events)["time_to_first_step"] < 60


def test_epochs_are_counted_in_measured_steps() -> None:
    step = Steps(1.0)
    reporter = Reporter(None)
    train(step, replace(CONFIG, steps=None, epochs=2), 7, CPU, reporter)
    assert step.taken == 3 + 2 * 7
    assert {result.value for result in reporter.results if result.name == "items_per_epoch"} == {7 * 4}


def test_measured_steps_lie_within_their_phase_and_their_throughput_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        train(Steps(1.0), CONFIG, 10, CPU, reporter)
    events = read_events(path)
    began, ended = (event["t"] for event in of_kind(events, "phase") if event["name"] in ("measure", "teardown"))
    measured = [event for event in of_kind(events, "step") if event["phase"] == "measure"]
    assert all(began <= event["t"] <= ended for event in measured)
    assert sum(event["wall_seconds"] for event in measured) <= (ended - began) / 1e9
    assert results_of(events)["throughput"] <= 25 * 4 / sum(event["wall_seconds"] for event in measured)
    assert results_of(events)["measure_short"] == 1


def test_every_tenth_loss_and_the_last_are_kept() -> None:
    window = run_window(Steps(*map(float, range(25))), lambda count, _seconds: count == 25, CPU)
    assert [(number, loss.item()) for number, loss in window.losses] == [(0, 0.0), (10, 10.0), (20, 20.0), (24, 24.0)]


def test_a_window_may_be_empty() -> None:
    window = run_window(Steps(1.0), lambda _count, _seconds: True, CPU)
    assert (list(window.steps), list(window.losses)) == ([], [])


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_fails_the_run_and_says_at_which_step(loss: float, tmp_path: Path) -> None:
    path = tmp_path / "events.0.0.jsonl"
    with pytest.raises(NonFiniteError, match="loss at step 10 is"), Reporter(path) as reporter:
        train(Steps(*[1.0] * 8, loss), CONFIG, 10, CPU, reporter)
    assert phases_of(read_events(path))[-1] == "end"


def test_the_flops_of_a_linear_layer_are_counted_as_by_hand() -> None:
    def forward_loss() -> torch.Tensor:
        with torch.device("meta"):
            outputs: torch.Tensor = torch.nn.Linear(20, 30)(torch.empty(7, 20))
            return outputs.sum()

    # Forward and the weights' gradient; the input needs none.
    assert count_flops(forward_loss).total == 2 * (2 * 7 * 20 * 30)


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
    with pytest.raises(MisuseError, match="--ranks 3 contradicts torchrun, which started 2"):
        set_up(replace(CONFIG, ranks=3), Reporter(None))
