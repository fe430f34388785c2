"""Figures of a model that are the same on every device, such as FLOPs, their share of its peak, and compilation."""

import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.loop import Window
from gpuagent_workloads.training.peaks import TERA, Peaks, peaks_of
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import is_divided


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlops:
    """Floating-point operations of a step, forward and backward; a multiplication and an addition count as two.

    The kinds are separate since their arithmetic is chosen separately: by torch (`Precision`), or by layer for FP8.
    """

    # Computed by cuDNN on a GPU.
    convolutions: int
    # Of matrix products, except those in FP8.
    products: int
    # Of matrix products in FP8.
    float8: int = 0

    @property
    def total(self) -> int:
        """Of all kinds."""
        return self.convolutions + self.products + self.float8


def report_counts(model: nn.Module, flops: StepFlops, reporter: Reporter) -> None:
    """Report the parameters of `model`, and the model FLOPs of a step."""
    reporter.result("parameters", sum(weights.numel() for weights in model.parameters() if weights.requires_grad))
    reporter.result("model_flops_per_step", flops.total, unit="FLOP")


def report_minimum_bytes(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Iterable[torch.Tensor], reporter: Reporter
) -> None:
    """Report the `minimum_bytes` of a step that updates one network once."""
    reporter.result("minimum_bytes_per_step", minimum_bytes(model, optimizer, batch), unit="bytes")


def minimum_bytes(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Iterable[torch.Tensor]) -> int:
    """Return a lower bound of the bytes that an update moves to and from the device's memory.

    Weights, buffers (as of batch normalisation) and the optimizer's state are read and written once, and the batch is
    read once. Gradients and activations are left out: how often they move depends on caches and fusion. The bound
    holds where weights do not stay in a cache from one step to the next.

    Args:
        optimizer: after its first step, so that it has its state.
        batch: the tensors of a batch, as they arrive on the device.
    """
    kept = [*model.parameters(), *model.buffers()]
    for weights, state in optimizer.state.items():
        # Counts of steps may be kept on the host.
        kept += (v for v in state.values() if isinstance(v, torch.Tensor) and v.device == weights.device)
    # Of what is divided among ranks, this one's part.
    parts = (tensor.to_local() if is_divided(tensor) else tensor for tensor in kept)
    return 2 * sum(tensor.nbytes for tensor in parts) + sum(tensor.nbytes for tensor in batch)


def palm_flops(weights: int, *, layers: int, width: int, context: int) -> int:
    """Return the floating-point operations of a token by PaLM's formula, 6 N + 12 L H Q T.

    It is that of Chowdhery et al. 2022, appendix B: forward and backward, attention to all tokens of the sequence.

    Args:
        weights: parameters that multiply (N).
        layers: their number (L).
        width: features of all attention heads together (H Q).
        context: tokens of a sequence (T).
    """
    return 6 * weights + 12 * layers * width * context


def count_flops(forward_loss: Callable[[], torch.Tensor], float8: Iterable[nn.Linear] = ()) -> StepFlops:
    """Return the floating-point operations of matrix products and convolutions, forward and backward.

    The optimizer's are not counted. A device may execute others, as with Winograd's convolutions.

    Args:
        forward_loss: returns the loss of a step.
        float8: layers whose products are in FP8 in training; here they must still be torch's own.
    """
    float8_flops = 0

    def add(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal float8_flops
        (weight,), (values,) = layer.parameters(), inputs
        # One product forward, and one for each gradient.
        products = 1 + values.requires_grad + weight.requires_grad
        float8_flops += products * 2 * output.numel() * values.shape[-1]

    hooks = [layer.register_forward_hook(add) for layer in float8]
    with FlopCounterMode(display=False) as counter:
        forward_loss().backward()
    for hook in hooks:
        hook.remove()
    flops = counter.get_flop_counts().get("Global", {})
    convolutions = sum(count for operation, count in flops.items() if "convolution" in str(operation))
    products = int(counter.get_total_flops() - convolutions) - float8_flops
    return StepFlops(convolutions=int(convolutions), products=products, float8=float8_flops)


def count_network_flops(build: Callable[[], nn.Module], *shape: int) -> StepFlops:
    """Return the same of a network's step on a batch of that shape; a loss has no matrix products."""
    with torch.device("meta"):
        model, batch = build(), torch.empty(shape)
    return count_flops(lambda: model(batch).sum())


def make_adamw(
    model: nn.Module, learning_rate: float, betas: tuple[float, float], decay: float
) -> torch.optim.Optimizer:
    """Return AdamW of the weights that learn: matrices decay, and nothing else. On a GPU it is one kernel."""
    parameters = [weights for weights in model.parameters() if weights.requires_grad]
    groups = [
        {"params": [weights for weights in parameters if weights.dim() >= 2], "weight_decay": decay},
        {"params": [weights for weights in parameters if weights.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=parameters[0].is_cuda)


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

    `narrow` is their type of 16 bits; None: float32, or TF32 by the flags.
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


# Used by torch for CPU kernels, and by Triton for the code that launches its kernels.
_COMPILERS = {"cpu": ("g++", "clang++"), "cuda": ("gcc", "cc", "clang")}

# torch.compile refuses older GPUs, since Triton does not support them.
_TRITON_NEEDS_CAPABILITY = (7, 0)

# torch's variable for the folder of compiled programs.
_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def compiled(model: nn.Module, wanted: bool, device: torch.device) -> Callable[..., torch.Tensor]:
    """Return the model's compiled form if `wanted`, which shares its weights, or the model itself.

    The model is unchanged: test it and count its FLOPs without compiling it again. Compilation takes place in the first
    step. A model with a method `compile_parts` does that itself, and is returned. Raises MisuseError: it cannot be
    compiled here.
    """
    if not wanted:
        return model
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    reason = refusal(capability, shutil.which)
    if reason:
        raise MisuseError(reason)
    if not os.environ.get(_CACHE):
        os.environ[_CACHE] = str(private_cache(Path(tempfile.gettempdir())))
    parts = getattr(model.module if isinstance(model, DistributedDataParallel) else model, "compile_parts", None)
    if parts is not None:
        parts()
        return model
    # Shapes never change here, and kernels for fixed shapes are the fastest.
    forward: Callable[..., torch.Tensor] = torch.compile(model, dynamic=False)
    return forward


def refusal(capability: tuple[int, int] | None, which: Callable[[str], str | None]) -> str | None:
    """Return the reason why models cannot be compiled, None if they can.

    Args:
        capability: compute capability of the GPU; None: it is a CPU.
        which: finds a program on the path, as `shutil.which`.
    """
    if capability is not None and capability < _TRITON_NEEDS_CAPABILITY:
        major, minor = capability
        return f"--compile needs compute capability 7.0; this GPU has {major}.{minor}: omit it"
    variable, kind = ("CXX", "cpu") if capability is None else ("CC", "cuda")
    candidates: Sequence[str] = [os.environ[variable]] if os.environ.get(variable) else _COMPILERS[kind]
    if any(which(candidate) for candidate in candidates):
        return None
    return (
        f"--compile needs a compiler ({' or '.join(candidates)}): install one, name it in {variable}, or omit --compile"
    )


def private_cache(folder: Path) -> Path:
    """Return this user's folder in `folder` for compiled programs, which torch loads again in later runs.

    torch's own choice has the user's name, and another user could make it first and put programs into it. Raises
    MisuseError: another user made it, or may write to it.
    """
    cache = folder / f"gpuagent-torch-{os.geteuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise MisuseError(f"{cache} is not a folder of yours alone; name another in {_CACHE}")
    return cache
