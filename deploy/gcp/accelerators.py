"""The GPUs that Google Cloud offers or offered: machine types, quotas, and which software each one wants.

Where it is from, and the state it was read in:

- Names and machine types: https://cloud.google.com/compute/docs/gpus (2025), SkyPilot's `sky/catalog/gcp_catalog.py`
  (2026). N1 takes GPUs beside any of its types; four vCPUs a GPU here, as in g2-standard-4, to be alike.
- Quotas: the metrics that the Compute Engine API knows (`Quota.metric`, Google Cloud CLI 528.0.0). The H100 has one for
  Spot alone, and what is newer has none.
- Builds of PyTorch: "PyTorch CUDA Support Matrix" for 2.12 to 2.14 in PyTorch's RELEASE.md (2026): cu126 has code for
  compute capability 5.0 to 9.0, cu130 for 7.5 to 12.0. The older one is taken where it will do: it wants less of the
  driver.
- Drivers: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (2026).
- Retired: Google's Vertex AI reference (2026) says that the K80 "has reached end of support", and names
  https://cloud.google.com/compute/docs/eol/k80-eol. No such notice was found for others; which zones still have one is
  asked each time.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploy.kubernetes.problems import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What a GPU wants.

    Attributes:
        torch_build: the build of PyTorch that has code for it, as in the address of its package index.
        cuda: of that build.
        driver_branch: the oldest branch of NVIDIA's driver that this CUDA works with. Whether that branch knows the GPU
            is another question, which GKE and Ubuntu answer when they choose a driver.
        gke_driver: what GKE is asked to install (`gpu-driver-version`), so that it is recent enough.
    """

    torch_build: str
    cuda: str
    driver_branch: int
    gke_driver: str


CUDA_12 = Software(torch_build="cu126", cuda="12.6", driver_branch=525, gke_driver="default")
CUDA_13 = Software(torch_build="cu130", cuda="13.0", driver_branch=580, gke_driver="latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU as Google Cloud names it.

    Attributes:
        name: of `gcloud compute accelerator-types list`.
        machine_types: GPUs of a node → the smallest machine type that has or takes so many.
        quota: its metric in `gcloud compute regions list`; None: the API has none for it.
        software: what it wants; None: none of PyTorch's present builds has code for it.
        instead: what to use in its place, if Google has retired it.
    """

    name: str
    machine_types: Mapping[int, str]
    quota: str | None
    software: Software | None
    instead: str | None = None

    def machine_type(self, count: int) -> str:
        """Return the machine type with so many of them.

        Raises:
            MisuseError: there is none.
        """
        if count not in self.machine_types:
            raise MisuseError(f"a node has {_listed(map(str, self.machine_types))} of {self.name}, not {count}")
        return self.machine_types[count]


def _n1(*counts: int) -> Mapping[int, str]:
    return {count: f"n1-standard-{4 * count}" for count in counts}


# By generation. GB200 is left out: its processors are Arm, and its machines want networks of their own.
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
    """Return the GPU of that name.

    Raises:
        MisuseError: there is none, and what it may have meant; or it is retired, and what to use instead.
    """
    known = {accelerator.name: accelerator for accelerator in ACCELERATORS}
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, cutoff=0.4)
        offer = f"did you mean {_listed(close)}?" if close else f"there are {_listed(known)}"
        raise MisuseError(f"there is no accelerator {name!r}; {offer}")
    if known[name].instead:
        raise MisuseError(f"{name} is retired: Google Cloud has none any more; use {known[name].instead} instead")
    return known[name]


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
