"""NVIDIA's driver as a source: utilisation, clocks, power, energy, repairs and errors of each GPU."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gpuagent.clock import Instant
from gpuagent.errors import SourceError
from gpuagent.sources.host import memory_values, read_memory
from gpuagent.sources.source import ActiveRuns, Lane, Reading, SourceContext, Value
from gpuagent.sources.support.gpus import (
    Chains,
    GpuSource,
    Question,
    Questions,
    Values,
    ask_one,
    device_rows,
    gpus_and_instances,
)
from gpuagent.sources.support.nvml_api import GPU_IS_LOST, NOT_SUPPORTED, Nvml, NvmlError, NvmlLostError, is_instance
from gpuagent_common.keys import key

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

# Of each reading; QUESTIONS are those of each look, once a second.
_OFTEN: Chains = (
    (Question(("nvmlDeviceGetUtilizationRates", ()), _utilization),),
    _MEMORY,
    (
        Question(("nvmlDeviceGetFieldValues", (_FIELD_POWER_INSTANT,)), _power_instant),
        Question(("nvmlDeviceGetFieldValues", (_FIELD_POWER_AVERAGE,)), _power_average),
        _power_usage,
    ),
    (ask_one("temperature_celsius", "nvmlDeviceGetTemperature", _TEMPERATURE_GPU, convert=float),),
    (ask_one("sm_clock_mhz", "nvmlDeviceGetClockInfo", _CLOCK_SM, convert=float),),
    (
        ask_one("throttle_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
        # The name of the same before driver 535.
        ask_one("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
)

QUESTIONS: Chains = (
    *_OFTEN,
    (ask_one("memory_clock_mhz", "nvmlDeviceGetClockInfo", _CLOCK_MEMORY, convert=float),),
    (ask_one("ecc_errors_uncorrected", "nvmlDeviceGetTotalEccErrors", _ECC_UNCORRECTED, _ECC_SINCE_LOADED),),
)

# NVML's figures of a MIG instance. Power, temperature and clocks are its GPU's, and utilisation is not counted.
INSTANCE_QUESTIONS: Chains = (_MEMORY,)


def shares_memory(nvml: Nvml, uuid: str, machine: str) -> bool:
    """Return whether a GPU has the node's memory instead of its own, as in GB10 (DGX Spark), Thor and Orin.

    NVML then reports no memory, and only Arm processors are known to share theirs.
    """
    if machine != "aarch64":
        return False
    try:
        # A GPU that is gone may support nothing, not even this.
        nvml.ask("nvmlDeviceGetName", uuid)
    except NvmlError:
        return False
    try:
        nvml.ask("nvmlDeviceGetMemoryInfo", uuid)
    except NvmlError as error:
        return error.code == NOT_SUPPORTED
    return False


def _shared_memory(context: SourceContext, nvml: Nvml, uuid: str) -> Values:
    """Return the memory of the node where the GPU shares it."""
    if not shares_memory(nvml, uuid, context.machine):
        return {}
    memory = memory_values(read_memory(context.proc, context.sys))
    return {column: memory[column] for column in ("memory_used_bytes", "memory_total_bytes")}


class NvmlGpu(GpuSource):
    """Utilisation, memory, power, temperature, clocks and ECC errors of each GPU, and the memory of MIG instances.

    Each GPU's cheap figures, 1 to 4 µs a call. `nvidia-smi -q` shows the same.

    An idle GPU is read once a second, and so are the memory clock and the ECC errors of every GPU.

    It also records in the active runs when a GPU is lost, and when it is back.
    """

    name = "nvml"
    lane = Lane.FAST
    # An H200's driver renews utilisation every 200 ms, power, temperature and clocks every 100 ms, memory at once.
    max_rate_hz = 50.0
    list_uuids = staticmethod(gpus_and_instances)

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        # Each with what a GPU supports: of a look, and of a reading between two.
        self._questions = {True: Questions(), False: Questions()}
        memory = (*_MEMORY, partial(_shared_memory, context))
        self._chains = {
            is_look: tuple(memory if chain is _MEMORY else chain for chain in chains)
            for is_look, chains in ((True, QUESTIONS), (False, _OFTEN))
        }
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
        chains = INSTANCE_QUESTIONS if is_instance(uuid) else self._chains[is_look]
        readings = self._questions[is_look].read(nvml, uuid, chains)
        if readings:
            self._answered.add(uuid)
            self._activity.note_busy(uuid, readings[0].values.get("utilization_percent"), now)
            if is_look:
                self._activity.look(uuid, readings[0].values, now)
        elif uuid in self._answered:
            # Drivers do not always call a device "lost" that is gone, such as a MIG instance that was destroyed.
            for questions in self._questions.values():
                questions.forget(uuid)
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


_TOTAL_POWER_SAMPLES = 0
_SINCE_EVER = 0
# NVML's code for: nothing new.
_NOT_FOUND = 6
_DAY_MICROS = 86_400_000_000
# The driver of an H200 (580.159.04) moves the time stamp of a reading by up to 0.14 ms from one question to the next.
# Readings are 10 ms or more apart.
_SAME_MILLIS = (0, -1, 1)


class NvmlPower(GpuSource):
    """Every power reading of the driver since the last time; it holds those of about 2.4 s.

    Each GPU's power at the driver's own pace, 20 ms on recent GPUs, from the buffer in which the driver keeps it.

    Polling that often would cost more than fifty times as much, and still miss readings.

    An idle GPU's are not read. Those before the first sign of work are still held when it is found.
    """

    name = "nvml_power"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._activity = context.activity
        # Of each GPU, what its buffer held last time: (millisecond, milliwatts), and the milliseconds beside it.
        self._seen: dict[str, frozenset[tuple[int, int]]] = {}

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        if self._activity.is_idle(uuid):
            return
        held = _read_buffer(nvml, uuid)
        seen = self._seen.get(uuid, frozenset())
        new = [one for one in held if (one[0] // 1000, one[1]) not in seen]
        if not new:
            return
        shown = [(micros // 1000, milliwatts) for micros, milliwatts in held]
        self._seen[uuid] = frozenset(
            (millis + near, milliwatts) for near in _SAME_MILLIS for millis, milliwatts in shown
        )
        newest_micros = new[-1][0]
        shift_nano = epoch_shift_nano(newest_micros, now)
        device_id = key(uuid)
        for micros, milliwatts in new:
            if abs(newest_micros - micros) > _DAY_MICROS:
                continue  # the buffer holds seconds: a slot that was never filled
            values = {"time": micros * 1000 + shift_nano, "device_id": device_id, "power_watts": milliwatts / 1000}
            yield Reading(table="power_samples", key=f"{uuid}/{micros}", values=values)


def _read_buffer(nvml: Nvml, uuid: str) -> Sequence[tuple[int, int]]:
    """Return (time stamp in microseconds, milliwatts) of all samples that the driver holds.

    A question for only newer samples would get nothing while a clock that was set back catches up.
    """
    try:
        samples: Sequence[tuple[int, int]] = nvml.ask("nvmlDeviceGetSamples", uuid, _TOTAL_POWER_SAMPLES, _SINCE_EVER)
    except NvmlError as error:
        if error.code != _NOT_FOUND:
            raise
        return ()
    return samples


def epoch_shift_nano(newest_micros: int, now: Instant) -> int:
    """Return the difference that turns the driver's time stamps into Unix nanoseconds.

    The driver of an H200 (580.159.04) counts from the Unix epoch. NVML does not promise that; a clock that is more
    than a day off is assumed to count from the boot, as the driver's other clocks do.
    """
    if abs(newest_micros - now.unix_nano // 1000) < _DAY_MICROS:
        return 0
    return now.unix_nano - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class NvmlEnergy(GpuSource):
    """Energy since the driver was loaded, of GPUs from Volta on.

    Each GPU's energy counter. `nvidia-smi` has no name for it; DCGM calls it DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION.
    """

    name = "nvml_energy"
    lane = Lane.SLOW
    # One call takes 3 to 4 ms of CPU time on an H200: every 10 s that is 0.04 % of a core for each GPU.
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._holders = context.holders

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        self._holders.renew_energy = partial(self._renew, nvml)
        return device_rows(uuid, {"energy_joules": self._ask(nvml, uuid)})

    def _ask(self, nvml: Nvml, uuid: str) -> float:
        joules: float = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", uuid) / 1000
        self._holders.energy_joules[uuid] = joules
        return joules

    def _renew(self, nvml: Nvml, uuid: str) -> None:
        with suppress(NvmlError):
            self._ask(nvml, uuid)


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


HEALTH_QUESTIONS: Chains = (
    (_remapped_rows, _retired_pages),
    (ask_one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),),
    (ask_one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),),
)


class NvmlHealth(GpuSource):
    """Repairs of each GPU's memory, and its PCIe link.

    Signs of wear that change rarely: memory that was replaced by spare memory, and each GPU's link to its node.

    `nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT` and `nvidia-smi -q` (GPU Link Info) show the same.
    """

    name = "nvml_health"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._questions = Questions()

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        return self._questions.read(nvml, uuid, HEALTH_QUESTIONS, "gpu_health_samples")


# nvmlEventTypeXidCriticalError
XID = 8

# The names of the most frequent errors in NVIDIA's catalogue of Xid errors.
WORDS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "double bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "page retirement or row remapping recorded",
    64: "page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
}


class NvmlEvents(GpuSource):
    """Each Xid error of a GPU since the agent listens, at the time of the reading that found it.

    Xid errors, as the driver reports them. `dmesg | grep Xid` shows the same, where it may be read.
    """

    name = "nvml_events"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        for position, (_, xid) in enumerate(nvml.events(uuid, XID)):
            values: dict[str, Value] = {"device_id": key(uuid), "event": "xid", "number": xid, "words": WORDS.get(xid)}
            yield Reading(table="gpu_events", key=f"{uuid}/{position}", values=values)
