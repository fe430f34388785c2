"""`collector show`: everything about a run or a side."""

import json
import shlex
from collections.abc import Callable
from itertools import pairwise, product
from math import inf, nan
from pathlib import Path

import pytest

from gpuagent_collector.answers.show import Details, results_section
from gpuagent_collector.present.table import Table
from tests.integration.compare.filled import FILLS, Fill
from tests.integration.profile.traced import add_traced, kernel
from tests.support.commands import HOSTILE, Collector, assert_inert, csv_rows, made_up, statements_shown

pytestmark = pytest.mark.slow


def test_a_platform_is_shown_with_median_range_and_number_of_runs(call: Collector) -> None:
    code, out, _ = call("show", "lab", "--workload", "mnist", "--all")
    assert code == 0
    assert "Values of lab" in out
    assert "median" in out
    assert "lowest" in out
    rows = csv_rows(call("show", "lab", "--workload", "mnist", "--format", "csv")[1])
    throughput = next(row for row in rows if row["metric"] == "throughput")
    assert (throughput["n"], throughput["median"], throughput["side"]) == ("3", "1000", "lab")


def test_a_failed_run_is_counted_once(call: Collector) -> None:
    _, out, _ = call("show", "run-3")
    assert "run-3 failed after " in out


def test_a_result_that_is_no_number_is_shown_as_reported() -> None:
    results = [{"name": f"loss_{value}", "value": value, "text": None, "unit": None} for value in (nan, inf, -inf, 2.0)]
    section = results_section(Details(row={}, outputs={}, results=results, reporting=1, logged=()))
    assert section is not None
    (grid,) = section.parts
    assert isinstance(grid, Table)
    assert [value for _, value in grid.rows] == ["nan", "inf", "-inf", "2"]
    of_two = results_section(Details(row={}, outputs={}, results=results, reporting=2, logged=()))
    assert of_two is not None
    assert of_two.heading == "Results that the first of 2 ranks reported"


def test_json_has_everything_that_is_shown_and_the_sql(call: Collector, filled: Callable[[Fill], Path]) -> None:
    _, out, err = call("show", "run-0", "--json", "--show-sql")
    answer = json.loads(out)
    assert answer["run"]["run_id"] == "run-0"
    assert answer["run"]["parameters"] == {"batch_size": 64}
    (course,) = answer["courses"]
    assert [phase["name"] for phase in course["phases"]] == ["setup", "warmup", "measure", "teardown"]
    assert {"GPU utilisation", "Node CPU"} <= {curve["title"] for curve in course["curves"]}
    assert answer["profile"]["tables"]
    assert len(answer["sql"]) == len(statements_shown(err, filled(FILLS["show"])))


