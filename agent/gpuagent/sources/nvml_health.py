"""Signs of wear that change rarely: memory that was replaced by spare memory, and each GPU's link to its node.

`nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT` and `nvidia-smi -q` (GPU Link Info) show the same.
"""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Chains, GpuSource, Questions, Values, ask_one
from gpuagent.sources.support.nvml_api import Nvml

# nvmlPageRetirementCause_t: after several single bit errors, after a double bit error.
_CAUSES = (0, 1)


def _remapped_rows(nvml: Nvml, uuid: str) -> Values:
    correctable, uncorrectable, pending, failed = nvml.ask("nvmlDeviceGetRemappedRows", uuid)
    return {
        "remapped_rows_correctable": correctable,
        "remapped_rows_uncorrectable": uncorrectable,
        "memory_repair_pending": pending,
        "memory_repair_failed": failed,
    }


def _retired_pages(nvml: Nvml, uuid: str) -> Values:
    """Return the pages that a GPU before Ampere stopped using; it cannot replace them."""
    pages = sum(len(nvml.ask("nvmlDeviceGetRetiredPages", uuid, cause)) for cause in _CAUSES)
    pending = nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", uuid)
    return {"retired_pages": pages, "memory_repair_pending": pending}


QUESTIONS: Chains = (
    (_remapped_rows, _retired_pages),
    (ask_one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),),
    (ask_one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),),
)


class NvmlHealth(GpuSource):
    """Repairs of each GPU's memory, and its PCIe link."""

    name = "nvml_health"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._questions = Questions()

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        return self._questions.read(nvml, uuid, QUESTIONS, "gpu_health_samples")
