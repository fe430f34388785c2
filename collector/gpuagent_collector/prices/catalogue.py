"""A converter of price catalogues that the user has: CSV with the columns of SkyPilot's catalogues (its vms.csv)."""

import csv
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite

import yaml

from gpuagent_common.errors import MisuseError

# The columns that are read; a catalogue has more.
_COLUMNS = ("InstanceType", "Region", "Price", "SpotPrice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The prices to take from a catalogue.

    Attributes:
        platform: the name in the agent's `--platform` for which they are.
        region: as the catalogue names it.
        instance_types: machine types; empty: all.
        spot: spot prices instead of those on demand.
        currency: of the amounts; the catalogue does not name it.
        source, day: the catalogue's origin and date, as the user states them.
    """

    platform: str
    region: str
    instance_types: Collection[str] = ()
    spot: bool = False
    currency: str
    source: str
    day: date


def convert(text: str, chosen: Chosen) -> str:
    """Return a price file with the prices of machines in one region.

    Where zones of the region differ, the highest price counts.

    Raises:
        MisuseError: the text is no such catalogue, prices accelerators apart, or has none of these prices.
    """
    reader = csv.DictReader(io.StringIO(text))
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise MisuseError(f"{chosen.source} is no catalogue: its first line lacks {', '.join(missing)}")
    rows = [row for row in reader if row["Region"] == chosen.region]
    if any(not row["InstanceType"] and row.get("AcceleratorName") for row in rows):
        raise MisuseError(
            f"{chosen.source} has prices of accelerators apart from machines in {chosen.region}: add them by hand"
        )
    prices: dict[str, float] = {}
    for row in rows:
        price, name = _price(row, "SpotPrice" if chosen.spot else "Price"), row["InstanceType"]
        if price and name and (not chosen.instance_types or name in chosen.instance_types):
            prices[name] = max(price, prices.get(name, 0.0))
    lacking = [name for name in chosen.instance_types if name not in prices]
    if lacking or not prices:
        what = ", ".join(lacking) or "any machine"
        raise MisuseError(f"{chosen.source} has no price of {what} in the region {chosen.region}; look at its columns")
    kind = "spot" if chosen.spot else "on demand"
    entries = [
        {
            "platform": chosen.platform,
            "instance_type": name,
            "currency": chosen.currency,
            "instance_hour": price,
            "source": f"{chosen.source}, {chosen.region}, {kind}",
            "date": chosen.day.isoformat(),
        }
        for name, price in sorted(prices.items())
    ]
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)


def _price(row: Mapping[str, str | None], column: str) -> float | None:
    """Return a price above 0; None: the cell has none."""
    try:
        price = float(row[column] or "nan")
    except ValueError:
        return None
    return price if isfinite(price) and price > 0 else None
