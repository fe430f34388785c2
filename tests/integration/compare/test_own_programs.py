"""Comparisons of programs of the user's own: their name is what they have in common."""

import json
import os
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpuagent.experiment.file import parse_experiment
from gpuagent.runs.events import EventTailer
from gpuagent_collector.answers.plan import answer_plan, write_experiment
from gpuagent_collector.answers.plan import render as render_plan
from gpuagent_collector.answers.plan_needs import Question, plan_repeats
from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.document import find_next
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.recommend.answer import render as render_recommendation
from gpuagent_collector.recommend.study import Request as RecommendRequest
from gpuagent_collector.recommend.study import recommend
from gpuagent_collector.runs.data import load_facts, load_runs
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.paragraph import describe_runs
from tests.integration.compare.comparing import alternate, codes, compared, texts
from tests.integration.compare.synthetic import SyntheticStore

pytestmark = pytest.mark.slow

NANOGPT = ("python", "train.py", "config/shakespeare.py", "--max_iters=2000")


def own(*command: str, name: str = "nanogpt", **run: Any) -> dict[str, Any]:
    """Return a run of a program that reports nothing."""
    given: dict[str, Any] = {
        "workload": name,
        "parameters": {},
        "command": json.dumps(command),
        "throughput": None,
        "phases": False,
    }
    return {**given, **run}


def add_losses(store: SyntheticStore, *losses: float) -> None:
    """Add two commands in turns, whose runs end with about these losses."""
    nodes = alternate(store, first=own("train", "--lr=1"), second=own("train", "--lr=2"))
    for repeat in range(5):
        for turn, (node, loss) in enumerate(zip(nodes, losses, strict=True)):
            run_id = f"{('first', 'second')[turn]}-{repeat}"
            store.report({**node.at((2 * repeat + turn) * 20 + 20), "run_id": run_id}, {"loss": loss + repeat / 100})


def precision(dtype: str, *more: str, **run: Any) -> dict[str, Any]:
    labels = json.dumps({"precision": dtype})
    return own(*NANOGPT, f"--dtype={dtype}", *more, labels=labels, **run)


def by_label(store: SyntheticStore, first: dict[str, Any], second: dict[str, Any], **request: Any) -> Comparison:
    alternate(store, first=first, second=second)
    return compared(store, by="label:precision", **request)


def warning(comparison: Comparison) -> str:
    return next(caveat.text for caveat in comparison.caveats if caveat.code == "different_commands")


def test_runs_of_one_name_are_compared_whatever_their_commands(store: SyntheticStore) -> None:
    comparison = by_label(store, precision("bfloat16"), precision("float32"))
    (block,) = comparison.layout.blocks
    assert (block.workload, block.parameters) == ("nanogpt", {})
    assert [len(cell.runs) for cell in block.cells] == [5, 5]
    assert warning(comparison).endswith(": --dtype bfloat16 against float32")
    assert comparison.figures.primary.name == "run_seconds"
    row = next(row for row in comparison.specs if row.title == "Command")
    assert row.values == (("--dtype bfloat16",), ("--dtype float32",))


def test_commands_and_arguments_are_facets_that_declare_the_difference(store: SyntheticStore) -> None:
    alternate(store, first=precision("bfloat16"), second=precision("float32"))
    for by, sides in {
        "command": ("--dtype bfloat16", "--dtype float32"),
        "argument:--dtype": ("bfloat16", "float32"),
        "argument:dtype": ("bfloat16", "float32"),
        "argument:dtype,platform": ("bfloat16 · alder", "float32 · birch"),
        "platform,command": ("alder · --dtype bfloat16", "birch · --dtype float32"),
    }.items():
        comparison = compared(store, by=by)
        assert comparison.layout.sides == sides
        assert "different_commands" not in codes(comparison)


def test_a_switch_is_compared_with_its_absence_and_interpreters_elsewhere_are_alike(store: SyntheticStore) -> None:
    first = own("/home/a/venv/bin/python", "/home/a/train.py", "--compile", "--data", "/home/a/data")
    second = own("/opt/venv/bin/python", "/opt/train.py", "--data", "/opt/data")
    alternate(store, first=first, second=second)
    comparison = compared(store, by="argument:--compile")
    assert comparison.layout.sides == ("not given", "given")
    assert "--data" not in warning(comparison)
    assert compared(store, by="command").layout.sides == ("--compile", "without --compile")


