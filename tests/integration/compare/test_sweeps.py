"""Sweeps of a program's options: the best setting, each option alone, and what causes the best's difference."""

import json
import os
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpuagent.experiment.file import parse_experiment
from gpuagent.experiment.plan import trials
from gpuagent_collector.answers import history, plan
from gpuagent_collector.answers.plan_needs import Question, plan_repeats, with_needs
from gpuagent_collector.answers.show import render as render_showing
from gpuagent_collector.answers.show import study_show
from gpuagent_collector.answers.why import plan_ladder, render_settled, write_experiment
from gpuagent_collector.compare.answer import answer, headline_reasons, is_cost_first
from gpuagent_collector.compare.choosing import compare_what_differs, find_sweep, say_choice
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.document import find_next, first_parts, render
from gpuagent_collector.compare.tables import cost_table, verdict_table
from gpuagent_collector.present.table import Table
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.recommend.answer import render as render_recommendation
from gpuagent_collector.recommend.study import Request as RecommendRequest
from gpuagent_collector.recommend.study import recommend
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.comparing import compared
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, made_up

PROGRAM = ("python", "train.py", "--epochs", "1")


def run_program(store: SyntheticStore, node: Any, *arguments: str, **run: Any) -> None:
    given = {"workload": "train.py", "parameters": {}, "experiment": "sweep", "sampled": False}
    store.next_run(node, command=json.dumps([*PROGRAM, *arguments]), **{**given, **run})


def sweep(store: SyntheticStore, repeats: int = 7) -> None:
    """Add a sweep in which a batch of 128 halves the throughput and the rate changes nothing."""
    node = store.node("alder", "lab")
    for repeat in range(1, repeats + 1):
        for batch, rate in product(("32", "128"), ("0.1", "0.2")):
            throughput = 1000.0 * (0.5 if batch == "128" else 1.0) * (1 + repeat / 1000)
            throughput += 0.1 * (repeat % 3) if rate == "0.2" else 0.0
            run_program(store, node, "--batch-size", batch, "--lr", rate, throughput=throughput, repeat=repeat)


def test_a_sweep_has_its_best_setting_and_the_effect_of_each_option(store: SyntheticStore) -> None:
    sweep(store)
    found = compared(store, by="command")
    effects = {
        facet.option: [(test.other.side, test.pairs, test.judgement.shift.estimate) for test in tests]
        for facet, tests in found.options
    }
    ((side, pairs, ratio),) = effects["--batch-size"]
    assert (side, pairs) == ("128", 14)
    assert ratio == pytest.approx(0.5, rel=1e-3)
    ((side, _, ratio),) = effects["--lr"]
    assert side == "0.2"
    assert ratio == pytest.approx(1.0, rel=1e-3)
    in_data = json.loads(render(found).json())["options"]
    assert [(row["option"], row["side"], row["pairs"]) for row in in_data] == [
        ("--batch-size", "128", 14),
        ("--lr", "0.2", 14),
    ]
    assert found.headline is not None
    assert found.headline.other.side == "--batch-size 32 --lr 0.2"
    # What is said of another side explains nothing of the headline.
    assert {because.side for because in headline_reasons(found)} <= {found.headline.other.side}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "repeats", "scatter", "depends"),
    [
        # As measured of a transformer on an H200: only large batches are faster in bfloat16.
        ((866.0, 929.0, 3243.0, 1138.0), 3, 0.05, {"64": 0.35}),
        ((100.0, 125.0, 110.0, 60.0), 7, 0.05, {"16": 1.25, "64": 0.55}),
        ((100.0, 200.0, 300.0, 600.0), 7, 0.05, None),
    ],
)
def test_options_that_depend_on_each_other_have_no_effect_over_all_values(
    store: SyntheticStore, rates: tuple[float, ...], repeats: int, scatter: float, depends: dict[str, float] | None
) -> None:
    node = store.node("alder", "lab")
    for repeat, ((size, precision), rate) in product(
        range(1, repeats + 1), zip(product(("16", "64"), ("bf16", "fp32")), rates, strict=True)
    ):
        measured = rate * store.chance.gauss(1, scatter)
        run_program(store, node, "--size", size, "--precision", precision, throughput=measured, repeat=repeat)
    found = compared(store, by="command")
    in_data = json.loads(render(found).json())
    if depends is None:
        assert (len(found.options), found.dependences, in_data["dependences"]) == (2, (), [])
        return
    assert (found.options, in_data["options"]) == ((), [])
    (dependence,) = in_data["dependences"]
    assert (dependence["option"], dependence["other"], dependence["side"]) == ("--precision", "--size", "fp32")
    shown = {size: ratio for size, ratio in dependence["ratios"].items() if size not in dependence["undecided"]}
    assert shown == {size: pytest.approx(ratio, rel=0.15) for size, ratio in depends.items()}
    placed = render_recommendation(recommend(store.ask, RecommendRequest(workload="train.py", by="command"))).text
    for said in (answer(found), placed):
        assert "Options depend on each other: --precision fp32 instead of bf16 changes " in said
    assert ("time is lowest with --size 64 --precision bf16" in placed) is (repeats < 4)


@pytest.mark.parametrize("first_repeat", [1, 2])
def test_dependent_options_have_the_effect_that_helps_and_harms_with_uneven_runs_too(
    store: SyntheticStore, first_repeat: int
) -> None:
    node = store.node("alder", "lab")
    factors = {"x": 0.5, "y": 1.0, "z": 3.0}
    for repeat, fast, (level, factor) in product(range(1, 5), ("1", "2"), factors.items()):
        if repeat >= first_repeat or (fast, level) != ("1", "x"):
            throughput = 100.0 * (factor if fast == "2" else 1.0) + repeat / 100
            run_program(store, node, *("--fast", fast, "--level", level), throughput=throughput, repeat=repeat)
    found = compared(store, by="command")
    (dependence,) = found.dependences
    assert (dependence.option.option, dependence.side, found.options) == ("--fast", "2", ())
    assert dependence.ratios == {level: pytest.approx(factor, rel=0.01) for level, factor in factors.items()}
    said = answer(found)
    assert said.index("3.0 × with --level z") < said.index("−50 % with --level x") < said.index("with --level y")


