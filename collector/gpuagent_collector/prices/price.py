"""Prices of nodes and GPUs, and the figures that follow from them."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_collector.metrics import Better, Metric
from gpuagent_common.connection import configuration_folder
from gpuagent_common.errors import MisuseError

# What editors check a file with; `parse_prices` decides.
SCHEMA = Path(__file__).with_name("schema.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One entry of the user's prices: the nodes that it covers, and their known prices.

    Attributes:
        line: first line of the entry in its file, from 1.
        platform: of the nodes, as in `--platform`.
        device: name of the GPUs that the run used there; None: any, or none.
        instance_type: the cloud's machine type; None: any.
        currency: ISO 4217 code that all amounts are in.
        instance_hour: price of a whole node for an hour; None: unknown.
        provisioning_included: whether a run also pays for its wait from the end of the run before until its start.
        kilowatt_hour: price of electricity; None: unknown.
        pue: power usage effectiveness: power of the building by that of its computers, from 1; None: no price of
            electricity.
        carbon_grams_per_kilowatt_hour: greenhouse gases of its electricity, as CO2; None: unknown.
        source, date: where and when the price was stated; None: not stated.
    """

    line: int
    platform: str
    device: str | None
    instance_type: str | None
    currency: str
    instance_hour: float | None
    provisioning_included: bool
    kilowatt_hour: float | None
    pue: float | None
    carbon_grams_per_kilowatt_hour: float | None = None
    source: str | None = None
    date: str | None = None

    def fits(self, platform: str | None, devices: Collection[str], instance_type: str | None) -> bool:
        """Return whether it is the price of a node on which a run used GPUs of these names."""
        return (
            self.platform == platform
            and self.device in (None, *({*devices} if len({*devices}) == 1 else ()))
            and self.instance_type in (None, instance_type)
        )

    def covers(self, other: "Price") -> bool:
        """Return whether it fits every node that `other` fits."""
        return (
            self.platform == other.platform
            and self.device in (None, other.device)
            and self.instance_type in (None, other.instance_type)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The user's prices, in the order of the file `source`."""

    source: str
    entries: Sequence[Price]

    @property
    def described(self) -> str:
        """The file, and the dates that its entries state."""
        dates = sorted({price.date for price in self.entries if price.date})
        return f"{self.source}, as of {' to '.join([*dates[:1], *dates[1:][-1:]])}" if dates else self.source

    def of_node(self, platform: str | None, devices: Collection[str], instance_type: str | None) -> Price | None:
        """Return the first price that fits the node; None: unknown."""
        return next((price for price in self.entries if price.fits(platform, devices, instance_type)), None)


_GROUP = "Cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A figure in money; names and units get the currency, so that amounts in two of them are never compared.

    Attributes:
        stem: its metric's name without the currency.
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
        name, unit = f"{self.stem}_{currency.lower()}", self.unit.format(currency)
        return Metric(name, self.title, unit, _GROUP, self.better, detail=self.detail)


COST_PER_RUN = Kind(stem="cost_per_run", title="Cost per run", unit="{}/run")
COST_PER_EPOCH = Kind(stem="cost_per_epoch", title="Cost per epoch")
COST_PER_MILLION_ITEMS = Kind(stem="cost_per_million_items", title="Cost per million items")
ITEMS_PER_MONEY = Kind(
    stem="items_per", title="Items for the money", unit="items/{}", better=Better.HIGHER, detail=True
)
GPU_ELECTRICITY_PER_RUN = Kind(stem="gpu_electricity_per_run", title="GPU electricity, run")
GPU_ELECTRICITY_PER_MILLION_ITEMS = Kind(
    stem="gpu_electricity_per_million_items", title="GPU electricity per million items"
)
CPU_ELECTRICITY_PER_MILLION_ITEMS = Kind(
    stem="cpu_electricity_per_million_items", title="CPU electricity per million items"
)

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
    "gpu_energy_run_kilowatt_hours", "GPUs' energy, as billed", "kWh", "Energy", Better.LOWER, detail=True
)

# Of the GPUs' measured energy, with the overhead of the building, at a stated intensity.
GPU_CARBON_PER_RUN = Metric("gpu_carbon_per_run_grams", "GPUs' CO2, whole run", "g", "Energy", Better.LOWER)
GPU_CARBON_PER_MILLION_ITEMS = Metric(
    "gpu_carbon_per_million_items_grams", "GPUs' CO2 per million items", "g", "Energy", Better.LOWER
)
# Every figure that follows from the file without being money.
PHYSICAL = (GPU_KILOWATT_HOURS, GPU_CARBON_PER_RUN, GPU_CARBON_PER_MILLION_ITEMS)


def currencies_of(metrics: Iterable[Metric]) -> set[str]:
    """Return the currencies of the metrics that are in money."""
    found = (CURRENCY.search(metric.unit) for metric in metrics if metric.group == _GROUP)
    return {currency[0] for currency in found if currency}


CURRENCY = re.compile(r"[A-Z]{3}")


def default_prices_file() -> Path:
    """Return the default price file: below XDG_CONFIG_HOME (~/.config)."""
    return configuration_folder() / "prices.yaml"


def find_prices(named: Path | None) -> Prices | None:
    """Return the prices in the named file, or else in the default one; None: there is no file.

    Raises MisuseError: the file is missing, unreadable or invalid; with the line.
    """
    path = named or default_prices_file()
    if named is None and not path.exists():
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"cannot read the prices in {path}: {error.strerror}") from error
    from gpuagent_collector.prices.files import parse_prices  # only here: most readers have no prices

    return parse_prices(content, str(path))
