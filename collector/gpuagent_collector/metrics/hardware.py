"""The use of a run's nodes, processors and memory, and of its GPUs, by the run and by others, their health and energy.

Others are processes that are not the run's, of another run or of unknown origin. Where the agent cannot see all
processes on a GPU, such as in a PID namespace, their figures are absent. The view `energy` has the energy of each GPU,
phase and step, with its method.
"""

from functools import partial

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported, sampled
from gpuagent_collector.metrics.metric_sources import (
    CPU_ENERGY,
    ENERGY,
    GPU_HOLDERS,
    GPUS,
    HEALTH,
    HELD_GPUS,
    HOST,
    RUN_GPUS,
    SHARED_ENERGY,
    STEP_ENERGY,
    Source,
)
from gpuagent_collector.metrics.throttling import HARDWARE, HARDWARE_THERMAL, HOLDING, POWER_BRAKE, POWER_CAP, THERMAL


def _host(name: str, title: str, unit: str, group: str, reading: str, over_parts: str) -> StoredMetric:
    """Return the metric that is the mean of `reading` in time on each node."""
    return StoredMetric(name, title, unit, group, None, HOST, reading, "avg({})", over_parts, quantity=title)


_CORES = "cpu_percent / 100 * cpu_threads"
_MEMORY_SHARE = "100.0 * memory_used_bytes / memory_total_bytes"

HOST_METRICS: tuple[StoredMetric, ...] = (
    *sampled(
        "host_samples",
        cpu_percent=[_host("cpu_used_cores", "Node CPU used", "cores", "CPU", _CORES, "sum")],
        memory_used_bytes=[
            _host("memory_used_percent", "Node memory used, share", "percent", "Memory", _MEMORY_SHARE, "avg")
        ],
    ),
    *sampled("process_samples"),
    *sampled("cgroup_samples"),
    StoredMetric(
        name="cpu_energy_joules",
        title="Energy of the nodes' CPUs",
        unit="joules",
        group="Energy",
        # As gpu_energy_joules; and it is the whole node's, whoever used it.
        better=None,
        source=CPU_ENERGY,
        reading="energy_joules",
        in_part="sum({})",
        over_parts="sum",
    ),
)


_LOWER = Better.LOWER

# Of the workload's own reports.
_reported = partial(reported, group="GPU")


def _share(name: str, title: str, condition: str, source: Source = GPUS, *, detail: bool = True) -> StoredMetric:
    """Return the metric that is the share of time in which `condition` held, mean over the run's GPUs."""
    reading = f"100.0 * CAST({condition} AS INTEGER)"
    return StoredMetric(name, title, "percent", "GPU", _LOWER, source, reading, "avg({})", "avg", detail=detail)


def _sign(
    name: str, title: str, unit: str, source: Source, reading: str, in_part: str, over_parts: str
) -> StoredMetric:
    """Return a metric that warrants a check when it is above 0."""
    return StoredMetric(name, title, unit, "GPU", _LOWER, source, reading, in_part, over_parts, detail=True)


GPU_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric("gpus", "GPUs used", "", "GPU", None, RUN_GPUS, "device_id", "count(DISTINCT {})", "sum"),
    *sampled(
        "gpu_samples",
        utilization_percent=[_share("gpu_idle_percent", "GPU idle time", "utilization_percent = 0", detail=False)],
        dram_active_percent=[
            # Of the peak in the maker's data sheet, as the workload reports it for known GPUs.
            StoredMetric(
                name="dram_sampled_bytes_per_second",
                title="Device memory traffic, sampled",
                unit="bytes/s",
                group="GPU",
                better=None,
                source=GPUS,
                reading="dram_active_percent / 100 * dram_peak_bytes_per_second",
                in_part="avg({})",
                over_parts="avg",
                quantity="Device memory traffic, sampled",
            ),
            # From the steps that the workload traced after its measured ones.
            _reported("gpu_busy_percent", "GPU busy, of a step", "percent", "avg", result="gpu_busy_share"),
            _reported("kernels_per_step", "Kernels per step", "", "avg", detail=True),
            *(
                _reported(f"{name}_percent", f"{title}, estimated", "percent", "avg", result=name, detail=True)
                for name, title in (("sm_efficiency_estimated", "SM efficiency"), ("occupancy_estimated", "Occupancy"))
            ),
        ],
        memory_used_bytes=[
            StoredMetric(
                name="gpu_memory_used_percent",
                title="GPU memory, share, peak",
                unit="percent",
                group="GPU",
                better=_LOWER,
                source=GPUS,
                reading="100.0 * memory_used_bytes / memory_total_bytes",
                in_part="max({})",
                over_parts="max",
                quantity="GPU memory, share",
            ),
            *(
                _reported(
                    f"gpu_memory_{name}_bytes",
                    f"{name.capitalize()} by the framework",
                    "bytes",
                    "max",
                    _LOWER,
                    result=f"peak_memory_{name}",
                    detail=name == "reserved",
                )
                for name in ("allocated", "reserved")
            ),
        ],
    ),
    # The first reading of the measured phase, of the warmest or slowest GPU.
    *(
        StoredMetric(name, title, unit, "GPU", None, GPUS, column, "arg_min({}, time)", over_parts, detail=True)
        for name, title, unit, column, over_parts in (
            ("gpu_temperature_start_celsius", "GPU temperature, start", "celsius", "temperature_celsius", "max"),
            ("sm_clock_start_mhz", "SM clock, start", "megahertz", "sm_clock_mhz", "min"),
        )
    ),
)

