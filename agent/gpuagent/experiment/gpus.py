"""The state of the node's GPUs for an experiment: free or not, temperature, energy."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf

from gpuagent.experiment.file import CoolDown
from gpuagent.sources.nvml_processes import running_processes
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, OpenNvml, open_nvml
from gpuagent_common.text import counted

_TEMPERATURE_GPU = 0
_POLL_SECONDS = 1.0


class NodeGpus:
    """The GPUs of this node; none where no driver answers. Every method works without GPUs."""

    def __init__(self, open_session: OpenNvml = open_nvml) -> None:
        self._open = open_session
        self._start_celsius = self.temperatures()

    def temperatures(self) -> Mapping[str, float]:
        """Return the temperature of each GPU in °C, by UUID."""
        return dict(self._read(lambda nvml, uuid: float(nvml.ask("nvmlDeviceGetTemperature", uuid, _TEMPERATURE_GPU))))

    def joules(self) -> float | None:
        """Return the sum of all GPUs' energy counters; None: not every GPU has one."""
        counts = dict(
            self._read(lambda nvml, uuid: float(nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid)) / 1000)
        )
        return sum(counts.values()) if counts and len(counts) == len(self.temperatures()) else None

    def occupants(self, served: Collection[str] = ()) -> Iterator[str]:
        """Yield in words each GPU that other processes compute on, except `served`, the UUIDs of a server's GPUs."""
        for uuid, count in self._read(lambda nvml, uuid: float(len(running_processes(nvml, uuid)))):
            if count and uuid not in served:
                yield f"{uuid} is in use: {counted(int(count), 'program')}"

    def cool_down(
        self, wanted: CoolDown, report: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> float:
        """Wait as the experiment wants it, and `report` the reason; return the seconds waited."""
        if wanted.seconds:
            report(f"cools down for {wanted.seconds:g} s")
        sleep(wanted.seconds)
        waited = wanted.seconds
        while waited < wanted.limit_seconds and (excess := self._excess(wanted)):
            if waited == wanted.seconds:
                report(f"cools down: {excess}, for {wanted.limit_seconds - waited:g} s at most")
            sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        return waited

    def _excess(self, wanted: CoolDown) -> str | None:
        """Return in words how warm the GPU is that is furthest from cool enough; None: all are cool enough."""
        if wanted.celsius_above_start is None and wanted.celsius is None:
            return None
        most = inf if wanted.celsius is None else wanted.celsius
        above = inf if wanted.celsius_above_start is None else wanted.celsius_above_start
        now = self.temperatures()
        goals = {uuid: min(most, self._start_celsius.get(uuid, inf) + above) for uuid in now}
        warm = [(celsius - goals[uuid], uuid) for uuid, celsius in now.items() if celsius > goals[uuid]]
        if not warm:
            return None
        _, uuid = max(warm)
        return f"GPU {now[uuid]:.0f} °C, waits for {goals[uuid]:.0f} °C"

    def _read(self, reading: Callable[[Nvml, str], float]) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(NvmlError), contextlib.closing(self._open()) as nvml:
            for uuid in nvml.devices():
                with contextlib.suppress(NvmlError):
                    yield uuid, reading(nvml, uuid)
