"""Set-up of a measurement: device, arithmetic, software and free memory."""

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
    """Return the device for `wanted` (auto, cpu or cuda), and report it and the software.

    Raises:
        MisuseError: there is no such device, or torchrun started several ranks.
        WorkloadError: this torch was not built for the GPU.
    """
    if number_in(os.environ, "WORLD_SIZE", 1) > 1:
        raise MisuseError("this workload starts its own processes: start it without torchrun")
    device = choose_device(wanted)
    report_device(device, reporter)
    report_software(reporter)
    return device


def why_not(precision: str, device: torch.device) -> str | None:
    """Return the reason why the device lacks a precision, None if it has it."""
    return refusal(precision, torch.cuda.get_device_capability(device) if device.type == "cuda" else None)


def type_of(precision: str) -> torch.dtype:
    """Return the type of the tensors in a precision; TF32 computes on float32."""
    return _TYPES.get(precision, torch.float32)


@contextmanager
def tf32_set(precision: str) -> Iterator[None]:
    """Turn TF32 on for `tf32` and off for `fp32`, in matrix products and convolutions; keep the flags otherwise."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    if precision in ("fp32", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def free_gpu_bytes(device: torch.device) -> int:
    """Return the free memory of a GPU, including torch's unused cache."""
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return int(free_bytes)
