"""Comparisons over stores of known content: which runs and which statistic of each are compared with what."""

import io
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from gpuagent_collector.choices import Stat
from gpuagent_collector.cli import cli, runs
from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.document import render
from gpuagent_collector.compare.tables import verdict_table
from gpuagent_collector.present.terminal import print_answer
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.shift import estimate_shift
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.comparing import alternate, codes, compared, texts, warnings
from tests.integration.compare.synthetic import BEFORE_MEASURE, EPOCH, RUN_SECONDS, SyntheticStore, quiet_and_burning

pytestmark = pytest.mark.slow


def test_a_slowdown_is_found_on_either_kind_of_store(any_store: SyntheticStore) -> None:
    quiet_and_burning(any_store)
    comparison = compared(any_store, by="interference")
    (test,) = comparison.figures.tests
    assert comparison.layout.sides == ("none", "cpu-burn")
    assert test.judgement.verdict is Verdict.DIFFERS
    assert test.judgement.shift.estimate == pytest.approx(1180 / 1800, rel=0.05)
    assert codes(comparison) == {"one_node"}


def test_runs_with_other_parameters_are_left_out_with_a_warning(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    other = store.node("fir", "laptop")
    store.run("odd", other, start_seconds=9000, parameters={"batch_size": 128}, throughput=1e6)
    comparison = compared(store, by="interference")
    assert [block.parameters for block in comparison.layout.blocks] == [{"batch_size": 64}]
    (left,) = comparison.layout.left_out
    assert (left.side, left.runs, left.what) == ("none", 1, "mnist batch_size=128")
    assert "side: mnist batch_size=128" in texts(comparison)


def test_runs_that_are_left_out_make_one_warning(store: SyntheticStore) -> None:
    alder, birch = alternate(store)
    for turn, (node, size) in enumerate(((alder, 1), (alder, 1), (alder, 2), (birch, 3))):
        store.run(f"odd-{turn}", node, start_seconds=9000 + 20 * turn, parameters={"batch_size": size})
    text = warnings(store)["left_out"]
    assert text.startswith("3 runs of alder, 1 run of birch left out, ")
    assert text.endswith("mnist batch_size=1 and 2 other settings")


def test_the_reasons_of_failed_runs_are_where_the_hint_points(store: SyntheticStore) -> None:
    alder, _ = alternate(store)
    store.run("bad", alder, start_seconds=5000, status="failed")
    (caveat,) = [each for each in compared(store).caveats if each.code == "unsuccessful"]
    command = shlex.split(caveat.remedy.split("`")[1])
    assert command[:2] == ["collector", "runs"]
    group = cli.make_context("collector", command[1:])
    assert runs.command.make_context("runs", command[2:], parent=group).params["status"] == "failed"


def test_without_phases_nothing_speaks_of_them(store: SyntheticStore) -> None:
    alternate(store, first={"phases": False}, second={"phases": False})
    comparison = compared(store, everything=True)
    console = Console(width=80, record=True, file=io.StringIO())
    print_answer(console, replace(render(comparison), everything=True))
    text = " ".join(console.export_text().split())
    assert "0 s at its" in text
    assert "Steady state" not in text


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}),
        ({"data": "/home/a/mnist"}, {"data": "/data/mnist"}, {"data": "(path)"}),
    ],
    ids=["order", "path"],
)
def test_parameters_are_alike_whatever_their_order_and_the_paths_of_data(
    store: SyntheticStore, first: dict[str, Any], second: dict[str, Any], held: dict[str, Any]
) -> None:
    alternate(store, first={"parameters": first}, second={"parameters": second})
    (block,) = compared(store).layout.blocks
    assert block.parameters == held


def test_a_condition_that_varies_within_a_side_makes_blocks_of_their_own(store: SyntheticStore) -> None:
    alder, birch = alternate(store)
    for repeat in range(5):
        for turn, node in enumerate((alder, birch)):
            at = 10_000 + (2 * repeat + turn) * 20
            store.run(f"burn-{repeat}-{turn}", node, start_seconds=at, interference="cpu-burn", throughput=500.0)
    comparison = compared(store)
    assert sorted(block.held["interference"] or "" for block in comparison.layout.blocks) == ["cpu-burn", "none"]
    assert all(cell.runs for block in comparison.layout.blocks for cell in block.cells)
    assert {test.baseline.median for test in comparison.figures.tests} == {500.0, 1000.0}
    labels = {tell_apart(block, comparison.layout.blocks) for block in comparison.layout.blocks}
    assert labels == {"mnist without interference", "mnist with cpu-burn"}


