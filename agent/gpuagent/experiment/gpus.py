"""What an experiment needs to know of the node's GPUs: are they free, are they cool, what energy do they use."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from gpuagent.experiment.file import CoolDown
from gpuagent.sources.nvml_processes import running_processes
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, OpenNvml, open_nvml

_TEMPERATURE_GPU = 0
_POLL_SECONDS = 1.0


class NodeGpus:
    """The GPUs of this node, none where no driver answers. Every question has an answer without them."""

    def __init__(self, open_session: OpenNvml = open_nvml) -> None:
        self._open = open_session
        self._start_celsius = self.temperatures()

    def temperatures(self) -> Mapping[str, float]:
        """Return the temperature of each GPU in °C, by UUID."""
        return dict(self._ask(lambda nvml, uuid: float(nvml.ask("nvmlDeviceGetTemperature", uuid, _TEMPERATURE_GPU))))

    def joules(self) -> float | None:
        """Return what the energy counters of all GPUs show; None: not every GPU has one."""
        counts = dict(self._ask(lambda nvml, uuid: float(nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid)) / 1000))
        return sum(counts.values()) if counts and len(counts) == len(self.temperatures()) else None

    def occupants(self) -> list[str]:
        """Return, in words, which GPUs other processes compute on."""
        counts = dict(self._ask(lambda nvml, uuid: float(len(running_processes(nvml, uuid)))))
        return [f"{uuid} has {count:.0f} compute processes already" for uuid, count in counts.items() if count]

    def cool_down(self, wanted: CoolDown, sleep: Callable[[float], None] = time.sleep) -> float:
        """Wait as the experiment wants it; return for how many seconds."""
        sleep(wanted.seconds)
        waited = wanted.seconds
        while waited < wanted.limit_seconds and self._too_warm(wanted.celsius_above_start):
            sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        return waited

    def _too_warm(self, above: float | None) -> bool:
        if above is None:
            return False
        return any(
            celsius > self._start_celsius.get(uuid, celsius) + above for uuid, celsius in self.temperatures().items()
        )

    def _ask(self, question: Callable[[Nvml, str], float]) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(NvmlError), contextlib.closing(self._open()) as nvml:
            for uuid in nvml.devices():
                with contextlib.suppress(NvmlError):
                    yield uuid, question(nvml, uuid)
