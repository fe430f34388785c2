"""The use of a GPU's parts by GPM: Hopper and newer, without DCGM. `dcgmi dmon` shows the same as DCGM_FI_PROF_….

`utilization_percent` shows only whether some kernel ran; these figures show how much of the GPU it used.
"""

from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import GpuSource, device_rows, parts
from gpuagent.sources.support.idle_gpus import SparingPace
from gpuagent.sources.support.nvml_api import Nvml

_MIB = 1 << 20

# Between two readings of an idle GPU.
_IDLE_NANO = 10_000_000_000

# Without 1, the graphics engine's activity: it takes 1.9 ms on an H200, any other 0.01 ms.
# GPM's number of each metric (nvmlGpmMetricId_t) → the column, and the factor from NVML's unit to the column's.
METRICS: Mapping[int, tuple[str, float]] = {
    2: ("sm_active_percent", 1),
    3: ("sm_occupancy_percent", 1),
    4: ("integer_active_percent", 1),
    5: ("tensor_active_percent", 1),
    6: ("tensor_fp64_active_percent", 1),
    7: ("tensor_half_active_percent", 1),
    9: ("tensor_integer_active_percent", 1),
    10: ("dram_active_percent", 1),
    11: ("fp64_active_percent", 1),
    12: ("fp32_active_percent", 1),
    13: ("fp16_active_percent", 1),
    20: ("pcie_send_bytes_per_second", _MIB),
    21: ("pcie_receive_bytes_per_second", _MIB),
    60: ("nvlink_receive_bytes_per_second", _MIB),
    61: ("nvlink_send_bytes_per_second", _MIB),
}


class NvmlGpm(GpuSource):
    """Activity of the SMs, pipes, memory and links of each GPU, over the time since the reading before.

    Each MIG instance of a divided GPU has its own; compute instances of one GPU instance have the same.
    """

    name = "nvml_gpm"
    lane = Lane.SLOW
    # A reading covers all the time since the one before, so nothing is missed; one takes 0.6 ms.
    max_rate_hz = 1.0
    list_uuids = staticmethod(parts)

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._activity = context.activity
        self._pace = SparingPace(context.activity, _IDLE_NANO)
        self._was_idle: dict[str, bool] = {}
        self._answered: dict[str, tuple[int, ...]] = {}

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        if not self._pace.is_due(uuid, now):
            return ()
        was_idle, is_idle = self._was_idle.get(uuid, False), self._activity.is_idle(uuid)
        self._was_idle[uuid] = is_idle
        wanted = self._answered.get(uuid, tuple(METRICS))
        figures = nvml.gpm(uuid, wanted, now.monotonic_nano) if wanted else None
        self._pace.note_read(uuid, now)
        if figures is None:
            return ()
        # A metric that this GPU lacks, such as NVLink, is never asked for again.
        self._answered[uuid] = tuple(metric for metric in wanted if metric in figures)
        if was_idle and not is_idle:
            return ()  # these figures are mostly of the time before the work began
        known = ((METRICS[metric], figure) for metric, figure in figures.items() if figure is not None)
        return device_rows(uuid, {column: figure * factor for (column, factor), figure in known})
