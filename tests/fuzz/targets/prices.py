"""Prices files: prices that can be counted with, or words with the line."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuagent_collector.prices.files import parse_prices
from gpuagent_common.errors import MisuseError
from tests.fuzz.tally import Attempt

TOKENS = (
    b"- platform: |device: |instance_type: |currency: |instance_hour: |kilowatt_hour: |provisioning_included: |pue: |"
    b"USD|1.5|true|? |&a |*a|<<: |!!int |--- "
).split(b"|")


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Parse."""
    yield _attempt


def _attempt(data: bytes) -> None:
    try:
        prices = parse_prices(data, "prices.yaml")
    except MisuseError as error:
        assert str(error).startswith("prices.yaml")
        return
    for entry in prices.entries:
        assert entry.platform.encode() and len(entry.currency) == 3
        for amount in (entry.instance_hour, entry.kilowatt_hour, entry.pue):
            assert amount is None or math.isfinite(amount)
