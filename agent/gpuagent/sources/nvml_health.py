"""Signs of wear that change rarely: memory that was replaced by spare memory, and each GPU's link to its node.

`nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT` and `nvidia-smi -q` (GPU Link Info) show the same.
"""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Ask, Gpus, Questions, Values
from gpuagent.sources.support.nvml_api import Nvml
from gpuagent_common.keys import key

# nvmlPageRetirementCause_t
_AFTER_SINGLE_BIT_ERRORS, _AFTER_DOUBLE_BIT_ERROR = 0, 1


def _remapped_rows(nvml: Nvml, uuid: str) -> Values:
    correctable, uncorrectable, pending, failed = nvml.ask("nvmlDeviceGetRemappedRows", uuid)
    return {
        "remapped_rows_correctable": correctable,
        "remapped_rows_uncorrectable": uncorrectable,
        "memory_repair_pending": pending,
        "memory_repair_failed": failed,
    }


def _retired_pages(nvml: Nvml, uuid: str) -> Values:
    """Before Ampere: pages are taken out of use, not replaced."""
    pages = [
        len(nvml.ask("nvmlDeviceGetRetiredPages", uuid, cause))
        for cause in (_AFTER_SINGLE_BIT_ERRORS, _AFTER_DOUBLE_BIT_ERROR)
    ]
    pending = nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", uuid)
    return {"retired_pages": sum(pages), "memory_repair_pending": pending}


def _pcie_generation(nvml: Nvml, uuid: str) -> Values:
    return {"pcie_generation": nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", uuid)}


def _pcie_width(nvml: Nvml, uuid: str) -> Values:
    return {"pcie_width": nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", uuid)}


QUESTIONS: tuple[tuple[Ask, ...], ...] = ((_remapped_rows, _retired_pages), (_pcie_generation,), (_pcie_width,))


class NvmlHealth:
    """Repairs of each GPU's memory, and its PCIe link."""

    name = "nvml_health"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml)
        self._questions: dict[str, Questions] = {}

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each GPU that tells something."""
        return self._gpus.read(self._read_gpu, now)

    def _read_gpu(self, nvml: Nvml, uuid: str) -> Iterable[Reading]:
        # As in `nvml`: a GPU that was lost is asked everything anew.
        questions = self._questions.pop(uuid, None) or Questions(QUESTIONS)
        values = questions.ask(nvml, uuid)
        self._questions[uuid] = questions
        if not values:
            return ()
        device_id = key(uuid)
        return [Reading(table="gpu_health_samples", key=device_id, values={"device_id": device_id, **values})]

    def close(self) -> None:
        """End the session with NVML."""
        self._gpus.close()
