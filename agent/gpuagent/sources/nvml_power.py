"""Each GPU's power at the driver's own pace, 20 ms on recent GPUs, from the buffer in which the driver keeps it.

Polling that often would cost more than fifty times as much, and still miss readings.
"""

import time
from collections.abc import Iterable, Sequence

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import GpuSource
from gpuagent.sources.support.nvml_api import Nvml, NvmlError
from gpuagent_common.keys import key

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

    An idle GPU's are not read. Those before the first sign of work are still held when it is found.
    """

    name = "nvml_power"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._activity = context.activity
        # Of each GPU, what its buffer held last time: (millisecond, milliwatts).
        self._seen: dict[str, frozenset[tuple[int, int]]] = {}

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        if self._activity.is_idle(uuid):
            return
        held = _read_buffer(nvml, uuid)
        seen = self._seen.get(uuid, frozenset())
        new = [
            (micros, milliwatts)
            for micros, milliwatts in held
            if not any((micros // 1000 + near, milliwatts) in seen for near in _SAME_MILLIS)
        ]
        if not new:
            return
        self._seen[uuid] = frozenset((micros // 1000, milliwatts) for micros, milliwatts in held)
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
