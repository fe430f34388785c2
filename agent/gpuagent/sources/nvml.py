"""Each GPU's cheap figures, 1 to 4 µs a call. `nvidia-smi -q` shows the same."""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.errors import SourceError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Ask, Gpus, Questions, Values, gpus_and_instances
from gpuagent.sources.support.losses import Losses
from gpuagent.sources.support.nvml_api import GPU_IS_LOST, Nvml, NvmlError, NvmlLostError, is_instance
from gpuagent_common.keys import key

_MEMORY_INFO_V2 = 0x02000028
_TEMPERATURE_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_ECC_UNCORRECTED, _ECC_SINCE_LOADED = 1, 0
_FIELD_POWER_AVERAGE, _FIELD_POWER_INSTANT = 185, 186

# The compute capability of A100 and A30, the first Ampere: from the next on, power usage is an average.
_GA100 = [8, 0]


def _utilization(nvml: Nvml, uuid: str) -> Values:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", uuid)
    return {
        "utilization_percent": float(rates["gpu"]),
        "memory_utilization_percent": float(rates["memory"]),
    }


def _memory_v2(nvml: Nvml, uuid: str) -> Values:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", uuid, _MEMORY_INFO_V2)
    return {
        "memory_used_bytes": memory["used"],
        "memory_reserved_bytes": memory["reserved"],
        "memory_total_bytes": memory["total"],
    }


def _memory_v1(nvml: Nvml, uuid: str) -> Values:
    """Old drivers: what they use themselves is part of `used`."""
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", uuid)
    return {"memory_used_bytes": memory["used"], "memory_total_bytes": memory["total"]}


def _power_instant(nvml: Nvml, uuid: str) -> Values:
    milliwatts = nvml.ask("nvmlDeviceGetFieldValues", uuid, _FIELD_POWER_INSTANT)
    return {"power_watts": milliwatts / 1000, "power_kind": "instant"}


def _power_average(nvml: Nvml, uuid: str) -> Values:
    milliwatts = nvml.ask("nvmlDeviceGetFieldValues", uuid, _FIELD_POWER_AVERAGE)
    return {"power_watts": milliwatts / 1000, "power_kind": "average_1s"}


def _power_usage(nvml: Nvml, uuid: str) -> Values:
    """Old drivers: what it is depends on the GPU, as nvml.h says of nvmlDeviceGetPowerUsage."""
    watts = nvml.ask("nvmlDeviceGetPowerUsage", uuid) / 1000
    try:
        capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", uuid)
    except NvmlError:
        return {"power_watts": watts}
    return {"power_watts": watts, "power_kind": "average_1s" if capability > _GA100 else "instant"}


def _temperature(nvml: Nvml, uuid: str) -> Values:
    return {"temperature_celsius": float(nvml.ask("nvmlDeviceGetTemperature", uuid, _TEMPERATURE_GPU))}


def _sm_clock(nvml: Nvml, uuid: str) -> Values:
    return {"sm_clock_mhz": float(nvml.ask("nvmlDeviceGetClockInfo", uuid, _CLOCK_SM))}


def _memory_clock(nvml: Nvml, uuid: str) -> Values:
    return {"memory_clock_mhz": float(nvml.ask("nvmlDeviceGetClockInfo", uuid, _CLOCK_MEMORY))}


def _clock_event_reasons(nvml: Nvml, uuid: str) -> Values:
    return {"throttle_reasons": nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", uuid)}


def _clock_throttle_reasons(nvml: Nvml, uuid: str) -> Values:
    """The same under the name that drivers before 535 know."""
    return {"throttle_reasons": nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", uuid)}


def _ecc(nvml: Nvml, uuid: str) -> Values:
    errors = nvml.ask("nvmlDeviceGetTotalEccErrors", uuid, _ECC_UNCORRECTED, _ECC_SINCE_LOADED)
    return {"ecc_errors_uncorrected": errors}


QUESTIONS: tuple[tuple[Ask, ...], ...] = (
    (_utilization,),
    (_memory_v2, _memory_v1),
    (_power_instant, _power_average, _power_usage),
    (_temperature,),
    (_sm_clock,),
    (_memory_clock,),
    (_clock_event_reasons, _clock_throttle_reasons),
    (_ecc,),
)

# What NVML knows of a MIG instance. Power, temperature and clocks are its GPU's, and utilisation nobody's.
INSTANCE_QUESTIONS: tuple[tuple[Ask, ...], ...] = ((_memory_v2, _memory_v1),)


class NvmlGpu:
    """Utilisation, memory, power, temperature, clocks and ECC errors of each GPU, and the memory of MIG instances.

    It also tells the active runs when a GPU is lost, and when it is back.
    """

    name = "nvml"
    lane = Lane.FAST
    # An H200's driver renews utilisation every 200 ms, power, temperature and clocks every 100 ms, memory at once.
    max_rate_hz = 50.0

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml, gpus_and_instances)
        self._questions: dict[str, Questions] = {}
        self._answered: set[str] = set()
        self._losses = Losses(context.runs)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each GPU and instance, and events of runs."""
        failure: SourceError | None = None
        try:
            yield from self._gpus.read(self._read_gpu, now)
        except SourceError as error:
            failure = error
        yield from self._losses.news(self._gpus.lost)
        if failure:
            raise failure

    def _read_gpu(self, nvml: Nvml, uuid: str) -> Iterable[Reading]:
        # A GPU that was lost is asked everything anew: "not supported" may have been part of its illness.
        questions = self._questions.pop(uuid, None) or Questions(INSTANCE_QUESTIONS if is_instance(uuid) else QUESTIONS)
        values = questions.ask(nvml, uuid)
        if not values and uuid in self._answered:
            # As of a MIG instance that was destroyed: what a driver says of what is not there is not always "lost".
            raise NvmlLostError(GPU_IS_LOST, "it supports nothing any more of what it answered")
        self._questions[uuid] = questions
        if not values:
            return ()
        self._answered.add(uuid)
        device_id = key(uuid)
        return [Reading(table="gpu_samples", key=device_id, values={"device_id": device_id, **values})]

    def close(self) -> None:
        """End the session with NVML."""
        self._gpus.close()
