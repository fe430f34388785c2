import stat
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
import torch
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.loop import Feed, run_window, train
from gpuagent_workloads.training.model import (
    Arithmetic,
    StepFlops,
    arithmetic_in_force,
    compiled,
    count_flops,
    describe,
    ideal_seconds,
    private_cache,
    refusal,
    report_mfu,
    report_minimum_bytes,
)
from gpuagent_workloads.training.peaks import PEAKS, Peaks, peaks_of, report_datasheet
from gpuagent_workloads.training.precision import Precision
from tests.unit.workloads.runs import reported

CPU = torch.device("cpu")
FLOPS = StepFlops(convolutions=300 * 10**12, products=100 * 10**12)
GPU = Peaks(gpu="Example", fp32=10, tf32=100, fp16=200, source="a datasheet")


@pytest.fixture(autouse=True)
def _default_flags() -> Iterator[None]:
    """Torch's own flags, which are those of `--precision default`, whatever tests before this one left."""
    _set_tf32(convolutions=True, products=False)
    yield
    _set_tf32(convolutions=True, products=False)


def _set_tf32(*, convolutions: bool, products: bool) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cuda.matmul.allow_tf32 = products


@pytest.mark.parametrize(
    ("name", "fp32", "memory"),
    [
        ("NVIDIA H200", 67, 4800),
        ("NVIDIA H100 80GB HBM3", 67, 3350),
        ("NVIDIA H100 PCIe", 51, 2000),
        ("NVIDIA A100-SXM4-40GB", 19.5, 1555),
        ("NVIDIA A100 80GB PCIe", 19.5, 1935),
        ("NVIDIA A100-SXM4-80GB", 19.5, 2039),
        ("A100-PCIE-40GB", 19.5, 1555),
        ("NVIDIA L4", 30.3, 300),
        ("NVIDIA L40S", 91.6, 864),
        ("Tesla T4", 8.1, 320),
        ("Tesla V100-SXM2-32GB", 15.7, 900),
        ("Tesla P100-PCIE-16GB", 9.3, None),
        ("Tesla K80", 4.37, 240),
        ("NVIDIA GeForce GTX 1080 Ti", 11.3, 484),
    ],
)
def test_a_gpu_has_the_peaks_of_its_own_card(name: str, fp32: float, memory: float | None) -> None:
    peaks = peaks_of(name)
    assert peaks is not None
    assert (peaks.fp32, peaks.memory) == (fp32, memory)


@pytest.mark.parametrize(
    "name", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla V100-SXM3-32GB"]
)
def test_a_gpu_that_is_not_in_the_table_has_no_peak(name: str) -> None:
    assert peaks_of(name) is None


def test_narrower_types_are_never_slower() -> None:
    for peaks in PEAKS:
        known = [peak for peak in (peaks.fp32, peaks.tf32, peaks.fp16, peaks.fp8) if peak is not None]
        assert known == sorted(known)
        assert peaks.bf16 in (None, peaks.fp16)


@pytest.mark.parametrize(
    ("autocast", "capability", "convolutions", "products"),
    [
        (None, (9, 0), "tf32", "fp32"),
        (None, (7, 0), "fp32", "fp32"),
        (torch.bfloat16, (9, 0), "bf16", "bf16"),
        (torch.float16, (7, 0), "fp16", "fp16"),
    ],
)
def test_the_peak_is_that_of_the_arithmetic_in_force(
    autocast: torch.dtype | None, capability: tuple[int, int], convolutions: str, products: str
) -> None:
    assert arithmetic_in_force(autocast, capability) == Arithmetic(convolutions=convolutions, products=products)


def test_flags_for_tf32_choose_the_peak_of_each_kind() -> None:
    _set_tf32(convolutions=False, products=True)
    assert arithmetic_in_force(None, (8, 0)) == Arithmetic(convolutions="fp32", products="tf32")


@pytest.mark.parametrize(
    ("convolutions", "products", "seconds", "text"),
    [
        (
            "tf32",
            "fp32",
            13,
            "TF32 100 TFLOPS for 75.0 % of the FLOPs, FP32 10 TFLOPS for 25.0 % of the FLOPs (a datasheet)",
        ),
        ("fp16", "fp16", 2, "FP16 200 TFLOPS (a datasheet)"),
    ],
)
def test_peaks_are_weighted_by_flops_and_one_for_both_kinds_is_named_once(
    convolutions: str, products: str, seconds: float, text: str
) -> None:
    arithmetic = Arithmetic(convolutions=convolutions, products=products)
    assert ideal_seconds(FLOPS, arithmetic, GPU) == pytest.approx(seconds)
    assert describe(FLOPS, arithmetic, GPU) == text


def test_products_in_fp8_take_their_time_at_its_own_peak() -> None:
    gpu = Peaks(gpu="Example", fp32=10, bf16=100, fp8=200, source="a datasheet")
    flops = StepFlops(convolutions=0, products=25 * 10**12, float8=75 * 10**12)
    arithmetic = Arithmetic(convolutions="bf16", products="bf16")
    assert ideal_seconds(flops, arithmetic, gpu) == pytest.approx(0.25 + 0.375)
    shares = "BF16 100 TFLOPS for 25.0 % of the FLOPs, FP8 200 TFLOPS for 75.0 % of the FLOPs (a datasheet)"
    assert describe(flops, arithmetic, gpu) == shares
    # This example has no FP8, so there is no MFU.
    assert ideal_seconds(flops, Arithmetic(convolutions="fp16", products="fp16"), GPU) is None


