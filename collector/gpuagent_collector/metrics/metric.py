"""The definition of a figure of a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum

from gpuagent_collector.choices import Stat
from gpuagent_collector.metrics.metric_sources import CGROUPS, GPUS, HOST, PROCESSES, RESULTS, Source
from gpuagent_common.quantities import QUANTITIES, How


class Better(Enum):
    """The better direction of a metric."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run.

    Attributes:
        name: as in `--metric`; its unit is in the name or in `unit`.
        unit: '' is a plain number.
        better: the better direction; None: neither, or it depends.
        quantity: the name of the sampled quantity, where each `Stat` of it is stored; None: no statistic over time.
        detail: shown only with --all.
    """

    name: str
    title: str
    unit: str
    group: str
    better: Better | None
    quantity: str | None = field(default=None, kw_only=True)
    detail: bool = field(default=False, kw_only=True)

    def titled(self, stat: Stat | None) -> str:
        """Return the title where `stat` of its quantity is shown; None: the usual one."""
        return self.title if stat is None or self.quantity is None else f"{self.quantity}, {stat.value}"


# The unit of throughput; where all runs count the same items, theirs is shown.
ITEMS = "items/s"
STEPS = "steps/s"


def further(metric: Metric, stat: Stat) -> Metric:
    """Return the metric of another statistic of the same quantity: gpu_utilization_percent:max."""
    same = {each.name: getattr(metric, each.name) for each in fields(Metric)}
    title = metric.titled(stat)
    return Metric(**{**same, "name": f"{metric.name}:{stat.value}", "title": title, "quantity": None, "better": None})


@dataclass(frozen=True, slots=True)
class StoredMetric(Metric):
    """A figure that is computed from a run's rows when the run ends, and stored in run_metrics.

    Attributes:
        source: of its readings.
        reading: SQL expression of one reading; NULL is no reading.
        in_part: SQL aggregate that makes one figure of a part's readings, with {} for the reading.
        over_parts: name of the SQL aggregate over the parts' figures: avg, max, min or sum.
        result: the only result whose rows are read, by its name; None: all rows of the source.
    """

    source: Source
    reading: str
    in_part: str
    over_parts: str
    result: str | None = field(default=None, kw_only=True)


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
    detail: bool = False,
) -> StoredMetric:
    """Return the metric of the result that each rank reported last, in whatever phase.

    `result` is its name in the table, None: the metric's own; `value` is SQL of its value.
    """
    last = "arg_max({}, time)"
    return StoredMetric(
        name, title, unit, group, better, RESULTS, value, last, over_parts, result=result or name, detail=detail
    )


# Table of samples → the readings of a run, and how means and peaks of its parts make one figure.
_SAMPLED: Mapping[str, tuple[Source, str, str]] = {
    "host_samples": (HOST, "avg", "max"),
    "process_samples": (PROCESSES, "sum", "sum"),
    "cgroup_samples": (CGROUPS, "sum", "sum"),
    "gpu_samples": (GPUS, "avg", "max"),
}


def sampled(table: str, **after: Sequence[StoredMetric]) -> Iterator[StoredMetric]:
    """Yield the metrics of a table's quantities, each followed by those of `after` its column, computed from it."""
    source, mean, peak = _SAMPLED[table]
    for quantity in QUANTITIES[table]:
        if quantity.figure:
            is_peak = How.PEAK in quantity.how
            yield StoredMetric(
                name=quantity.figure,
                title=f"{quantity.title}, peak" if is_peak else quantity.title,
                quantity=quantity.title,
                unit=quantity.unit,
                group="GPU" if source is GPUS else "Memory" if quantity.unit == "bytes" else "CPU",
                better=Better.LOWER if is_peak or How.LESS_IS_BETTER in quantity.how else None,
                source=source,
                reading=quantity.column,
                in_part="max({})" if is_peak else "avg({})",
                over_parts=peak if is_peak else mean,
                detail=How.DETAIL in quantity.how,
            )
            yield from after.get(quantity.column, ())


_MOST_HINTS = 4


def hint_at(name: str, known: Iterable[str]) -> str:
    """Return the metrics that a wrong name may stand for: the one spelled like it, or those that have it in theirs."""
    names = list(known)
    parts = sorted((each for each in names if name.lower() in each), key=lambda each: not each.startswith(name.lower()))
    close = get_close_matches(name, names, n=1) or parts[:_MOST_HINTS]
    return f"did you mean {', '.join(close)}?" if close else "`collector schema --metrics` lists all"
