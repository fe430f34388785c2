"""Comparisons over stores of known content: what is compared with what."""

import io
import json
import shlex
from typing import Any

import pytest
from rich.console import Console

from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.export import render
from gpuagent_collector.compare.page import print_comparison
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.comparing import alternate, codes, said, texts
from tests.integration.compare.synthetic import RUN_SECONDS, SyntheticStore, quiet_and_burning

BY_INTERFERENCE = Request(by="interference")


def test_a_slowdown_is_found_on_either_kind_of_store(any_store: SyntheticStore) -> None:
    quiet_and_burning(any_store)
    any_store.write()
    comparison = compare(any_store.ask, BY_INTERFERENCE)
    (test,) = comparison.figures.tests
    assert comparison.layout.sides == ("none", "cpu-burn")
    assert test.judgement.verdict is Verdict.DIFFERS
    assert test.judgement.shift.estimate == pytest.approx(1180 / 1800, rel=0.05)
    assert codes(comparison) == {"one_node"}


def test_runs_with_other_parameters_are_left_out_with_a_warning(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    other = store.node("fir", "laptop")
    store.run("odd", other, start_seconds=9000, parameters={"batch_size": 128}, throughput=1e6)
    store.write()
    comparison = compare(store.ask, BY_INTERFERENCE)
    assert [block.parameters for block in comparison.layout.blocks] == [{"batch_size": 64}]
    (left,) = comparison.layout.left_out
    assert (left.side, left.runs, left.what) == ("none", 1, "mnist batch_size=128")
    assert "1 none left out, without a counterpart on another side: mnist batch_size=128" in texts(comparison)


def test_runs_that_are_left_out_make_one_warning(store: SyntheticStore) -> None:
    alder, birch = alternate(store, write=False)
    for turn, (node, size) in enumerate(((alder, 1), (alder, 1), (alder, 2), (birch, 3))):
        store.run(f"odd-{turn}", node, start_seconds=9000 + 20 * turn, parameters={"batch_size": size})
    store.write()
    (text,) = [text for code, text in said(compare(store.ask, Request())) if code == "left_out"]
    assert text.startswith("3 alder, 1 birch left out, ")
    assert text.endswith("mnist batch_size=1 and 2 other settings")


def test_the_reasons_of_failed_runs_are_where_the_hint_points(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    store.run("bad", alder, start_seconds=5000, status="failed")
    store.write()
    (caveat,) = [each for each in compare(store.ask, Request()).caveats if each.code == "unsuccessful"]
    command = shlex.split(caveat.remedy.split("`")[1])
    assert command[:3] == ["collector", "query", "sql"]
    assert [row["run_id"] for row in store.ask(command[3])] == ["bad"]


def test_without_phases_nothing_speaks_of_them(store: SyntheticStore) -> None:
    alternate(store, first={"phases": False}, second={"phases": False})
    comparison = compare(store.ask, Request(everything=True))
    console = Console(width=80, record=True, file=io.StringIO())
    print_comparison(console, comparison)
    text = " ".join(console.export_text().split())
    assert "0 s at its start" in text
    assert "Steady state" not in text


def test_parameters_are_alike_whatever_the_order_they_were_stored_in(store: SyntheticStore) -> None:
    alternate(store, first={"parameters": {"a": 1, "b": 2}}, second={"parameters": {"b": 2, "a": 1}})
    assert len(compare(store.ask, Request()).layout.blocks) == 1


def test_runs_that_read_their_data_from_different_paths_are_alike(store: SyntheticStore) -> None:
    alternate(store, first={"parameters": {"data": "/home/a/mnist"}}, second={"parameters": {"data": "/data/mnist"}})
    (block,) = compare(store.ask, Request()).layout.blocks
    assert block.parameters == {"data": "(path)"}


def test_programs_without_parameters_are_distinguished_by_their_command(store: SyntheticStore) -> None:
    command = {"parameters": {}, "workload": "python"}
    alternate(
        store,
        first={**command, "command": json.dumps(["python", "a.py"])},
        second={**command, "command": json.dumps(["python", "b.py"])},
    )
    with pytest.raises(GpuAgentError, match=r"alder has 5 of python command=python a\.py; birch has 5 of .* b\.py"):
        compare(store.ask, Request())


def test_a_condition_that_varies_within_a_side_makes_blocks_of_their_own(store: SyntheticStore) -> None:
    alder, birch = alternate(store, write=False)
    for repeat in range(5):
        for turn, node in enumerate((alder, birch)):
            at = 10_000 + (2 * repeat + turn) * 20
            store.run(f"burn-{repeat}-{turn}", node, start_seconds=at, interference="cpu-burn", throughput=500.0)
    store.write()
    comparison = compare(store.ask, Request())
    assert sorted(block.held["interference"] or "" for block in comparison.layout.blocks) == ["cpu-burn", "none"]
    assert all(cell.runs for block in comparison.layout.blocks for cell in block.cells)
    assert {test.baseline.median for test in comparison.figures.tests} == {500.0, 1000.0}
    labels = {tell_apart(block, comparison.layout.blocks) for block in comparison.layout.blocks}
    assert labels == {"mnist interference=none", "mnist interference=cpu-burn"}


def test_a_condition_that_differs_with_the_side_is_compared_with_a_warning(store: SyntheticStore) -> None:
    alternate(store, first={"environment": "bare"}, second={"environment": "docker"})
    comparison = compare(store.ask, Request())
    assert len(comparison.layout.blocks) == 1
    assert "the sides also differ in environment: bare / docker" in texts(comparison)


@pytest.mark.parametrize(
    ("by", "sides"),
    [
        ("platform", {"alder", "birch"}),
        ("node", {"alder-node", "birch-node"}),
        ("device", {"NVIDIA L4", "2 × NVIDIA T4"}),
        ("environment", {"bare", "docker"}),
        ("label:site", {"here", "there"}),
        ("parameter:order", {"normal", "swapped"}),
        ("parameter:order,environment", {"normal · bare", "swapped · docker"}),
    ],
)
def test_every_facet_can_separate_the_sides(store: SyntheticStore, by: str, sides: set[str]) -> None:
    alternate(
        store,
        first={"environment": "bare", "parameters": {"batch_size": 64, "order": "normal"}},
        second={
            "environment": "docker",
            "labels": json.dumps({"site": "there"}),
            "parameters": {"batch_size": 64, "order": "swapped"}
            if by.startswith("parameter")
            else {"batch_size": 64, "order": "normal"},
        },
        first_node={"gpus": ["NVIDIA L4"], "labels": json.dumps({"site": "here"})},
        second_node={"gpus": ["NVIDIA T4", "NVIDIA T4"], "labels": json.dumps({"site": "here"})},
    )
    assert set(compare(store.ask, Request(by=by)).layout.sides) == sides


def test_three_sides_are_each_compared_with_the_baseline_and_tested_together(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch", "cedar")]
    for repeat in range(5):
        for turn, node in enumerate(nodes):
            store.run(
                f"run-{repeat}-{turn}",
                node,
                start_seconds=60 * repeat + 20 * turn,
                throughput=900.0 + 50 * turn + repeat,
            )
    store.write()
    comparison = compare(store.ask, Request(baseline="birch"))
    assert [test.other.side for test in comparison.figures.tests] == ["alder", "cedar"]
    assert {test.baseline.side for test in comparison.figures.tests} == {"birch"}
    assert {test.judgement.shift.alpha for test in comparison.figures.tests} == {0.025, 0.05}


def test_three_runs_a_side_are_too_few_and_the_warning_has_the_needed_number(store: SyntheticStore) -> None:
    quiet_and_burning(store, repeats=3)
    store.write()
    comparison = compare(store.ask, BY_INTERFERENCE)
    assert comparison.figures.tests[0].judgement.verdict is Verdict.TOO_FEW
    (caveat,) = [each for each in comparison.caveats if each.code == "n_too_small"]
    assert "at least 4 runs a side" in caveat.remedy


def test_without_throughput_the_duration_is_tested_with_a_warning(store: SyntheticStore) -> None:
    alternate(store, first={"throughput": None}, second={"throughput": None})
    comparison = compare(store.ask, Request())
    assert comparison.figures.primary.name == "run_seconds"
    assert "no_throughput" in codes(comparison)


def test_a_metric_that_one_side_lacks_is_shown_for_the_other_without_a_ratio(store: SyntheticStore) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA L4"]})
    (block,) = compare(store.ask, Request()).figures.blocks
    (row,) = [row for row in block.rows if row.metric.name == "gpu_power_watts"]
    assert set(row.figures) == {"alder"}
    assert row.shifts == {}


def test_failed_and_lost_runs_are_counted_apart(store: SyntheticStore) -> None:
    alder, birch = alternate(store, write=False)
    store.run("bad", alder, start_seconds=5000, status="failed")
    store.run("gone", birch, start_seconds=5100, status="lost")
    store.write()
    comparison = compare(store.ask, Request())
    assert [len(cell.runs) for cell in comparison.layout.blocks[0].cells] == [5, 5]
    assert "runs that are in no figure: 1 alder failed, 1 birch lost" in texts(comparison)


def test_cancelled_runs_are_left_out_and_are_no_failures(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    for number in range(2):
        store.run(f"stopped-{number}", alder, start_seconds=5000 + 20 * number, status="cancelled")
    store.write()
    comparison = compare(store.ask, Request())
    assert codes(comparison) == {"cancelled", "one_node"}
    assert "cancelled runs are left out: 2 alder" in texts(comparison)
    (block,) = json.loads(render(comparison).json())["blocks"]
    assert (block["unsuccessful"], block["counts"]["alder"]["cancelled"]) == ({}, 2)


def test_a_side_with_only_failures_is_reported_without_other_warnings(store: SyntheticStore) -> None:
    alternate(store, write=False)
    cedar = store.node("cedar-node", "cedar", gpus=["NVIDIA L4"], kernel="5.4")
    for repeat in range(3):
        store.run(f"bad-{repeat}", cedar, start_seconds=5000 + 20 * repeat, status="failed", environment="docker")
    store.write()
    comparison = compare(store.ask, Request())
    assert comparison.layout.sides == ("alder", "birch")
    assert codes(comparison) == {"unsuccessful", "one_node"}
    assert "runs that are in no figure: 3 cedar failed" in texts(comparison)


def test_runs_that_have_not_ended_are_not_called_unsuccessful(store: SyntheticStore) -> None:
    alder, _ = alternate(store, write=False)
    store.run("now", alder, start_seconds=5000, status="running")
    store.write()
    comparison = compare(store.ask, Request())
    assert "runs that have not ended yet: 1 alder running" in texts(comparison)
    assert "unsuccessful" not in codes(comparison)


def test_a_block_whose_baseline_lacks_the_metric_is_not_tested_with_a_warning(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch", "cedar")]
    for batch_size in (64, 128):
        for repeat in range(5):
            for turn, node in enumerate(nodes):
                store.run(
                    f"{batch_size}-{repeat}-{turn}",
                    node,
                    start_seconds=1000 * batch_size + 60 * repeat + 20 * turn,
                    parameters={"batch_size": batch_size},
                    throughput=None if (batch_size, turn) == (128, 0) else 1000.0,
                )
    store.write()
    comparison = compare(store.ask, Request())
    assert {(test.block.parameters["batch_size"], test.baseline.side) for test in comparison.figures.tests} == {
        (64, "alder")
    }
    said = "mnist batch_size=128: nothing is tested, because no run of alder has throughput"
    assert said in texts(comparison)


def test_a_metric_that_the_baseline_never_has_is_not_tested_between_the_others(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch", "cedar")]
    for repeat in range(5):
        for turn, node in enumerate(nodes):
            at = 60 * repeat + 20 * turn
            store.run(f"{repeat}-{turn}", node, start_seconds=at, throughput=None if turn == 0 else 1000.0)
    store.write()
    assert compare(store.ask, Request()).figures.primary.name == "run_seconds"
    with pytest.raises(GpuAgentError, match="no side and its baseline both have the metric throughput"):
        compare(store.ask, Request(metric="throughput"))


def test_the_median_run_of_each_side_is_drawn_from_its_own_samples(store: SyntheticStore) -> None:
    quiet_and_burning(store, gpus=["NVIDIA L4"])
    store.write()
    comparison = compare(store.ask, BY_INTERFERENCE)
    for trace, test in zip(comparison.traces, ("baseline", "other"), strict=True):
        assert len(trace.curves) == 4
        assert comparison.facts.metrics[trace.run_id]["throughput"] == getattr(comparison.figures.tests[0], test).median
        assert [phase.name for phase in trace.phases] == ["setup", "warmup", "measure", "teardown"]
        seconds = [second for points in trace.curves.values() for second, _ in points]
        assert min(seconds) >= -4
        assert max(seconds) <= RUN_SECONDS


def test_without_series_no_sample_is_read(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    store.write()
    asked: list[str] = []

    def ask(sql: str, parameters: Any = ()) -> list[dict[str, Any]]:
        asked.append(sql)
        return store.ask(sql, parameters)

    assert compare(ask, Request(by="interference", series=False)).traces == ()
    assert not [sql for sql in asked if "_samples" in sql]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(values=("alder", "oak")), "no run has the platform oak; there are: alder, birch"),
        (Request(values=("alder",)), "alder alone cannot be compared; name another of: alder, birch"),
        (
            Request(by="color"),
            "--by color is unknown; there are platform, environment, .*, parameter:KEY and label:KEY",
        ),
        (Request(by="label:a'b"), "--by label:a'b is unknown"),
        (Request(workload="x"), "no run has the workload x; there are: mnist"),
        (Request(experiment="x"), "no run has the experiment x; there are: tuesday"),
        (Request(metric="speed"), "--metric speed is unknown; there are: throughput, "),
    ],
)
def test_unknown_names_are_rejected_with_the_known_ones(store: SyntheticStore, request_: Request, message: str) -> None:
    alternate(store, first={"experiment": "tuesday"}, second={"experiment": "tuesday"})
    with pytest.raises(MisuseError, match=message):
        compare(store.ask, request_)


def test_an_empty_store_one_side_and_sides_without_success_are_explained(store: SyntheticStore) -> None:
    with pytest.raises(GpuAgentError, match="the store has no runs yet"):
        compare(store.ask, Request())
    alternate(store, second={"status": "failed"})
    with pytest.raises(GpuAgentError, match="birch has 5 of mnist batch_size=64, failed"):
        compare(store.ask, Request())
    with pytest.raises(GpuAgentError, match="all runs have the environment bare"):
        compare(store.ask, Request(by="environment"))
    with pytest.raises(MisuseError, match="no run has the workload nothing; there are: mnist"):
        compare(store.ask, Request(workload="nothing"))


def test_a_metric_that_no_two_sides_have_names_those_that_they_have(store: SyntheticStore) -> None:
    alternate(store)
    with pytest.raises(GpuAgentError, match="both have the metric gpu_power_watts; they have: throughput, "):
        compare(store.ask, Request(metric="gpu_power_watts"))
