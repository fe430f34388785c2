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

from deploy.kubernetes.problems import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The software that a GPU needs.

    Attributes:
        torch_build: the build of PyTorch with code for it, as in the address of its package index.
        cuda: the CUDA version of that build.
        driver_branch: the oldest branch of NVIDIA's driver that works with this CUDA. GKE and Ubuntu choose one that
            supports the GPU.
        gke_driver: the value of GKE's `gpu-driver-version` that is recent enough.
    """

    torch_build: str
    cuda: str
    driver_branch: int
    gke_driver: str


CUDA_12 = Software(torch_build="cu126", cuda="12.6", driver_branch=525, gke_driver="default")
CUDA_13 = Software(torch_build="cu130", cuda="13.0", driver_branch=580, gke_driver="latest")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    software: Software | None
    instead: str | None = None

    def machine_type(self, count: int) -> str:
        """Return the machine type with this number of GPUs.

        Raises:
            MisuseError: no machine type has it.
        """
        if count not in self.machine_types:
            raise MisuseError(f"a node has {_list_names(map(str, self.machine_types))} of {self.name}, not {count}")
        return self.machine_types[count]


def _n1(*counts: int) -> Mapping[int, str]:
    return {count: f"n1-standard-{4 * count}" for count in counts}


# By generation. Without GB200: its processors are Arm, and its machines need networks of their own.
ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator(
        name="nvidia-tesla-k80",
        machine_types=_n1(1, 2, 4, 8),
        quota="NVIDIA_K80_GPUS",
        software=None,
        instead="nvidia-tesla-t4",
    ),
    Accelerator(name="nvidia-tesla-p4", machine_types=_n1(1, 2, 4), quota="NVIDIA_P4_GPUS", software=CUDA_12),
    Accelerator(name="nvidia-tesla-p100", machine_types=_n1(1, 2, 4), quota="NVIDIA_P100_GPUS", software=CUDA_12),
    Accelerator(name="nvidia-tesla-v100", machine_types=_n1(1, 2, 4, 8), quota="NVIDIA_V100_GPUS", software=CUDA_12),
    Accelerator(name="nvidia-tesla-t4", machine_types=_n1(1, 2, 4), quota="NVIDIA_T4_GPUS", software=CUDA_12),
    Accelerator(
        name="nvidia-l4",
        machine_types={1: "g2-standard-4", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"},
        quota="NVIDIA_L4_GPUS",
        software=CUDA_12,
    ),
    Accelerator(
        name="nvidia-tesla-a100",
        machine_types={
            1: "a2-highgpu-1g",
            2: "a2-highgpu-2g",
            4: "a2-highgpu-4g",
            8: "a2-highgpu-8g",
            16: "a2-megagpu-16g",
        },
        quota="NVIDIA_A100_GPUS",
        software=CUDA_12,
    ),
    Accelerator(
        name="nvidia-a100-80gb",
        machine_types={1: "a2-ultragpu-1g", 2: "a2-ultragpu-2g", 4: "a2-ultragpu-4g", 8: "a2-ultragpu-8g"},
        quota="NVIDIA_A100_80GB_GPUS",
        software=CUDA_12,
    ),
    Accelerator(
        name="nvidia-h100-80gb",
        machine_types={1: "a3-highgpu-1g", 2: "a3-highgpu-2g", 4: "a3-highgpu-4g", 8: "a3-highgpu-8g"},
        quota="NVIDIA_H100_GPUS",
        software=CUDA_12,
    ),
    Accelerator(name="nvidia-h100-mega-80gb", machine_types={8: "a3-megagpu-8g"}, quota=None, software=CUDA_12),
    Accelerator(name="nvidia-h200-141gb", machine_types={8: "a3-ultragpu-8g"}, quota=None, software=CUDA_12),
    Accelerator(name="nvidia-b200", machine_types={8: "a4-highgpu-8g"}, quota=None, software=CUDA_13),
    Accelerator(
        name="nvidia-rtx-pro-6000",
        machine_types={1: "g4-standard-48", 2: "g4-standard-96", 4: "g4-standard-192", 8: "g4-standard-384"},
        quota=None,
        software=CUDA_13,
    ),
)


def find_accelerator(name: str) -> Accelerator:
    """Return the GPU with this name.

    Raises:
        MisuseError: no GPU has this name, or it is retired.
    """
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
