"""Each GPU's cheap figures, 1 to 4 µs a call. `nvidia-smi -q` shows the same."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpuagent.clock import Instant
from gpuagent.errors import SourceError
from gpuagent.sources.source import ActiveRuns, Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import (
    Chains,
    GpuSource,
    Question,
    Questions,
    Values,
    ask_one,
    gpus_and_instances,
)
from gpuagent.sources.support.nvml_api import GPU_IS_LOST, Nvml, NvmlError, NvmlLostError, is_instance

_MEMORY_INFO_V2 = 0x02000028
_TEMPERATURE_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_ECC_UNCORRECTED, _ECC_SINCE_LOADED = 1, 0
_FIELD_POWER_AVERAGE, _FIELD_POWER_INSTANT = 185, 186

# The compute capability of A100 and A30, the first Ampere: from the next on, power usage is an average.
_GA100 = [8, 0]


def _utilization(rates: Any) -> Values:
    return {"utilization_percent": float(rates["gpu"]), "memory_utilization_percent": float(rates["memory"])}


def _memory_v2(memory: Any) -> Values:
    return {
        "memory_used_bytes": memory["used"],
        "memory_reserved_bytes": memory["reserved"],
        "memory_total_bytes": memory["total"],
    }


def _memory_v1(memory: Any) -> Values:
    """Return the memory as old drivers count it: their own is part of `used`."""
    return {"memory_used_bytes": memory["used"], "memory_total_bytes": memory["total"]}


def _power_instant(milliwatts: float) -> Values:
    return {"power_watts": milliwatts / 1000, "power_kind": "instant"}


def _power_average(milliwatts: float) -> Values:
    return {"power_watts": milliwatts / 1000, "power_kind": "average_1s"}


def _power_usage(nvml: Nvml, uuid: str) -> Values:
    """Return the power as old drivers report it; its kind depends on the GPU (nvml.h, nvmlDeviceGetPowerUsage)."""
    watts = nvml.ask("nvmlDeviceGetPowerUsage", uuid) / 1000
    try:
        capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", uuid)
    except NvmlError:
        return {"power_watts": watts}
    return {"power_watts": watts, "power_kind": "average_1s" if capability > _GA100 else "instant"}


_MEMORY = (
    Question(("nvmlDeviceGetMemoryInfo", (_MEMORY_INFO_V2,)), _memory_v2),
    Question(("nvmlDeviceGetMemoryInfo", ()), _memory_v1),
)

QUESTIONS: Chains = (
    (Question(("nvmlDeviceGetUtilizationRates", ()), _utilization),),
    _MEMORY,
    (
        Question(("nvmlDeviceGetFieldValues", (_FIELD_POWER_INSTANT,)), _power_instant),
        Question(("nvmlDeviceGetFieldValues", (_FIELD_POWER_AVERAGE,)), _power_average),
        _power_usage,
    ),
    (ask_one("temperature_celsius", "nvmlDeviceGetTemperature", _TEMPERATURE_GPU, convert=float),),
    (ask_one("sm_clock_mhz", "nvmlDeviceGetClockInfo", _CLOCK_SM, convert=float),),
    (ask_one("memory_clock_mhz", "nvmlDeviceGetClockInfo", _CLOCK_MEMORY, convert=float),),
    (
        ask_one("throttle_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
        # The name of the same before driver 535.
        ask_one("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    (ask_one("ecc_errors_uncorrected", "nvmlDeviceGetTotalEccErrors", _ECC_UNCORRECTED, _ECC_SINCE_LOADED),),
)

# NVML's figures of a MIG instance. Power, temperature and clocks are its GPU's, and utilisation is not counted.
INSTANCE_QUESTIONS: Chains = (_MEMORY,)


class NvmlGpu(GpuSource):
    """Utilisation, memory, power, temperature, clocks and ECC errors of each GPU, and the memory of MIG instances.

    An idle GPU is read once a second. It also records in the active runs when a GPU is lost, and when it is back.
    """

    name = "nvml"
    lane = Lane.FAST
    # An H200's driver renews utilisation every 200 ms, power, temperature and clocks every 100 ms, memory at once.
    max_rate_hz = 50.0
    list_uuids = staticmethod(gpus_and_instances)

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._questions = Questions()
        self._answered: set[str] = set()
        self._losses = Losses(context.runs)
        self._runs, self._activity = context.runs, context.activity
        self._rests_until_nano = 0

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return one row for each GPU and instance that is due, and events of runs."""
        if self._runs.is_busy:
            self._activity.note_runs()
        elif now.monotonic_nano < self._rests_until_nano:
            return ()
        return self._read(now)

    def _read(self, now: Instant) -> Iterable[Reading]:
        failure: SourceError | None = None
        try:
            yield from super().read(now)
        except SourceError as error:
            failure = error
        yield from self._losses.report(self._gpus.lost)
        # A rest would count as a reading that succeeded.
        self._rests_until_nano = 0 if failure else self._activity.rests_until_nano()
        if failure:
            raise failure

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        is_look = self._activity.is_look_due(uuid, now)
        if not is_look and self._activity.is_idle(uuid):
            return ()
        readings = self._questions.read(nvml, uuid, INSTANCE_QUESTIONS if is_instance(uuid) else QUESTIONS)
        if readings:
            self._answered.add(uuid)
            if is_look:
                self._activity.look(uuid, readings[0].values, now)
        elif uuid in self._answered:
            # Drivers do not always call a device "lost" that is gone, such as a MIG instance that was destroyed.
            self._questions.forget(uuid)
            raise NvmlLostError(GPU_IS_LOST, "it no longer supports any question that it answered before")
        return readings


class Losses:
    """Events of the active runs: one when a GPU of the node is lost, one when it is back.

    Every active run gets them, whether it uses the GPU or not: run_devices shows which did. A run that begins while a
    GPU is lost gets the event then.
    """

    def __init__(self, runs: ActiveRuns) -> None:
        self._runs = runs
        self._reported: set[tuple[str, str]] = set()

    def report(self, lost: Mapping[str, str]) -> list[Reading]:
        """Return the new events.

        Args:
            lost: UUID of each GPU that is lost now, and NVML's reason.
        """
        if not lost and not self._reported:
            return []
        active = {run_id for run_id, _ in self._runs.processes()}
        before, self._reported = self._reported, {(run_id, uuid) for run_id in active for uuid in lost}
        gone = [
            _event(run_id, "gpu_lost", uuid, json.dumps({"reason": lost[uuid]}))
            for run_id, uuid in sorted(self._reported - before)
        ]
        back = [
            _event(run_id, "gpu_found", uuid) for run_id, uuid in sorted(before - self._reported) if run_id in active
        ]
        return gone + back


def _event(run_id: str, event: str, uuid: str, detail: str | None = None) -> Reading:
    values = {"run_id": run_id, "event": event, "name": uuid, "detail": detail}
    return Reading(table="run_events", key=f"{run_id}/{event}/{uuid}", values=values)