def test_a_condition_that_differs_with_the_side_is_compared_with_a_warning(store: SyntheticStore) -> None:
    unreported: dict[str, Any] = {"throughput": None}
    alternate(store, first={"environment": "bare", **unreported}, second={"environment": "docker", **unreported})
    comparison = compared(store)
    assert len(comparison.layout.blocks) == 1
    assert "environment: bare /" in texts(comparison)
    # Without throughput the duration is tested, with a warning.
    assert comparison.figures.primary.name == "run_seconds"
    assert "no_throughput" in codes(comparison)


@pytest.mark.parametrize(
    ("order", "facets"),
    [
        (
            "normal",
            {
                "platform": {"alder", "birch"},
                "node": {"alder-node", "birch-node"},
                "device": {"NVIDIA L4", "2 × NVIDIA T4"},
                "environment": {"bare", "docker"},
                "label:site": {"here", "there"},
            },
        ),
        (
            "swapped",
            {
                "parameter:order": {"normal", "swapped"},
                "parameter:order,environment": {"normal · bare", "swapped · docker"},
            },
        ),
    ],
)
def test_every_facet_can_separate_the_sides(store: SyntheticStore, order: str, facets: dict[str, set[str]]) -> None:
    here = {"labels": json.dumps({"site": "here"})}
    alternate(
        store,
        first={"environment": "bare", "parameters": {"order": "normal"}},
        second={"environment": "docker", "labels": json.dumps({"site": "there"}), "parameters": {"order": order}},
        first_node={"gpus": ["NVIDIA L4"], **here},
        second_node={"gpus": ["NVIDIA T4", "NVIDIA T4"], **here},
    )
    assert {by: set(compared(store, by=by).layout.sides) for by in facets} == facets


def three_sides(store: SyntheticStore, throughput: Callable[[int, int], float | None], batch_size: int = 64) -> None:
    """Add five runs, taking turns, on each of three platforms, with the throughput of each repeat and platform."""
    for turn, name in enumerate(("alder", "birch", "cedar")):
        node = store.node(f"{name}-node", name)
        for repeat in range(5):
            store.run(
                f"{batch_size}-{repeat}-{turn}",
                node,
                start_seconds=1000 * batch_size + 60 * repeat + 20 * turn,
                parameters={"batch_size": batch_size},
                throughput=throughput(repeat, turn),
            )


def test_three_sides_are_each_compared_with_the_baseline_and_tested_together(store: SyntheticStore) -> None:
    three_sides(store, lambda repeat, turn: 900.0 + 50 * turn + repeat)
    tests = compared(store, baseline="birch").figures.tests
    assert [test.other.side for test in tests] == ["alder", "cedar"]
    assert {test.baseline.side for test in tests} == {"birch"}
    # Equal p-values have the strictest of their levels.
    assert {test.judgement.shift.alpha for test in tests} == {0.025}


def test_three_runs_a_side_are_too_few_and_the_warning_has_the_number_of_a_plan(store: SyntheticStore) -> None:
    quiet_and_burning(store, repeats=3)
    comparison = compared(store, by="interference")
    assert comparison.needed and comparison.needed.repeats == 4
    assert comparison.figures.tests[0].judgement.verdict is Verdict.TOO_FEW
    (caveat,) = [each for each in comparison.caveats if each.code == "n_too_small"]
    assert " 4 runs a side" in caveat.remedy
    assert ", make 4 runs a side" in answer(comparison)


