"""Useful output by input: what a GPU-second brings. By joule and by money, see `energy` and the package `prices`."""

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
    # Each rank says how large the data of all of them is.
    reported("items_per_epoch", "Items of an epoch", "", "max", group="Throughput", detail=True),
)
