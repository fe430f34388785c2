"""Files of prices: the user's, with what is wrong with them, and those made of catalogues of providers."""

import csv
import difflib
import io
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any

import yaml

from gpuagent_collector.prices.price import CURRENCY, Price, Prices
from gpuagent_common.errors import MisuseError

_MOST_BYTES = 1_000_000
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
# Key of the intensity of electricity.
_CARBON = "carbon_grams_per_kilowatt_hour"


def parse_prices(content: bytes, source: str) -> Prices:
    """Return the prices in a file's content; `source` is its name in messages.

    Raises MisuseError: it contains no valid prices; with the line.
    """
    if len(content) > _MOST_BYTES:
        raise MisuseError(f"{source} has {len(content):,} bytes; price files have at most {_MOST_BYTES:,}")
    try:
        root = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
        entries = _read_entries(root)
    except UnicodeDecodeError:
        raise MisuseError(f"{source} is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise MisuseError(f"{source}{f', line {mark.line + 1}' if mark else ''}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise MisuseError(f"{source}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise MisuseError(f"{source} is nested too deeply") from None
    except _FaultError as fault:
        raise MisuseError(f"{source}, line {fault.line}: {fault}") from None
    return Prices(source=source, entries=entries)


class _FaultError(Exception):
    """An invalid part, with its line from 1."""

    def __init__(self, node: yaml.Node | None, text: str) -> None:
        super().__init__(text)
        self.line = node.start_mark.line + 1 if node else 1


def _read_entries(root: yaml.Node | None) -> tuple[Price, ...]:
    if not isinstance(root, yaml.SequenceNode) or not root.value:
        raise _FaultError(root, "prices are a list, such as `- {platform: NAME, currency: USD, instance_hour: 1.5}`")
    entries: list[Price] = []
    for node in root.value:
        entry = _read_entry(node)
        before = next((other for other in entries if other.covers(entry)), None)
        if before:
            raise _FaultError(node, f"this entry is never used: the one in line {before.line} already covers it")
        entries.append(entry)
    return tuple(entries)


def _read_entry(node: yaml.Node) -> Price:
    fields = _fields(node)
    values: dict[str, Any] = {key: _READERS[key](key, value) for key, value in fields.items()}
    for key in ("platform", "currency"):
        if key not in values:
            raise _FaultError(node, f"{key} is missing")
    if not {"instance_hour", "kilowatt_hour", _CARBON} & values.keys():
        raise _FaultError(node, "there is no price: give instance_hour, kilowatt_hour or both")
    needs = [("provisioning_included", "instance_hour"), ("kilowatt_hour", "pue"), (_CARBON, "pue")]
    for key, needed in (*needs, *([] if _CARBON in values else [("pue", "kilowatt_hour")])):
        if key in values and needed not in values:
            raise _FaultError(fields[key], f"{key} needs {needed}")
    absent = dict.fromkeys(("device", "instance_type", "instance_hour", "kilowatt_hour", "pue"))
    return Price(**{"line": node.start_mark.line + 1, "provisioning_included": False, **absent, **values})


def _fields(node: yaml.Node) -> dict[str, yaml.Node]:
    """Return the values of an entry by their keys, which are known and unique."""
    if not isinstance(node, yaml.MappingNode):
        raise _FaultError(node, "an entry has lines `key: value` and begins with `- platform: NAME`")
    fields: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else "this"
        if name not in _READERS:
            close = difflib.get_close_matches(name, _READERS, n=1)
            hint = f"did you mean {close[0]}?" if close else "platform, currency and instance_hour are enough"
            raise _FaultError(key, f"unknown key {name}; {hint}")
        if name in fields:
            raise _FaultError(key, f"{name} is here twice")
        fields[name] = value
    return fields


def _text(key: str, node: yaml.Node) -> str:
    """Return a text as written, without quotes and blanks around it and without YAML's types."""
    if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
        raise _FaultError(node, f"{key} must be a text")
    return str(node.value).strip()


def _number(least: float, *, itself: bool) -> Callable[[str, yaml.Node], float]:
    """Return a reader of a number above `least`, or `least` `itself`."""

    def read(key: str, node: yaml.Node) -> float:
        text = _text(key, node)
        if not _NUMBER.fullmatch(text):
            raise _FaultError(node, f"{key} must be a number such as 0.25, not {text}")
        if (value := float(text)) > least or (itself and value == least):
            return value
        remedy = "; leave out unknown prices" if least == 0 else ""
        raise _FaultError(node, f"{key} {text} is not {'at least' if itself else 'above'} {least:g}{remedy}")

    return read


def _truth(key: str, node: yaml.Node) -> bool:
    text = _text(key, node)
    if text not in ("true", "false"):
        raise _FaultError(node, f"{key} must be true or false, not {text}")
    return text == "true"


def _currency(key: str, node: yaml.Node) -> str:
    text = _text(key, node)
    if not CURRENCY.fullmatch(text):
        raise _FaultError(node, f"{key} must be three capital letters such as USD, not {text}")
    return text


def _day(key: str, node: yaml.Node) -> str:
    text = _text(key, node)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise _FaultError(node, f"{key} must be a day such as 2026-11-01, not {text}") from None


# Key of an entry → reader of its value.
_READERS: Mapping[str, Callable[[str, yaml.Node], object]] = {
    "platform": _text,
    "device": _text,
    "instance_type": _text,
    "currency": _currency,
    "instance_hour": _number(0, itself=False),
    "provisioning_included": _truth,
    "kilowatt_hour": _number(0, itself=False),
    "pue": _number(1, itself=True),
    _CARBON: _number(0, itself=True),
    "source": _text,
    "date": _day,
}


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

    Where zones of the region differ, the highest price counts. Raises MisuseError: the text is no such catalogue,
    prices accelerators apart, or has none of these prices.
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
