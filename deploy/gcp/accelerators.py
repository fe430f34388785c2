"""The GPUs of Google Cloud, present and past: machine types, quotas, and the software that each needs.

Sources, with the year of their state:

- Names and machine types: https://cloud.google.com/compute/docs/gpus (2025), SkyPilot's `sky/catalog/gcp_catalog.py`
  (2026). N1 machines of any type take GPUs; four vCPUs per GPU here, as in g2-standard-4.
- Quotas: the metrics of the Compute Engine API (`Quota.metric`, Google Cloud CLI 528.0.0). The H100 has one for
  Spot alone; newer GPUs have none.
- Builds of PyTorch: "PyTorch CUDA Support Matrix" for 2.12 to 2.14 in PyTorch's RELEASE.md (2026): cu126 has code for
  compute capability 5.0 to 9.0, cu130 for 7.5 to 12.0. The older one is used where it supports the GPU, because
  it needs a less recent driver.
- Drivers: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (2026).
- Retired: the K80 "has reached end of support" (Google's Vertex AI reference, 2026), see
  https://cloud.google.com/compute/docs/eol/k80-eol. No such notice was found for others; the zones of a GPU are read
  from the API each time.
"""

import argparse
import difflib
from collections.abc import Mapping
from typing import NamedTuple


class Software(NamedTuple):
    """The build of PyTorch with code for a GPU, and GKE's driver for its CUDA."""

    torch_build: str
    gke_driver: str


# Of NVIDIA's driver they need branch 525 and 580.
CUDA_12 = Software("cu126", "default")
CUDA_13 = Software("cu130", "latest")


class Accelerator(NamedTuple):
    """A GPU of Google Cloud.

    Attributes:
        name: as in `gcloud compute accelerator-types list`.
        machine_types: number of GPUs → the smallest machine type with that number.
        quota: its metric in `gcloud compute regions list`; None: the API has no metric for it.
    """

    name: str
    machine_types: Mapping[int, str]
    quota: str | None
    software: Software = CUDA_12


def _types(form: str, *counts: int, factor: int = 1) -> dict[int, str]:
    return {count: form.format(factor * count) for count in counts}


_N1 = _types("n1-standard-{}", 1, 2, 4, factor=4)
_L4 = {1: "g2-standard-4", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"}
_A100 = {**_types("a2-highgpu-{}g", 1, 2, 4, 8), 16: "a2-megagpu-16g"}
_RTX_6000 = _types("g4-standard-{}", 1, 2, 4, 8, factor=48)

# By generation. Without GB200: its processors are Arm, and its machines need networks of their own.
ACCELERATORS = (
    Accelerator("nvidia-tesla-p4", _N1, "NVIDIA_P4_GPUS"),
    Accelerator("nvidia-tesla-p100", _N1, "NVIDIA_P100_GPUS"),
    Accelerator("nvidia-tesla-v100", _types("n1-standard-{}", 1, 2, 4, 8, factor=4), "NVIDIA_V100_GPUS"),
    Accelerator("nvidia-tesla-t4", _N1, "NVIDIA_T4_GPUS"),
    Accelerator("nvidia-l4", _L4, "NVIDIA_L4_GPUS"),
    Accelerator("nvidia-tesla-a100", _A100, "NVIDIA_A100_GPUS"),
    Accelerator("nvidia-a100-80gb", _types("a2-ultragpu-{}g", 1, 2, 4, 8), "NVIDIA_A100_80GB_GPUS"),
    Accelerator("nvidia-h100-80gb", _types("a3-highgpu-{}g", 1, 2, 4, 8), "NVIDIA_H100_GPUS"),
    Accelerator("nvidia-h100-mega-80gb", _types("a3-megagpu-{}g", 8), None),
    Accelerator("nvidia-h200-141gb", _types("a3-ultragpu-{}g", 8), None),
    Accelerator("nvidia-b200", _types("a4-highgpu-{}g", 8), None, CUDA_13),
    Accelerator("nvidia-rtx-pro-6000", _RTX_6000, None, CUDA_13),
)
RETIRED = {"nvidia-tesla-k80": "nvidia-tesla-t4"}


def find_accelerator(name: str) -> Accelerator:
    """Return the GPU with this name; raise ArgumentTypeError if no GPU has it, or it is retired."""
    known = {accelerator.name: accelerator for accelerator in ACCELERATORS}
    if name in RETIRED:
        raise argparse.ArgumentTypeError(f"{name} is retired by Google Cloud; use {RETIRED[name]} instead")
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, cutoff=0.4)
        offer = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(f"there is no accelerator {name!r}; {offer}")
    return known[name]
