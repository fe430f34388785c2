"""Ways to divide a Llama model between two ranks, over gloo: all train as one rank does on the same global batch."""

import json
from pathlib import Path

import pytest

from tests.unit.workloads.runs import of_kind, read_events, results_of, run_config, run_torchrun, run_workloads

pytestmark = pytest.mark.slow

STRATEGIES = ("ddp", "fsdp2", "tp")

# Losses of three steps by each strategy, and by one rank alone. Each rank takes 2 of 4 sequences, those of tp all.
TRAIN = """
import json, pathlib, sys
from contextlib import nullcontext

import torch
from torch.distributed.tensor.parallel import loss_parallel

from gpuagent_workloads.suite.llama import Config
from gpuagent_workloads.suite.llama.train import build
from gpuagent_workloads.training.model import make_adamw
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks, parallel

CPU = torch.device("cpu")
torch.set_num_threads(1)
ranks = Ranks.from_environment()
ranks.join(CPU)
batches = torch.randint(0, 256, (3, 4, 17), generator=torch.Generator().manual_seed(5))


def losses_of(strategy, among, **options):
    config = Config(model="tiny", context=16, device="cpu", strategy=strategy, ranks=among.size, **options)
    model = build(config, among)
    forward = parallel(model, among, CPU)
    # What is not in FP8 is in bf16; runs refuse FP8 on a CPU.
    precision = Precision("bf16" if config.precision == "fp8" else config.precision, CPU)
    optimizer = make_adamw(model, 1e-3, (0.9, 0.95), 0.1)
    divided = among.size > 1 and strategy != "tp"
    losses = []
    for batch in batches:
        mine = batch[2 * among.rank : 2 * among.rank + 2] if divided else batch
        with loss_parallel() if strategy == "tp" and among.size > 1 else nullcontext():
            with precision.autocast():
                loss = forward(mine[:, :-1], mine[:, 1:])
            precision.update(loss, optimizer)
        mean = loss.detach().double().reshape(1)
        if divided:
            torch.distributed.all_reduce(mean)
            mean /= among.size
        losses.append(mean.item())
    return losses


made = {}
for name, options in json.loads(sys.argv[2]).items():
    for strategy in ("ddp", "fsdp2") if name in ("adapters", "fp8") else ("ddp", "fsdp2", "tp"):
        made[f"{name} {strategy}"] = losses_of(strategy, ranks, **options)
    made[f"{name} alone"] = losses_of("ddp", Ranks(), **options)
pathlib.Path(sys.argv[1], str(ranks.rank)).write_text(json.dumps(made))
ranks.leave()
"""

OPTIONS = {
    "fp32": {},
    "recomputed": {"recompute": True, "loss_chunk": 24},
    "bf16": {"precision": "bf16"},
    "fp8": {"precision": "fp8", "recompute": True},
    "adapters": {"lora": 4},
}

# float32 has 24 bits, and Adam's first steps enlarge the error of small gradients; bfloat16 has 8 bits, half a percent.
# Scales of FP8 are those of each rank's own sequences.
TOLERANCES = {"fp32": 1e-5, "recomputed": 1e-5, "bf16": 5e-3, "fp8": 5e-3, "adapters": 1e-5}


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Losses by options and strategy, which both ranks agree on."""
    folder = tmp_path_factory.mktemp("strategies")
    script = folder / "train.py"
    script.write_text(TRAIN)
    run_torchrun(script, folder, json.dumps(OPTIONS))
    both = [json.loads((folder / rank).read_text()) for rank in "01"]
    for name, first in both[0].items():
        assert both[1][name] == pytest.approx(first, rel=1e-6)
    return dict(both[0])


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (options, strategy)
        for options in OPTIONS
        for strategy in STRATEGIES
        if strategy != "tp" or options not in ("adapters", "fp8")
    ],
)
def test_two_ranks_have_the_losses_of_one_on_the_same_global_batches(
    options: str, strategy: str, losses: dict[str, list[float]]
) -> None:
    alone = losses[f"{options} alone"]
    assert losses[f"{options} {strategy}"] == pytest.approx(alone, rel=TOLERANCES[options])
    # Otherwise equal losses would show only that the weights began alike.
    assert abs(alone[-1] - alone[0]) > 10 * TOLERANCES["fp32"] * alone[0]


@pytest.mark.usefixtures("forked_ranks")
def test_a_tensor_parallel_run_reports_its_share_and_the_loss_of_one_rank(tmp_path: Path) -> None:
    small = {"model": "tiny", "context": 16, "device": "cpu", "threads": 1, "warmup": 1, "steps": 3}
    arguments = [f"--{name}={value}" for name, value in small.items()]
    more = ("--batch-size", "2", "--ranks", "2", "--strategy", "tp")
    done = run_workloads("run", "llama", *arguments, *more, GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    both = [read_events(tmp_path / f"events.{rank}.0.jsonl") for rank in range(2)]
    (tmp_path / "alone").mkdir()
    alone = results_of(run_config("llama", tmp_path / "alone", **small, batch_size=4))
    for events in both:
        assert {event["items"] for event in of_kind(events, "step")} == {2 * 16}
        results = results_of(events)
        assert (results["ranks"], results["parameters"]) == (2, alone["parameters"])
        assert 2 * results["model_flops_per_step"] == alone["model_flops_per_step"]
        # Norms are on both ranks, and all other weights on one of them.
        assert results["minimum_bytes_per_step"] < 0.6 * alone["minimum_bytes_per_step"]
        assert results["loss"] == pytest.approx(alone["loss"], rel=1e-5)
