"""Costs beside the other figures of a comparison, and the waits that prices may include."""

import json
from itertools import product
from pathlib import Path

import pytest

from gpuagent_collector.answers.scaling import render
from gpuagent_collector.answers.scaling_curves import study_scaling
from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import cost_row
from gpuagent_collector.compare.matrix import tabulate
from gpuagent_collector.compare.tables import cost_table
from gpuagent_collector.compare.values import overview_table
from gpuagent_collector.present.markdown import to_markdown
from gpuagent_collector.present.rendering import as_table
from gpuagent_collector.present.table import Table
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.runs.data import load_facts
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.comparing import alternate, compared, texts, warnings
from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, SyntheticStore
from tests.support.commands import Collector, made_up

ALDER = "- {platform: alder, currency: USD, instance_hour: 3.6}\n"
BIRCH = "- {platform: birch, currency: USD, instance_hour: 3.6}\n"


def prices(text: str) -> Prices:
    return parse_prices(text.encode(), "p.yaml")


@pytest.mark.parametrize(
    ("included", "paid_seconds"), [("true", 5 + RUN_SECONDS), ("false", RUN_SECONDS)], ids=["included", "not included"]
)
def test_waits_are_paid_where_prices_include_them_but_not_for_earlier_runs(
    store: SyntheticStore, included: str, paid_seconds: float
) -> None:
    node = store.node("spruce", "alder")
    store.run("before", node, start_seconds=0)
    store.run("after", node, start_seconds=RUN_SECONDS + 5)
    for request in store.rows["run_requests"]:
        request["time"] = EPOCH  # repeats are queued together
    known = prices(f"- {{platform: alder, currency: USD, instance_hour: 3600, provisioning_included: {included}}}")
    facts = with_costs(store.ask, load_facts(store.ask, ["before", "after"]), known)
    paid = {run_id: metrics["cost_per_run_usd"] for run_id, metrics in facts.metrics.items()}
    assert paid == pytest.approx({"before": RUN_SECONDS, "after": paid_seconds})


def test_a_cost_is_tested_as_any_other_metric(store: SyntheticStore) -> None:
    alternate(store, second={"throughput": 2000.0})
    metric = "cost_per_million_items_usd"
    found = compared(store, prices=prices(ALDER + BIRCH), metric=metric, series=False)
    (test,) = found.figures.tests
    assert (test.baseline.median, test.other.median) == pytest.approx((1.0, 0.5))
    assert test.judgement.shift.estimate == pytest.approx(0.5)
    assert answer(found).count("Because ") == 1


def test_items_in_other_units_cost_by_the_run(store: SyntheticStore) -> None:
    alternate(store)
    for row in store.rows["results"]:
        if row["name"] == "throughput" and row["run_id"].startswith("second"):
            row["unit"] = "steps/s"
    found = compared(store, prices=prices(ALDER + BIRCH), series=False)
    cost = cost_row(found.figures.blocks[0])
    assert cost is not None and cost.metric.name == "cost_per_run_usd"


def test_costs_of_several_workloads_are_tested_together(store: SyntheticStore) -> None:
    """Of three repeats no workload shows alone that one side costs three times as much."""
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    for number, (repeat, workload, node) in enumerate(product(range(3), ("mnist", "train.py"), nodes)):
        store.run(f"run-{number}", node, start_seconds=20 * number, workload=workload, throughput=1000.0 + repeat)
    for row in store.rows["results"]:
        if row["name"] == "throughput" and int(row["run_id"].removeprefix("run-")) % 4 > 1:
            row["unit"] = "steps/s"
    found = compared(store, prices=prices(ALDER + BIRCH.replace("3.6", "10.8")), series=False)
    assert found.costs is not None
    (overall,) = found.costs.overall
    assert overall.is_shown and overall.common is not None and overall.common.estimate == pytest.approx(3.0)
    assert found.costs.primary.title == "Cost per million items or steps"
    matrix = tabulate(store.ask, found.request, ["cost_per_million_items_usd"], "workload", known=found)
    assert {line.metric.title for line in matrix.lines} == {"Cost per million items or steps"}
    of_blocks = [cost.metric.title for cost in map(cost_row, found.figures.blocks) if cost]
    assert sorted(of_blocks) == ["Cost per million items", "Cost per million steps"]
    alone = compared(store, prices=prices(ALDER + BIRCH), metric="cost_per_million_items_usd", series=False)
    assert alone.costs is None