SHARING_METRICS: tuple[StoredMetric, ...] = (
    *(
        _sign(name, title, unit, GPU_HOLDERS, reading, f"{aggregate}({{}})", aggregate)
        for name, title, unit, reading, aggregate in (
            ("gpu_other_processes", "Other processes on the GPU", "", "other_processes", "max"),
            ("gpu_other_memory_bytes", "GPU memory of others, peak", "bytes", "other_memory_bytes", "max"),
            (
                "gpu_other_utilization_percent",
                "GPU utilisation by others",
                "percent",
                "other_utilization_percent",
                "avg",
            ),
        )
    ),
    # gpu_idle_percent is of the measured phase; this is of all the time in which nobody else could have the GPU.
    _share("gpu_held_idle_percent", "GPU held but idle, whole run", "utilization_percent = 0", HELD_GPUS),
)


# Clocks of a GPU that has little to do may rest.
_BUSY = "utilization_percent >= 50"

_NEAR_MAXIMUM = 0.95

# Shares of time in which a cause throttled clocks, and signs.
HEALTH_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="sm_clock_busy_percent",
        title="SM clock while busy, share",
        unit="percent",
        group="GPU",
        better=None,
        source=GPUS,
        reading=f"CASE WHEN {_BUSY} THEN 100.0 * sm_clock_mhz / sm_clock_max_mhz END",
        in_part="median({})",
        over_parts="min",
    ),
    _share("gpu_throttled_percent", "GPU throttled time", f"throttle_reasons & {HOLDING} <> 0", detail=False),
    _share("gpu_power_capped_percent", "GPU held back by power cap", f"throttle_reasons & {POWER_CAP} <> 0"),
    _share("gpu_thermal_slowdown_percent", "GPU held back by heat", f"throttle_reasons & {THERMAL} <> 0"),
    _share("gpu_power_brake_percent", "GPU held back by power brake", f"throttle_reasons & {POWER_BRAKE} <> 0"),
    _share(
        "gpu_hardware_slowdown_percent",
        "GPU held back by hardware, cause unknown",
        f"throttle_reasons & {HARDWARE | HARDWARE_THERMAL | POWER_BRAKE} = {HARDWARE}",
    ),
    _share(
        "gpu_clock_unexplained_percent",
        "Busy time below 95 % of the SM clock, unexplained",
        f"CASE WHEN {_BUSY} THEN sm_clock_mhz < {_NEAR_MAXIMUM} * sm_clock_max_mhz "
        f"AND throttle_reasons & {HOLDING} = 0 END",
    ),
    _sign(
        "gpu_ecc_errors_uncorrected",
        "Uncorrected memory errors",
        "",
        GPUS,
        "ecc_errors_uncorrected",
        "max({0}) - min({0})",
        "sum",
    ),
    *(
        _sign(f"gpu_memory_repair_{state}", title, "", HEALTH, f"memory_repair_{state}", "max({})", "sum")
        for state, title in (("pending", "GPUs with memory to repair"), ("failed", "GPUs beyond repair"))
    ),
)

# Of all the run's GPUs together.
_energy = partial(
    StoredMetric, unit="joules", group="Energy", better=None, source=ENERGY, in_part="sum({})", over_parts="sum"
)
_PER_ITEM = "counted_joules / nullif(items, 0)"

ENERGY_METRICS: tuple[StoredMetric, ...] = (
    # Of a measured phase of fixed length, less may only mean less work.
    _energy("gpu_energy_joules", "GPUs' energy", reading="counted_joules"),
    _energy("gpu_energy_per_item_joules", "GPUs' energy per item", reading=_PER_ITEM, better=_LOWER),
    _energy(
        "gpu_energy_per_step_joules",
        "GPUs' energy per step",
        source=STEP_ENERGY,
        reading="energy_joules",
        in_part="median({})",
        better=_LOWER,
    ),
    _energy("gpu_energy_run_joules", "GPUs' energy, whole run", reading="run_joules"),
    # Where others were on a GPU of the run.
    *(
        _energy(f"gpu_energy_{name}_joules", title, reading=reading, source=SHARED_ENERGY, detail=True)
        for name, title, reading in (
            ("share", "Own share of the GPUs' energy", "own_joules"),
            ("share_least", "Own share of the GPUs' energy, at least", "least_joules"),
            ("share_most", "Own share of the GPUs' energy, at most", "most_joules"),
        )
    ),
)
