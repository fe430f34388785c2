"""Which side is the best, which are not told apart from it, which are in the Pareto set, and how certain that is."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt

import pytest

from gpuagent_collector.compare.figures import compute_figures
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN
from gpuagent_collector.recommend.ranking import Ranking, Standing, rank
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.statistics.verdicts import Judgement, Verdict
from tests.support.bare_runs import bare_run, no_facts

USD = COST_PER_MILLION_ITEMS.metric("USD")
SPREAD = (0.99, 0.995, 1.0, 1.005, 1.01)
WIDE = (0.7, 0.9, 1.3, 1.4, 1.6)

Metrics = Mapping[str, float]


def repeats(**figures: float) -> list[dict[str, float]]:
    """Return five runs of these figures, up to a hundredth apart."""
    return [{name: value * factor for name, value in figures.items()} for factor in SPREAD]


def taking(**figures: float) -> list[dict[str, float]]:
    """Return five runs that take so much time, energy and cost by item."""
    names = {"energy": "gpu_energy_per_item_joules", "cost": USD.name}
    return [
        {"throughput": 1 / run["time"], **{names[name]: run[name] for name in names if name in run}}
        for run in repeats(**figures)
    ]


def ranked(
    sides: Mapping[str, Sequence[Metrics]], *names: str, experiment: str | None = None, **weights: float
) -> tuple[Ranking, ...]:
    """Return the rankings by these criteria; a name counts once. In an experiment, each run is a repeat."""
    metrics = {f"{side}-{number}": run for side, runs in sides.items() for number, run in enumerate(runs)}
    cells = [
        Cell(side=side, runs=tuple(_run(side, number, experiment) for number in range(len(runs))), others={})
        for side, runs in sides.items()
    ]
    facts = replace(no_facts(), metrics=metrics, derived=(USD, COST_PER_RUN.metric("USD")))
    block = Block(workload="mnist", parameters={}, held={}, cells=tuple(cells))
    return rank([block], facts, {**dict.fromkeys(names, 1.0), **weights}, delta=0.02)


def _run(side: str, number: int, experiment: str | None) -> Run:
    made = {"experiment": experiment, "nodes": "node", "repeat": number} if experiment else {}
    return bare_run(f"{side}-{number}", **made)


def standings(sides: Mapping[str, Sequence[Metrics]], *names: str, **weights: float) -> tuple[Standing, ...]:
    (ranking,) = ranked(sides, *names, experiment=None, **weights)
    return ranking.standings


def places(sides: Mapping[str, Sequence[Metrics]], *names: str, **weights: float) -> dict[str, int | None]:
    return {one.side: one.place for one in standings(sides, *names, **weights)}


def efficient(sides: Mapping[str, Sequence[Metrics]]) -> set[str]:
    return {one.side for one in standings(sides, "time") if one.is_efficient}


def judged(standing: Standing) -> Judgement:
    assert standing.judgement
    return standing.judgement


def test_sides_that_differ_are_ranked_by_their_ratio_to_the_best() -> None:
    best, second, third = standings({"a": taking(time=3), "b": taking(time=1), "c": taking(time=2)}, "time")
    assert (best.side, best.place, best.judgement, best.medians) == ("b", 1, None, {"time": 1.0})
    assert (second.side, second.place, judged(second).verdict) == ("c", 2, Verdict.DIFFERS)
    assert (third.side, third.place) == ("a", 3)
    assert [judged(one).shift.estimate for one in (second, third)] == pytest.approx([2, 3])


@pytest.mark.parametrize(("experiment", "place"), [("one", 2), (None, 1)])
def test_runs_of_one_repeat_are_pairs_so_that_drift_hides_no_difference(experiment: str | None, place: int) -> None:
    drift = [1.3**repeat for repeat in range(7)]
    sides = {"a": [{"throughput": each} for each in drift], "b": [{"throughput": 0.95 * each} for each in drift]}
    ((best, other),) = (ranking.standings for ranking in ranked(sides, "time", experiment=experiment))
    assert (best.side, other.place, judged(other).shift.matched) == ("a", place, experiment is not None)


@pytest.mark.parametrize(
    ("weights", "score"), [({"time": 1, "cost": 1}, sqrt(2 * 8)), ({"time": 2, "cost": 1}, (2 * 2 * 8) ** (1 / 3))]
)
def test_the_score_is_the_weighted_geometric_mean_of_the_ratios(weights: dict[str, float], score: float) -> None:
    _, other = standings({"a": taking(time=1, cost=1), "b": taking(time=2, cost=8)}, **weights)
    assert judged(other).shift.estimate == pytest.approx(score)


def test_weights_decide_between_what_is_fast_and_what_is_cheap() -> None:
    sides = {"fast": taking(time=1, cost=3), "cheap": taking(time=2, cost=1)}
    assert places(sides, "time") == {"fast": 1, "cheap": 2}
    assert places(sides, "cost") == {"cheap": 1, "fast": 2}
    assert places(sides, time=3, cost=1) == {"fast": 1, "cheap": 2}


def test_what_is_not_shown_to_differ_from_the_best_shares_its_place_and_comes_before_what_is() -> None:
    wide = [{"throughput": 1 / time} for time in WIDE]
    sides = {"a": taking(time=1), "b": taking(time=1.1), "wide": wide}
    assert places(sides, "time") == {"a": 1, "wide": 1, "b": 3}
    (tied,) = (one for one in standings(sides, "time") if one.side == "wide")
    assert (tied.is_tied, judged(tied).verdict) == (True, Verdict.NOT_SHOWN)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([{"throughput": 1000.0 + number} for number in range(5)],) * 2 + (Verdict.EQUAL,),
        (taking(time=1)[:3], taking(time=9)[:3], Verdict.TOO_FEW),
    ],
    ids=["the same to within the margin", "too few runs"],
)
def test_sides_not_shown_to_differ_are_tied(first: list[Metrics], second: list[Metrics], verdict: Verdict) -> None:
    _, other = standings({"a": first, "b": second}, "time")
    assert (other.place, judged(other).verdict) == (1, verdict)


def test_what_another_side_beats_in_one_thing_and_equals_in_the_rest_is_not_in_the_pareto_set() -> None:
    sides = {
        "fast": taking(time=1, energy=5, cost=5),
        "cheap": taking(time=3, energy=2, cost=1),
        "worse": taking(time=3, energy=4, cost=5),
    }
    assert efficient(sides) == {"fast", "cheap"}
    # One criterion makes no Pareto set.
    assert {one.is_efficient for one in standings({"a": taking(time=1), "b": taking(time=2)}, "time")} == {None}


def test_a_side_stays_in_the_pareto_set_until_something_is_shown_to_be_worse() -> None:
    wide = [{"throughput": 1 / time, USD.name: 1.01} for time in WIDE]
    assert efficient({"a": taking(time=1, cost=1), "wide": wide}) == {"a", "wide"}


def test_runs_that_are_too_few_for_any_test_make_no_pareto_set() -> None:
    sides = {"a": taking(time=1, energy=1), "b": taking(time=9, energy=9), "c": taking(time=5, energy=5)}
    few = {side: runs[:3] for side, runs in sides.items()}
    assert {one.is_efficient for one in standings(few, "time")} == {None}
    assert efficient(sides) == {"a"}


def test_a_side_of_which_the_cost_is_not_known_is_not_ranked_by_it() -> None:
    sides = {"a": taking(time=1, cost=1), "b": taking(time=2, cost=1), "c": taking(time=3)}
    (ranking,) = ranked(sides, "cost")
    assert [one.side for one in ranking.standings] == ["a", "b"]
    (unranked,) = ranking.unranked
    assert (unranked.side, unranked.place, unranked.runs, unranked.medians) == ("c", None, 5, {"time": 3.0})
    (by_time,) = ranked(sides, "time")
    assert by_time.unranked == ()
    assert by_time.standings[2].medians == {"time": 3.0}


def test_nothing_is_ranked_by_what_fewer_than_two_sides_have() -> None:
    assert ranked({"a": taking(time=1, cost=1), "b": taking(time=2)}, "cost") == ()
    assert ranked({"a": taking(time=1), "b": taking(time=2)}, "time", "energy") == ()


def test_where_runs_report_no_throughput_a_run_is_what_is_judged() -> None:
    runs = {side: repeats(run_seconds=time, cost_per_run_usd=cost) for side, time, cost in (("a", 9, 1), ("b", 10, 9))}
    (ranking,) = ranked(runs, "time")
    assert {one.name: one.per for one in ranking.criteria} == {"time": "run", "cost": "run"}
    assert ranking.standings[0].medians == {"time": 9.0, "cost": 1.0}


@pytest.mark.parametrize("best", ["abc", "bc", "ab", "bcd"])
def test_of_rankings_with_equally_good_sides_at_most_one_in_twenty_puts_one_behind(best: str) -> None:
    chance = random.Random(11)
    wrong = 0
    for _ in range(400):
        sides = {}
        for side in "abcd" if "d" in best else "abc":
            middle = 0.0 if side in best else -0.15
            sides[side] = [{"throughput": chance.lognormvariate(middle, 0.05)} for _ in range(7)]
        found = places(sides, "time")
        wrong += any(found[side] != 1 for side in best)
    # Of 400 with a chance of 0.05 more than 32 come up in less than one case of a hundred.
    assert wrong <= 32


@pytest.mark.parametrize("experiment", ["one", None])
def test_no_side_that_compare_shows_to_be_worse_than_another_shares_the_first_place(experiment: str | None) -> None:
    chance, facet = random.Random(12), find_facet("platform")
    shown = set()
    for number in range(60):
        metrics: dict[str, Metrics] = {}
        cells = []
        for side in "abcd"[: 3 + number % 2]:
            middle = chance.choice([0.0, 0.1, 0.2])
            runs = [_run(side, repeat, experiment) for repeat in range(7)]
            metrics |= {run.run_id: {"throughput": chance.lognormvariate(middle, 0.08)} for run in runs}
            cells.append(Cell(side=side, runs=tuple(runs), others={}))
        facts = replace(no_facts(), metrics=metrics)
        block = Block(workload="mnist", parameters={}, held={}, cells=tuple(cells))
        layout = Layout(facet=facet, sides=tuple(cell.side for cell in cells), blocks=(block,), left_out=())
        (ranking,) = rank([block], facts, {"time": 1.0}, delta=0.02)
        placed = {standing.side: standing for standing in ranking.standings}
        for test in compute_figures(layout, facts, metric=None, delta=0.02).tests:
            if test.judgement.verdict is Verdict.DIFFERS:
                better, worse = test.sides if test.judgement.shift.estimate > 1 else test.sides[::-1]
                assert not placed[worse].is_tied
                shown.add((better, worse))
            elif ranking.reference in test.sides:
                (other,) = {*test.sides} - {ranking.reference}
                assert judged(placed[other]).verdict is test.judgement.verdict
    assert len(shown) > 3
