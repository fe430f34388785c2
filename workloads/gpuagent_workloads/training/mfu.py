"""The arithmetic of model FLOPs, and model FLOPs utilisation: a step's share of the peak."""

from collections import Counter
from dataclasses import dataclass

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.loop import Window
from gpuagent_workloads.training.model import StepFlops
from gpuagent_workloads.training.peaks import TERA, Peaks, peaks_of
from gpuagent_workloads.training.precision import Precision

_TF32_NEEDS_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The types of a step's multiplications: the name of a column of `Peaks` for each kind."""

    convolutions: str
    products: str


def report_mfu(
    flops: StepFlops,
    measured: Window,
    precision: Precision,
    device: torch.device,
    reporter: Reporter,
    palm: StepFlops | None = None,
) -> None:
    """Report the arithmetic and, where a peak is known, `mfu` in percent and its peak as `mfu_peak`.

    The denominator is the time that the FLOPs of each arithmetic take at its own peak: those in FP8 at that of FP8.

    With `palm` also `palm_flops_per_step` and, by these, `mfu_palm`.

    Args:
        palm: FLOPs of a step by PaLM's formula; None: it is not for this model.
    """
    if palm:
        reporter.result("palm_flops_per_step", palm.total, unit="FLOP")
    arithmetic = report_arithmetic(flops, precision.dtype, device, reporter)
    if device.type != "cuda":
        return
    gpu = torch.cuda.get_device_name(device)
    peaks = peaks_of(gpu)
    if peaks is None or not measured.steps:
        return
    steps_per_second = len(measured.steps) / measured.seconds
    for name, counted in (("mfu", flops), ("mfu_palm", palm)):
        seconds = ideal_seconds(counted, arithmetic, peaks) if counted else None
        if seconds is not None:
            reporter.result(name, 100 * seconds * steps_per_second, unit="%", phase="measure")
    if ideal_seconds(flops, arithmetic, peaks) is not None:
        reporter.result("mfu_peak", f"{gpu}: {describe(flops, arithmetic, peaks)}", phase="measure")


def report_arithmetic(
    flops: StepFlops, narrow: torch.dtype | None, device: torch.device, reporter: Reporter
) -> Arithmetic:
    """Report a step's model FLOPs in each arithmetic, such as `model_flops_tf32_per_step`.

    Args:
        narrow: their type of 16 bits; None: float32, or TF32 by the flags.
    """
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    arithmetic = arithmetic_in_force(narrow, capability)
    for column, count in _flops_by_column(flops, arithmetic).items():
        reporter.result(f"model_flops_{column}_per_step", count, unit="FLOP")
    return arithmetic


def arithmetic_in_force(autocast: torch.dtype | None, capability: tuple[int, int]) -> Arithmetic:
    """Return the arithmetic of multiplications by torch's flags and autocast.

    Args:
        autocast: the type of autocast; None: it is off.
        capability: compute capability of the GPU, (0, 0) for a CPU. Before 8.0 the flags for TF32 have no effect.
    """
    if autocast is not None:
        half = "bf16" if autocast == torch.bfloat16 else "fp16"
        return Arithmetic(convolutions=half, products=half)
    has_tf32 = capability >= _TF32_NEEDS_CAPABILITY
    return Arithmetic(
        convolutions="tf32" if has_tf32 and torch.backends.cudnn.allow_tf32 else "fp32",
        products="tf32" if has_tf32 and torch.backends.cuda.matmul.allow_tf32 else "fp32",
    )


def ideal_seconds(flops: StepFlops, arithmetic: Arithmetic, peaks: Peaks) -> float | None:
    """Return the time of a step's FLOPs at the peak of each kind; None: a peak is unknown."""
    seconds = 0.0
    for column, count in _flops_by_column(flops, arithmetic).items():
        peak = getattr(peaks, column)
        if peak is None:
            return None
        seconds += count / (TERA * peak)
    return seconds


def describe(flops: StepFlops, arithmetic: Arithmetic, peaks: Peaks) -> str:
    """Return the peaks of MFU and their source in words."""
    by_column = _flops_by_column(flops, arithmetic)
    texts = [f"{column.upper()} {getattr(peaks, column):g} TFLOPS" for column in by_column]
    if len(texts) > 1:
        shares = [100 * count / flops.total for count in by_column.values()]
        texts = [f"{text} for {share:.1f} % of the FLOPs" for text, share in zip(texts, shares, strict=True)]
    return f"{', '.join(texts)} ({peaks.source})"


def _flops_by_column(flops: StepFlops, arithmetic: Arithmetic) -> Counter[str]:
    by_column: Counter[str] = Counter()
    by_column[arithmetic.convolutions] += flops.convolutions
    by_column[arithmetic.products] += flops.products
    by_column["fp8"] += flops.float8
    return +by_column
