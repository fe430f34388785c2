"""Tables of metrics by two facets."""

import json
from itertools import product
from pathlib import Path

import pytest

from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.compare.matrix import matrix_table, render, tabulate
from gpuagent_collector.prices.files import parse_prices
from tests.integration.compare.filled import NAMED
from tests.integration.compare.synthetic import SyntheticStore, many_sides
from tests.support.commands import HOSTILE, Collector, assert_inert, csv_rows, made_up

pytestmark = pytest.mark.slow


def test_a_table_has_a_row_for_each_workload_and_a_column_for_each_side(store: SyntheticStore) -> None:
    many_sides(store, sides=3, workloads=2, repeats=3)
    matrix = tabulate(store.ask, Request(), ["throughput", "step_seconds"], "workload")
    assert matrix.sides == ("platform-0", "platform-1", "platform-2")
    first, second, *_ = matrix.lines
    assert (first.row, second.row) == ("workload-00", "workload-01")
    assert list(first.figures) == ["platform-0"]
    figure = second.figures["platform-2"]
    assert (figure.lowest, figure.median, figure.highest, figure.runs) == (302.0, 303.0, 304.0, 3)


def test_ten_sides_and_fifty_workloads_fit_into_80_columns_in_every_format(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "many.duckdb"
    with made_up(path) as store:
        many_sides(store, sides=10, workloads=50, sampled=False)
    asked = ("compare", "--table", "throughput,run_seconds")
    code, out, _ = call(*asked, store=path)
    assert code == 0
    assert max(len(line) for line in out.splitlines() if str(path) not in line) <= 80  # a path stays whole
    assert all(f"platform-{side}" in out for side in range(10))
    rows = csv_rows(call(*asked, "--format", "csv", store=path)[1])
    cells = json.loads(call(*asked, "--json", store=path)[1])["cells"]
    assert len(rows) == len(cells) == 2 * (42 * 10 + 8 * 4)
    markdown = call(*asked, "--format", "markdown", store=path)[1]
    assert sum(line.startswith("|  workload-") or "workload-" in line for line in markdown.splitlines()) == 100
    for arguments in (("compare",), ("compare", "platform-3"), ("compare", "--by", "workload")):
        code, out, _ = call(*arguments, store=path)
        assert code == 0
        assert max(len(line) for line in out.splitlines() if str(path) not in line) <= 80  # a path stays whole


def test_throughputs_in_two_units_are_in_rows_of_their_own(store: SyntheticStore) -> None:
    for name, rates in {"alder": (60.0, 6000.0), "birch": (66.0, 6600.0)}.items():
        node = store.node(f"{name}-node", name)
        for rate, workload in product(rates, ("bert", "gpt")):
            if name == "alder" or (rate > 100) is (workload == "gpt"):
                store.next_run(node, workload=workload, throughput=rate)
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" and row["value"] < 100 else row["unit"]
    matrix = tabulate(store.ask, Request(), ["throughput", "run_seconds"], "workload")
    found = {(line.metric.name, line.row, line.unit): {*line.figures} for line in matrix.lines}
    assert found == {
        ("throughput", "bert in steps/s", "steps/s"): {"alder", "birch"},
        ("throughput", "bert in items/s", "items/s"): {"alder"},
        ("throughput", "gpt in items/s", "items/s"): {"alder", "birch"},
        ("throughput", "gpt in steps/s", "steps/s"): {"alder"},
        ("run_seconds", "bert", "seconds"): {"alder", "birch"},
        ("run_seconds", "gpt", "seconds"): {"alder", "birch"},
    }
    by_platform = tabulate(store.ask, Request(by="workload"), ["throughput"], "platform").lines
    medians = {(line.row, line.unit, side): each.median for line in by_platform for side, each in line.figures.items()}
    assert medians["birch in steps/s", "steps/s", "bert"] == 66
    assert medians["birch in items/s", "items/s", "gpt"] == 6600


def test_metrics_that_no_run_has_are_named_below_the_table(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "few.duckdb"
    with made_up(path) as store:
        store.only_run()
    asked = ("compare", "--table", "throughput,top5_accuracy,gpu_power_watts")
    said = "Not in the table, because no run has it: top5_accuracy, gpu_power_watts."
    assert said in " ".join(call(*asked, store=path)[1].split())
    assert json.loads(call(*asked, "--json", store=path)[1])["missing"] == ["top5_accuracy", "gpu_power_watts"]
    assert "Not in the table" not in call("compare", "--table", "throughput", store=path)[1]


def test_any_facet_can_be_rows_or_columns(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for environment in ("bare", "docker"):
        for workload in ("mnist", "gcn"):
            for batch_size in (32, 64):
                parameters = {"batch_size": batch_size}
                store.next_run(node, workload=workload, environment=environment, parameters=parameters)
    across = tabulate(store.ask, Request(by="workload"), ["throughput"], "environment")
    assert [line.row for line in across.lines] == ["bare batch_size=32", "bare batch_size=64"] + [
        f"docker batch_size={size}" for size in (32, 64)
    ]
    assert all(set(line.figures) == {"gcn", "mnist"} for line in across.lines)
    by_parameter = tabulate(store.ask, Request(by="environment"), ["throughput"], "parameter:batch_size")
    assert [line.row for line in by_parameter.lines] == ["32 gcn", "32 mnist", "64 gcn", "64 mnist"]


def test_programs_that_never_take_an_argument_are_not_in_its_table(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for command in (("train.py", "--steps", "5"), ("train.py",), ("sort", "-n")):
        store.next_run(node, workload=command[0], parameters={}, command=json.dumps(command))
    matrix = tabulate(store.ask, Request(by="argument:--steps"), ["run_seconds"], "workload")
    assert [(line.row, set(line.figures)) for line in matrix.lines] == [("train.py", {"5", "not given"})]
    matrix = tabulate(store.ask, Request(by="platform"), ["run_seconds"], "argument:--steps")
    assert {line.row for line in matrix.lines} == {"5", "not given"}


def test_settings_that_follow_from_the_side_share_a_row(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "ranks.duckdb"
    with made_up(path) as store:
        node = store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 2)
        for ranks, steps in ((1, 128), (2, 64)):
            parameters = {"ranks": ranks, "steps": steps, "batch-size": 64}
            store.next_run(node, workload="vgg16", gpus=node.gpus[:ranks], parameters=parameters)
        store.next_run(node, workload="vgg16", parameters={"ranks": 1, "steps": 128, "batch-size": 32})
    asked = ("compare", "--by", "parameter:ranks", "--table", "throughput", "--format", "csv")
    rows = csv_rows(call(*asked, "--param", "batch-size=64", store=path)[1])
    assert [(row["row"], row["column"]) for row in rows] == [
        ("vgg16 steps=128 | 64", "1"),
        ("vgg16 steps=128 | 64", "2"),
    ]
    assert csv_rows(call(*asked, "--param", "batch-size=64.0", store=path)[1]) == rows
    # One side has two settings, so that they do not follow from it.
    assert len({row["row"] for row in csv_rows(call(*asked, store=path)[1])}) == 3
    both = ("--param", "batch-size=64", "--param", "batch-size=32", "--where", "true -- all")
    assert csv_rows(call(*asked, *both, store=path)[1]) == csv_rows(call(*asked, store=path)[1])
    assert "--param steps" in call(*asked, "--param", "steps", store=path)[2]


def test_sides_without_values_are_left_out_and_so_are_runs_that_measured_roofs(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "roofs.duckdb"
    with made_up(path) as store:
        for side in ("a", "b"):
            node = store.node(side, side, gpus=["NVIDIA L4"])
            store.next_run(node, throughput=100.0 if side == "a" else None)
            store.next_run(node, workload="ceilings", throughput=None)
    rows = csv_rows(call("compare", "--table", "throughput", "--format", "csv", store=path)[1])
    assert [(row["row"], row["column"]) for row in rows] == [("mnist", "a")]
    assert " b " not in call("compare", "--table", "throughput", store=path)[1]
    rows = csv_rows(call("compare", "--table", "run_seconds", "--format", "csv", store=path)[1])
    assert {row["row"] for row in rows} == {"mnist"}
    asked = ("compare", "--table", "run_seconds", "--workload", "ceilings", "--format", "csv")
    assert {row["row"] for row in csv_rows(call(*asked, store=path)[1])} == {"ceilings"}


def test_each_gpu_has_a_line_of_its_own(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop", gpus=["NVIDIA L4"] * 2)
    ended = store.next_run(node)
    for number, row in enumerate(store.rows["gpu_samples"]):
        row["utilization_percent"] = 90.0 if number % 2 == 0 else 10.0
    assert ended["run_id"] == "run-0"
    lines = tabulate(store.ask, Request(each=PartKind.GPU), ["gpu_utilization_percent"], "workload").lines
    assert {line.part: line.figures["laptop"].median for line in lines} == {None: 50.0, "GPU 0": 90.0, "GPU 1": 10.0}


def test_wrong_names_are_rejected_with_what_to_do(call: Collector) -> None:
    for arguments, message in (
        (("--table", "speed"), "the metric speed is unknown; `collector schema --metrics` lists all"),
        (("--table", "iowait"), "the metric iowait is unknown; did you mean cpu_iowait_percent?"),
        (("--table", "cost_per_run_eur"), "the metric cost_per_run_eur needs prices: add --prices FILE"),
        (("--rows", "device"), "--rows and --columns arrange --table; name its metrics: --table throughput"),
        (("--table", "throughput", "--rows", "color"), "--by color is unknown"),
    ):
        code, out, err = call("compare", *arguments)
        assert (code, out) == (2, "")
        assert message in err
    code, out, err = call("compare", "--table", "executed_flops_per_step")
    assert (code, out) == (1, "")
    assert "succeeded has executed_flops_per_step" in err


def test_a_price_that_is_missing_is_named(store: SyntheticStore) -> None:
    for name in ("a", "b"):
        store.next_run(store.node(name, name))
    (name,) = names = ["cost_per_run_usd"]
    for platforms, lacking in (("ab", ""), ("a", "p.yaml has no entry for the platform b, only for a")):
        entries = "\n".join(f"- {{platform: {each}, currency: USD, instance_hour: 2}}" for each in platforms)
        matrix = tabulate(store.ask, Request(prices=parse_prices(entries.encode(), "p.yaml")), names, "workload")
        assert [line.metric.name for line in matrix.lines] == [name]
        assert matrix.unpriced == lacking
        assert lacking in render(matrix).text


def test_costs_in_one_column_have_one_unit(store: SyntheticStore) -> None:
    """A run costs less than a thousandth on one platform, and more on the other."""
    for name in ("a", "b"):
        store.next_run(store.node(name, name))
    entry = "- {{platform: {}, currency: USD, instance_hour: {}}}"
    known = parse_prices(f"{entry.format('a', 0.01)}\n{entry.format('b', 10)}".encode(), "p.yaml")
    matrix = tabulate(store.ask, Request(by="workload", prices=known), ["cost_per_run_usd"], "platform")
    small, large = (float(row[1].split(" [")[0].split(" (")[0]) for row in matrix_table(matrix).grid(wide=True).rows)
    assert large == pytest.approx(1000 * small, rel=0.01)


def test_hostile_names_do_nothing_to_a_terminal(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "hostile.duckdb"
    with made_up(path) as store:
        store.next_run(store.node(HOSTILE, HOSTILE, gpus=[HOSTILE]), workload=HOSTILE, **NAMED)
    for arguments in (("--table", "throughput"), ("--by", "workload"), ("--each", "gpu", "--all")):
        for name in ("table", "json", "markdown"):
            assert_inert(call("compare", *arguments, "--format", name, store=path))
