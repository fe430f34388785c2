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

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from deploy.kubernetes.problems import MisuseError


class Software(NamedTuple):
    """The build of PyTorch with code for a GPU, the oldest branch of NVIDIA's driver for its CUDA, and GKE's for it."""

    torch_build: str
    driver_branch: int
    gke_driver: str


CUDA_12 = Software("cu126", 525, "default")
CUDA_13 = Software("cu130", 580, "latest")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU of Google Cloud.

    Attributes:
        name: as in `gcloud compute accelerator-types list`.
        machine_types: number of GPUs → the smallest machine type with that number.
        quota: its metric in `gcloud compute regions list`; None: the API has no metric for it.
        software: the software it needs; None: no present build of PyTorch has code for it.
        instead: the replacement of a GPU that Google has retired.
    """

    name: str
    machine_types: Mapping[int, str]
    quota: str | None
    software: Software | None = CUDA_12
    instead: str | None = None

    def machine_type(self, count: int) -> str:
        """Return the machine type with this number of GPUs; raise MisuseError if there is none."""
        if count not in self.machine_types:
            raise MisuseError(f"a node has {_list_names(map(str, self.machine_types))} of {self.name}, not {count}")
        return self.machine_types[count]


def _n1(*counts: int) -> Mapping[int, str]:
    return {count: f"n1-standard-{4 * count}" for count in counts}


def _named(family: str, *counts: int) -> Mapping[int, str]:
    return {count: f"{family}-{count}g" for count in counts}


_A100 = {**_named("a2-highgpu", 1, 2, 4, 8), 16: "a2-megagpu-16g"}
_L4 = {1: "g2-standard-4", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"}
_RTX_6000 = {count: f"g4-standard-{48 * count}" for count in (1, 2, 4, 8)}

# By generation. Without GB200: its processors are Arm, and its machines need networks of their own.
ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator("nvidia-tesla-k80", _n1(1, 2, 4, 8), "NVIDIA_K80_GPUS", None, instead="nvidia-tesla-t4"),
    Accelerator("nvidia-tesla-p4", _n1(1, 2, 4), "NVIDIA_P4_GPUS"),
    Accelerator("nvidia-tesla-p100", _n1(1, 2, 4), "NVIDIA_P100_GPUS"),
    Accelerator("nvidia-tesla-v100", _n1(1, 2, 4, 8), "NVIDIA_V100_GPUS"),
    Accelerator("nvidia-tesla-t4", _n1(1, 2, 4), "NVIDIA_T4_GPUS"),
    Accelerator("nvidia-l4", _L4, "NVIDIA_L4_GPUS"),
    Accelerator("nvidia-tesla-a100", _A100, "NVIDIA_A100_GPUS"),
    Accelerator("nvidia-a100-80gb", _named("a2-ultragpu", 1, 2, 4, 8), "NVIDIA_A100_80GB_GPUS"),
    Accelerator("nvidia-h100-80gb", _named("a3-highgpu", 1, 2, 4, 8), "NVIDIA_H100_GPUS"),
    Accelerator("nvidia-h100-mega-80gb", _named("a3-megagpu", 8), None),
    Accelerator("nvidia-h200-141gb", _named("a3-ultragpu", 8), None),
    Accelerator("nvidia-b200", _named("a4-highgpu", 8), None, CUDA_13),
    Accelerator("nvidia-rtx-pro-6000", _RTX_6000, None, CUDA_13),
)


def find_accelerator(name: str) -> Accelerator:
    """Return the GPU with this name; raise MisuseError if no GPU has it, or it is retired."""
    known = {accelerator.name: accelerator for accelerator in ACCELERATORS}
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, cutoff=0.4)
        offer = f"did you mean {_list_names(close)}?" if close else f"there are {_list_names(known)}"
        raise MisuseError(f"there is no accelerator {name!r}; {offer}")
    if known[name].instead:
        raise MisuseError(f"{name} is retired by Google Cloud; use {known[name].instead} instead")
    return known[name]


def _list_names(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
