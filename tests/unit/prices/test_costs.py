"""What runs cost by known prices: figures that are known by hand, and what is absent."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.runs.data import load_facts

METRICS = {
    "run_seconds": 16.0,
    "throughput": 1000.0,
    "items_per_epoch": 60_000.0,
    "gpu_energy_run_joules": 7.2e6,
    "gpu_energy_per_item_joules": 3.6,
    "cpu_energy_joules": 7200.0,
    "measure_seconds": 10.0,
}
ALDER = {"node_id": 1, "platform": "alder", "instance_type": "g2-standard-4"}
BIRCH = {"node_id": 2, "platform": "birch", "instance_type": None}
L4 = {"node_id": 1, "device_id": 10, "name": "NVIDIA L4"}

USD = "{platform: %s, currency: USD, instance_hour: %s}"


def prices(*entries: str) -> Prices:
    return parse_prices("\n".join(f"- {entry}" for entry in entries).encode(), "p.yaml")


def never(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
    raise AssertionError(f"nothing needs to be read: {sql}")


def costs(
    known: Prices | None, *, nodes: Sequence[dict[str, Any]] = (ALDER,), metrics: dict[str, float] | None = None
) -> dict[str, float]:
    """Return those figures of a run that follow from prices."""
    facts = replace(
        load_facts(lambda _sql, _parameters=(): [], []),
        metrics={"run": METRICS if metrics is None else metrics},
        sessions={"run": list(nodes)},
        devices={"run": [L4, {**L4, "device_id": 11}]},
    )
    found = with_costs(never, facts, known)
    return {metric.name: found.metrics["run"][metric.name] for metric in found.derived}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            # 3.6 an hour is 0.001 a second, in which there are 1000 items.
            USD % ("alder", 3.6),
            {
                "cost_per_run_usd": 0.016,
                "cost_per_epoch_usd": 0.06,
                "cost_per_million_items_usd": 1.0,
                "items_per_usd": 1_000_000,
            },
        ),
        (
            "{platform: alder, currency: EUR, kilowatt_hour: 0.5, pue: 1.2}",
            {
                "gpu_energy_run_kilowatt_hours": 2.0,
                "gpu_electricity_per_run_eur": 1.2,
                "gpu_electricity_per_million_items_eur": 0.6,
                "cpu_electricity_per_million_items_eur": 0.12,
            },
        ),
        (USD % ("birch", 3.6), {}),
    ],
    ids=["instance hours of the run", "measured energy with what the building adds", "another platform's price"],
)
def test_costs_follow_from_prices_and_figures(entry: str, expected: dict[str, float]) -> None:
    assert costs(prices(entry)) == pytest.approx(expected)


def test_without_prices_or_figures_there_are_no_costs() -> None:
    both = prices("{platform: alder, currency: USD, instance_hour: 3.6, kilowatt_hour: 0.5, pue: 1.2}")
    assert costs(None) == costs(both, metrics={}) == {}
    assert costs(both, metrics={"run_seconds": 10.0, "throughput": 0.0}) == {"cost_per_run_usd": pytest.approx(0.01)}


def test_every_node_of_a_run_is_paid_and_each_of_them_once() -> None:
    known = prices(USD % ("alder", 3.6), USD % ("birch", 7.2))
    restarted = {**ALDER, "session_id": 7}
    assert costs(known, nodes=[ALDER, restarted, BIRCH])["cost_per_run_usd"] == pytest.approx(0.048)


@pytest.mark.parametrize(
    ("alder", "birch"),
    [
        (USD % ("alder", 3.6), "{platform: cedar, currency: USD, instance_hour: 1}"),
        (USD % ("alder", 3.6), "{platform: birch, currency: EUR, instance_hour: 1}"),
        (USD % ("alder", 3.6), "{platform: birch, currency: USD, kilowatt_hour: 1, pue: 1}"),
        (
            "{platform: alder, currency: USD, kilowatt_hour: 1, pue: 1.1}",
            "{platform: birch, currency: USD, kilowatt_hour: 1, pue: 1.2}",
        ),
    ],
    ids=["no price", "another currency", "only electricity", "another factor"],
)
def test_a_run_of_which_one_node_has_no_such_price_has_no_such_cost(alder: str, birch: str) -> None:
    assert costs(prices(alder, birch), nodes=[ALDER, BIRCH]) == {}


def test_gpu_and_instance_type_choose_the_price() -> None:
    l4 = "{platform: alder, device: NVIDIA L4, instance_type: g2-standard-4, currency: USD, instance_hour: 3.6}"
    t4 = "{platform: alder, device: NVIDIA T4, currency: USD, instance_hour: 7.2}"
    assert costs(prices(t4, l4))["cost_per_million_items_usd"] == pytest.approx(1)
    assert costs(prices(t4)) == {}


def test_carbon_is_the_gpus_energy_at_the_stated_intensity_with_the_buildings_overhead() -> None:
    entry = "{platform: alder, currency: EUR, pue: 1.5, carbon_grams_per_kilowatt_hour: 400}"
    found = costs(prices(entry))
    # 7.2 MJ are 2 kWh, and a million items of 3.6 J are 1 kWh.
    assert found == pytest.approx({"gpu_carbon_per_run_grams": 1200.0, "gpu_carbon_per_million_items_grams": 600.0})
    other = "{platform: birch, currency: EUR, pue: 1.5, carbon_grams_per_kilowatt_hour: 50}"
    assert costs(prices(entry, other), nodes=(ALDER, BIRCH)) == {}
    clean = "{platform: alder, currency: EUR, pue: 1, carbon_grams_per_kilowatt_hour: 0}"
    assert costs(prices(clean))["gpu_carbon_per_run_grams"] == 0
