"""The metrics of nodes and GPUs, in Prometheus' base units: shares are ratios, clocks hertz."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric with one value for each node or GPU.

    Attributes:
        name: without the prefix `gpuagent_`; a counter's without `_total`.
        attribute: of NodeNow or GpuNow; None is no value.
        help: its meaning.
        convert: converts from the store's unit to the metric's.
        is_counter: True if it only grows, until the driver is loaded again.
    """

    name: str
    attribute: str
    help: str
    convert: Callable[[float], float] = float
    is_counter: bool = False


def _series(name: str, attribute: str, help_text: str, convert: Callable[[float], float] = float) -> Series:
    return Series(name=name, attribute=attribute, help=help_text, convert=convert)


def _ratio(percent: float) -> float:
    return percent / 100


def _hertz(megahertz: float) -> float:
    return megahertz * 1e6


_COUNTED = "where GPM or DCGM reports it"

NODE_SERIES: tuple[Series, ...] = (
    _series("node_silent", "is_silent", "1 if no sample came in the last 30 s and its agent has not ended, else 0"),
    _series("node_left", "has_left", "1 if its agent ended in good order, else 0"),
    _series("node_heard_age_seconds", "heard_age_seconds", "Time since something of the node was last committed"),
    _series("node_sample_age_seconds", "sample_age_seconds", "Age of the last sample, by the node's clock"),
    _series("node_clock_offset_seconds", "clock_offset_seconds", "The collector's clock less the node's"),
    _series("node_cpus", "cpu_threads", "Logical CPUs"),
    _series("node_cpu_utilization_ratio", "cpu_percent", "Share of all logical CPUs' time that was not idle", _ratio),
    _series("node_cpu_power_watts", "cpu_power_watts", "Power of all processors, where RAPL can be read"),
    _series("node_load1", "load_1m", "Load average over a minute"),
    _series("node_memory_used_bytes", "memory_used_bytes", "Memory in use: total less available"),
    _series("node_memory_size_bytes", "memory_total_bytes", "The node's memory"),
    _series("node_disk_read_bytes_per_second", "disk_read_bytes_per_second", "Read from whole disks"),
    _series("node_disk_write_bytes_per_second", "disk_write_bytes_per_second", "Written to whole disks"),
    _series(
        "node_network_receive_bytes_per_second",
        "network_receive_bytes_per_second",
        "Received on all interfaces but loopback",
    ),
    _series(
        "node_network_send_bytes_per_second", "network_send_bytes_per_second", "Sent on all interfaces but loopback"
    ),
)

GPU_SERIES: tuple[Series, ...] = (
    _series(
        "gpu_utilization_ratio",
        "utilization_percent",
        "Share of time in which any kernel ran; says nothing of how much of the GPU it used",
        _ratio,
    ),
    _series(
        "gpu_sm_active_ratio", "sm_active_percent", f"Multiprocessors with work, share of time; {_COUNTED}", _ratio
    ),
    _series(
        "gpu_tensor_active_ratio", "tensor_active_percent", f"Tensor pipes busy, share of time; {_COUNTED}", _ratio
    ),
    _series("gpu_dram_active_ratio", "dram_active_percent", f"Memory bandwidth, share of its peak; {_COUNTED}", _ratio),
    _series("gpu_memory_used_bytes", "memory_used_bytes", "Device memory in use, the driver's own share apart"),
    _series("gpu_memory_size_bytes", "memory_total_bytes", "Device memory"),
    _series("gpu_power_watts", "power_watts", "Power of the whole board"),
    _series("gpu_power_limit_watts", "power_limit_watts", "Enforced power limit"),
    _series("gpu_temperature_celsius", "temperature_celsius", "Temperature of the GPU's core"),
    _series("gpu_sm_clock_hertz", "sm_clock_mhz", "SM clock", _hertz),
    _series("gpu_held_back", "is_held_back", "1 if heat, power or hardware hold its clocks back, else 0"),
    _series("gpu_processes", "process_count", "Compute processes on the GPU, everybody's, where all can be seen"),
    _series("gpu_pcie_send_bytes_per_second", "pcie_send_bytes_per_second", f"From the GPU over PCIe; {_COUNTED}"),
    _series("gpu_pcie_receive_bytes_per_second", "pcie_receive_bytes_per_second", f"To the GPU over PCIe; {_COUNTED}"),
    _series(
        "gpu_nvlink_send_bytes_per_second", "nvlink_send_bytes_per_second", f"From the GPU over NVLink; {_COUNTED}"
    ),
    _series(
        "gpu_nvlink_receive_bytes_per_second", "nvlink_receive_bytes_per_second", f"To the GPU over NVLink; {_COUNTED}"
    ),
    Series(
        name="gpu_energy_joules",
        attribute="energy_joules",
        help="Energy since the driver was loaded, read every 10 s; Volta and newer",
        is_counter=True,
    ),
)
