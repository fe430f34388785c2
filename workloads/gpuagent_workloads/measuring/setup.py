"""Which device is measured, in which arithmetic, and with what software."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter, number_in
from gpuagent_workloads.training.device import choose_device, report_device, report_software
from gpuagent_workloads.training.precision import refusal

_TYPES = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}


def set_up_device(wanted: str, reporter: Reporter) -> torch.device:
    """Return the device for `wanted` (auto, cpu or cuda), and report it and what is installed.

    Raises:
        MisuseError: there is no such device, or torchrun started several ranks.
        WorkloadError: this torch was not built for the GPU.
    """
    refuse_ranks()
    device = choose_device(wanted)
    report_device(device, reporter)
    report_software(reporter)
    return device


def refuse_ranks() -> None:
    """Refuse to run as one of several ranks.

    Raises:
        MisuseError: torchrun started several.
    """
    if number_in(os.environ, "WORLD_SIZE", 1) > 1:
        raise MisuseError("this workload starts what processes it needs: start it without torchrun")


def why_not(precision: str, device: torch.device) -> str | None:
    """Return why the device does not have a precision, None if it has it."""
    return refusal(precision, torch.cuda.get_device_capability(device) if device.type == "cuda" else None)


def type_of(precision: str) -> torch.dtype:
    """Return the type of the tensors in a precision; TF32 computes on float32."""
    return _TYPES.get(precision, torch.float32)


@contextmanager
def tf32_set(precision: str) -> Iterator[None]:
    """Turn TF32 on for `tf32` and off for `fp32`, in matrix products and convolutions; else leave torch's flags."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    if precision in ("fp32", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def free_gpu_bytes(device: torch.device) -> int:
    """Return what is free on a GPU, what torch keeps for later and nobody uses included."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)
