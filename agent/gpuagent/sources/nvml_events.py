"""Xid errors, as the driver reports them. `dmesg | grep Xid` shows the same, where it may be read."""

from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, Value
from gpuagent.sources.support.gpus import GpuSource
from gpuagent.sources.support.nvml_api import Nvml
from gpuagent_common.keys import key

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
    """Each Xid error of a GPU since the agent listens, at the time of the reading that found it."""

    name = "nvml_events"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        for position, (_, xid) in enumerate(nvml.events(uuid, XID)):
            values: dict[str, Value] = {"device_id": key(uuid), "event": "xid", "number": xid, "words": WORDS.get(xid)}
            yield Reading(table="gpu_events", key=f"{uuid}/{position}", values=values)
