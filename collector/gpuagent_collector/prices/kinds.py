"""The kinds of costs; each is a metric of its own in each currency."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuagent_collector.metrics import Better, Metric

_GROUP = "Cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A figure in money; names and units get the currency, so that amounts in two of them are never compared.

    Attributes:
        stem: its metric's name without the currency.
        title: for people.
        unit: with {} for the currency.
        better: which direction is the better one.
        detail: shown only with --all.
    """

    stem: str
    title: str
    unit: str = "{}"
    better: Better = Better.LOWER
    detail: bool = False

    def metric(self, currency: str) -> Metric:
        """Return the metric in a currency."""
        return Metric(
            name=f"{self.stem}_{currency.lower()}",
            title=self.title,
            unit=self.unit.format(currency),
            group=_GROUP,
            better=self.better,
            detail=self.detail,
        )


COST_PER_RUN = Kind(stem="cost_per_run", title="The whole run")
COST_PER_EPOCH = Kind(stem="cost_per_epoch", title="An epoch")
COST_PER_MILLION_ITEMS = Kind(stem="cost_per_million_items", title="A million items")
ITEMS_PER_MONEY = Kind(
    stem="items_per", title="Items for the money", unit="items/{}", better=Better.HIGHER, detail=True
)
GPU_ELECTRICITY_PER_RUN = Kind(stem="gpu_electricity_per_run", title="GPU electricity, run")
GPU_ELECTRICITY_PER_MILLION_ITEMS = Kind(stem="gpu_electricity_per_million_items", title="GPU electricity, million")
CPU_ELECTRICITY_PER_MILLION_ITEMS = Kind(stem="cpu_electricity_per_million_items", title="CPU electricity, million")

# Every kind, in the order in which they are shown.
KINDS = (
    COST_PER_RUN,
    COST_PER_EPOCH,
    COST_PER_MILLION_ITEMS,
    ITEMS_PER_MONEY,
    GPU_ELECTRICITY_PER_RUN,
    GPU_ELECTRICITY_PER_MILLION_ITEMS,
    CPU_ELECTRICITY_PER_MILLION_ITEMS,
)

# The billed unit of electricity, without the overhead of the building.
GPU_KILOWATT_HOURS = Metric(
    name="gpu_energy_run_kilowatt_hours",
    title="GPUs' energy, as billed",
    unit="kWh",
    group="Energy",
    better=Better.LOWER,
    detail=True,
)

# Of the GPUs' measured energy, with the overhead of the building, at a stated intensity.
GPU_CARBON_PER_RUN = Metric(
    name="gpu_carbon_per_run_grams",
    title="GPUs' CO2, whole run",
    unit="g",
    group="Energy",
    better=Better.LOWER,
)
GPU_CARBON_PER_MILLION_ITEMS = Metric(
    name="gpu_carbon_per_million_items_grams",
    title="GPUs' CO2, a million items",
    unit="g",
    group="Energy",
    better=Better.LOWER,
)
# Every figure that follows from the file without being money.
PHYSICAL = (GPU_KILOWATT_HOURS, GPU_CARBON_PER_RUN, GPU_CARBON_PER_MILLION_ITEMS)


def currencies_of(metrics: Iterable[Metric]) -> set[str]:
    """Return the currencies of the metrics that are in money."""
    return {metric.unit.rpartition("/")[2] for metric in metrics if metric.group == _GROUP}
