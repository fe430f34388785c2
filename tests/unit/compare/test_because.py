"""Parts of a difference: they add up, and the largest is the cause of runs whose cause is known."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest

from gpuagent_collector.compare.because import Because, find_because, find_product
from gpuagent_collector.compare.parts import because_panels, because_table, draw_bars
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.facets import find_facet
from tests.support.bare_runs import bare_run, no_facts

RUNS = 7
Figures = dict[str, float]


def explain(before: list[Figures], after: list[Figures], *, whole_runs: bool = False) -> Because | None:
    block, facts = lay_out_sides(before, after)
    return find_because(block, "after", facts, whole_runs=whole_runs, alpha=0.05)


def lay_out_sides(*runs: list[Figures]) -> tuple[Block, Facts]:
    sides = dict(zip(("before", "after", "third"), runs, strict=False))
    metrics = {f"{side}-{number}": run for side, runs in sides.items() for number, run in enumerate(runs)}
    cells = [
        Cell(side=side, runs=tuple(bare_run(f"{side}-{n}") for n in range(len(runs))), others={})
        for side, runs in sides.items()
    ]
    facts = replace(no_facts(), metrics=metrics)
    return Block(workload="mnist", parameters={}, held={}, cells=tuple(cells)), facts


def make_run(chance: random.Random, *, traced: bool, **changed: float) -> Figures:
    """Return the figures of a run by what a step of it takes, in milliseconds, each up to 3 % apart."""
    usual = {"kernels": 20.0, "host": 6.0, "data": 3.0, "communication": 4.0, "held_back": 0.0, "others": 0.0}
    times = {name: value * chance.uniform(0.97, 1.03) / 1e3 for name, value in {**usual, **changed}.items()}
    step, own = sum(times.values()), times["kernels"] + times["held_back"] + times["communication"]
    sampled = own + times["others"]
    figures = {
        "step_seconds": step,
        "throughput": 64 / step,
        "gpu_utilization_percent": 100 * sampled / step,
        "data_wait_percent": 100 * times["data"] / step,
        "exposed_communication_percent": 100 * times["communication"] / step,
        "gpu_other_utilization_percent": 100 * times["others"] / step,
    }
    if traced:
        figures["gpu_busy_percent"] = 100 * own / step
    figures["gpu_throttled_percent"] = 100.0 if times["held_back"] else 0.0
    figures["sm_clock_busy_percent"] = 100 * (1 - times["held_back"] / own)
    return figures


CAUSES = {
    "kernels": {"kernels": 24.0},
    "idle": {"host": 9.0},
    "data": {"data": 7.0},
    "communication": {"communication": 8.0},
    "throttled": {"held_back": 6.0},
    "shared": {"others": 6.0},
}


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_largest_part_is_the_cause_that_was_made(cause: str, traced: bool) -> None:
    found, expected = 0, "gpu" if cause == "kernels" and not traced else cause
    for seed in range(100):
        chance = random.Random(seed)
        before = [make_run(chance, traced=traced) for _ in range(RUNS)]
        after = [make_run(chance, traced=traced, **CAUSES[cause]) for _ in range(RUNS)]
        because = explain(before, after)
        found += because is not None and because.lead is not None and because.lead.name == expected
    assert found >= 95


@pytest.mark.parametrize("traced", [True, False])
def test_parts_sum_to_the_difference_of_the_medians(traced: bool) -> None:
    chance = random.Random(1)
    before = [make_run(chance, traced=traced) for _ in range(RUNS)]
    after = [make_run(chance, traced=traced, host=9.0, kernels=18.0) for _ in range(5)]
    because = explain(before, after)
    assert because is not None
    medians = [median(run["step_seconds"] for run in side) for side in (before, after)]
    assert sum(part.difference for part in because.parts) == pytest.approx(medians[1] - medians[0])
    for side, name in zip(medians, ("baseline", "other"), strict=True):
        assert sum(getattr(part, name) for part in because.parts) == pytest.approx(side)


def test_equal_sides_have_no_cause() -> None:
    shown = 0
    for seed in range(100):
        chance = random.Random(seed)
        because = explain(*[[make_run(chance, traced=True) for _ in range(RUNS)] for _ in range(2)])
        shown += because is not None and because.lead is not None
    assert shown <= 20  # the largest of five parts at 95 % each


def test_steps_of_different_sizes_are_compared_by_item() -> None:
    chance = random.Random(1)
    small = [make_run(chance, traced=True) for _ in range(RUNS)]
    large = [{**make_run(chance, traced=True, kernels=80.0), "throughput": 0.0} for _ in range(RUNS)]
    for run in large:
        run["throughput"] = 256 / run["step_seconds"]
    because = explain(small, large)
    assert because is not None
    assert because.of == "item"
    assert because.difference < 0
    assert because.lead is not None
    assert because.lead.name == "idle"


def test_steps_of_different_sizes_on_each_side_are_compared_by_item() -> None:
    chance = random.Random(1)
    slow, fast = ([make_run(chance, traced=True, host=host) for _ in range(RUNS)] for host in (9.0, 3.0))
    for number, run in enumerate([*slow, *fast]):
        run["throughput"] = (32 if number % 2 else 128) / run["step_seconds"]
    block, facts = lay_out_sides(slow, fast)
    cells = [
        replace(cell, runs=tuple(replace(run, command=("train", str(n % 2))) for n, run in enumerate(cell.runs)))
        for cell in block.cells
    ]
    because = find_because(replace(block, cells=tuple(cells)), "after", facts, whole_runs=False, alpha=0.05)
    assert because is not None
    assert because.of == "item"


@pytest.mark.parametrize(("items", "of"), [(64, "step"), (60, "item")])
def test_all_sides_are_divided_alike_as_their_throughputs_differ(items: int, of: str) -> None:
    chance = random.Random(1)
    slow, fast, third = ([make_run(chance, traced=True, host=host) for _ in range(RUNS)] for host in (9.0, 6.0, 3.0))
    for run in third:  # their median steps are shorter than their mean ones
        run["throughput"] = items / run["step_seconds"]
    block, facts = lay_out_sides(slow, fast, third)
    for side, runs in (("after", fast), ("third", third)):
        because = find_because(block, side, facts, whole_runs=False, alpha=0.05)
        assert because is not None
        assert because.of == of
        if of == "item":
            assert because.medians == pytest.approx(
                [1 / median(run["throughput"] for run in each) for each in (slow, runs)]
            )


@pytest.mark.parametrize(
    ("figures", "changed", "cause"),
    [
        ({"run_seconds": 10.0, "process_cpu_cores": 0.9}, {"run_seconds": 14.0, "process_cpu_cores": 0.64}, "waiting"),
        (
            {"run_seconds": 10.0, "process_cpu_cores": 0.9},
            {"run_seconds": 14.0, "process_cpu_cores": 0.93},
            "computing",
        ),
        (
            {"step_seconds": 0.1, "process_cpu_cores": 0.95},
            {"step_seconds": 0.2, "process_cpu_cores": 0.48},
            "waiting",
        ),
        (
            {"step_seconds": 0.1, "data_wait_percent": 2.0, "process_cpu_cores": 0.95},
            {"step_seconds": 0.2, "data_wait_percent": 2.0, "process_cpu_cores": 0.48},
            "waiting",
        ),
        (
            {"run_seconds": 10.0, "process_cpu_cores": 1.0, "first_report_seconds": 2.0},
            {"run_seconds": 14.0, "process_cpu_cores": 1.0, "first_report_seconds": 6.0},
            "start",
        ),
        (
            {"e2e_p50_seconds": 2.0, "ttft_p50_seconds": 0.2},
            {"e2e_p50_seconds": 2.6, "ttft_p50_seconds": 0.8},
            "first_token",
        ),
        (
            {"e2e_p50_seconds": 2.0, "ttft_p50_seconds": 0.2},
            {"e2e_p50_seconds": 2.6, "ttft_p50_seconds": 0.2},
            "tokens",
        ),
    ],
)
def test_runs_and_answers_are_split_by_what_is_known(figures: Figures, changed: Figures, cause: str) -> None:
    def repeated(run: Mapping[str, float]) -> list[Figures]:
        return [{name: value * (1 + number / 500) for name, value in run.items()} for number in range(RUNS)]

    because = explain(repeated(figures), repeated(changed), whole_runs="run_seconds" in figures)
    assert because is not None
    assert because.lead is not None
    assert because.lead.name == cause


@pytest.mark.parametrize("drop", ["step_seconds", "gpu_utilization_percent"])
def test_nothing_is_guessed_where_a_figure_is_missing(drop: str) -> None:
    chance = random.Random(1)
    make: Callable[[], list[Figures]] = lambda: [make_run(chance, traced=False) for _ in range(RUNS)]  # noqa: E731
    whole, lacking = make(), make()
    for run in lacking:
        del run[drop], run["data_wait_percent"]
    assert explain(whole, lacking) is None


@pytest.mark.parametrize(("lacking", "is_known"), [(1, True), (RUNS // 2 + 1, False)])
def test_the_runs_that_lack_a_reading_are_left_out_if_they_are_few(lacking: int, is_known: bool) -> None:
    sides = []
    for seconds, cores in ((0.1, 0.95), (0.2, 0.48)):
        sides.append([{"step_seconds": seconds * (1 + n / 500), "process_cpu_cores": cores} for n in range(RUNS)])
    for run in sides[1][:lacking]:
        del run["process_cpu_cores"]
    because = explain(*sides)
    assert (because is not None) is is_known
    assert because is None or (because.lead and because.lead.name) == "waiting"


def test_one_odd_run_is_no_cause() -> None:
    before = [{"step_seconds": 1.0 + number / 1000, "gpu_busy_percent": 80.0} for number in range(RUNS)]
    after = [{"step_seconds": 1.15 + number / 1000, "gpu_busy_percent": 87.0} for number in range(RUNS - 1)]
    because = explain(before, [*after, {"step_seconds": 6.0, "gpu_busy_percent": 17.0}])
    assert because is not None
    assert because.lead is not None
    assert because.lead.name == "kernels"


def test_sides_with_other_kinds_of_figures_are_split_by_what_they_have_in_common() -> None:
    traced, sampled = ([make_run(random.Random(seed), traced=seed == 1) for _ in range(RUNS)] for seed in (1, 2))
    because = explain(traced, sampled)
    assert because is not None
    assert "kernels" not in {part.name for part in because.parts}


FACTORS = {"time": {"seconds": 1.3}, "power": {"watts": 1.3}, "price": {"price": 1.3}}


def test_a_cost_of_nothing_is_a_figure_as_any_other() -> None:
    cost = COST_PER_MILLION_ITEMS.metric("joules")
    sides = [[{"throughput": 1000.0, cost.name: dollars} for _ in range(RUNS)] for dollars in (0.0, 2.0)]
    block, facts = lay_out_sides(*sides)
    because = find_product(block, "after", facts, cost, alpha=0.05)
    assert because is not None and because.medians == (0.0, 2.0)
    assert {part.name: part.difference for part in because.parts} == {"price": 2.0, "time": 0.0}


def test_the_bars_of_a_terminal_are_as_long_as_their_parts_together() -> None:
    chance = random.Random(1)
    before = [make_run(chance, traced=True) for _ in range(RUNS)]
    because = explain(before, [make_run(chance, traced=True, host=40.0) for _ in range(RUNS)])
    assert because is not None
    chart = draw_bars(because, find_facet("platform"))
    assert chart is not None
    first, second = ([line.count(mark) for mark in "█▒░·"] for line in chart.draw(80))
    assert sum(second) > 50
    assert sum(first) / sum(second) == pytest.approx(because.medians[0] / because.medians[1], abs=0.02)
    lead = because.parts[0]
    assert second[0] / sum(second) == pytest.approx(lead.other / because.medians[1], abs=0.02)
    assert lead.title in chart.below[0]


@pytest.mark.parametrize("cause", FACTORS)
def test_energy_and_cost_are_divided_into_their_two_factors(cause: str) -> None:
    chance = random.Random(1)
    energy, cost = BY_NAME["gpu_energy_per_item_joules"], COST_PER_MILLION_ITEMS.metric("USD")

    def make(**changed: float) -> Figures:
        seconds = 1e-3 * chance.uniform(0.98, 1.02) * changed.get("seconds", 1.0)
        watts = 300 * chance.uniform(0.98, 1.02) * changed.get("watts", 1.0)
        dollars = changed.get("price", 1.0) / 3600 * seconds * 1e6
        return {"throughput": 1 / seconds, energy.name: watts * seconds, cost.name: dollars}

    sides = [make() for _ in range(RUNS)], [make(**FACTORS[cause]) for _ in range(5)]
    for metric in (energy, cost):
        block, facts = lay_out_sides(*sides)
        because = find_product(block, "after", facts, metric, alpha=0.05)
        assert because is not None
        before, after = (median(run[metric.name] for run in side) for side in sides)
        assert sum(part.difference for part in because.parts) == pytest.approx(after - before)
        ((panel, _),) = because_panels([because], ["before", "after"])
        part, whole = panel.rows[-2:]
        assert part.bars[0].end == pytest.approx(whole.end)
        if {part.name for part in because.parts} >= {cause}:
            assert because.lead is not None and because.lead.name == cause
    assert because is not None
    hourly = next(line for line in because_table(because).records() if line["unit"] == "USD/h")
    assert hourly["baseline"] == pytest.approx(1.0)


def test_a_waterfall_has_room_for_what_falls_below_zero() -> None:
    """A side that costs a quarter an hour and takes twice as long: the price alone is more than the whole cost."""
    cost = COST_PER_MILLION_ITEMS.metric("USD")
    sides = [[{cost.name: usd, "throughput": rate}] * RUNS for usd, rate in ((1.0, 1.0), (0.5, 0.5))]
    block, facts = lay_out_sides(*sides)
    because = find_product(block, "after", facts, cost, alpha=0.05)
    assert because is not None
    ((panel, _),) = because_panels([because], ["before", "after"])
    assert panel.x.ends is not None
    falling = [bar.end for row in panel.rows for bar in row.bars if bar.is_hollow]
    assert falling
    assert panel.x.ends[0] < min(falling) <= 0


def test_differences_from_one_baseline_are_stacks_in_one_panel_and_factors_one_waterfall() -> None:
    chance, cost = random.Random(1), COST_PER_MILLION_ITEMS.metric("USD")
    runs = [[make_run(chance, traced=True, host=host) for _ in range(RUNS)] for host in (6.0, 20.0, 40.0)]
    block, facts = lay_out_sides(*([{**run, cost.name: run["step_seconds"]} for run in side] for side in runs))
    sides = ["before", "after", "third"]
    times = [find_because(block, side, facts, whole_runs=False, alpha=0.05) for side in sides[1:]]
    costs = [find_product(block, side, facts, cost, alpha=0.05) for side in sides[1:]]
    reasons = [because for because in (*times, *costs) if because]
    (stacks, of_time), (waterfall, of_cost) = because_panels(reasons, sides)
    assert [*of_time, *of_cost] == reasons
    assert [row.name for row in stacks.rows] == sides
    wholes = [of_time[0].medians[0], *(because.medians[1] for because in of_time)]
    assert [row.end / wholes[0] for row in stacks.rows] == pytest.approx(
        [whole / wholes[0] * stacks.rows[0].end / wholes[0] for whole in wholes]
    )
    assert all(one.end == other.begin for row in stacks.rows for one, other in pairwise(row.bars))
    # No part has a side's colour, and a part the same on all sides.
    looks = {(bar.part, bar.index) for row in stacks.rows for bar in row.bars}
    assert len(looks) == len({part for part, _ in looks})
    assert min(index or 0 for _, index in looks) == len(sides)
    named = [row.name for row in waterfall.rows if row.name in sides]
    assert named == sides
    ends = [row.bars[0].end for row in waterfall.rows]
    assert [ends[at - 1] for at, row in enumerate(waterfall.rows) if row.name in sides[1:]] == pytest.approx(
        [ends[at] for at, row in enumerate(waterfall.rows) if row.name in sides[1:]]
    )
