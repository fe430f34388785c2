"""What a node's time and its electricity cost."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One entry of the user's prices: the nodes that it is for, and what is known of their price.

    Attributes:
        line: where the entry begins in its file, from 1.
        platform: of the nodes, as `--platform` names it.
        device: name of the GPUs that the run used there; None: any, or none.
        instance_type: the cloud's machine type; None: any.
        currency: ISO 4217 code that all amounts are in.
        instance_hour: price of a node for an hour, with all that is in it; None: not known.
        provisioning_included: whether a run also pays for the time from when it was next on its node until it started.
        kilowatt_hour: price of electricity; None: not known.
        pue: power usage effectiveness of the building: all that it draws by what its computers draw, from 1; None where
            no price of electricity is known.
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

    def fits(self, platform: str | None, devices: Collection[str], instance_type: str | None) -> bool:
        """Return whether it is the price of such a node, on which a run used GPUs of these names."""
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
    """All that the user stated, in the order of the file `source`."""

    source: str
    entries: Sequence[Price]

    def of_node(self, platform: str | None, devices: Collection[str], instance_type: str | None) -> Price | None:
        """Return the first price that fits the node; None: its price is not known."""
        return next((price for price in self.entries if price.fits(platform, devices, instance_type)), None)