def test_a_cost_that_is_not_shown_has_no_cause_and_no_interval(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    repeats = [(repeat, workload) for workload, runs in (("bert", 4), ("gpt", 2)) for repeat in range(runs)]
    of_birch = {"bert": 1200.0, "gpt": 700.0}
    for (repeat, workload), node in product(repeats, nodes):
        rate = 1000.0 if node is nodes[0] else of_birch[workload]
        store.next_run(node, workload=workload, throughput=rate + repeat)
    found = compared(store, prices=prices(ALDER + BIRCH), series=False)
    assert found.costs is not None and not found.costs.differs
    assert {because.what for because in found.reasons} <= {"time"}
    table = cost_table(found)
    assert table is not None and [row[-1].endswith(" [–]") for row in table.grid().rows] == [True, True]


def test_sides_that_differ_both_ways_are_in_one_sentence(store: SyntheticStore) -> None:
    rates = {"alder": (1000.0, 1000.0), "birch": (2000.0, 500.0), "cedar": (1250.0, 800.0)}
    nodes = {name: store.node(f"{name}-node", name) for name in rates}
    for repeat, (name, node), place in product(range(8), nodes.items(), (0, 1)):
        store.next_run(node, workload=("bert", "gpt")[place], throughput=rates[name][place] * (1 + repeat / 1e4))
    said = "Over 2 workloads: throughput compared with alder is 2 × as high (better) for bert, 50 % lower for gpt"
    assert f"{said} on birch; 25 % higher for bert, 20 % lower for gpt on cedar." in answer(compared(store))


def test_one_price_makes_no_part_of_a_difference(store: SyntheticStore) -> None:
    alternate(store, first={"throughput": 997.3}, second={"throughput": 1711.7})
    found = compared(store, prices=prices(ALDER + BIRCH), metric="cost_per_million_items_usd", series=False)
    ((because,),) = (found.reasons,)
    parts = {part.name: part for part in because.parts}
    assert (parts["price"].difference, parts["price"].shift.estimate) == (0.0, 0.0)
    assert parts["time"].difference < 0


def test_costs_in_two_currencies_are_not_compared_and_missing_ones_are_reported(store: SyntheticStore) -> None:
    alternate(store)
    store.node("fir", "cedar")
    found = compared(store, prices=prices(ALDER + BIRCH.replace("USD", "EUR")), series=False)
    assert "Cost is not compared: costs are in EUR and USD." in answer(found)
    rows = {row.metric.name: row for row in found.figures.blocks[0].rows if row.metric.group == "Cost"}
    assert {"cost_per_run_usd", "cost_per_run_eur"} <= rows.keys()
    assert not any(row.shifts for row in rows.values())
    text = "costs are in EUR, USD: those in different currencies are not compared"
    assert text in texts(found)

    found = compared(store, prices=prices(ALDER), series=False)
    (row,) = (row for row in found.figures.blocks[0].rows if row.metric.name == "cost_per_run_usd")
    assert list(row.figures) == ["alder"]
    assert all(words in texts(found) for words in ("all 5 runs on birch", "platform birch"))


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        (ALDER.replace("alder", "elder"), ["platform alder", "elder"]),
        (ALDER.replace("instance_hour", "device: NVIDIA L4, instance_hour"), ["a run without a GPU", "of alder"]),
        ("- {platform: alder, currency: USD, kilowatt_hour: 0.3, pue: 1}", ["instance_hour", "energy"]),
    ],
)
def test_the_cause_of_each_missing_cost_is_named(store: SyntheticStore, file: str, cause: list[str]) -> None:
    alternate(store)
    text = warnings(store, prices=prices(file), where="platform = 'alder'", series=False)["unpriced"]
    assert all(words in text for words in cause)
    assert "unpriced" not in warnings(store, series=False)


@pytest.mark.parametrize(
    ("other", "cause"), [("elder", "no entry for the platform birch"), ("birch", "costs are in EUR and USD")]
)
def test_a_cost_that_one_side_lacks_cannot_be_tested_and_the_error_has_the_cause(
    store: SyntheticStore, other: str, cause: str
) -> None:
    alternate(store)
    file = ALDER + BIRCH.replace("birch", other).replace("USD", "EUR" if other == "birch" else "USD")
    with pytest.raises(GpuAgentError, match=cause):
        compared(store, prices=prices(file), metric="cost_per_million_items_usd", series=False)


def test_sides_with_a_price_are_compared_beside_one_without(store: SyntheticStore) -> None:
    alternate(store)
    node = store.node("cedar-node", "cedar")
    for _ in range(5):
        store.next_run(node, throughput=2000.0)
    known = prices(BIRCH + BIRCH.replace("birch", "cedar"))
    found = compared(store, prices=known, series=False)
    assert found.layout.sides == ("birch", "cedar", "alder")
    row = cost_row(found.figures.blocks[0])
    assert row is not None and row.shifts["cedar"].estimate == pytest.approx(0.5)
    assert "Cost is not compared" not in answer(found)
    assert "on alder is unknown" in texts(found)
    # A baseline that was asked for stays.
    assert compared(store, prices=known, baseline="alder", series=False).layout.sides[0] == "alder"


