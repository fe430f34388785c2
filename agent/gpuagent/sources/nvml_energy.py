"""Each GPU's energy counter. `nvidia-smi` has no name for it; DCGM calls it DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION."""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading
from gpuagent.sources.support.gpus import GpuSource, device_rows
from gpuagent.sources.support.nvml_api import Nvml


class NvmlEnergy(GpuSource):
    """Energy since the driver was loaded, of GPUs from Volta on."""

    name = "nvml_energy"
    lane = Lane.SLOW
    # One call takes 3 to 4 ms of CPU time on an H200: every 10 s that is 0.04 % of a core for each GPU.
    max_rate_hz = 0.1

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid)
        return device_rows(uuid, {"energy_joules": millijoules / 1000})
