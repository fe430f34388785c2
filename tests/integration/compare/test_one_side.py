"""One side, and sides of different work: values without a test."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import find_best, find_best_by_block, order_sides, rank_sides
from gpuagent_collector.compare.document import find_next
from gpuagent_collector.compare.tables import verdict_table
from gpuagent_collector.errors import OneSideError
from gpuagent_collector.recommend.answer import render as render_placed
from gpuagent_collector.recommend.study import Request as Recommended
from gpuagent_collector.recommend.study import recommend
from tests.integration.compare.comparing import alternate, compared
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, csv_rows, made_up

pytestmark = pytest.mark.slow


def test_one_side_is_described_and_nothing_is_tested(store: SyntheticStore) -> None:
    node = store.node("spruce", "satori", gpus=["NVIDIA L4"])
    for repeat in range(3):
        store.next_run(node, throughput=1000.0 + repeat, repeat=repeat + 1)
    comparison = compared(store)
    assert comparison.layout.sides == ("satori",)
    assert not comparison.layout.is_compared
    assert comparison.figures.tests == ()
    (block,) = comparison.figures.blocks
    figure = next(row for row in block.rows if row.metric.name == "throughput").figures["satori"]
    assert (figure.runs, figure.lowest, figure.median, figure.highest) == (3, 1000.0, 1001.0, 1002.0)
    assert not {"not_interleaved", "untested", "no_throughput"} & {caveat.code for caveat in comparison.caveats}


def test_after_one_command_on_two_platforms_the_next_compares_the_platforms(store: SyntheticStore) -> None:
    run = {"workload": "train.py", "parameters": {}, "command": '["python", "train.py"]'}
    alternate(store, first=run, second=run)
    comparison = compared(store, by="command")
    assert find_next(comparison) == "collector compare --by platform --workload train.py"


@pytest.mark.parametrize(("other", "platforms"), [("train", True), ("test", False)])
def test_after_an_experiment_of_one_platform_the_next_compares_like_runs_of_others(
    store: SyntheticStore, other: str, platforms: bool
) -> None:
    made: dict[str, Any] = {"workload": "a.py", "parameters": {}}
    of_other = {**made, "experiment": "two", "command": json.dumps(["python", "a.py", other])}
    of_one = {**made, "experiment": "one", "command": json.dumps(["python", "a.py", "train"])}
    alternate(store, first=of_one, second=of_other)
    found = find_next(compared(store, by="command", experiment="one"))
    assert (found == "collector compare --workload a.py") is platforms


def test_a_side_without_any_figure_is_still_shown(store: SyntheticStore) -> None:
    store.only_run(throughput=None, phases=False)
    store.rows["host_samples"].clear()
    store.rows["process_samples"].clear()
    assert compared(store).figures.primary.name == "run_seconds"


def test_compare_recommend_and_report_say_in_words_that_there_is_one_side(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "one.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "laptop")
        for repeat in range(3):
            store.next_run(node, repeat=repeat + 1)
    for arguments, said in ((("compare",), "no other side"), (("recommend", "mnist"), "nothing to choose between")):
        code, out, _ = call(*arguments, store=path)
        assert code == 0
        assert said in " ".join(out.split())
        # A long path in the next command stays whole.
        assert max(map(len, out.partition("Next:")[0].splitlines())) <= 80
    assert "no other side" in json.loads(call("compare", "--json", store=path)[1])["answer"]
    rows = csv_rows(call("compare", "--format", "csv", store=path)[1])
    assert {row["verdict"] for row in rows} == {""}
    code, _, _ = call("report", str(tmp_path / "one.html"), store=path)
    assert code == 0
    assert "There is no other side, so nothing was compared." in (tmp_path / "one.html").read_text()


def test_recommend_has_nothing_to_choose_between_on_one_side(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for _ in range(3):
        store.next_run(node, workload="mnist")
    with pytest.raises(OneSideError, match="platform laptop"):
        recommend(store.ask, Recommended(workload="mnist", weights={"time": 1.0}))


def test_workloads_are_described_side_by_side_without_a_verdict(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for workload in ("mnist", "gcn", "gpt"):
        for batch_size in (32, 64):
            store.next_run(node, workload=workload, parameters={"batch_size": batch_size})
    comparison = compared(store, by="workload")
    assert comparison.layout.sides == ("gcn", "gpt", "mnist")
    assert len(comparison.figures.blocks) == 6
    assert comparison.figures.tests == ()
    assert comparison.layout.left_out == ()


def test_maxima_and_means_stand_beside_the_usual_statistic(call: Collector) -> None:
    answer = json.loads(call("compare", "--by", "interference", "--max", "--mean", "--json")[1])
    metrics = {row["metric"]: row["sides"]["none"]["median"] for row in answer["blocks"][0]["metrics"]}
    names = ("gpu_utilization_percent", "gpu_utilization_percent:mean", "gpu_utilization_percent:max")
    usual, mean, highest = (metrics[name] for name in names)
    assert usual == mean < highest


def test_throughput_has_the_unit_that_the_runs_report(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for workload, unit in (("mnist", "images/s"), ("gpt", "tokens/s")):
        store.next_run(node, workload=workload)
        for row in store.rows["results"][-7:]:
            if row["name"] == "throughput":
                row["unit"] = unit
    comparison = compared(store)
    units = {
        block.block.workload: row.unit
        for block in comparison.figures.blocks
        for row in block.rows
        if row.metric.name == "throughput"
    }
    assert units == {"mnist": "images/s", "gpt": "tokens/s"}


def test_counts_of_runs_have_thousands_separators(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "many.duckdb"
    with made_up(path) as store:
        for platform in ("laptop", "satori"):
            node = store.node(f"{platform}-1", platform)
            for repeat in range(1001):
                store.next_run(node, throughput=1000.0 + repeat % 5, repeat=repeat + 1, sampled=False)
    code, out, _ = call("compare", store=path)
    assert code == 0
    assert "1,001 / 1,001" in out
    assert "1,001 and 1,001 runs" in " ".join(out.split())
    assert "1001" not in out


def test_a_cancelled_run_of_another_side_is_left_out_with_a_word(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "cancelled.duckdb"
    with made_up(path) as store:
        alternate(store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
        store.run("stopped", store.node("bare", "alder"), start_seconds=900, throughput=None, status="cancelled")
    for command in (("compare",), ("recommend", "mnist")):
        code, out, _ = call(*command, "--by", "device", "--json", store=path)
        assert code == 0
        found = json.loads(out)
        assert found["sides"] == ["NVIDIA L4"]
        assert "cancelled" in {warning["code"] for warning in found["warnings"]}
    code, _, err = call("compare", "NVIDIA L4", "no GPU", "--by", "device", store=path)
    assert code == 1
    assert "no run of 'no GPU' succeeded" in err


def test_sides_are_in_the_order_of_numbers_and_have_their_option(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "parameters.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "satori")
        for number in range(10):
            changed = {"batch_size": 1024 if number % 2 else 64, "compile": True}
            store.next_run(node, throughput=1000.0 + 900 * (number % 2), parameters=changed, repeat=1 + number // 2)
    found = json.loads(call("compare", "--by", "parameter:batch_size", "--json", store=path)[1])
    assert found["sides"] == ["64", "1024"]
    assert "with --batch-size 1024 than with --batch-size 64" in found["answer"]
    code, out, _ = call("compare", "True", "--by", "parameter:compile", "--json", store=path)
    assert (code, json.loads(out)["sides"]) == (0, ["true"])


def test_a_figure_beyond_all_measure_is_none(call: Collector, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "large.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "satori")
        for number in range(4):
            store.next_run(node, throughput=1e308, repeat=number + 1)
    code, out, _ = call("compare", "--json", store=path)
    assert (code, json.loads(out, parse_constant=pytest.fail)["primary_metric"]) == (0, "run_seconds")
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def test_what_failed_has_the_name_of_its_program(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "failed.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "laptop")
        for status in ("succeeded", "succeeded", "failed", "cancelled"):
            store.next_run(node, status=status, workload="some")
        store.next_run(node, status="failed", workload="none", throughput=None)
    code, out, _ = call("show", "some", "--json", store=path)
    texts = [warning["text"] for warning in json.loads(out)["warnings"]]
    assert code == 0
    assert "runs that are in no figure: 1 failed" in texts
    assert "cancelled runs are left out: 1" in texts
    assert "no run of none succeeded: 1 failed" in call("show", "none", store=path)[2]


def test_of_several_sides_over_several_settings_the_best_and_the_worst_are_named(store: SyntheticStore) -> None:
    nodes = {name: store.node(name, "lab") for name in ("ash", "birch", "cedar")}
    for repeat, batch in product(range(1, 7), (32, 64)):
        for name, rate in (("ash", 1000.0), ("birch", 800.0), ("cedar", 1300.0)):
            found = rate * store.chance.gauss(1, 0.01)
            store.next_run(nodes[name], throughput=found, repeat=repeat, parameters={"batch_size": batch})
    comparison = compared(store, by="node")
    assert "Over 2 settings: throughput is highest on cedar, 30 % higher" in answer(comparison).replace("31 %", "30 %")
    assert ", and lowest on birch, " in answer(comparison)
    assert verdict_table(comparison).most == 2
    placed = render_placed(recommend(store.ask, Recommended(workload="mnist", by="node")))
    assert placed.next == "collector compare --workload mnist --by node ash cedar"


def test_no_side_is_the_best_of_all_settings_where_another_is_shown_to_be_better(store: SyntheticStore) -> None:
    """All others are ahead of the baseline in both settings, and change places between these."""
    nodes = {name: store.node(name, "lab") for name in ("ash", "birch", "cedar")}
    rates = {32: (1000.0, 1800.0, 1300.0), 64: (1000.0, 1200.0, 1400.0)}
    for repeat, batch in product(range(1, 7), rates):
        for node, rate in zip(nodes.values(), rates[batch], strict=True):
            found = rate * store.chance.gauss(1, 0.01)
            store.next_run(node, throughput=found, repeat=repeat, workload=f"batch-{batch}")
    comparison = compared(store, by="node")
    assert all(one.is_shown for one in order_sides(comparison))
    assert (rank_sides(comparison), find_best(comparison)) == ([], None)
    best = {side: [block.workload for block in blocks] for side, blocks in find_best_by_block(comparison).items()}
    assert best == {"birch": ["batch-32"], "cedar": ["batch-64"]}
    assert all(workload in answer(comparison) for (workload,) in best.values())