def test_a_cost_that_differs_goes_before_the_highest_of_one_run(store: SyntheticStore) -> None:
    alternate(store)
    store.next_run(store.node("cedar-node", "cedar"))
    file = ALDER + BIRCH.replace("3.6", "7.2") + BIRCH.replace("birch", "cedar").replace("3.6", "10.8")
    said = answer(compared(store, prices=prices(file), series=False))
    assert "on birch as on alder (2 USD and 1 USD" in said


def test_scaling_shows_items_for_the_money_on_more_ranks(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100", "NVIDIA A100"])
    for ranks, rate in ((1, 100.0), (2, 180.0)):
        add_ranked(store, node, ranks, rate)
    known = prices("- {platform: lab, currency: USD, instance_hour: 3.6}")
    found = study_scaling(store.ask, workload="mnist", platform=None, experiment=None, prices=known)
    one, two = found.curves[0].rows
    # 0.001 USD a second, and the node costs the same whatever is used of it.
    assert (one.measures["items_per_usd"], two.measures["items_per_usd"]) == pytest.approx((100_000, 180_000))
    assert "items_per_usd" in as_table(render(found)).column_names
    text = to_markdown(render(found).document())
    assert "items by GPU-second | items by joule | items by USD" in text
    assert "180,000 (180 %)" in text


def test_scaling_says_the_cost_without_a_speed_up_and_which_runs_have_none(store: SyntheticStore) -> None:
    for place in ("alder", "birch"):
        node = store.node(f"{place}-1", place, gpus=["NVIDIA A100", "NVIDIA A100"])
        for rates in ((100.0, 100.0), (90.0, 120.0), (110.0, 80.0), (100.0, 100.0)):
            for ranks, rate in zip((1, 2), rates, strict=True):
                add_ranked(store, node, ranks, rate)
    found = study_scaling(store.ask, workload="mnist", platform=None, experiment=None, prices=prices(ALDER))
    rendered = render(found)
    text = rendered.short or ""
    assert "no speed-up is shown" in text
    # A cost of medians alone would be no gain.
    assert "for one USD" not in text
    (grid,) = (part.grid(wide=False) for part in rendered.parts if isinstance(part, Table))
    assert (grid.header[-1], [row[-1] for row in grid.rows]) == ("items by USD", ["100,000", "100,000", "–", "–"])
    assert "No cost of some runs: p.yaml has no entry for the platform birch" in text


def test_the_command_takes_prices_from_an_option_or_the_environment(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, runs = tmp_path / "prices.yaml", tmp_path / "runs.duckdb"
    path.write_text(ALDER + BIRCH)
    with made_up(runs) as store:
        alternate(store)
    by_option = collector("compare", runs, "--format", "csv", "--prices", str(path), columns=80)
    monkeypatch.setenv("GPUAGENT_PRICES", str(path))
    assert collector("compare", runs, "--format", "csv", columns=80) == by_option
    assert '"cost_per_million_items_usd","USD"' in by_option[1]


def test_three_sides_in_three_workloads_fit_a_screen_beside_a_missing_price(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the line of the store that is read and the prompt there are 24 lines."""
    path, runs = tmp_path / "prices.yaml", tmp_path / "runs.duckdb"
    path.write_text("".join(f"- {{platform: {name}, currency: USD, instance_hour: 1}}\n" for name in ("onprem", "aws")))
    rates = {"aws": (473.0, 547.0, 1231.0), "hetzner": (419.0, 602.0, 620.0), "onprem": (382.0, 481.0, 777.0)}
    with made_up(runs) as store:
        nodes = {name: store.node(f"{name}-node", name) for name in rates}
        for repeat, (name, node), place in product(range(7), nodes.items(), range(3)):
            work = ("infer --batch-size 8", "infer --batch-size 16", "train")[place]
            run = {"workload": work.split(" ")[0], "command": json.dumps(["python", *work.split(" ")])}
            rate = rates[name][place] * (1 + repeat / 100)
            store.next_run(node, throughput=rate, parameters={}, repeat=repeat + 1, **run)
    monkeypatch.chdir(tmp_path)
    code, out, _ = collector("compare", Path(runs.name), "--prices", path.name, columns=80)
    assert (code, len(out.splitlines()) <= 22) == (0, True), out


def test_a_broken_file_ends_the_command_with_one_line(tmp_path: Path, collector: Collector) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("- platform: alder\n  currency: USD\n  instance_hour: free\n")
    code, out, err = collector("compare", tmp_path / "runs.duckdb", "--prices", str(path), columns=80)
    assert (code, out) == (2, "")
    assert err == f"collector: {path}, line 3: instance_hour must be a number such as 0.25, not free\n"


def test_figures_of_priced_runs_have_their_cost_beside_the_throughput(store: SyntheticStore) -> None:
    for platform in ("alder", "birch"):
        node = store.node(platform, platform)
        for _ in range(2):
            store.next_run(node, sampled=False)
    table = overview_table(compared(store, by="all", prices=prices(ALDER + BIRCH)))
    assert [column.title for column in table.columns][2:] == ["Throughput", "Cost per run", "Cost per million items"]