@pytest.mark.parametrize("name", ["2 · x", "2,x", "--fast 2 --level x"])
def test_commands_of_a_sweep_are_named_by_their_values_too(store: SyntheticStore, name: str) -> None:
    node = store.node("alder", "lab")
    for repeat, fast, level in product(range(1, 8), ("1", "2"), ("x", "y")):
        throughput = 100.0 * int(fast) + repeat / 100
        run_program(store, node, "--fast", fast, "--level", level, throughput=throughput, repeat=repeat)
    found = compared(store, by="command", baseline=name)
    assert found.layout.sides[0] == "--fast 2 --level x"
    assert "--baseline" in (render(found).next or "")


def test_what_all_commands_of_a_chosen_experiment_have_is_said(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for experiment, steps, repeats in (("long", "800", 4), ("brief", "60", 3)):
        for repeat, fast in product(range(repeats), ("1", "2")):
            options = ("--steps", steps, "--fast", fast)
            run_program(store, node, *options, throughput=100.0 + repeat, repeat=repeat, experiment=experiment)
    found = compare_what_differs(store.ask, Request(by="command"))
    assert say_choice(found, Request(by="command")).endswith(", all with --epochs 1 --steps 800.")


def test_options_written_in_two_ways_hide_no_missing_combination(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    words = (("--fast", "1", "--level", "x"), ("--fast=1", "--level=x"))
    others = (("--fast", "2", "--level", "x"), ("--fast", "1", "--level", "y"))
    for repeat, arguments in product(range(1, 4), (*words, *others)):
        run_program(store, node, *arguments, throughput=100.0 + repeat, repeat=repeat)
    found = compared(store, by="command")
    assert (found.options, found.dependences) == ((), ())


def test_of_equal_medians_none_is_the_lowest_and_only_sides_with_one_are_counted(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, fast in product(range(1, 5), ("1", "2", "3", "4")):
        run_program(store, node, "--fast", fast, throughput=None if fast == "4" else 100.0, repeat=repeat)
    assert "100 items/s with 3 of 4 commands (12 runs)" in answer(compared(store, by="command"))
    placed = render_recommendation(recommend(store.ask, RecommendRequest(workload="train.py", by="command")))
    assert "time is the same so far (10 ms per item)" in placed.text
    assert "lowest" not in {line["verdict"] for line in placed.lines()}


@pytest.mark.parametrize(("usual_runs", "baseline"), [(2, "1"), (3, "not given")])
def test_the_usual_value_is_the_baseline_unless_it_has_few_runs(
    store: SyntheticStore, usual_runs: int, baseline: str
) -> None:
    node = store.node("alder", "lab")
    for repeat in range(1, 6):
        run_program(store, node, "--fast", "1", throughput=100.0 + repeat, repeat=repeat)
        run_program(store, node, "--fast", "2", throughput=200.0 + repeat, repeat=repeat)
        if repeat <= usual_runs:
            run_program(store, node, throughput=50.0 + repeat, repeat=repeat)
    for _ in range(20):
        store.next_run(node, workload="mnist", sampled=False, throughput=1.0)
    assert compared(store, by="argument:--fast").layout.sides[0] == baseline


def test_few_runs_of_two_commands_are_followed_by_the_bench_that_shows_a_difference(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in (1, 2):
        run_program(store, node, "--lr", "0.1", throughput=100.0 + repeat, repeat=repeat)
        run_program(store, node, "--lr", "0.2", throughput=200.0 + repeat, repeat=repeat)
    found = compared(store, by="command")
    assert found.needed
    assert (found.again or "").startswith("gpuagent bench ")


def test_the_side_that_differs_is_named_where_the_best_one_does_not(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in range(1, 8):
        for rate, throughput in (("0.1", 100.0), ("0.2", 98.0 + 4 * (repeat % 2)), ("0.4", 50.0)):
            run_program(store, node, "--lr", rate, throughput=throughput + repeat % 3, repeat=repeat)
    assert "throughput is 50 % lower with --lr 0.4 than with --lr 0.1" in answer(compared(store, by="command"))


def test_the_workload_that_differs_is_named_before_a_larger_one_that_does_not(store: SyntheticStore) -> None:
    nodes = {place: store.node(place, place) for place in ("alder", "birch")}
    for workload, repeats, loss in (("large", 14, 1.0), ("small", 7, 0.5)):
        for repeat in range(1, repeats + 1):
            for place, factor in (("alder", 1.0), ("birch", loss)):
                scatter = 3 * ((repeat + (place == "birch")) % 4)
                throughput = factor * (100.0 + scatter)
                store.next_run(nodes[place], workload=workload, throughput=throughput, repeat=repeat, experiment="e")
    assert answer(compared(store), most=1).startswith(
        "Throughput on birch compared with alder is 50 % lower (worse) for small; "
    )


def test_options_of_an_incomplete_sweep_have_no_effect_of_their_own(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in range(1, 8):
        for words in (("--lr", "0.1"), ("--lr", "0.2"), ("--lr", "0.1", "--batch-size", "8")):
            run_program(store, node, *words, repeat=repeat)
    assert compared(store, by="command").options == ()


def test_an_option_that_ran_beside_the_faster_one_more_often_gets_no_effect_of_that(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for (batch, rate), runs in {("8", "0.1"): 18, ("8", "0.2"): 2, ("16", "0.1"): 2, ("16", "0.2"): 18}.items():
        for number in range(runs):
            throughput = 1000.0 * (2 if batch == "16" else 1) + number
            run_program(store, node, "--batch-size", batch, "--lr", rate, throughput=throughput, repeat=None)
    assert compared(store, by="command").options == ()


def test_a_failed_run_with_another_option_renames_no_side(store: SyntheticStore) -> None:
    sweep(store, repeats=2)
    names = [f"--batch-size {batch} --lr {rate}" for batch, rate in product((32, 128), (0.1, 0.2))]
    node = store.node("alder", "lab")
    failed = {"workload": "train.py", "parameters": {}, "status": "failed"}
    for words in (("--lr", "0.1", "--compile"), ("--batch-size", "32", "--lr", "0.1")):
        store.next_run(node, command=json.dumps(["python", "train.py", *words]), **failed)
    assert list(compared(store, by="command").layout.sides) == names


def test_a_setting_of_which_every_run_failed_is_the_first_warning(store: SyntheticStore) -> None:
    sweep(store, repeats=2)
    node = store.node("alder", "lab")
    for repeat in (1, 2):
        run_program(store, node, "--batch-size", "512", "--lr", "1", status="failed", repeat=repeat)
    found = compare(store.ask, Request(by="command"))
    recommended = recommend(store.ask, RecommendRequest(by="command", workload="train.py"))
    for caveat in (found.caveats[0], recommended.caveats[0]):
        assert caveat.code == "failed_sides"
        assert caveat.text.endswith(": 2 --batch-size 512 --lr 1 failed")
    assert "of 5 commands (--batch-size 512 --lr 1 failed)" in answer(found)


def test_settings_without_a_shown_difference_share_the_first_places_and_none_is_best(store: SyntheticStore) -> None:
    sweep(store, repeats=2)
    answered = render_recommendation(recommend(store.ask, RecommendRequest(by="command", workload="train.py")))
    (table,) = (part for part in answered.parts if isinstance(part, Table))
    rows = table.grid().rows
    assert {row[0] for row in rows} == {"1–4"}
    assert all("best" not in row for row in rows)


def test_a_shown_sweep_has_a_row_for_each_setting_and_no_median_of_all(store: SyntheticStore) -> None:
    sweep(store, repeats=2)
    showing = study_show(store.ask, "lab", Request(series=False))
    assert showing.by_command and len(showing.by_command.layout.sides) == 4
    shown = render_showing(showing)
    (table,) = (part for part in shown.parts if isinstance(part, Table))
    assert len(table.rows) == 4
    assert "Medians:" not in shown.text
    assert "4 settings" in shown.text


def test_the_cost_is_in_a_table_and_first_where_time_is_a_tie(store: SyntheticStore) -> None:
    nodes = [store.node(name, name) for name in ("alder", "birch")]
    for repeat in range(1, 8):
        for node in nodes:
            store.next_run(node, throughput=1000.0 + repeat, repeat=repeat, sampled=False)
    text = "\n".join(
        f"- {{platform: {name}, currency: USD, instance_hour: {hour}}}" for name, hour in (("alder", 1), ("birch", 3))
    )
    found = compared(store, prices=parse_prices(text.encode(), "p.yaml"))
    table = cost_table(found)
    assert table is not None
    assert is_cost_first(found)
    first = first_parts(found)[1][0]
    assert isinstance(first, Table)
    assert first.grid() == table.grid()
    ((side, _, ratio),) = table.grid().rows
    assert (side, ratio.split()[0]) == ("birch / alder", "3.000")
    assert cost_table(compared(store)) is None


def test_without_sides_a_sweep_on_one_platform_is_compared_and_recommended(call: Collector, tmp_path: Any) -> None:
    path = tmp_path / "sweep.duckdb"
    with made_up(path) as store:
        sweep(store)
        # An experiment with fewer runs, which asks for one option after another, is left out.
        for batch in ("32", "128"):
            run_program(store, store.node("birch", "lab"), "--batch-size", batch, experiment="small", throughput=9.0)
    for command in (("compare",), ("recommend",)):
        found = json.loads(call(*command, "--json", store=path)[1])
        assert found["by"] == "command"
    for by in ("argument:batch-size", "all,argument:batch-size", "workload,argument:batch-size"):
        found = json.loads(call("compare", "--by", by, "--json", store=path)[1])
        assert found["by"] == "argument:batch-size"
        assert [test["pairs"] for test in found["tests"]] == [14]
    found = json.loads(call("recommend", "--by", "argument:batch-size", "--json", store=path)[1])
    assert [side["n"] for side in found["rankings"][0]["sides"]] == [14, 14]
    # Sides by the names that they have in the chosen experiment, with which no option is needed.
    sides = ("--", "--batch-size 32 --lr 0.1", "--batch-size 128 --lr 0.1")
    found = json.loads(call("compare", "--json", *sides, store=path)[1])
    assert [test["pairs"] for test in found["tests"]] == [7]
    code, _, err = call("compare", "--by", "run", store=path)
    assert (code, "30 single runs are too many sides" in err) == (2, True)
    for name, remedy in (("train.py", "--workload train.py"), ("nowhere", "there are: lab")):
        code, _, err = call("compare", name, store=path)
        assert (code, remedy in err) == (2, True)
    code, _, err = call("compare", "--by", "argument:lr", "--metric", "top5_accuracy", store=path)
    assert code == 1
    assert "bench --store" in err
    assert f"--pattern 'step {{step}} top5_accuracy {{top5_accuracy}}' -- {' '.join(PROGRAM)} --batch-size" in err


def test_parameters_of_a_built_in_workload_are_a_sweep_too(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, size in product(range(1, 4), (32, 64)):
        store.next_run(node, parameters={"batch_size": size, "depth": 3}, repeat=repeat, sampled=False)
    assert find_sweep(compared(store).layout) == "parameter:batch_size"


def test_a_sweep_beside_other_runs_of_its_workload_is_compared_alone(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, size in product(range(1, 4), (32, 64)):
        store.next_run(node, parameters={"batch_size": size, "depth": 3}, repeat=repeat, experiment="e", sampled=False)
    for parameters in ({"batch_size": 32, "depth": 4, "width": 1}, {"depth": 3, "width": 2, "seed": 7}):
        store.next_run(node, parameters=parameters, sampled=False)
    found = compare_what_differs(store.ask, Request())
    assert (found.request.by, found.request.experiment) == ("parameter:batch_size", "e")
    assert found.layout.sides == ("32", "64")
    assert say_choice(found, Request()) == "This is e, with the most runs."


def test_of_experiments_as_large_the_newest_is_compared_and_the_others_are_named(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for experiment, size, _ in product("ef", (32, 64), range(3)):
        command = json.dumps(["python", "train.py", "--batch", str(size)])
        own = {"workload": "train.py", "parameters": {}, "command": command}
        store.next_run(node, **own, experiment=experiment, sampled=False)
    said = say_choice(compare_what_differs(store.ask, Request()), Request())
    assert said == "This is f, the newest of 2 with 6 runs each."


@pytest.mark.parametrize("platforms", [("lab", "lab"), ("lab", "cloud")])
def test_settings_on_one_of_several_platforms_are_named_with_it(
    store: SyntheticStore, platforms: tuple[str, str]
) -> None:
    for experiment, platform in zip("ef", platforms, strict=True):
        node = store.node(f"{platform}-{experiment}", platform)
        for size, _ in product("12", range(3)):
            command = json.dumps(["python", "train.py", "--batch", size])
            own = {"workload": "train.py", "parameters": {}, "command": command}
            store.next_run(node, **own, experiment=experiment, sampled=False)
    found = compare_what_differs(store.ask, Request(by="argument:--batch", series=False))
    assert found.request.experiment == "f"
    name = tell_apart(found.layout.blocks[0], found.layout.blocks)
    assert name == ("train.py on cloud" if "cloud" in platforms else "train.py")


def test_conditions_that_somebody_set_are_a_sweep_too(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, interference in product(range(1, 4), ("none", "cpu-burn")):
        store.next_run(node, interference=interference, repeat=repeat, sampled=False)
    assert find_sweep(compared(store).layout) == "interference"


@pytest.mark.parametrize(
    ("found", "detail", "option"),
    [
        ("pattern given", None, ""),
        ("pattern given", {"pattern": "{step} l", "items_per_step": 8.0}, "--pattern '{step} l' --items-per-step 8 "),
        ("pattern nanogpt", {"pattern": None, "items_per_step": None}, ""),
        ("torch", {"items_per_step": 0.5}, "--observe --items-per-step 0.5 "),
        ("torch", {"items_per_step": 1048576.0}, "--observe --items-per-step 1048576 "),
        (None, None, ""),
    ],
)
def test_the_next_command_repeats_what_is_recorded_and_names_the_rest(
    store: SyntheticStore, found: str | None, detail: dict[str, Any] | None, option: str
) -> None:
    labels = json.dumps({"team": "x", "slurm_job_id": "7"})
    node = store.node("alder", "lab", labels=labels)
    for repeat, rate in product(range(1, 4), ("0.1", "0.2")):
        asked_for: dict[str, Any] = {"workload": "tr", "environment": "docker", "image": "w:1", "repeat": repeat}
        ended = store.next_run(
            node,
            command=json.dumps([*PROGRAM, "--lr", rate]),
            parameters={},
            sampled=False,
            throughput=1000.0 + repeat,
            **asked_for,
        )
        event = {**ended, "event": "found", "name": found, "rank": 0, "detail": detail and json.dumps(detail)}
        store.rows["run_events"] += [event] if found else []
    options = f"--label team=x --environment docker:w:1 --name tr {option}"
    planned = plan.render(plan_repeats(store.ask, Question()))
    past = history.render(history.study_history(store.ask, history.Request()))
    # A history goes on where it was made, a new experiment varies the commands.
    for answered, words in (
        (planned, f"--platform lab {options}--vary lr=0.1,0.2"),
        (past, f"collector launch --on node=alder --repeat 7 --wait {options}-- "),
    ):
        assert answered.next
        assert words in answered.next
        assert ("--pattern" in answered.text) == (found == "pattern given" and detail is None)


@pytest.mark.parametrize("found", [("32", "128"), ("128",)])  # of short runs no steps are found
def test_items_that_an_option_had_are_counted_by_it_again(store: SyntheticStore, found: tuple[str, ...]) -> None:
    node = store.node("alder", "lab")
    for repeat, size in product(range(1, 4), ("32", "128")):
        words = [*PROGRAM, "--batch-size", size]
        run: dict[str, Any] = {"workload": "tr", "command": json.dumps(words), "parameters": {}, "repeat": repeat}
        ended = store.next_run(node, throughput=1000.0 + repeat, **run)
        detail = json.dumps({"pattern": None, "items_per_step": float(size)})
        event = {**ended, "event": "found", "name": "pattern steps", "rank": 0, "detail": detail}
        store.rows["run_events"] += [event] if size in found else []
    planned = plan.render(plan_repeats(store.ask, Question()))
    assert "--items-per-step batch-size --vary batch-size=32,128" in (planned.next or "")


def test_a_built_in_workload_is_repeated_with_the_parameters_that_it_was_given(store: SyntheticStore) -> None:
    node = store.node("elm", "lab")
    command = ["python3", "-m", "gpuagent_workloads", "run", "vgg16", "--param", "ranks=4"]
    asked: dict[str, Any] = {"workload": "vgg16", "parameters": {"ranks": 4, "seed": 1}, "command": json.dumps(command)}
    for repeat in range(1, 4):
        store.next_run(node, experiment="e", repeat=repeat, throughput=1000.0 + repeat, **asked)
    planned = plan.render(plan_repeats(store.ask, Question()))
    past = history.render(history.study_history(store.ask, history.Request()))
    for answered in (planned, past):
        assert answered.next
        assert "vgg16 --param ranks=4 " in answered.next


def test_runs_that_are_all_equal_are_planned_too(store: SyntheticStore) -> None:
    node = store.node("elm", "lab")
    for repeat in range(1, 6):
        store.next_run(node, workload="vgg16", experiment="e", repeat=repeat, throughput=1000.0)
    assert plan.render(plan_repeats(store.ask, Question())).text


def test_more_repeats_never_have_fewer_looks() -> None:
    question = Question(looks=(8, 9, 10, 11, 12))
    assert question.level(13) <= question.level(12)


@pytest.mark.parametrize("effect", [0.5, 0.01])
def test_runs_with_planned_looks_are_planned_with_looks(store: SyntheticStore, effect: float) -> None:
    node = store.node("alder", "lab")
    for repeat, batch in product(range(1, 13), ("32", "128")):
        rate = 1000.0 * store.chance.gauss(1, 0.01)
        labels = '{"until": "5% at 8,12"}'
        run_program(store, node, "--batch-size", batch, throughput=rate, repeat=repeat, labels=labels)
    found = compared(store, by="command")
    planned = plan_repeats(store.ask, Question(effects=(effect,)))
    needed = planned.blocks[0].needs[0].as_seen[0] or 0
    assert (needed > 12) == (effect == 0.01)
    rendered = plan.render(planned)
    assert rendered.next
    if effect == 0.01:  # it could stop before that is shown
        assert f"--rounds {needed} " in rendered.next
        assert "--until" not in rendered.next
    else:
        assert planned.question.level(12) == pytest.approx(0.05 / found.layout.looks)
        assert planned.question.level(13) <= planned.question.level(12)
        assert "--rounds 12 --until 5% " in rendered.next
    # A bench with fewer rounds refuses to stop early.
    assert "--until" not in str(planned.recorded.repeat_command(planned.commands, "train.py", 8))
    one_side = plan.render(plan_repeats(store.ask, Question(where="list_contains(command::VARCHAR[], '32')")))
    assert "planned look" not in one_side.text + str(one_side.next)


def test_a_built_in_workload_with_planned_looks_is_varied_again(store: SyntheticStore) -> None:
    node = store.node(os.uname().nodename, "lab")
    for repeat, steps in product(range(1, 13), (20, 100)):
        command = ["python3", "-m", "gpuagent_workloads", "run", "mnist", "--param", f"steps={steps}"]
        asked: dict[str, Any] = {"parameters": {"steps": steps, "seed": 1}, "command": json.dumps(command)}
        rate = 1000.0 * store.chance.gauss(1, 0.01)
        store.next_run(node, experiment="e", repeat=repeat, throughput=rate, labels='{"until": "5% at 8,12"}', **asked)
    planned = plan.render(plan_repeats(store.ask, Question()))
    assert planned.next == "gpuagent bench --rounds 12 mnist --vary steps=20,100 --platform lab --until 5%"


@pytest.mark.parametrize(("scatter", "is_reached"), [(0.01, True), (0.1, False)])
def test_a_plan_promises_no_more_than_the_rule_by_which_its_runs_stop(
    store: SyntheticStore, scatter: float, is_reached: bool
) -> None:
    node = store.node("alder", "lab")
    for repeat, batch in product(range(1, 13), ("32", "128")):
        rate = 1000.0 * store.chance.gauss(1, scatter)
        labels = '{"until": "5% at 8,12"}'
        run_program(store, node, "--batch-size", batch, throughput=rate, repeat=repeat, labels=labels)
    planned = plan_repeats(store.ask, Question())
    (block,) = planned.blocks
    expected = block.expected_width(12, planned.question)
    (test,) = compared(store, by="command").figures.tests
    shift = test.judgement.shift
    assert shift.low
    assert shift.high
    assert expected == pytest.approx(shift.high / shift.low - 1, rel=0.6)
    text = plan.render(planned).text
    assert ("planned look" in text) == is_reached
    assert ("which show 5 % or more" in text) == is_reached


def test_new_runs_continue_the_history_of_one_node(store: SyntheticStore) -> None:
    for hostname, platform in (("elm", "lab"), (os.uname().nodename, "cloud"), (os.uname().nodename, "cloud")):
        store.next_run(store.node(hostname, platform), workload="vgg16")
    past = history.render(history.study_history(store.ask, history.Request()))
    assert past.next == "gpuagent bench --rounds 8 vgg16 --platform cloud"


@pytest.mark.parametrize("other", ["lab", os.uname().nodename])
def test_new_runs_are_of_the_platform_of_this_machine_that_has_the_fewest(store: SyntheticStore, other: str) -> None:
    for platform, runs in ((other, 4), ("cloud", 2), ("site", 3)):
        node = store.node(os.uname().nodename, platform)
        for number in range(runs):
            store.next_run(node, workload="vgg16", throughput=1000.0 + number)
    planned = plan.render(plan_repeats(store.ask, Question(effects=(0.2,))))
    assert planned.next == "gpuagent bench --rounds 4 vgg16 --platform cloud"
    *_, beside = planned.text.partition("4 runs on cloud")
    assert all(name in beside for name in (other, "site"))


@pytest.mark.parametrize(("repeats", "is_enough"), [(5, True), (2, False)])
def test_where_each_platform_has_the_new_runs_of_a_plan_they_are_compared(
    store: SyntheticStore, repeats: int, is_enough: bool
) -> None:
    for platform in ("cloud", "site"):
        node = store.node(os.uname().nodename, platform)
        for experiment, number in product(("old", f"new-{platform}"), range(5)):
            if experiment == "old" or number < repeats:
                run = {"workload": "vgg16", "experiment": experiment, "repeat": number + 1}
                store.next_run(node, throughput=1000.0 + number, **run)
    planned = plan.render(plan_repeats(store.ask, Question(effects=(0.2,))))
    asked = """collector compare --workload vgg16 --where "experiment IN ('new-cloud', 'new-site')\""""
    assert (shlex.split(planned.next or "") == shlex.split(asked)) is is_enough


def test_new_runs_of_other_nodes_are_launched_there(store: SyntheticStore) -> None:
    for hostname, platform in (("elm", "lab"), ("oak", "lab"), ("ash", "cloud")):
        node = store.node(hostname, platform)
        for number in range(3 if platform == "lab" else 2):
            store.next_run(node, workload="vgg16", throughput=1000.0 + number, limits="cpus=2 cpus=4@60s")
    there = "collector launch vgg16 --on node=elm --on node=oak --all --repeat"
    past = history.render(history.study_history(store.ask, history.Request()))
    assert past.next == f"{there} 7 --cpus 2 --wait"
    planned = plan.render(plan_repeats(store.ask, Question(effects=(0.01,))))
    everywhere = "collector launch vgg16 --on node=ash --on node=elm --on node=oak --all --repeat 4 --cpus 2 --wait"
    assert planned.next == everywhere
    assert "asks a collector for 4 runs or more on each of cloud and lab" in planned.text


@pytest.mark.parametrize(("number", "agents"), [(2, "--on node=n0 --on node=n1"), (6, "--on platform=lab")])
@pytest.mark.parametrize("is_own", [False, True])
def test_new_runs_of_several_settings_and_nodes_are_one_experiment_file(
    store: SyntheticStore, tmp_path: Path, number: int, agents: str, is_own: bool
) -> None:
    nodes = [store.node(f"n{each}", "lab") for each in range(number)]
    limited: dict[str, Any] = {"limits": "cpus=2 memory=8G", "labels": '{"team": "x"}'}
    for repeat, size, (at, node) in product((1, 2, 3), ("32", "128"), enumerate(nodes)):
        # The second node is slower, and equal runs scatter by 1 %.
        rate = 1000.0 * (0.8 if at == 1 else 1.0) * store.chance.gauss(1, 0.01)
        made = {**limited, "throughput": rate, "repeat": repeat}
        if is_own:
            run_program(store, node, "--batch-size", size, **made)
        else:
            store.next_run(node, parameters={"batch_size": size}, experiment="e", sampled=False, **made)
    path = tmp_path / "more.yaml"
    asked: dict[str, Any] = {"delta": 0.02, "effect_percents": [2.0], "why": None, "by": None}
    planned = plan.answer_plan(store.ask, output=None, **asked)
    assert planned.next
    assert planned.next.endswith(f" --effect 2 -o plan.yaml && collector launch plan.yaml {agents} --all --wait")
    written = plan.answer_plan(store.ask, output=path, **asked)
    assert written.next == f"collector launch {path} {agents} --all --wait"
    assert f" runs of each {'command' if is_own else 'setting'} on each of " in written.text
    experiment = parse_experiment(path.read_bytes(), str(path))
    cells = [cell.asked for cell in experiment.cells]
    given = [cell.command[-1] if is_own else cell.parameters["batch-size"] for cell in cells]
    assert sorted(given) == ["128", "32"]
    assert {(cell.cpus, cell.memory_bytes) for cell in cells} == {(2.0, 8 << 30)}
    assert experiment.labels == {"team": "x"}
    # Each node against the first one, in both settings.
    needed = plan_repeats(store.ask, Question(effects=(0.02,), comparisons=2 * (number - 1))).blocks
    assert experiment.repeats == max(block.needs[0].as_seen[0] or 0 for block in needed)
    # A slower node is no scatter of equal runs.
    assert all(block.spread.seen < 0.02 for block in needed)


def test_a_plan_counts_the_comparisons_and_the_runs_of_the_platforms_that_there_are(store: SyntheticStore) -> None:
    for platform, repeats in (("lab", 5), ("cloud", 4), ("edge", 2)):
        node = store.node(f"node of {platform}", platform)
        for _ in range(repeats):
            rate = 1000.0 * store.chance.gauss(1, 0.01)
            store.next_run(node, workload="vgg16", sampled=False, throughput=rate)
    asked: dict[str, Any] = {"delta": 0.02, "effect_percents": (1, 2, 5), "why": None, "by": None, "output": None}
    planned = plan.answer_plan(store.ask, comparisons=None, **asked)
    assert planned.facts["comparisons"] == 2
    assert "4 runs a side, as here, cannot show any difference" in planned.text
    # As many need as many runs, whoever counts them.
    assert plan.answer_plan(store.ask, comparisons=2, **asked).next == planned.next


def test_too_few_runs_of_nodes_are_followed_by_more_on_each_of_them(store: SyntheticStore) -> None:
    for name, rate in (("ash", 1000.0), ("elm", 1010.0), ("oak", 700.0)):
        node = store.node(name, "lab")
        for repeat in range(1, 4):
            run_program(store, node, throughput=rate * store.chance.gauss(1, 0.01), repeat=repeat)
    found = compared(store, by="node")
    assert found.needed
    assert f"{found.needed.percent:g} % (oak is 31 % lower), make " in answer(found)
    assert f"--on node=oak --all --repeat {found.needed.repeats} " in (found.again or "")


@pytest.mark.parametrize("is_apart", [True, False])
def test_runs_on_platforms_without_a_common_node_are_planned_as_compare_tests_them(
    store: SyntheticStore, is_apart: bool
) -> None:
    lab = store.node("ash", "lab")
    places = [lab, store.node("oak" if is_apart else "ash", "cloud")]
    for repeat, node, size in product(range(1, 6), places, ("32", "128")):
        rate = 1000.0 * store.chance.gauss(1, 0.01)
        run_program(store, node, "--batch-size", size, throughput=rate, repeat=repeat)
    (block,) = plan_repeats(store.ask, Question()).blocks
    assert block.matched is not is_apart


def add_nodes_of_sites(
    store: SyntheticStore, odd: float, workload: str = "vgg16", repeats: int = 4, scatter: float = 0.01
) -> None:
    """Add runs on two nodes each of two platforms, of which one has `odd` times the throughput of the others."""
    for hostname, site in (("ash", "lab"), ("elm", "lab"), ("oak", "cloud"), ("yew", "cloud")):
        node = store.node(hostname, site)
        for repeat in range(1, repeats + 1):
            rate = 1000.0 * (odd if hostname == "yew" else 1.0) * store.chance.gauss(1, scatter)
            store.next_run(node, workload=workload, experiment="e", repeat=repeat, sampled=False, throughput=rate)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [7, 2])
def test_over_workloads_the_odd_node_is_as_far_off_as_was_shown_or_run_more_often(
    store: SyntheticStore, repeats: int
) -> None:
    add_nodes_of_sites(store, 0.97, workload="mnist", repeats=repeats, scatter=0.05)
    add_nodes_of_sites(store, 0.7, repeats=repeats)
    found = compared(store, by="node")
    if repeats > 2:
        assert " lower than on ash for vgg16" in answer(found)
        return
    assert found.needed
    nodes = "--on node=ash --on node=elm --on node=oak --on node=yew --all"
    assert find_next(found) == f"collector launch vgg16 {nodes} --repeat {found.needed.repeats} --wait"


@pytest.mark.slow
def test_platforms_without_the_commonest_commands_make_no_new_runs(store: SyntheticStore) -> None:
    for hostname, site, rates in (("ash", "lab", "111122"), ("oak", "cloud", "11122"), ("yew", "edge", "33")):
        node = store.node(hostname, site)
        for rate in rates:
            run_program(store, node, "--lr", rate, experiment=None, throughput=1000.0 * store.chance.gauss(1, 0.01))
    planned = plan.render(plan_repeats(store.ask, Question()))
    assert "of each of 2 of 3 commands (those run on both) on each of cloud and lab, which show" in planned.text
    assert "yew" not in str(planned.next)
    # Also of another workload.
    for hostname, rate in product(("ash", "oak", "yew"), "44"):
        node = store.node(hostname, {"ash": "lab", "oak": "cloud", "yew": "edge"}[hostname])
        lr = "5" if hostname == "yew" else rate
        run_program(store, node, "--lr", lr, workload="eval.py", throughput=1000.0 * store.chance.gauss(1, 0.01))
    written = plan.write_experiment(store.ask, plan_repeats(store.ask, Question()))
    assert '"--lr", "4"' in written
    assert '"--lr", "5"' not in written


def test_platforms_that_have_runs_enough_are_compared_beside_one_without_their_command(store: SyntheticStore) -> None:
    for hostname, site, rates in (
        (os.uname().nodename, "lab", "11111111"),
        ("oak", "cloud", "11111111"),
        ("yew", "edge", "33"),
    ):
        node = store.node(hostname, site)
        for rate in rates:
            run_program(store, node, "--lr", rate, throughput=1000.0 * store.chance.gauss(1, 0.01))
    planned = plan.render(plan_repeats(store.ask, Question(effects=(0.05,))))
    assert str(planned.next).startswith("collector compare ")


def test_nodes_that_a_clock_does_not_separate_are_alike(store: SyntheticStore) -> None:
    for site, rate in product(("lab", "cloud"), (1000.0, 1000.00001)):
        node = store.node(f"{site}-{rate}", site)
        for _ in range(4):
            store.next_run(node, workload="vgg16", experiment="e", throughput=rate)
    planned = plan_repeats(store.ask, Question())
    assert planned.blocks[0].clock_step
    assert "unlike_nodes" not in {each.code for each in planned.caveats}


@pytest.mark.slow
@pytest.mark.parametrize("odd", [1.0, 0.7])
def test_of_several_nodes_a_side_a_plan_names_the_one_that_is_unlike_the_others(
    store: SyntheticStore, odd: float
) -> None:
    # Also where another workload is the first.
    add_nodes_of_sites(store, 1.0, workload="mnist", repeats=6)
    add_nodes_of_sites(store, odd)
    planned = plan_repeats(store.ask, Question())
    found = {each.code: each.text for each in planned.caveats}
    assert ("unlike_nodes" in found) is (odd < 1)
    assert [block.block.workload for block in planned.blocks] == ["mnist", "vgg16"]
    assert "runs on all nodes of a side" in plan.answer(plan_repeats(store.ask, Question(workload="vgg16")))
    # Of two nodes either one is unlike the other.
    assert odd == 1 or {"ash", "elm"}.isdisjoint(found["unlike_nodes"].split())


def test_equal_runs_scatter_by_the_clock_of_their_lines(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for _ in range(5):
        store.next_run(node, workload="vgg16", throughput=1000.0)
    (block,) = plan_repeats(store.ask, Question()).blocks
    # However many they are, they do not show less than a step of the clock.
    assert 0 < block.clock_step < 0.01
    assert block.least_effect(100, Question()) == block.clock_step
    (need, _) = with_needs(block, Question(effects=(block.clock_step / 2,))).needs
    assert set(need.as_seen) == {None}
    planned = plan.render(plan_repeats(store.ask, Question(effects=(block.clock_step / 2,))))
    assert " 20 " in (planned.next or "")


@pytest.mark.slow
def test_a_difference_that_no_runs_in_reach_show_has_no_command(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for number in range(7):
        store.next_run(node, workload="vgg16", throughput=1000.0 + 20 * number)
    assert plan.render(plan_repeats(store.ask, Question(effects=(0.001,)))).next is None
    assert plan.render(plan_repeats(store.ask, Question(effects=(0.1,)))).next
    for number in range(7):
        store.next_run(node, workload="gcn", throughput=1000.0 + 20 * number)
    beyond = plan.render(plan_repeats(store.ask, Question(effects=(0.001,))))
    assert beyond.next is None
    assert " 0.100 %" in beyond.text


def test_a_ladder_changes_one_argument_after_the_other(store: SyntheticStore) -> None:
    sweep(store)
    sides = ("--batch-size 32 --lr 0.1", "--batch-size 128 --lr 0.2")
    ladder = plan_ladder(store.ask, Request(by="command", values=sides))
    assert [rung.fact for rung in ladder.rungs] == [sides[0], "--batch-size", "--lr"]
    assert ladder.rungs[1].command == (*PROGRAM, "--batch-size", "128", "--lr", "0.1")
    assert ladder.has_run
    file = parse_experiment(write_experiment(ladder).encode(), "why.yaml")
    assert len(trials(file)[0]) == 3


def test_one_argument_as_the_only_difference_is_the_cause(store: SyntheticStore) -> None:
    sweep(store)
    ladder = plan_ladder(store.ask, Request(by="argument:batch-size", values=("32", "128")))
    assert ladder.is_settled
    assert "--batch-size (32 → 128) and in no other recorded fact" in render_settled(ladder).text


def test_one_argument_is_no_only_cause_where_a_side_lacks_a_setting_of_another(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat, (batch, rate) in product(range(1, 8), (("32", "0.1"), ("32", "1"), ("128", "0.1"))):
        run_program(store, node, "--batch-size", batch, "--lr", rate, repeat=repeat)
    ladder = plan_ladder(store.ask, Request(by="argument:batch-size", values=("32", "128")))
    answered = render_settled(ladder)
    assert "no other recorded fact" not in answered.text
    assert "also in --lr 0.1, 1 against 0.1" in answered.text
    assert answered.next and "--by command" in answered.next


def test_platforms_that_differ_in_no_recorded_fact_are_refused_in_true_words(store: SyntheticStore) -> None:
    for repeat, name in product(range(1, 5), ("alder", "birch")):
        store.next_run(store.node("node", name), repeat=repeat, sampled=False)
    with pytest.raises(GpuAgentError, match="no recorded fact but the platform"):
        plan_ladder(store.ask, Request(values=("alder", "birch")))


@pytest.mark.parametrize(
    ("place", "options"), [({}, ""), ({"environment": "docker", "image": "w:1"}, " --environment docker:w:1")]
)
def test_after_one_repeat_of_a_built_in_sweep_comes_its_bench(
    store: SyntheticStore, place: dict[str, Any], options: str
) -> None:
    node = store.node("elm", "lab")
    for size in (32, 64):
        words = ["python3", "-m", "gpuagent_workloads", "run", "mnist", "--param", "steps=60"]
        given = [*words, "--param", f"batch-size={size}"]
        asked = {"batch-size": size, "steps": 60, "seed": 1}
        store.next_run(node, parameters=asked, command=json.dumps(given), sampled=False, **place)
    command = f"gpuagent bench mnist --steps 60 --vary batch-size=32,64 --platform lab{options}"
    assert find_next(compared(store, by="parameter:batch-size")) == command
    with pytest.raises(GpuAgentError, match="--by parameter:batch-size compares"):
        compared(store, by="command")


def test_a_cost_without_prices_asks_for_them(store: SyntheticStore) -> None:
    sweep(store)
    with pytest.raises(GpuAgentError, match="needs prices: add --prices FILE"):
        compared(store, by="command", metric="cost_per_run_eur")


def test_workloads_that_show_a_difference_together_have_one_verdict(store: SyntheticStore) -> None:
    nodes = {name: store.node(f"{name}-node", name) for name in ("alder", "birch")}
    for repeat, workload, (name, node) in product(range(1, 4), ("mnist", "gcn", "cifar10"), nodes.items()):
        throughput = (1000.0 if name == "alder" else 1300.0) + repeat
        store.next_run(node, workload=workload, throughput=throughput, repeat=repeat, sampled=False)
    comparison = compared(store)
    assert {test.judgement.verdict for test in comparison.figures.tests} == {Verdict.TOO_FEW}
    assert "30 % higher" in answer(comparison) and "each of them alone has too few runs" in answer(comparison)
    assert "takes" not in answer(comparison)
    assert not {"n_too_small"} & {caveat.code for caveat in comparison.caveats}
    assert str(verdict_table(comparison).grid().rows[-1][-1]) == "differs"
    assert "report" in (find_next(comparison) or "")


def test_named_sides_whose_commands_differ_in_more_are_said_to(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in range(1, 8):
        run_program(store, node, "--steps", "5", throughput=200.0 + repeat, repeat=repeat, experiment="a")
        options = ("--steps", "20", "--batch-size", "8", "--lr", "1", "--workers", "0")
        run_program(store, node, *options, throughput=100.0 + repeat, repeat=repeat, experiment="b")
    found = compared(store, by="argument:--workers", values=("not given", "0"))
    assert [test.judgement.verdict for test in found.figures.tests] == [Verdict.DIFFERS]
    assert ", but the commands differ in --steps, --batch-size and 1 other too (medians " in answer(found)
    assert find_next(found) == "collector compare --by argument:--steps --workload train.py"


def test_a_program_that_is_started_by_another_one_differs_in_no_argument(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in range(1, 8):
        run_program(store, node, throughput=200.0 + repeat, repeat=repeat)
        wrapped = {"command": json.dumps(["env", "LOAD=9", *PROGRAM]), "workload": "train.py", "parameters": {}}
        store.next_run(node, **wrapped, experiment="sweep", throughput=100.0 + repeat, repeat=repeat)
    found = compared(store, by="argument:LOAD")
    assert [test.judgement.verdict for test in found.figures.tests] == [Verdict.DIFFERS]
    assert "differ in" not in answer(found)


@pytest.mark.parametrize("others", [("LOAD=1", "LOAD=2"), ("LOAD=1", "LOAD=1")])
def test_commands_of_one_side_alone_are_left_out_beside_like_ones(
    store: SyntheticStore, others: tuple[str, str]
) -> None:
    node = store.node("alder", "lab")
    for repeat in (1, 2, 3):
        for given, batch in product(((), ("--steps", "20")), ("8", "16")):
            run_program(store, node, *given, "--batch-size", batch, throughput=100.0 + repeat, repeat=None)
    for words, other in zip(((), ("--steps", "20")), others, strict=True):
        run_program(store, node, *words, "--env", other, throughput=900.0, repeat=None)
    found = compared(store, by="argument:--steps")
    assert {len(cell.runs) for block in found.layout.blocks for cell in block.cells} <= {1, 3}
    assert len(found.layout.blocks) == 2 + (others[0] == others[1])
    assert sum(one.runs for one in found.layout.left_out) == (0 if others[0] == others[1] else 2)


def test_what_is_left_out_is_named_by_its_setting(store: SyntheticStore) -> None:
    nodes = [store.node(name, name) for name in ("alder", "birch")]
    for node, batches in zip(nodes, (("8", "16"), ("8", "32")), strict=True):
        for batch in (*batches, *batches, *batches):
            run_program(store, node, "--batch-size", batch, throughput=100.0, repeat=None)
    left_out = {(one.side, one.runs, one.what) for one in compared(store).layout.left_out}
    assert left_out == {("alder", 3, "train.py --batch-size 16"), ("birch", 3, "train.py --batch-size 32")}


def test_settings_are_named_by_their_values_below_their_options(store: SyntheticStore) -> None:
    node = store.node("alder", "lab")
    for repeat in (1, 2, 3):
        for words, batch, rate in product(((), ("--steps", "20")), ("8", "16"), ("0.1", "0.2")):
            run_program(
                store, node, *words, "--batch-size", batch, "--lr", rate, throughput=100.0 + repeat, repeat=None
            )
    grid = verdict_table(compared(store, by="argument:--steps")).grid(wide=False)
    assert grid.header[0] == "--batch-size · --lr"
    assert {row[0].strip() for row in grid.rows[1:-1]} == {"8 · 0.1", "8 · 0.2", "16 · 0.1", "16 · 0.2"}


@pytest.mark.parametrize("repeats", [2, 7])
@pytest.mark.parametrize("command", ["compare", "recommend train.py"])
@pytest.mark.parametrize("by", ["command", "argument:--level,argument:--chunk", "argument:--chunk"])
def test_the_first_screen_of_a_sweep_fits_24_lines(
    call: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: int, command: str, by: str
) -> None:
    monkeypatch.chdir(tmp_path)  # commands name the store, and this folder's name is long
    path = Path("runs.duckdb")
    with made_up(path) as store:
        node = store.node("alder", "lab", cpu_threads=2)
        for repeat, experiment in product(range(1, repeats + 1), ("first-sweep", "other-sweep")):
            for level, chunk in product(("10000", "90000"), ("25600", "51200")):
                throughput = (700.0 if level == "90000" else 1000.0) * (1 + (7 * repeat % 5) / 10)
                words = (*(["--verify"] if experiment == "other-sweep" else []), "--level", level, "--chunk", chunk)
                run_program(
                    store, node, *words, throughput=throughput, repeat=repeat, experiment=experiment, cpu_percent=100.0
                )
    status, out, _ = call(*command.split(), "--by", by, store=path)
    assert status == 0
    assert len(out.splitlines()) <= 24


def test_too_few_runs_are_warned_of_beside_a_difference_that_is_shown(store: SyntheticStore) -> None:
    rates = {"alder": 1000.0, "birch": 1300.0, "cedar": 1300.0}
    nodes = {name: store.node(f"{name}-node", name) for name in rates}
    for repeat, workload, (name, node) in product(range(1, 5), ("mnist", "gcn", "cifar10", "vgg16"), nodes.items()):
        # Of cedar there is one workload alone, once.
        if name != "cedar" or (repeat, workload) == (1, "mnist"):
            throughput = rates[name] + repeat
            store.next_run(node, workload=workload, throughput=throughput, repeat=repeat, sampled=False)
    comparison = compared(store)
    assert any(overall.is_shown for overall in comparison.figures.overall)
    (caveat,) = [each for each in comparison.caveats if each.code == "n_too_small"]
    assert "4 and 1 runs" in caveat.text
