"""Prices of a node's time and electricity."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


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
