"""What a figure of a run is."""

from dataclasses import dataclass
from enum import Enum

from gpuagent_collector.metric_sources import RESULTS, Source


class Better(Enum):
    """Which direction of a metric is the better one."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a run.

    Attributes:
        name: what `--metric` and the table run_metrics call it; its unit is in the name or in `unit`.
        title: what people read.
        unit: as stored; '' is a plain number.
        group: under which heading it is shown.
        better: which direction is the better one; None: neither is, or it depends.
        source: where its readings come from.
        reading: SQL expression of one reading; NULL is no reading.
        in_part: SQL aggregate that makes one figure of a part's readings, with {} for the reading.
        over_parts: name of the SQL aggregate over the parts' figures.
    """

    name: str
    title: str
    unit: str
    group: str
    better: Better | None
    source: Source
    reading: str
    in_part: str
    over_parts: str


def reported(
    name: str,
    title: str,
    unit: str,
    over_parts: str,
    better: Better | None = None,
    *,
    group: str = "Result",
    result: str | None = None,
    value: str = "value",
) -> Metric:
    """Return the metric of the result that each rank reported last, in whatever phase.

    `result` is its name in the table, None: the metric's own; `value` is SQL of its value.
    """
    return Metric(
        name=name,
        title=title,
        unit=unit,
        group=group,
        better=better,
        source=RESULTS,
        reading=f"CASE WHEN name = '{result or name}' THEN {value} END",
        in_part="arg_max({}, time)",
        over_parts=over_parts,
    )
