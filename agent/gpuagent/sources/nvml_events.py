"""Xid errors, as the driver tells of them. `dmesg | grep Xid` shows the same, where it may be read."""

from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Gpus
from gpuagent.sources.support.nvml_api import Nvml
from gpuagent_common.keys import key

# nvmlEventTypeXidCriticalError
XID = 8

# What NVIDIA's catalogue of Xid errors calls those that are met most.
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


class NvmlEvents:
    """Each Xid error of a GPU since the agent listens, at the time of the look that found it."""

    name = "nvml_events"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each error."""
        return self._gpus.read(self._read_gpu, now)

    def _read_gpu(self, nvml: Nvml, uuid: str) -> Iterable[Reading]:
        return [_row(uuid, position, number) for position, (_, number) in enumerate(nvml.events(uuid, XID))]

    def close(self) -> None:
        """Stop listening, and end the session with NVML."""
        self._gpus.close()


def _row(uuid: str, position: int, xid: int) -> Reading:
    return Reading(
        table="gpu_events",
        key=f"{uuid}/{position}",
        values={"device_id": key(uuid), "event": "xid", "number": xid, "words": WORDS.get(xid)},
    )
