"""The work of a step, and its share of what the hardware can do."""

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported

# Means over ranks.
WORK_METRICS: tuple[StoredMetric, ...] = (
    reported("model_flops_per_step", "Model FLOPs a step", "FLOP", "avg", group="Work"),
    # Counted in a run of its own, after this one.
    reported("executed_flops_per_step", "Executed FLOPs a step", "FLOP", "avg", Better.LOWER, group="Work"),
    reported("dram_bytes_per_step", "Device memory traffic a step", "bytes", "avg", Better.LOWER, group="Work"),
    reported("mfu_percent", "Model FLOPs utilisation", "percent", "avg", Better.HIGHER, result="mfu", group="Work"),
    reported(
        "data_wait_percent",
        "Host waiting for data",
        "percent",
        "avg",
        Better.LOWER,
        result="data_wait_share",
        group="Work",
    ),
)
