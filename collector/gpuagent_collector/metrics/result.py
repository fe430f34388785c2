"""Results that a run reported."""

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import RESULTS

# A result in percent, or without unit as a share of 1.
_IN_PERCENT = "value * CASE WHEN unit IS NULL THEN 100 ELSE 1 END"

RESULT_METRICS: tuple[StoredMetric, ...] = (
    reported("accuracy", "Accuracy", "percent", "avg", Better.HIGHER, value=_IN_PERCENT),
    reported("loss", "Loss", "", "avg", Better.LOWER),
    reported("parameters", "Parameters", "", "max"),
    reported(
        "communication_percent",
        "Communication, of kernel time",
        "percent",
        "avg",
        Better.LOWER,
        result="communication_share",
        value=_IN_PERCENT,
    ),
    reported(
        "exposed_communication_percent",
        "Communication that computing does not hide",
        "percent",
        "avg",
        Better.LOWER,
        result="exposed_communication_share",
        value=_IN_PERCENT,
    ),
    # As reported, or at least the number of ranks with reports: a plain torchrun script does not report it.
    StoredMetric(
        name="ranks",
        title="Ranks",
        unit="",
        group="Result",
        better=None,
        source=RESULTS,
        reading="greatest(part + 1, CASE WHEN name = 'ranks' THEN value END)",
        in_part="max({})",
        over_parts="max",
    ),
)
