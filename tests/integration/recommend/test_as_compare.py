"""A recommendation says what `compare` says of the same runs: of commands, of their options, and over settings."""

import json
import random
import shlex
from itertools import product
from typing import Any

import pytest

from gpuagent_collector.compare.answer import answer as say_comparison
from gpuagent_collector.compare.choosing import compare_what_differs
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.comparison import Request as CompareRequest
from gpuagent_collector.compare.document import find_next
from gpuagent_collector.present.table import Table
from gpuagent_collector.recommend.answer import answer, answer_recommend, render
from gpuagent_collector.recommend.study import Recommendation, Request, recommend
from gpuagent_collector.statistics.verdicts import Verdict
from tests.integration.compare.synthetic import SyntheticStore

PROGRAM = ("python", "crunch.py")


def run_program(store: SyntheticStore, node: Any, seconds: float, *arguments: str, **run: Any) -> None:
    made = {
        "workload": "crunch.py",
        "parameters": {},
        "experiment": "sweep",
        "sampled": False,
        "throughput": 1 / seconds,
    }
    store.next_run(node, command=json.dumps([*PROGRAM, *arguments]), **{**made, **run})


def sweep(store: SyntheticStore, slow: str = "9") -> None:
    """Add seven noisy repeats in which one level takes 1.4 times as long, and the size of a chunk changes nothing."""
    node, chance = store.node("alder", "lab"), random.Random(3)
    for repeat in range(1, 8):
        for level, chunk in product("19", ("256", "512")):
            seconds = chance.lognormvariate(0, 0.2) * (1.4 if level == slow else 1.0)
            run_program(store, node, seconds, "--level", level, "--chunk", chunk, repeat=repeat)


def both(store: SyntheticStore, by: str = "platform") -> tuple[Recommendation, Comparison]:
    found = recommend(store.ask, Request(workload="crunch.py", by=by))
    compared = compare_what_differs(store.ask, CompareRequest(workload="crunch.py", by=by, series=False))
    return found, compared


@pytest.mark.parametrize("by", ["platform", "command", "argument:--chunk,argument:--level"])
@pytest.mark.parametrize("slow", ["1", "9"])
def test_a_sweep_is_placed_by_what_compare_shows_of_its_options(store: SyntheticStore, slow: str, by: str) -> None:
    sweep(store, slow)
    found, compared = both(store, by)
    (ranking,) = found.rankings
    fast = "9" if slow == "1" else "1"
    assert {one.side for one in ranking.standings if one.place == 1} == {
        side for side in found.layout.sides if fast in side.replace(",", " ").split()
    }
    said = answer(found)
    assert said.startswith(f"crunch.py is fastest with --level {fast}: by option, ")
    # The very words of `compare`, with the ratio and the number of pairs.
    of_compare = say_comparison(compared)
    words = "instead of 1 makes"
    assert words in said
    assert said.partition(words)[2].partition(";")[0].partition("%")[0].split()[-1] in of_compare


def test_each_side_has_the_verdict_of_compare_against_its_baseline(store: SyntheticStore) -> None:
    sweep(store)
    found, compared = both(store)
    (ranking,) = found.rankings
    shown = {one.side: one.judgement for one in ranking.standings}
    for test in compared.figures.tests:
        judgement = shown[test.other.side]
        assert judgement and judgement.verdict is test.judgement.verdict
        assert judgement.shift.estimate == pytest.approx(1 / test.judgement.shift.estimate)
    assert ranking.reference == compared.layout.sides[0]


def test_an_option_puts_no_setting_behind_in_which_it_is_faster(store: SyntheticStore) -> None:
    node, chance = store.node("alder", "lab"), random.Random(3)
    factors = {("1", "256"): 1.0, ("9", "256"): 3.0, ("1", "512"): 1.2, ("9", "512"): 1.1}
    for repeat in range(1, 8):
        for (level, chunk), factor in factors.items():
            seconds = chance.lognormvariate(0, 0.02) * factor
            run_program(store, node, seconds, "--level", level, "--chunk", chunk, repeat=repeat)
    found, _ = both(store)
    (ranking,) = found.rankings
    worse = {one.side: one.worse_by for one in ranking.standings}
    assert "--level" not in worse["--level 9 --chunk 512"]


def add_settings(store: SyntheticStore, programs: dict[str, tuple[str, ...]], counts: dict[str, int]) -> None:
    """Add an experiment for each program, in four settings; with --steps they take half of the time."""
    node = store.node("alder", "lab")
    for name, level, chunk in product(programs, "19", ("256", "512")):
        for repeat in range(1, counts[name] + 1):
            seconds = (0.5 if programs[name] else 1.0) * (1 + 0.01 * repeat)
            words = (*programs[name], "--level", level, "--chunk", chunk)
            run_program(store, node, seconds, *words, repeat=repeat, experiment=name)


