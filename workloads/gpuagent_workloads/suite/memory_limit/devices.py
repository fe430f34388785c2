"""Looks at the devices from a process of its own: the CUDA context that looking takes would be missing from the memory
that the search is about."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from gpuagent_workloads.measuring.setup import set_up_device
from gpuagent_workloads.report import Reporter, Result
from gpuagent_workloads.training.device import gpu_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What there is to search on."""

    # As torch names them: `cpu`, or every GPU that torch finds.
    names: Sequence[str]
    # Of the GPUs, as `nvidia-smi -L` prints them; empty on a CPU, and where torch does not tell.
    uuids: Sequence[str]
    # What is to be reported about device and software.
    facts: Sequence[Result]


def look(wanted: str) -> Devices:
    """Return the devices for `wanted`: auto, cpu or cuda.

    Raises:
        MisuseError: there is no such device.
        WorkloadError: this torch was not built for the GPU.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_look, wanted).result()


def _look(wanted: str) -> Devices:
    heard = Reporter(None)
    device = set_up_device(wanted, heard)
    indices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    uuids = [gpu_uuid(torch.cuda.get_device_properties(index), visible) for index in indices]
    return Devices(
        names=[f"cuda:{index}" for index in indices] or [str(device)],
        uuids=[uuid for uuid in uuids if uuid is not None],
        facts=heard.results,
    )
