"""The device of a rank: its choice, its support by this torch, and its report."""

import ctypes
import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter, number_in
from gpuagent_workloads.training.peaks import report_datasheet


def choose_device(wanted: str) -> torch.device:
    """Return the device for `wanted`: auto, cpu, or cuda. Of several GPUs, the one that LOCAL_RANK numbers.

    Raises:
        MisuseError: torch finds no GPU, or fewer than ranks.
        WorkloadError: this torch was not built for the GPU.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MisuseError(f"--device cuda: {_missing_gpu()}; --device cpu runs without")
    device = torch.device("cuda", number_in(os.environ, "LOCAL_RANK", 0))
    gpus = torch.cuda.device_count()
    if device.index >= gpus:
        raise MisuseError(f"LOCAL_RANK is {device.index}, and torch finds {gpus} GPUs: start fewer ranks")
    torch.cuda.set_device(device)
    _refuse_if_unsupported(device)
    return device


def device_problems() -> list[str]:
    """Return the reasons why this torch cannot use the node's GPUs; empty if it can use all of them."""
    if not torch.cuda.is_available():
        return [f"{_missing_gpu()}: workloads would run on the CPU"]
    problems = []
    for index in range(torch.cuda.device_count()):
        try:
            _refuse_if_unsupported(torch.device("cuda", index))
        except WorkloadError as error:
            problems.append(str(error))
    return problems


def _missing_gpu() -> str:
    build = f"was built for CUDA {torch.version.cuda} but finds no GPU" if torch.version.cuda else "has no CUDA"
    return f"torch {torch.__version__} {build}"


def report_device(device: torch.device, reporter: Reporter) -> None:
    """Report the device and, of a GPU, its UUID and the peaks of its datasheet."""
    if device.type != "cuda":
        reporter.result("device", "cpu")
        return
    properties = torch.cuda.get_device_properties(device)
    reporter.result("device", properties.name)
    report_datasheet(properties.name, reporter)
    uuid = gpu_uuid(properties, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if uuid is not None:
        reporter.device(uuid)


def report_software(reporter: Reporter) -> None:
    """Report torch's number of threads, its version, those of CUDA, cuDNN and cuBLAS, and how cuDNN chooses."""
    reporter.result("threads", torch.get_num_threads())
    reporter.result("torch_version", torch.__version__)
    if torch.version.cuda is not None:
        reporter.result("cuda_version", torch.version.cuda)
    cudnn_version = torch.backends.cudnn.version()
    if cudnn_version is not None:
        reporter.result("cudnn_version", str(cudnn_version))
        # The algorithms of its heuristics, or the fastest of all that it tried.
        reporter.result("cudnn_choice", "benchmark" if torch.backends.cudnn.benchmark else "heuristics")
        reporter.result("cudnn_deterministic", int(torch.backends.cudnn.deterministic))
    cublas = cublas_version(torch.version.cuda)
    if cublas is not None:
        reporter.result("cublas_version", cublas)


def cublas_version(cuda: str | None) -> str | None:
    """Return the version of the cuBLAS that torch has loaded, for CUDA's version `cuda`; None: there is none."""
    if cuda is None:
        return None
    try:
        library = ctypes.CDLL(f"libcublas.so.{cuda.partition('.')[0]}")
        value = ctypes.c_int()
        parts = []
        # libraryPropertyType: major, minor, patch.
        for part in range(3):
            if library.cublasGetProperty(part, ctypes.byref(value)):
                return None
            parts.append(str(value.value))
    except (OSError, AttributeError):
        return None
    return ".".join(parts)


def gpu_uuid(properties: Any, visible_devices: str) -> str | None:
    """Return the UUID of a GPU or MIG instance as `nvidia-smi -L` prints it; None: this torch lacks it.

    Args:
        properties: from `torch.cuda.get_device_properties`. CUDA gives a MIG instance's own UUID
            (cuDeviceGetUuid_v2), and its profile at the end of the name.
        visible_devices: CUDA_VISIBLE_DEVICES. With drivers before 470 only that identifies the instance; CUDA shows a
            process no second one.
    """
    if visible_devices.startswith("MIG-GPU-"):
        return visible_devices.split(",")[0]
    uuid = getattr(properties, "uuid", None)
    if uuid is None:
        return None
    return f"MIG-{uuid}" if " MIG " in properties.name else f"GPU-{uuid}"


def upload(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return `values` on the device. The host waits neither for the copy nor for the GPU's queue."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor
    # Only from pinned memory does a GPU copy while the host continues. numpy fills it, since torch would wake all its
    # threads for so little, and their spinning would count as CPU use of the training.
    pinned = torch.empty_like(tensor, pin_memory=True)
    np.copyto(pinned.numpy(), values)
    return pinned.to(device, non_blocking=True)


def is_built_for(built: Iterable[str], capability: tuple[int, int]) -> bool:
    """Return whether code built for `built` runs on a GPU of that compute capability.

    sm_XY is machine code, for X.Y and later minor versions of X. compute_XY is compiled when it is loaded, for X.Y and
    everything later. With a letter behind it (sm_90a) it is for X.Y alone.

    Args:
        built: from `torch.cuda.get_arch_list()`.
    """
    return any(_runs_on(target, capability) for target in built)


def _runs_on(target: str, capability: tuple[int, int]) -> bool:
    parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", target)
    if parts is None:
        return False
    kind, major, minor, letter = parts.groups()
    version = (int(major), int(minor))
    if letter:
        return version == capability
    return version <= capability and (kind == "compute" or version[0] == capability[0])


def _refuse_if_unsupported(device: torch.device) -> None:
    built = torch.cuda.get_arch_list()
    capability = torch.cuda.get_device_capability(device)
    if is_built_for(built, capability):
        return
    # From PyTorch's matrix of releases: builds for CUDA 12.6 are the last with code for GPUs before 7.5.
    remedy = "no supported torch has code for it; --device cpu runs without"
    if capability >= (7, 5):
        remedy = "install a newer torch"
    elif capability >= (5, 0):
        remedy = "install a build for CUDA 12.6: pip install torch --index-url https://download.pytorch.org/whl/cu126"
    gpu = f"{torch.cuda.get_device_name(device)} (compute capability {'.'.join(map(str, capability))})"
    raise WorkloadError(
        f"torch {torch.__version__} has no code for {gpu}: it was built for {', '.join(built)}; {remedy}"
    )