def test_over_settings_the_best_of_several_sides_is_compared_with_the_others(store: SyntheticStore) -> None:
    programs = {"a": (), "b": ("--steps", "5"), "c": ("--steps", "6")}
    add_settings(store, programs, {"a": 4, "b": 3, "c": 3})
    found, compared = both(store, "argument:--steps")
    assert [overall.is_shown for overall in compared.figures.overall] == [True, True]
    # They take as long with 5 as with 6 steps.
    shown = {frozenset((one.side, one.baseline)): one.is_shown for one in found.tests.figures.overall}
    assert not shown[frozenset("56")]
    assert sum(shown.values()) == 1
    assert answer(found).startswith("crunch.py is fastest with --steps ")
    assert [caveat.code for caveat in found.caveats] == ["not_interleaved"]


def test_other_commands_are_warned_of_before_a_load_of_others(store: SyntheticStore) -> None:
    nodes = [store.node(name, name, cpu_threads=2) for name in ("alder", "birch")]
    for repeat, (number, node) in product(range(1, 6), enumerate(nodes)):
        seconds = 1 + 0.01 * repeat
        run_program(store, node, seconds, "--level", str(number), repeat=repeat, sampled=True, cpu_percent=100.0)
    for row in store.rows["process_samples"]:
        row["cpu_cores"] = 0.44
    found, _ = both(store)
    assert found.caveats[0].code == "different_commands"
    assert "foreign_load" in {caveat.code for caveat in found.caveats}


def add_nodes(store: SyntheticStore, factors: dict[str, float], repeats: int = 3) -> None:
    """Add repeats of two batch sizes on each node, whose speed has the node's factor."""
    nodes = {name: store.node(name, "lab") for name in factors}
    for repeat, size, (name, factor) in product(range(1, repeats + 1), (32, 128), factors.items()):
        rate = 1000.0 * (1 + size / 100) * factor * store.chance.gauss(1, 0.01)
        made: dict[str, Any] = {"experiment": "e", "repeat": repeat, "throughput": rate, "sampled": False}
        store.next_run(nodes[name], parameters={"batch_size": size}, **made)


# The nodes' speeds, the best node, the others that are as fast.
@pytest.mark.parametrize(
    ("factors", "best", "tied"),
    [
        ({"a": 1.0, "b": 0.8, "c": 1.0}, {"a", "c"}, {"a", "c"}),
        ({"a": 1.0, "b": 0.8, "c": 1.3, "d": 1.0}, {"c"}, {"c"}),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, set[str](), {"a", "b", "c"}),
    ],
)
def test_over_settings_several_nodes_have_the_verdict_that_is_true(
    store: SyntheticStore, factors: dict[str, float], best: set[str], tied: set[str]
) -> None:
    add_nodes(store, factors)
    answered = answer_recommend(store.ask, workload="mnist", by="node", experiment=None, where=None, prices=None)
    tests = recommend(store.ask, Request(workload="mnist", by="node")).tests
    behind = {one.side for one in tests.figures.overall if one.is_shown}
    assert behind == set(factors) - tied
    if best:
        assert answered.text.removeprefix("mnist is fastest on ")[0] in best
    else:
        assert answered.text.startswith("Over 2 settings: there is no measurable difference ")
    # No warning is of single settings, as all together decide.
    assert not answered.caveats
    assert not compare_what_differs(store.ask, CompareRequest(workload="mnist", by="node")).caveats
    words = shlex.split(answered.next or "")
    assert words[1] == ("compare" if best else "plan")
    if best:
        compared = compare_what_differs(store.ask, CompareRequest(by="node", values=tuple(words[-2:])))
        assert compared.figures.overall[0].is_shown


def test_over_settings_a_recommendation_says_what_all_of_them_show_together(store: SyntheticStore) -> None:
    add_settings(store, {"a": (), "b": ("--steps", "5")}, {"a": 4, "b": 3})
    found, compared = both(store, "argument:--steps")
    (overall,) = compared.figures.overall
    assert overall.is_shown
    assert {test.judgement.verdict for test in compared.figures.tests} == {Verdict.TOO_FEW}
    said = answer(found)
    assert said.startswith("crunch.py is fastest with --steps 5. Over 4 settings: throughput is ")
    assert "no measurable difference" not in said
    answered = render(found)
    assert answered.next == find_next(compared)


