"""Price files from catalogues with SkyPilot's columns."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuagent_collector.cli import cli
from gpuagent_collector.prices.files import Chosen, convert, parse_prices
from gpuagent_common.errors import MisuseError

CATALOGUE = """InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Zone,Price,SpotPrice
small.1,4,16,L4,1.0,,here,a,1.25,0.5
small.1,4,16,L4,1.0,,here,b,1.50,
big.8,96,768,H100,8.0,,here,a,40,
big.8,96,768,H100,8.0,,there,a,30,
free.1,1,1,,,,here,a,0,
"""
CHOSEN = Chosen(platform="aws", region="here", currency="USD", source="vms.csv", day=date(2026, 11, 1))


def hours(text: str) -> dict[str | None, float | None]:
    prices = parse_prices(text.encode(), "p.yaml")
    return {price.instance_type: price.instance_hour for price in prices.entries}


def test_the_highest_price_of_a_regions_zones_counts_and_no_price_is_absent() -> None:
    assert hours(convert(CATALOGUE, CHOSEN)) == {"small.1": 1.5, "big.8": 40}
    assert hours(convert(CATALOGUE, replace(CHOSEN, spot=True))) == {"small.1": 0.5}
    assert hours(convert(CATALOGUE, replace(CHOSEN, region="there"))) == {"big.8": 30}
    assert hours(convert(CATALOGUE, replace(CHOSEN, instance_types=["big.8"]))) == {"big.8": 40}


def test_every_entry_names_its_source_and_date() -> None:
    prices = parse_prices(convert(CATALOGUE, CHOSEN).encode(), "p.yaml")
    assert {(price.source, price.date) for price in prices.entries} == {("vms.csv, here, on demand", "2026-11-01")}
    assert prices.described == "p.yaml, as of 2026-11-01"


@pytest.mark.parametrize(
    ("text", "chosen", "problem"),
    [
        ("a,b\n1,2\n", CHOSEN, "vms.csv is no catalogue: its first line lacks InstanceType, Region, Price, SpotPrice"),
        ("", CHOSEN, "is no catalogue"),
        (CATALOGUE, replace(CHOSEN, region="nowhere"), "no price of any machine in the region nowhere"),
        (CATALOGUE, replace(CHOSEN, instance_types=["huge"]), "no price of huge in the region here"),
        (f"{CATALOGUE},,,L4,1.0,,here,a,0.7,\n", CHOSEN, "prices of accelerators apart from machines in here"),
    ],
)
def test_what_is_no_price_of_a_whole_machine_is_refused(text: str, chosen: Chosen, problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        convert(text, chosen)


def test_the_command_prints_a_price_file(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(CATALOGUE)
    options = ["--platform", "aws", "--region", "here", "--date", "2026-11-01"]
    done = CliRunner().invoke(cli, ["prices", str(path), *options])
    assert done.exit_code == 0
    assert hours(done.stdout) == {"small.1": 1.5, "big.8": 40}
    refused = CliRunner().invoke(cli, ["prices", str(tmp_path / "none"), *options], standalone_mode=False)
    assert isinstance(refused.exception, MisuseError)


def test_a_date_that_is_no_day_is_refused_with_its_line() -> None:
    with pytest.raises(MisuseError, match="2026-11-01, not soon"):
        parse_prices(b"- platform: x\n  currency: USD\n  instance_hour: 1\n  date: soon", "p.yaml")
