"""Each GPU's energy counter. `nvidia-smi` has no name for it; DCGM calls it DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION."""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Gpus
from gpuagent.sources.support.nvml_api import Nvml
from gpuagent_common.keys import key


class NvmlEnergy:
    """Energy since the driver was loaded, of GPUs from Volta on."""

    name = "nvml_energy"
    lane = Lane.SLOW
    # One call takes 3 to 4 ms of CPU time on an H200: every 10 s that is 0.04 % of a core for each GPU.
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each GPU that counts."""
        return self._gpus.read(self._read_gpu, now)

    def _read_gpu(self, nvml: Nvml, uuid: str) -> Iterable[Reading]:
        millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid)
        device_id = key(uuid)
        values = {"device_id": device_id, "energy_joules": millijoules / 1000}
        return [Reading(table="gpu_samples", key=device_id, values=values)]

    def close(self) -> None:
        """End the session with NVML."""
        self._gpus.close()