def test_a_type_without_a_known_peak_has_no_ideal_time_unless_nothing_is_computed_in_it() -> None:
    assert ideal_seconds(FLOPS, Arithmetic(convolutions="bf16", products="fp32"), GPU) is None
    products_only = StepFlops(convolutions=0, products=10**13)
    assert ideal_seconds(products_only, Arithmetic(convolutions="bf16", products="fp32"), GPU) == pytest.approx(1)


@pytest.mark.parametrize(("precision", "arithmetic"), [("default", "fp32"), ("bf16", "bf16")])
def test_a_cpu_has_no_mfu_and_says_which_arithmetic_it_used(precision: str, arithmetic: str) -> None:
    reporter = Reporter(None)
    window = run_window(lambda: torch.tensor(1.0), lambda count, _seconds: count == 2, CPU)
    report_mfu(FLOPS, window, Precision(precision, CPU), CPU, reporter)
    found = {result.name: (result.value, result.unit) for result in reporter.results}
    assert found == {f"model_flops_{arithmetic}_per_step": (FLOPS.total, "FLOP")}


def test_what_the_maker_states_of_a_gpu_in_the_table_is_reported_in_base_units() -> None:
    reporter = Reporter(None)
    report_datasheet("NVIDIA L40", reporter)
    assert reporter.results == []
    report_datasheet("Tesla V100-SXM2-16GB", reporter)
    assert {result.name: (result.value, result.unit) for result in reporter.results} == {
        "datasheet_fp32_flops_per_second": (15.7e12, "FLOP/s"),
        "datasheet_fp16_flops_per_second": (125e12, "FLOP/s"),
        "datasheet_dram_bytes_per_second": (900e9, "bytes/s"),
    }


def test_flops_of_convolutions_and_of_products_are_counted_apart() -> None:
    def forward_loss() -> torch.Tensor:
        with torch.device("meta"):
            network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 4 * 4, 10))
            scores: torch.Tensor = network(torch.empty(2, 3, 6, 6))
            return scores.sum()

    convolution, product = 2 * 2 * 4 * 4 * 8 * (3 * 3 * 3), 2 * 2 * (8 * 4 * 4) * 10
    assert count_flops(forward_loss) == StepFlops(convolutions=2 * convolution, products=3 * product)


@pytest.mark.parametrize(("momentum", "states"), [(0.0, 0), (0.9, 1)])
def test_weights_buffers_and_optimizer_state_move_twice_and_the_batch_once(momentum: float, states: int) -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    batch = torch.ones(4, 5)
    model(batch).sum().backward()
    optimizer.step()
    reporter = Reporter(None)
    report_minimum_bytes(model, optimizer, (batch,), reporter)
    weights, buffers = 4 * (5 * 3 + 3 + 3 + 3), 4 * (3 + 3) + 8
    assert reporter.results[0].value == 2 * ((1 + states) * weights + buffers) + 4 * 4 * 5


def test_the_time_that_steps_wait_for_a_feed_is_a_share_of_the_measured_phase() -> None:
    feed, fed, unfed = Feed(repeat(torch.tensor(1.0))), Reporter(None), Reporter(None)
    train(lambda: next(feed), TrainingConfig(steps=5, warmup=2), 1, CPU, fed, feed)
    train(lambda: torch.tensor(1.0), TrainingConfig(steps=5, warmup=2), 1, CPU, unfed)
    (share,) = [result for result in fed.results if result.name == "data_wait_share"]
    assert (share.unit, share.phase) == ("%", "measure")
    assert 0 < float(share.value) < 100
    assert "data_wait_share" not in reported(unfed)


@pytest.mark.parametrize(
    ("capability", "installed", "complaint"),
    [
        (None, "g++", None),
        (None, "gcc", "needs a compiler (g++ or clang++)"),
        ((9, 0), "gcc", None),
        ((7, 0), "clang", None),
        ((9, 0), "none", "needs a compiler (gcc or cc or clang)"),
        ((6, 1), "gcc", "needs compute capability 7.0; this GPU has 6.1"),
    ],
)
def test_compiling_is_refused_where_torch_cannot(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, installed: str, complaint: str | None
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    answer = refusal(capability, lambda program: program if program == installed else None)
    assert answer is None if complaint is None else complaint in str(answer)


def test_a_missing_compiler_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MisuseError, match="no-such-compiler"):
        compiled(nn.Linear(3, 2), True, CPU)


def test_compiled_programs_are_kept_where_no_other_user_can_leave_some(tmp_path: Path) -> None:
    cache = private_cache(tmp_path)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert private_cache(tmp_path) == cache
    cache.chmod(0o777)
    with pytest.raises(MisuseError, match="TORCHINDUCTOR_CACHE_DIR"):
        private_cache(tmp_path)
    cache.rmdir()
    cache.symlink_to(tmp_path)
    with pytest.raises(MisuseError, match="of yours alone"):
        private_cache(tmp_path)


@pytest.mark.needs("g++")
@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
def test_a_compiled_model_computes_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Else compiling writes into the folder of the tests.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # By this process: others would import torch first.
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    model, inputs = nn.Linear(3, 2), torch.ones(4, 3)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(model, True, CPU)(inputs), model(inputs))