def test_numbers_that_a_program_logged_by_step_are_shown_with_their_last_values(
    call: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "logged.duckdb"
    with made_up(path) as store:
        at = {**store.next_run(store.node("spruce", "lab")), "rank": 0, "event": "metric"}
        for step, loss in enumerate((2.0, 1.5, 0.5)):
            for name, value in (("loss", loss), ("lr", 0.1)):
                detail = json.dumps({"step": step, "value": value})
                store.rows["run_events"].append({**at, "name": name, "detail": detail})
    _, out, _ = call("show", at["run_id"], "--json", store=path)
    assert json.loads(out)["run"]["logged"] == [
        {"name": "loss", "number": 3, "value": 0.5, "step": 2},
        {"name": "lr", "number": 3, "value": 0.1, "step": 2},
    ]
    assert "Numbers that the program logged" in call("show", at["run_id"], "--all", store=path)[1]


def test_of_two_beginnings_of_runs_the_command_that_compares_them_has_whole_names(
    call: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "two.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for number, name in enumerate(("alpha-1f2e", "beta-5b4c")):
            store.run(name, node, start_seconds=60 * number)
    code, _, err = call("show", "al", "be", store=path)
    assert code == 2
    assert "--by run alpha-1f2e beta-5b4c`" in err


def test_of_two_workloads_with_many_runs_the_command_that_compares_them_is_named(call: Collector) -> None:
    code, _, err = call("show", "run", "mnist")
    assert code == 2
    assert " run mnist`" in err


def test_each_gpu_and_rank_has_a_column_and_a_curve(call: Collector) -> None:
    code, out, _ = call("show", "run-4", "--each", "gpu")
    assert code == 0
    assert len(out.splitlines()) < 24
    # Below the sentence on what differs most, a row for each.
    first, second = (line.split()[:2] for line in out.splitlines() if line.startswith("GPU "))
    assert [first, second] == [["GPU", "0"], ["GPU", "1"]]
    whole = call("show", "run-4", "--each", "gpu", "--all")[1]
    assert "80.3 % 79.9 %" in " ".join(whole.split())  # how busy they were
    answer = json.loads(call("show", "run-4", "--each", "gpu", "--all", "--json")[1])
    assert [course["course"] for course in answer["courses"]] == ["run-4", "run-4 GPU 0", "run-4 GPU 1"]
    ranks = call("show", "run-4", "--each", "rank")[1]
    assert "rank 0" in ranks
    assert "rank 1" in ranks
    assert "spruce" in call("show", "run-4", "--each", "node")[1]


def test_a_profile_shows_the_kernels_of_each_rank(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "ranks.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=["NVIDIA H200"] * 2)
        add_traced(store, node, [kernel("gemm", 4.0), kernel("ncclDevKernel_AllReduce", 1.0)], ranks=2)
        for row in store.rows["op_times"]:
            row["gpu_seconds"] *= 1 + (row["rank"] if row["name"].startswith("nccl") else 0)
        store.rows["results"].append({**store.rows["results"][-1], "name": "ranks", "value": 2.0, "value_text": None})
    code, out, _ = call("profile", "run-0", "--each", "rank", store=path)
    assert code == 0
    text = " ".join(out.split())
    assert "Kernels and copies by part, ms per step (share)" in text
    assert "gemm 4.00 (80 %) 4.00 (66.7 %)" in text.replace(" 4 (", " 4.00 (")
    answer = json.loads(call("profile", "run-0", "--each", "rank", "--json", store=path)[1])
    assert list(answer["parts"][0]["seconds"]) == ["rank 0", "rank 1"]


def test_a_condition_chooses_runs_of_any_platform(call: Collector) -> None:
    code, out, _ = call("show", "--where", "repeat <= 2 AND workload = 'mnist'")
    assert code == 0
    assert "of all runs" in out


def test_workloads_and_experiments_are_shown_by_their_names(call: Collector) -> None:
    named, by_option = (
        json.loads(call("show", *arguments, "--json")[1]) for arguments in (("mnist",), ("--workload", "mnist"))
    )
    assert named["blocks"] == by_option["blocks"]
    assert named["answer"] == by_option["answer"]


def test_unknown_and_ambiguous_names_are_rejected(call: Collector) -> None:
    code, _, err = call("show", "nothing")
    assert code == 2
    assert "is named nothing" in err
    code, _, err = call("show", "run-")
    assert code == 2
    assert "begin with run-" in err


def test_two_names_are_two_runs_to_compare(call: Collector, filled: Callable[[Fill], Path]) -> None:
    code, _, err = call("show", "run-0", "run-1")
    assert code == 2
    assert f"`collector compare --store {filled(FILLS['show'])} --by run run-0 run-1`" in err


def test_one_side_is_shown_without_a_word_on_others(call: Collector) -> None:
    code, out, _ = call("show", "lab")
    assert code == 0
    assert "Values of lab" in out
    assert "no other side" not in out


def test_the_first_screen_of_a_workload_has_the_command_as_it_was_typed(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "typed.duckdb"
    command = ["/opt/bin/python3", "-m", "gpuagent_workloads", "run", "mnist", "--param", "steps=50"]
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        store.next_run(node, parameters={"steps": 50, "warmup": 20}, command=json.dumps(command))
    out = call("show", "run-0", store=path)[1]
    assert "mnist --param steps=50 --platform lab" in " ".join(out.replace("\\\n", "").split())
    assert "warmup=20" not in out
    assert "warmup=20" in call("show", "run-0", "--all", store=path)[1]


@pytest.mark.parametrize(
    ("runs", "next_command"),
    [
        (1, "gpuagent bench --store {path} mnist --param steps=50 --platform lab"),
        (2, "collector show --store {path} mnist"),
    ],
)
def test_the_only_run_of_a_workload_is_repeated_next_and_others_are_shown_together(
    collector: Collector, tmp_path: Path, runs: int, next_command: str
) -> None:
    path = tmp_path / "few.duckdb"
    command = ["/opt/bin/python3", "-m", "gpuagent_workloads", "run", "mnist", "--param", "steps=50"]
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for _ in range(runs):
            store.next_run(node, parameters={"steps": 50}, command=json.dumps(command))
    out = collector("show", path, "run-0", columns=300)[1]
    assert out.rstrip().endswith(next_command.format(path=path))


def test_settings_of_a_workload_are_in_the_order_of_their_numbers(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "settings.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for size in (128, 32, 8):
            store.next_run(node, parameters={"size": size}, experiment="sizes", throughput=1000.0 / size)
    out = " ".join(call("show", "sizes", store=path)[1].split())
    assert "Values of the experiment sizes" in out
    assert "median throughput is 7.81 items/s (size=128) to 125 items/s (size=8)" in out
    assert out.index(" size=8 ") < out.index(" size=32 ") < out.index(" size=128 ")


def test_settings_of_several_options_are_named_in_full_once(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "options.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for size, dtype in product(("8", "64"), ("bf16", "fp32")):
            command = json.dumps(["python", "train.py", "--size", size, "--dtype", dtype])
            store.next_run(node, workload="train.py", parameters={}, command=command, throughput=float(size))
    out = call("show", "train.py", store=path)[1]
    assert "(--size 64 --dtype bf16)" in " ".join(out.split())
    rows = [line.split("  ")[0] for line in out.splitlines() if " · " in line]
    assert rows == ["--size · --dtype", "8 · bf16", "8 · fp32", "64 · bf16", "64 · fp32"]


def test_nodes_of_settings_are_in_the_order_of_the_settings(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "nodes.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for steps in ("10", "9", "10", "9", "8"):
            command = json.dumps(["python", "train.py", "--steps", steps])
            store.next_run(node, workload="train.py", parameters={}, command=command)
    lines = call("show", "train.py", "--each", "node", store=path)[1].splitlines()
    rows = [line.split(":")[0] for line in lines if line.startswith("--steps")]
    assert rows == ["--steps 8", "--steps 9", "--steps 10"]
    out = call("compare", "--by", "command", "--each", "node", store=path)[1]
    (after,) = [after for before, after in pairwise(out.splitlines()) if before.startswith("Each node ")]
    assert "more than one node" in after


def test_every_run_of_a_workload_is_in_some_row_though_a_command_ran_on_one_platform(
    call: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "commands.duckdb"
    with made_up(path) as store:
        nodes = [store.node(name, name) for name in ("small", "large")]
        for node, steps in ((nodes[0], "9"), (nodes[1], "9"), (nodes[1], "8")):
            command = json.dumps(["python", "train.py", "--steps", steps])
            store.next_run(node, workload="train.py", parameters={}, command=command)
    lines = call("show", "train.py", store=path)[1].splitlines()
    assert [line.split()[:4] for line in lines if line.startswith(("large", "small"))] == [
        ["large", "--steps", "8", "1"],
        ["large", "--steps", "9", "1"],
        ["small", "--steps", "9", "1"],
    ]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (["9 items/s", "9 steps/s"], ["train.py in items/s 3 1,000 items/s", "train.py in steps/s 3 30 steps/s"]),
        (["8 items/s", "9 steps/s"], ["--steps 8 3 1,000 items/s", "--steps 9 3 30 steps/s"]),
        (
            ["8 items/s", "9 steps/s", "9 items/s"],
            ["--steps 8 3 1,000 items/s", "--steps 9 in items/s 3 1,000 items/s", "--steps 9 in steps/s 3 30 steps/s"],
        ),
    ],
)
def test_runs_in_other_units_of_throughput_are_in_other_rows(
    call: Collector, tmp_path: Path, made: list[str], shown: list[str]
) -> None:
    path = tmp_path / "units.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for steps, unit in (one.split() for one in made * 3):
            command = json.dumps(["python", "train.py", "--steps", steps])
            rate = {"items/s": 1000.0, "steps/s": 30.0}[unit]
            run = store.next_run(node, workload="train.py", parameters={}, command=command, throughput=rate)
            for row in store.rows["results"]:
                is_of_run = (row["run_id"], row["name"]) == (run["run_id"], "throughput")
                row["unit"] = unit if is_of_run else row["unit"]
    code, out, _ = call("show", "train.py", store=path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert "median throughput" not in out
    rows = [line for line in lines if line.startswith(("train.py in ", "--steps"))]
    assert [row[: len(start)] for row, start in zip(rows, shown, strict=True)] == shown
    _, out, _ = call("show", "train.py", "--each", "node", store=path)
    named = ("train.py", "--steps", "spruce")
    assert len([line for line in out.partition("Each node")[2].splitlines() if line.startswith(named)]) == len(made)


def test_several_workloads_are_counted(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "several.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for workload, number in (("gcn", 1), ("mnist", 2), ("gpt", 3)):
            for _ in range(number):
                store.next_run(node, workload=workload)
    out = call("show", store=path)[1]
    assert "6 runs of 3 workloads succeeded: 3 of gpt, 2 of mnist, 1 of gcn." in out


def test_throughputs_of_workloads_in_other_units_have_one_column(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "units.duckdb"
    with made_up(path) as store:
        for name, factor in (("ash", 1.0), ("oak", 0.5)):
            node = store.node(name, "lab")
            for workload, rate in (("eval", 30.0), ("train", 1000.0)):
                store.next_run(node, workload=workload, throughput=rate * factor)
        for row in store.rows["results"]:
            if row["name"] == "throughput" and row["value"] <= 30:
                row["unit"] = "steps/s"
    table, _, following = call("show", "--each", "node", store=path)[1].partition("Each node")[2].partition("Next:")
    # It stays with the nodes.
    assert " --by node" in following
    assert "steps/s" in table
    assert "items/s" in table
    assert table.count("Throughput") == 1


def test_the_next_command_stays_in_the_experiment(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "experiments.duckdb"
    with made_up(path) as store:
        lab, cloud = (store.node(name, name) for name in ("lab", "cloud"))
        for node, workload, experiment in (
            *((lab, workload, "both") for workload in ("eval", "train")),
            *((node, "train", "several") for node in (lab, cloud)),
            *((cloud, "train", "one") for _ in range(2)),
        ):
            store.next_run(node, workload=workload, experiment=experiment)
        for status in ("failed", "cancelled"):
            store.next_run(cloud, workload="train", experiment="one", status=status)
    for experiment, command in (("both", "show"), ("several", "compare"), ("one", "runs")):
        out = collector("show", path, experiment, "--all", columns=300)[1]
        named, *words = shlex.split(out.rstrip().splitlines()[-1])[1:]
        assert (named, words[-2:]) == (command, ["--experiment", experiment])
        for status in ("failed", "cancelled") if experiment == "one" else ():
            assert f"--status {status} --experiment one`" in out


@pytest.mark.parametrize(("status", "is_shown"), [("failed", True), ("cancelled", False)])
def test_the_first_screen_of_a_failed_run_has_the_end_of_its_errors(
    call: Collector, tmp_path: Path, status: str, is_shown: bool
) -> None:
    path = tmp_path / "output.duckdb"
    with made_up(path) as store:
        ended = store.next_run(store.node("spruce", "lab"), status=status)
        for name in ("stdout", "stderr"):
            tail = "\n".join([*(f"{name} {number}" for number in range(20)), "wide " * 30])
            event = {"event": "output", "name": name, "detail": json.dumps({"tail": tail})}
            store.rows["run_events"].append({**ended, **event})
    out, everything = call("show", "run-0", store=path)[1], call("show", "run-0", "--all", store=path)[1]
    assert ("Output, the last 6 lines" in out) is is_shown
    # The wide line takes two, and the last line of a terminal is for the next command.
    assert ("stderr 16" in out, "stderr 15" in out, "stdout" in out) == (is_shown, False, False)
    assert len(out.splitlines()) < 24
    # The streams share the lines.
    assert ("stdout 16" in everything, "stderr 16" in everything, "stderr 15" in everything) == (True, True, False)


def test_a_run_that_was_cancelled_in_the_queue_has_no_output_and_is_launched_next(
    call: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "queued.duckdb"
    with made_up(path) as store:
        store.next_run(store.node("spruce", "lab"), status="cancelled", experiment="tried", sampled=False, phases=False)
        store.rows["run_states"] = [row for row in store.rows["run_states"] if row["status"] != "running"]
    code, out, _ = call("show", "run-0", store=path)
    assert code == 0
    assert "run-0 was cancelled in the queue, before it started." in out
    assert "Queued " in out
    assert "! " not in out
    assert "\n  collector launch mnist --on node=spruce --repeat 1 --wait" in out
    assert "logs" not in call("runs", "run-0", store=path)[1]
    assert f"`collector show --store {path} run-0`" in call("show", "tried", store=path)[2]


def test_runs_with_nothing_but_nulls_are_shown(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "bare.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
        store.run("bare", node, start_seconds=0, throughput=None, phases=False, gpus=(), parameters={})
        for table, rows in store.rows.items():
            for row in rows:
                kept = ("run_id", "node_id", "session_id", "device_id", "time", "status", "started_at", "node_uuid")
                for name in row:
                    if name not in kept and not (table == "sessions" and name in ("hostname", "platform")):
                        row[name] = None
            if table.endswith("_samples"):
                rows.clear()
        store.rows = {table: rows for table, rows in store.rows.items() if rows}
    for name in ("table", "json", "csv", "markdown"):
        code, _, err = call("show", "bare", "--format", name, "--each", "gpu", store=path)
        assert (code, "Traceback" in err) == (0, False), err


def test_hostile_texts_do_nothing(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "hostile.duckdb"
    with made_up(path) as store:
        node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE] * 2)
        run = {"workload": HOSTILE, "environment": HOSTILE, "command": json.dumps([HOSTILE])}
        ended = store.next_run(node, parameters={HOSTILE: HOSTILE}, **run)
        event = {"event": "output", "name": "stdout", "detail": json.dumps({"tail": f"{HOSTILE}\n{HOSTILE}"})}
        store.rows["run_events"].append({**ended, **event})
    for name in ("table", "json", "markdown"):
        assert_inert(call("show", "run-0", "--each", "gpu", "--all", "--format", name, store=path))
