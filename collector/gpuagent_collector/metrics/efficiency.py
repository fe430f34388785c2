"""Useful output by GPU-second. By joule and by money: see `energy` and the package `prices`."""

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import RATES

# Items a second of each GPU are also the items of a GPU-second.
EFFICIENCY_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="items_per_gpu_second",
        title="Throughput, each GPU",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=RATES,
        reading="throughput / gpus",
        in_part="arg_max({}, time)",
        over_parts="sum",
    ),
    # Each rank reports the size of the data of all of them.
    reported("items_per_epoch", "Items of an epoch", "", "max", group="Throughput", detail=True),
)