def test_the_shift_of_a_metric_is_estimated_when_it_is_asked_for(
    store: SyntheticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    alternate(store)
    estimate = Mock(wraps=estimate_shift)
    monkeypatch.setattr("gpuagent_collector.compare.figures.estimate_shift", estimate)
    (block,) = compared(store).figures.blocks
    estimate.assert_not_called()
    (row,) = [row for row in block.rows if row.metric.name == "run_seconds"]
    assert row.shifts == row.shifts
    estimate.assert_called_once()


def test_a_metric_that_one_side_lacks_is_shown_for_the_other_without_a_ratio_and_cannot_be_tested(
    store: SyntheticStore,
) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA L4"]})
    (block,) = compared(store).figures.blocks
    (row,) = [row for row in block.rows if row.metric.name == "gpu_power_watts"]
    assert set(row.figures) == {"alder"}
    assert row.shifts == {}
    with pytest.raises(GpuAgentError, match="metric gpu_power_watts"):
        compared(store, metric="gpu_power_watts")


def test_failed_lost_and_running_runs_are_counted_apart(store: SyntheticStore) -> None:
    alder, birch = alternate(store)
    store.run("now", alder, start_seconds=4900, status="running")
    comparison = compared(store)
    assert "1 alder running" in texts(comparison)
    assert "unsuccessful" not in codes(comparison)
    store.run("bad", alder, start_seconds=5000, status="failed")
    store.run("gone", birch, start_seconds=5100, status="lost")
    comparison = compared(store)
    assert [len(cell.runs) for cell in comparison.layout.blocks[0].cells] == [5, 5]
    assert "figure: 1 alder" in texts(comparison)


def test_cancelled_runs_are_left_out_and_are_no_failures(store: SyntheticStore) -> None:
    alder, _ = alternate(store)
    for number in range(2):
        store.run(f"stopped-{number}", alder, start_seconds=5000 + 20 * number, status="cancelled")
    comparison = compared(store)
    assert codes(comparison) == {"cancelled", "one_node"}
    assert "2 alder" in texts(comparison)
    (block,) = json.loads(render(comparison).json())["blocks"]
    assert (block["unsuccessful"], block["counts"]["alder"]["cancelled"]) == ({}, 2)


def test_a_side_with_only_failures_is_reported_without_other_warnings(store: SyntheticStore) -> None:
    alternate(store)
    cedar = store.node("cedar-node", "cedar", gpus=["NVIDIA L4"], kernel="5.4")
    for repeat in range(3):
        store.run(f"bad-{repeat}", cedar, start_seconds=5000 + 20 * repeat, status="failed", environment="docker")
    comparison = compared(store)
    assert comparison.layout.sides == ("alder", "birch")
    assert codes(comparison) == {"failed_sides", "one_node"}
    assert "figure: 3 cedar" in texts(comparison)


def test_a_block_whose_baseline_lacks_the_metric_is_not_tested_with_a_warning(store: SyntheticStore) -> None:
    three_sides(store, lambda _repeat, _turn: 1000.0)
    three_sides(store, lambda _repeat, turn: None if turn == 0 else 1000.0, batch_size=128)
    comparison = compared(store)
    tested = {(test.block.parameters["batch_size"], test.baseline.side) for test in comparison.figures.tests}
    assert tested == {(64, "alder")}
    assert "mnist batch_size=128: nothing" in texts(comparison)


def test_a_metric_that_the_baseline_never_has_is_not_tested_between_the_others(store: SyntheticStore) -> None:
    three_sides(store, lambda _repeat, turn: None if turn == 0 else 1000.0)
    assert compared(store).figures.primary.name == "run_seconds"
    with pytest.raises(GpuAgentError, match="metric throughput"):
        compared(store, metric="throughput")


def test_the_median_run_of_each_side_is_drawn_from_its_own_samples(store: SyntheticStore) -> None:
    quiet_and_burning(store, gpus=["NVIDIA L4"])
    comparison = compared(store, by="interference")
    for course, test in zip(comparison.courses, ("baseline", "other"), strict=True):
        assert len(course.curves) == 5
        assert (
            comparison.facts.metrics[course.run.run_id]["throughput"]
            == getattr(comparison.figures.tests[0], test).median
        )
        assert [phase.name for phase in course.phases] == ["setup", "warmup", "measure", "teardown"]
        seconds = [reading.seconds for curve in course.curves.values() for stretch in curve for reading in stretch]
        assert min(seconds) >= -4
        assert max(seconds) <= RUN_SECONDS


def test_without_series_no_sample_is_read(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    ask = Mock(side_effect=store.ask)
    assert compare(ask, Request(by="interference", series=False)).courses == ()
    assert not [call for call in ask.call_args_list if "_samples" in call.args[0]]


def test_unknown_names_are_rejected_with_the_known_ones(store: SyntheticStore) -> None:
    alternate(store, first={"experiment": "tuesday"}, second={"experiment": "tuesday"})
    for request, message in (
        ({"values": ("alder", "oak")}, "no run has the platform oak; there are: alder, birch"),
        ({"values": ("alder-node", "oak")}, "but runs have the node alder-node: --by node"),
        ({"by": "node", "values": ("bare",)}, "but runs have the environment bare: --by environment"),
        ({"values": ("--lr 0.1", "alder")}, "no run has the platform --lr 0.1; --by argument:--lr compares"),
        ({"by": "command", "values": ("--lr 0.1", "alder")}, "no run has the command --lr 0.1; no run has any command"),
        ({"values": ("-5", "alder")}, "no run has the platform -5; there are: alder, birch"),
        ({"by": "argment"}, "--by argment is unknown; did you mean argument:NAME"),
        ({"by": "arg:--lr"}, "--by arg:--lr is unknown; did you mean argument:--lr"),
        ({"experiment": "tusday"}, "no run has the experiment tusday; did you mean tuesday"),
        (
            {"by": "color"},
            "--by color is unknown; .*argument:color or label:color; else there are platform, environment, ",
        ),
        ({"by": "label:a'b"}, "--by label:NAME needs the name of the label"),
        ({"by": "node, node"}, "--by names a facet twice: node, node"),
        ({"by": "name", "jobs": True}, "compares jobs by their name, and no job has ended; `--by command` compares"),
        ({"experiment": "x"}, "no run has the experiment x; there are: tuesday"),
        ({"where": "repeat > 99"}, "no run satisfies --where repeat > 99"),
        ({"where": "true; DROP TABLE runs"}, "--where: the text is more than one condition"),
    ):
        with pytest.raises(MisuseError, match=message):
            compared(store, **request)


def test_an_empty_store_one_side_and_sides_without_success_are_explained(store: SyntheticStore) -> None:
    with pytest.raises(GpuAgentError, match="no runs yet"):
        compared(store)
    alternate(store, second={"status": "failed"})
    with pytest.raises(GpuAgentError, match=r"birch succeeded: 5 failed; .*`collector logs second-4`"):
        compared(store)
    assert compared(store, by="environment").layout.sides == ("bare",)
    with pytest.raises(GpuAgentError, match="label rack"):
        compared(store, by="label:rack")


# Second of the measured phase, utilisation and memory of a GPU; the first lies before it.
READINGS = (
    (-1, 5.0, 20_000_000_000),
    (1, 90.0, 4_000_000_000),
    (2, 90.0, 4_000_000_000),
    (3, 66.0, 4_000_000_000),
    (4, 90.0, 4_000_000_000),
    (5, 98.0, 9_000_000_000),
)


def add_places(store: SyntheticStore) -> None:
    """Add five runs, taking turns, of each of two environments on each of two platforms."""
    nodes = {name: store.node(f"{name}-node", name) for name in ("alder", "birch")}
    places = [(name, environment) for name in nodes for environment in ("bare", "docker")]
    for repeat in range(5):
        for turn, (name, environment) in enumerate(places):
            store.run(
                f"{name}-{environment}-{repeat}",
                nodes[name],
                start_seconds=20 * (4 * repeat + turn),
                environment=environment,
                repeat=repeat + 1,
                throughput=1000.0 + 100 * turn + repeat,
            )


def test_the_sides_of_two_facets_are_the_combinations_of_their_values(store: SyntheticStore) -> None:
    add_places(store)
    comparison = compared(store, by="platform,environment")
    assert comparison.layout.sides == ("alder · bare", "alder · docker", "birch · bare", "birch · docker")
    assert [test.other.side for test in comparison.figures.tests] == [
        "alder · docker",
        "birch · bare",
        "birch · docker",
    ]
    assert len(comparison.layout.blocks) == 1
    assert codes(comparison) == {"one_node"}


def test_the_best_of_more_sides_than_the_fewest_rows_is_the_first(store: SyntheticStore) -> None:
    for number, rate in enumerate((500.0, 520.0, 600.0, 900.0)):
        store.next_run(store.node(f"n{number}", f"p{number}"), throughput=rate)
    comparison = compared(store, series=False)
    rows = verdict_table(comparison).grid(wide=False).rows
    assert [row[0] for row in rows] == ["p3", "p2", "p1"]


def test_combinations_are_named_with_commas_or_as_they_are_shown(store: SyntheticStore) -> None:
    add_places(store)
    values = ("alder,docker", "birch · docker")
    comparison = compared(store, by="platform,environment", values=values, baseline="birch,docker")
    assert comparison.layout.sides == ("birch · docker", "alder · docker")
    # What is equal on both sides is not in the names of rows.
    assert verdict_table(comparison).grid(wide=False, whole=False).rows[0][0] == "alder / birch"
    with pytest.raises(MisuseError, match="environment alder,podman"):
        compared(store, by="platform,environment", values=("alder,podman",))


def test_facets_that_have_usual_values_have_a_usual_combination(store: SyntheticStore) -> None:
    alternate(store, first={"environment": "apptainer", "interference": "cpu-burn"})
    assert compared(store, by="environment,interference").layout.sides[0] == "bare · none"


def test_a_condition_chooses_runs_by_parameters_times_and_other_tables(store: SyntheticStore) -> None:
    quiet_and_burning(store, repeats=6)
    for where, repeats in (
        ("repeat > 1", {2, 3, 4, 5, 6}),
        ("parameters->>'batch_size' = '64' AND repeat <= 4 OR false -- a comment", {1, 2, 3, 4}),
        (f"started_at < TIMESTAMP '{EPOCH + timedelta(seconds=165)}'", {1, 2, 3, 4}),
        ("repeat <> 3 AND run_id IN (SELECT run_id FROM metrics WHERE metric = 'throughput')", {1, 2, 4, 5, 6}),
        ("workload <> 'why?' AND repeat <> 6", {1, 2, 3, 4, 5}),
    ):
        (block,) = compared(store, by="interference", where=where).layout.blocks
        assert {run.repeat for cell in block.cells for run in cell.runs} == repeats, where


def test_a_statistic_is_of_each_run_s_samples_in_its_measured_phase(store: SyntheticStore) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
    store.rows["gpu_samples"].clear()
    for run in store.rows["run_devices"]:
        at = {"session_id": run["session_id"], "node_id": run["node_id"]}
        for second, value, used in READINGS:
            at["time"] = run["time"] + timedelta(seconds=BEFORE_MEASURE + second)
            store.gpu_sample(at, run["device_id"], utilization_percent=value, memory_used_bytes=used)
    for stat, utilisation, memory in (
        (None, 86.8, 9e9),
        (Stat.MEAN, 86.8, 5e9),
        (Stat.MEDIAN, 90.0, 4e9),
        (Stat.P95, 98.0, 9e9),
        (Stat.MAX, 98.0, 9e9),
    ):
        (block,) = compared(store, stat=stat).figures.blocks
        rows = {row.metric.name: row.figures["alder"].median for row in block.rows}
        assert rows["gpu_utilization_percent"] == pytest.approx(utilisation)
        assert rows["gpu_memory_used_bytes"] == pytest.approx(memory)
        assert rows["throughput"] == 1000.0
        assert rows["gpu_idle_percent"] == 0.0


def test_of_many_workloads_each_has_its_row_and_its_reason(store: SyntheticStore) -> None:
    workloads = ("bert", "cifar10", "gcn", "mnist", "resnet50", "vit")
    places = [store.node(name, name, gpus=("NVIDIA H200",)) for name in ("alder", "birch")]
    for workload in workloads:
        for repeat in range(7):
            for node, rate in zip(places, (1000.0, 800.0), strict=True):
                run = {"workload": workload, "repeat": repeat, "throughput": rate + repeat}
                store.next_run(node, **run)
    comparison = compared(store, by="platform")
    out = io.StringIO()
    print_answer(Console(file=out, width=80), render(comparison))
    screen = " ".join(out.getvalue().split())
    assert f"the GPU is busy for longer (in all {len(workloads)})" in screen
    assert [screen.count(f" {workload} ") for workload in workloads] == [1] * len(workloads)
    assert "more row" not in screen
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_one_run_a_side_is_followed_by_more_of_them_and_by_no_plan(store: SyntheticStore) -> None:
    node = store.node("elm", "lab")
    for command in ("a.py", "b.py"):
        run: dict[str, Any] = {"workload": "mine", "parameters": {}, "command": json.dumps(["python3", command])}
        store.next_run(node, experiment="e", repeat=1, **run)
    next_command = render(compared(store, by="command")).next
    assert next_command
    assert next_command.startswith("gpuagent bench")


def test_one_run_a_side_of_several_settings_is_followed_by_more_of_all_of_them(store: SyntheticStore) -> None:
    node = store.node("elm", "lab")
    for number, (size, precision) in enumerate(product((32, 256), ("bf16", "tf32"))):
        parameters = {"batch_size": size, "precision": precision}
        words = ["python3", "-m", "gpuagent_workloads", "run", "mnist", "--batch-size", str(size)]
        command = json.dumps([*words, "--precision", precision])
        store.next_run(node, parameters=parameters, command=command, throughput=1000.0 + number)
    next_command = render(compared(store, by="parameter:precision")).next or ""
    assert next_command.startswith("gpuagent bench mnist --vary precision=bf16,tf32 --vary batch-size=32,256")


@pytest.mark.parametrize("other", [{"interference": "cpu-burn"}, {"limits": "cpus=1"}])
def test_what_an_undecided_comparison_mixes_up_is_separated_before_more_runs_are_made(
    store: SyntheticStore, other: dict[str, Any]
) -> None:
    node = store.node("elm", "lab")
    for number in range(4):
        for side, settings in (("a", {}), ("b", other)):
            store.next_run(node, labels=json.dumps({"side": side}), throughput=1000.0 + 50 * number, **settings)
    next_command = render(compared(store, by="label:side")).next
    assert next_command == "collector plan mnist --why a b --by label:side"
