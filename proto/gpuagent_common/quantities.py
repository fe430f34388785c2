"""The sampled quantities that are shown, each declared once: a column of a table of samples, and where it is seen.

Figures of runs, curves, tracks of traces, live lists, Prometheus' series and checks of readings follow from these
lines, in their order. A column that is stored and queried only needs none.
"""

from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import NamedTuple


class Live(NamedTuple):
    """A column of live lists: its head, its rank (lower ones are given room first) and its width in characters."""

    head: str
    rank: int
    width: int


class How(Flag):
    """Ways to make and show a run's figure; without any, it is the mean of the measured phase, with a curve."""

    USUAL = 0
    # The highest reading; less is better.
    PEAK = auto()
    # The figure has a direction.
    LESS_IS_BETTER = auto()
    # Only with --all, without a curve.
    DETAIL = auto()
    # Its curve is among the few that a terminal shows at once.
    BRIEF = auto()


class Quantity(NamedTuple):
    """A column of a table of samples; its name ends with its unit.

    Attributes:
        figure: name of a run's figure, which also has a curve and a track; empty: none.
        live: its column in the lists of `watch`; None: none.
        series: help of its series in Prometheus; empty: none.
        series_name: after `gpuagent_gpu_` or `gpuagent_node_`; empty: the column, with Prometheus' unit.
        part_of: the column of the same row that it is a part of, and so cannot exceed; empty: none.
    """

    column: str
    title: str = ""
    figure: str = ""
    how: How = How.USUAL
    live: Live | None = None
    series: str = ""
    series_name: str = ""
    part_of: str = ""

    @property
    def unit(self) -> str:
        """The unit of figures, in words; '' is a plain number."""
        return next((unit for ending, unit in _UNITS.items() if self.column.endswith(ending)), "")

    @property
    def has_curve(self) -> bool:
        """True if its course in a run is drawn."""
        return bool(self.figure) and How.DETAIL not in self.how


_UNITS = {
    "_percent": "percent",
    "_bytes": "bytes",
    "_per_second": "bytes/s",
    "_watts": "watts",
    "_joules": "joules",
    "_celsius": "celsius",
    "_mhz": "megahertz",
    "_cores": "cores",
    "_seconds": "seconds",
}


# How a run's figures are made, in short.
_PEAK, _LESS, _DETAIL, _BRIEF = How.PEAK, How.LESS_IS_BETTER, How.DETAIL, How.BRIEF


# By table, in the order in which they are shown.
# fmt: off
QUANTITIES: Mapping[str, Sequence[Quantity]] = {
    "host_samples": (
        Quantity("cpu_percent", "Node CPU", "cpu_percent", _BRIEF, Live("CPU", 3, 5),
                 "Share of all logical CPUs' time that was not idle", "cpu_utilization_ratio"),
        Quantity("cpu_user_percent", "Node CPU in programs", "cpu_user_percent"),
        Quantity("cpu_system_percent", "Node CPU in the kernel", "cpu_system_percent"),
        Quantity("cpu_iowait_percent", "Node CPU waiting for disks", "cpu_iowait_percent"),
        Quantity("cpu_power_watts", series="Power of all processors, where the node shows it"),
        Quantity("load_1m", live=Live("load", 11, 6), series="Load average over a minute", series_name="load1"),
        Quantity("memory_used_bytes", "Node memory used", "memory_used_bytes", _BRIEF, Live("memory", 6, 12),
                 "Memory in use: total less available", part_of="memory_total_bytes"),
        Quantity("memory_total_bytes", series="The node's memory", series_name="memory_size_bytes"),
        Quantity("disk_read_bytes_per_second", series="Read from whole disks"),
        Quantity("disk_write_bytes_per_second", series="Written to whole disks"),
        Quantity("network_receive_bytes_per_second", series="Received on all interfaces but loopback"),
        Quantity("network_send_bytes_per_second", series="Sent on all interfaces but loopback"),
        Quantity("memory_available_bytes", part_of="memory_total_bytes"),
        Quantity("memory_anonymous_bytes", part_of="memory_total_bytes"),
        Quantity("memory_cached_bytes", part_of="memory_total_bytes"),
        Quantity("swap_used_bytes", part_of="swap_total_bytes"),
    ),
    "process_samples": (
        Quantity("cpu_cores", "Run's own CPU", "process_cpu_cores"),
        Quantity("anonymous_bytes", "Run's own memory", "process_anonymous_peak_bytes", _PEAK),
        Quantity("pss_bytes", "Run's PSS", "process_pss_peak_bytes", _PEAK | _DETAIL),
        Quantity("rss_bytes", "Run's RSS", "process_rss_peak_bytes", _PEAK | _DETAIL),
    ),
    "cgroup_samples": (
        Quantity("memory_used_bytes", "Control group's memory", "cgroup_memory_peak_bytes", _PEAK),
        Quantity("memory_anonymous_bytes", "Control group's own memory", "cgroup_anonymous_peak_bytes",
                 _PEAK | _DETAIL),
    ),
    "gpu_samples": (
        Quantity("utilization_percent", "GPU utilisation", "gpu_utilization_percent", _BRIEF, Live("GPU", 2, 5),
                 "Share of time in which any kernel ran; says nothing of how much of the GPU it used"),
        Quantity("sm_active_percent", "SMs active", "sm_active_percent", live=Live("SM", 3, 5),
                 series="Multiprocessors with work, share of time; where GPM or DCGM reports it"),
        Quantity("tensor_active_percent", "Tensor pipes active", "tensor_active_percent", live=Live("tensor", 10, 6),
                 series="Tensor pipes busy, share of time; where GPM or DCGM reports it"),
        Quantity("fp32_active_percent", "FP32 pipes active", "fp32_active_percent", _DETAIL),
        Quantity("memory_utilization_percent", "GPU memory busy", "gpu_memory_utilization_percent"),
        Quantity("dram_active_percent", "Device memory bandwidth", "dram_active_percent", live=Live("DRAM", 11, 5),
                 series="Memory bandwidth, share of its peak; where GPM or DCGM reports it"),
        Quantity("memory_used_bytes", "GPU memory", "gpu_memory_used_bytes", _PEAK | _BRIEF, Live("memory", 4, 11),
                 "Device memory in use, the driver's own share apart", part_of="memory_total_bytes"),
        Quantity("power_watts", "Power, each GPU", "gpu_power_watts", _LESS, Live("power", 5, 6),
                 "Power of the whole board"),
        Quantity("temperature_celsius", "GPU temperature", "gpu_temperature_celsius", _LESS, Live("temp", 6, 6),
                 "Temperature of the GPU's core"),
        Quantity("sm_clock_mhz", "SM clock", "sm_clock_mhz", live=Live("clock", 12, 9), series="SM clock"),
        Quantity("process_count", live=Live("procs", 13, 5), series_name="processes",
                 series="Compute processes on the GPU, everybody's, where all can be seen"),
        Quantity("energy_joules", series="Energy since the driver was loaded, read every 10 s; Volta and newer"),
        Quantity("pcie_send_bytes_per_second", series="From the GPU over PCIe; where GPM or DCGM reports it"),
        Quantity("pcie_receive_bytes_per_second", series="To the GPU over PCIe; where GPM or DCGM reports it"),
        Quantity("nvlink_send_bytes_per_second", series="From the GPU over NVLink; where GPM or DCGM reports it"),
        Quantity("nvlink_receive_bytes_per_second", series="To the GPU over NVLink; where GPM or DCGM reports it"),
        Quantity("memory_reserved_bytes", part_of="memory_total_bytes"),
    ),
}
# fmt: on