@pytest.mark.parametrize(("rate", "more"), [(1000.0, {}), (2000.0, {}), (1000.0, {"256": 900.0})])
def test_over_settings_sides_that_some_of_them_lack_are_named_or_counted(
    store: SyntheticStore, rate: float, more: dict[str, float]
) -> None:
    chance = random.Random(3)
    for platform, rates in (("a", {"32": 500.0, "64": 1000.0, "128": rate, **more}), ("b", {"32": 400.0, "64": 800.0})):
        node = store.node(f"{platform}-node", platform)
        for repeat, (size, of_size) in product(range(7), rates.items()):
            seconds = chance.lognormvariate(0, 0.02) / of_size
            run_program(store, node, seconds, "--batch-size", size, repeat=repeat, experiment=None)
    said = answer(recommend(store.ask, Request(workload="crunch.py", by="argument:batch-size")))
    # Where it is faster than the best of all settings, that is not the answer.
    assert said.startswith("crunch.py is fastest with --batch-size 64. ") == (rate == 1000.0)
    assert ("--batch-size 128: crunch.py on a" in said) == (rate > 1000.0)
    named = "2 other values of the argument batch-size have" if more else "--batch-size 128 has"
    assert f"{named} runs of crunch.py on a alone" in said


def test_over_settings_two_of_three_sides_are_compared_next(store: SyntheticStore) -> None:
    rates_on = {"a": {"32": 500.0, "64": 1000.0}, "b": {"32": 400.0, "64": 800.0}, "c": {"64": 900.0}}
    for platform, rates in rates_on.items():
        node = store.node(f"{platform}-node", platform)
        for repeat, (size, rate) in product(range(7), rates.items()):
            run_program(store, node, (1 + repeat / 100) / rate, "--batch-size", size, repeat=None, experiment=None)
    found = recommend(store.ask, Request(workload="crunch.py"))
    assert render(found).next == "collector compare --workload crunch.py a b"


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_a_recommendation_plans_as_many_runs_as_compare(store: SyntheticStore, repeats: int) -> None:
    node, chance = store.node("alder", "lab"), random.Random(5)
    for repeat in range(1, repeats + 1):
        for level in "159":
            seconds = chance.lognormvariate(0, 0.2) * (1.1 if level == "9" else 1.0)
            run_program(store, node, seconds, "--level", level, repeat=repeat)
    found, compared = both(store)
    planned = answer_recommend(store.ask, workload="crunch.py", by="platform", experiment=None, where=None, prices=None)
    assert compared.needed
    if compared.again:
        assert planned.next == compared.again
    else:
        assert f"--effect {compared.needed.percent:g}" in (planned.next or "")
    of_compare = {caveat.code: caveat.remedy for caveat in compared.caveats}
    for caveat in found.caveats:
        if caveat.code in ("n_too_small", "few_pairs"):
            assert caveat.remedy == of_compare[caveat.code]


def test_a_side_of_lower_median_that_no_test_puts_before_the_baseline_is_compared_with_it(
    store: SyntheticStore,
) -> None:
    node, chance = store.node("alder", "lab"), random.Random(4)
    for repeat in range(1, 8):
        for level, factor in (("1", 1.0), ("5", 0.97), ("9", 2.0)):
            run_program(store, node, chance.lognormvariate(0, 0.1) * factor, "--level", level, repeat=repeat)
    found, _ = both(store)
    (ranking,) = found.rankings
    (first, second, third) = ranking.standings
    assert [first.side, second.side, third.side] == ["--level 5", "--level 1", "--level 9"]
    assert (ranking.reference, first.place, second.place, third.place) == ("--level 1", 1, 1, 3)
    (table,) = (part for part in render(found).parts if isinstance(part, Table))
    assert [row[-1] for row in table.grid().rows] == ["~", "baseline", "differs"]
    assert "Compared with --level 1, --level 9 takes 1.9" in answer(found)


def test_times_are_of_items_where_steps_of_a_third_side_have_other_numbers_of_them(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, (size, level) in product(range(1, 8), product(("64", "32"), "19")):
        seconds = (3.0 if size == "32" else 1.0) * (2.0 if level == "9" else 1.0) * (1 + repeat / 1000) / 100
        run_program(store, node, seconds, "--size", size, "--level", level, repeat=repeat, sampled=True)
        if size == "32":
            for row in store.rows["steps"][-10:]:
                row["wall_seconds"] /= 2
    found, _ = both(store, "command")
    assert [because and because.of for because in found.because] == ["item"]