def test_arguments_that_vary_within_both_sides_alike_are_named_as_part_of_the_spread(store: SyntheticStore) -> None:
    nodes = (store.node("a", "alder"), store.node("b", "birch"))
    for turn in range(6):
        run = own(*NANOGPT, "--seed", str(turn // 2), repeat=turn // 2 + 1)
        store.run(f"run-{turn}", nodes[turn % 2], start_seconds=20 * turn, **run)
    comparison = compared(store)
    (caveat,) = (caveat for caveat in comparison.caveats if caveat.code == "different_commands")
    assert "side: --seed 0, 1, 2" in caveat.text
    assert "--by platform,argument:--seed " in caveat.remedy


def test_a_run_without_a_recorded_command_is_compared_too(store: SyntheticStore) -> None:
    first = precision("bfloat16") | {"command": None, "parameters": {}}
    comparison = by_label(store, first, precision("float32"))
    assert [len(cell.runs) for cell in comparison.layout.blocks[0].cells] == [5, 5]
    assert "not given against float32" in warning(comparison)
    sides = compared(store, by="argument:--dtype").layout.sides
    assert sides == ("not given", "float32")


def test_a_workload_of_that_name_is_no_program_of_the_users(store: SyntheticStore) -> None:
    """A built-in workload keeps its parameters, and has no command to compare."""
    alternate(store, first={"parameters": {"batch-size": 64}}, second={"parameters": {"batch-size": 128}})
    with pytest.raises(NothingToCompareError) as error:
        compared(store)
    assert str(error.value) == (
        "nothing to compare: mnist ran with other parameters on each side: batch-size 64 against 128. "
        "Compare these with --by parameter:batch-size"
    )
    with pytest.raises(NothingToCompareError, match="value of command"):
        compared(store, by="command")


def test_a_side_with_failures_only_is_the_message_with_the_command_that_shows_why(store: SyntheticStore) -> None:
    alternate(store, first=precision("bfloat16"), second=precision("float32", status="failed"))
    with pytest.raises(NothingToCompareError) as error:
        compared(store, by="label:precision")
    assert "`collector logs second-4`" in str(error.value)


def test_sides_without_a_common_program_are_named(store: SyntheticStore) -> None:
    alternate(store, first=own("python", "a.py", name="a.py"), second=own("python", "b.py", name="b.py"))
    with pytest.raises(NothingToCompareError, match=r"alder has a\.py; birch has b\.py\. .* --name"):
        compared(store)


def test_sides_without_a_common_condition_are_compared_with_a_warning(store: SyntheticStore) -> None:
    """Each side has runs in environments that the other lacks: the comparison names them instead of refusing."""
    alder, birch = alternate(store, first=own("a", environment="docker"), second=own("a", environment="podman"))
    store.run("extra", alder, start_seconds=900, **own("a", environment="bare", repeat=6))
    store.run("more", birch, start_seconds=950, **own("a", environment="apptainer", repeat=6))
    comparison = compared(store)
    assert [len(cell.runs) for cell in comparison.layout.blocks[0].cells] == [6, 6]
    assert "environment: bare, docker" in texts(comparison)


def test_runs_left_out_are_named_without_what_all_share(store: SyntheticStore) -> None:
    alder, _ = alternate(store, first={"parameters": {"a": 1, "b": 2}}, second={"parameters": {"a": 1, "b": 2}})
    store.run("other", alder, start_seconds=900, parameters={"a": 1, "b": 3})
    (text,) = (caveat.text for caveat in compared(store).caveats if caveat.code == "left_out")
    assert text.endswith("side: mnist b=3")


def test_a_named_side_without_a_counterpart_is_the_first_warning(store: SyntheticStore) -> None:
    alternate(store)
    store.run("other", store.node("cedar-node", "cedar"), start_seconds=900, parameters={"b": 3})
    assert "sides_left_out" not in codes(compared(store))
    first = compared(store, values=("alder", "birch", "cedar")).caveats[0]
    assert (first.code, "1 run of cedar left out" in first.text) == ("sides_left_out", True)


def test_a_throughput_in_steps_has_its_unit_and_no_run_is_compared_with_another_unit_in_silence(
    store: SyntheticStore,
) -> None:
    nodes = alternate(store, first=own("a", throughput=60.0), second=own("a", throughput=66.0))
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
    comparison = compared(store)
    assert comparison.figures.primary.name == "throughput"
    assert comparison.figures.primary.unit == "steps/s"
    store.run("items", nodes[0], start_seconds=900, **own("a", throughput=4000.0, repeat=6))
    # Also where these are the most; runs without a throughput stay with the others of their side.
    for repeat in range(7, 19):
        store.next_run(nodes[0], **own("a", throughput=4000.0, repeat=repeat))
    store.next_run(nodes[1], **own("a", repeat=7))
    store.next_run(nodes[0], **own("a", repeat=19), status="failed")
    beside = compared(store)
    assert beside.figures.primary.unit == "steps/s"
    assert [(one.side, one.runs, one.what) for one in beside.layout.left_out] == [("alder", 13, "nanogpt in items/s")]
    (block,) = beside.layout.blocks
    assert [(len(cell.runs), cell.others) for cell in block.cells] == [(5, {"failed": 1}), (6, {})]


def test_items_are_compared_where_steps_are_of_other_sizes(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    # A step of twice the size takes 1.75 times as long.
    rates = ((32, "steps/s", 3500.0), (64, "steps/s", 2000.0), (32, "items/s", 112_000.0), (64, "items/s", 128_000.0))
    for (size, _, rate), repeat in product(rates, range(5)):
        store.next_run(node, **own("a", f"--batch-size={size}", throughput=rate + repeat))
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" and row["value"] < 4000 else row["unit"]
    found = compared(store, by="argument:batch-size")
    assert [(test.unit, test.other.side) for test in found.figures.tests] == [("items/s", "64")]
    assert "(better)" in answer(found)
    assert {one.what for one in found.layout.left_out} == {"nanogpt in steps/s"}
    (left,) = (caveat for caveat in found.caveats if caveat.code == "left_out")
    assert left.text.startswith("5 runs of --batch-size 32, 5 runs of --batch-size 64 left out, as a step ")
    assert "run the same" not in left.remedy


def test_of_sides_without_a_unit_in_common_durations_are_compared(store: SyntheticStore) -> None:
    alternate(store, first=own("a", throughput=60.0), second=own("a", throughput=66.0))
    for row in store.rows["results"]:
        is_first = row["run_id"].startswith("first")
        row["unit"] = "steps/s" if row["name"] == "throughput" and is_first else row["unit"]
    mixed = compared(store)
    assert mixed.figures.primary.name == "run_seconds"
    assert "are in items/s and in steps/s, so the duration of whole runs was tested" in texts(mixed)
    assert "their ratios mean nothing" in texts(compared(store, metric="throughput"))


def test_runs_in_two_units_are_compared_unit_by_unit(store: SyntheticStore) -> None:
    nodes = alternate(store, first=own("a", throughput=60.0), second=own("a", throughput=66.0))
    for repeat in range(5):
        for node, rate in zip(nodes, (4000.0, 4400.0), strict=True):
            store.next_run(node, **own("a", throughput=rate, repeat=6 + repeat))
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" and row["value"] < 100 else row["unit"]
    comparison = compared(store)
    assert sorted(test.unit for test in comparison.figures.tests) == ["items/s", "steps/s"]
    assert all(test.judgement.shift.estimate == pytest.approx(1.1) for test in comparison.figures.tests)
    assert not compared(store, described=True, metric="run_seconds").layout.is_compared
    one_side = compared(store, values=("alder",))
    assert {block.held["unit"] for block in one_side.layout.blocks} == {"items/s", "steps/s"}


@pytest.mark.parametrize(
    ("option", "metric"),
    [
        ("--batch-size", "run_seconds"),
        ("++train.batch_size", "run_seconds"),
        ("--gradient-accumulation-steps", "run_seconds"),
        ("--bs", "run_seconds"),
        ("--lr", "throughput"),
        ("--batches", "throughput"),
        ("--batch-norm", "throughput"),
        ("--eval-batch-size", "throughput"),
    ],
)
def test_steps_of_other_batch_sizes_are_not_compared(store: SyntheticStore, option: str, metric: str) -> None:
    node = store.node("alder-node", "alder")
    for repeat in range(1, 8):
        for value, rate in (("32", 250.0), ("128", 180.0)):
            run = own(
                "python", "train.py", f"{option}={value}", throughput=rate + repeat, repeat=repeat, experiment="e"
            )
            store.next_run(node, **run)
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
    for row in [row for row in store.rows["run_states"] if row["status"] == "succeeded"][1::2]:
        row["time"] += timedelta(seconds=0.5)
    comparison = compared(store, by="command")
    assert comparison.figures.primary.name == metric
    assert ("other_steps" in codes(comparison)) == (metric == "run_seconds")
    planned = plan_repeats(store.ask, Question())
    assert planned.metric.name == metric
    assert ("other_steps" in {each.code for each in planned.caveats}) == (metric == "run_seconds")
    counted = option.lstrip("-+").replace("_", "-")
    is_counted = metric == "run_seconds" and "accum" not in counted
    for next_ in (find_next(comparison), render_plan(planned).next):
        assert (f"--items-per-step {counted} " in (next_ or "")) is is_counted
    written = write_experiment(store.ask, planned)
    assert ('"items_per_step": 128' in written) is is_counted
    assert f'metric: "{"throughput" if is_counted else metric}"' in written
    prices = parse_prices(b"- {platform: alder, currency: USD, instance_hour: 1}", "p.yaml")
    for known in (None, prices):
        placed = recommend(store.ask, RecommendRequest(workload="nanogpt", by="command", prices=known))
        assert placed.rankings[0].criteria[0].source == metric
        assert (placed.caveats[0].code == "other_steps") is (metric == "run_seconds")
        texts = [answer(comparison), *([] if known else [render_recommendation(placed).text])]
        assert {"none is better" in text for text in texts} == {is_counted}
    if metric == "run_seconds":
        assert "other_steps" in codes(compared(store, by="command", metric="throughput"))
        assert "(worse)" not in answer(comparison) and "(better)" not in answer(comparison)


def test_steps_of_the_batch_sizes_that_both_sides_have_are_compared(store: SyntheticStore) -> None:
    nodes = [store.node(f"{platform}-node", platform) for platform in ("alder", "birch")]
    for node, size in product(nodes, ("32", "128")):
        for rate in range(250, 257):
            store.next_run(node, **own("python", "train.py", "--batch-size", size, throughput=float(rate)))
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
    comparison = compared(store)
    assert (comparison.figures.primary.name, "other_steps" in codes(comparison)) == ("throughput", False)


@pytest.mark.parametrize(("later", "metric", "is_named"), [(6.0, None, True), (3.1, None, False), (6.0, "loss", False)])
def test_losses_that_are_far_apart_are_named_beside_the_speed(
    store: SyntheticStore, later: float, metric: str | None, is_named: bool
) -> None:
    add_losses(store, 3.0, later)
    comparison = compared(store, by="command", metric=metric, brief=True)
    assert ("the last loss is 3.02 with --lr 1 to 6.02 with --lr 2" in texts(comparison)) is is_named
    assert ("losses_differ" in codes(comparison)) is is_named
    placed = recommend(store.ask, RecommendRequest(workload="nanogpt", by="command"))
    assert (placed.caveats[0].code == "losses_differ") is (later > 3.1)


def test_a_property_that_an_argument_of_the_commands_sets_is_no_other_difference(store: SyntheticStore) -> None:
    first, second = (
        own("train", "--precision", precision, throughput=10.0, texts={"precision": precision, "seed": seed})
        for precision, seed in (("fp32", "1"), ("bf16", "2"))
    )
    alternate(store, first=first, second=second)
    said = texts(compared(store, by="command"))
    assert "Precision" not in said
    assert "Seed" in said


def test_runs_of_a_faster_command_are_no_outliers(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for repeat, (size, rate) in product(range(3), {"16": 100.0, "32": 101.0, "48": 102.0, "64": 400.0}.items()):
        store.next_run(node, **own("train", "--size", size, throughput=rate + 0.1 * repeat))
    assert "outliers" not in codes(compared(store, values=("alder",)))


def test_a_plan_leaves_commands_without_its_metric_aside(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for repeat in range(1, 8):
        for arguments, rate in ((("--lr", "1"), 100.0), (("--lr", "2"), 101.0), (("--lr", "3"), None)):
            run = own("python", "train.py", *arguments, repeat=repeat, experiment=f"e{rate is None}")
            store.next_run(node, **{**run, "throughput": rate and rate + 9 * (repeat % 3)})
    # One run has no spread, but a throughput.
    store.next_run(node, **own("python", "single.py", workload="single", throughput=5.0))
    store.next_run(node, **own("python", "silent.py", workload="silent", throughput=None))
    plan = plan_repeats(store.ask, Question())
    assert plan.lacking == ("silent",)
    planned = render_plan(plan)
    assert planned.next
    assert "--vary lr=1,2 -- python train.py" in planned.next


def test_a_plan_of_several_programs_compares_the_commands_of_each(store: SyntheticStore, tmp_path: Path) -> None:
    node = store.node(os.uname().nodename, "alder")
    for repeat, workload, value in product(range(1, 8), ("eval", "train"), "12"):
        rate = 100.0 + store.chance.random()
        run = own("python", f"{workload}.py", "--lr", value, workload=workload, repeat=repeat, experiment="e")
        store.next_run(node, **{**run, "throughput": rate})
    plan = plan_repeats(store.ask, Question())
    experiment = parse_experiment(write_experiment(store.ask, plan).encode(), "plan.yaml")
    assert experiment.answers == ("compare --workload eval", "compare --workload train")
    assert f"{experiment.repeats} runs a side of each workload, which show " in render_plan(plan).text


def test_of_several_benches_a_plan_takes_the_one_that_compare_takes(store: SyntheticStore) -> None:
    node = store.node(os.uname().nodename, "alder")
    for repeat in range(1, 5):
        for name, lr in (("small", "1"), ("small", "2"), *product(["large"], "345")):
            rate = 100.0 + store.chance.random()
            store.next_run(
                node, **own("python", "train.py", "--lr", lr, repeat=repeat, experiment=name, throughput=rate)
            )
    planned = render_plan(plan_repeats(store.ask, Question(workload="nanogpt")))
    assert "This is large, with the most runs (12 of " in planned.text
    assert "--lr 1" not in str(planned.next)
    assert "lr=1" not in str(planned.next)


def test_a_history_has_the_unit_of_the_runs_that_have_the_metric(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for rate in (100.0, 110.0, None):
        store.next_run(node, **own("python", "train.py", throughput=rate))
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
    runs = load_runs(store.ask, find_facet("platform"))
    facts = load_facts(store.ask, [run.run_id for run in runs])
    assert facts.unit(runs, BY_NAME["throughput"]) == "steps/s"


def described(store: SyntheticStore, *run_ids: str, is_ending_known: bool = False) -> str:
    runs = load_runs(store.ask, find_facet("platform"), run_ids=run_ids)
    return describe_runs(store.ask, runs, load_facts(store.ask, run_ids), is_ending_known=is_ending_known)


def test_runs_are_described_though_their_number_of_steps_is_a_text(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    store.run("run-1", node, start_seconds=0, throughput=None)
    at = {**node.at(1), "run_id": "run-1", "rank": 0}
    store.rows["results"].append({**at, "name": "steps", "value_text": "many"})
    assert " step" not in described(store, "run-1").split("\n")[0]


def test_runs_are_described_in_a_paragraph_with_the_command_to_go_on_with(store: SyntheticStore) -> None:
    alternate(store, first=precision("bfloat16", throughput=60.0), second=precision("float32", status="failed"))
    text, command = described(store, "first-0").split("\n")
    assert text.startswith("first-0 succeeded in 16.0 s. 10 measured steps of 1.07 s, 60 items/s, ")
    assert command == "Next: collector show first-0"
    assert described(store, "first-0", is_ending_known=True).startswith("10 measured steps of 1.07 s")
    assert described(store, "first-0", "first-1").endswith("\nNext: collector show nanogpt")
    text, command = described(store, "first-0", "first-1", "second-1").split("\n")
    assert text.startswith(
        "2 of 3 runs of nanogpt succeeded, 1 failed. Medians: run duration 16.0 s, 10 measured steps of "
    )
    assert "collector logs second-1" in command


def test_the_agent_and_the_collector_count_the_same_steps_with_the_same_time(
    store: SyntheticStore, tmp_path: Path
) -> None:
    node = store.node("alder-node", "alder")
    ended = store.next_run(node)
    # Warm-up, a slow step, a gap, and another rank that is slower.
    times = {0: [(0.5, "warmup"), *((seconds, "measure") for seconds in (0.25, 0.25, 1.0, 0.25, None))]}
    times[1] = [(0.5, "measure")] * 4
    store.rows["steps"] = [row for row in store.rows["steps"] if row["run_id"] != ended["run_id"]]
    for rank, of_rank in times.items():
        rows = [
            {"phase": phase, "step": number, "wall_seconds": seconds, "gpu_seconds": None, "items": None}
            for number, (seconds, phase) in enumerate(of_rank)
        ]
        store.rows["steps"] += [{**ended, "rank": rank, **row} for row in rows]
        events = [json.dumps({"t": 1, "event": "step", **row}) for row in rows]
        (tmp_path / f"events.{rank}.0.jsonl").write_text("".join(f"{event}\n" for event in events))
    words = str(EventTailer(ended["run_id"], tmp_path).read_all().steps)
    assert words == "4 measured steps of 500 ms"
    assert f" {words}" in described(store, ended["run_id"])


def test_a_program_that_never_started_has_no_output_to_look_at(store: SyntheticStore) -> None:
    alternate(store, first=own("a", status="failed"), second=own("a"))
    for row in store.rows["run_states"]:
        row["exit_code"] = None
    assert "collector logs" not in described(store, "first-0")


def test_the_command_to_go_on_with_compares_what_differs_between_runs_of_the_name(store: SyntheticStore) -> None:
    alternate(store, first=own("a", experiment="e"), second=own("a", experiment="e", interference="cpu-burn"))
    by_interference = "Next: collector compare --workload nanogpt --by interference"
    for names in (("first-0",), ("first-0", "first-1")):
        assert described(store, *names).endswith(f"{by_interference} --experiment e")


def test_the_command_to_go_on_with_looks_beyond_an_experiment_of_one_side(store: SyntheticStore) -> None:
    alternate(store, first=own("a", experiment="e"), second=own("a", experiment="f", interference="cpu-burn"))
    assert described(store, "first-0", "first-1").endswith(" --by interference")


@pytest.mark.parametrize(
    ("by", "hint"),
    [
        ("argument:--dtyp", "no command has the argument --dtyp; did you mean --dtype?"),
        ("label:team", "no run has the label team; `collector query "),
        ("parameter:dtype", "commands have it as an argument: --by argument:dtype"),
        ("argument:dtype,argument:--sed", r"no command has the argument --sed; there are: --dtype, "),
    ],
)
def test_a_misspelt_argument_is_no_side(store: SyntheticStore, by: str, hint: str) -> None:
    alternate(store, first=precision("bfloat16"), second=precision("float32"))
    with pytest.raises(NothingToCompareError) as error:
        compared(store, by=by)
    assert hint in str(error.value)


def test_a_program_without_steps_is_described_with_the_ways_to_them(store: SyntheticStore) -> None:
    alternate(store, first=own("a"), second=own("a"))
    for rows in ("steps", "results"):
        store.rows[rows].clear()
    assert "No steps were timed: --observe" in described(store, "first-0")


def test_a_plan_is_for_the_comparisons_of_its_next_command(store: SyntheticStore, tmp_path: Path) -> None:
    node = store.node(os.uname().nodename, "alder")
    for repeat, lr in product(range(1, 8), "123456"):
        rate = 100.0 + 5 * store.chance.random()
        store.next_run(node, **own("python", "train.py", "--lr", lr, repeat=repeat, experiment="e", throughput=rate))

    def planned(comparisons: int | None, output: Path | None = None) -> tuple[object, str]:
        answer = answer_plan(
            store.ask,
            delta=0.02,
            effect_percents=(2.0,),
            why=None,
            by=None,
            output=output,
            workload="nanogpt",
            comparisons=comparisons,
        )
        return answer.facts["comparisons"], answer.text

    assert planned(None) == planned(5)
    assert "5 comparisons tested together" in planned(None)[1]
    assert planned(1) != planned(5)
    # The file has two of them.
    assert planned(None, tmp_path / "plan.yaml")[0] == 1
