"""Sides, series, units and parts are told apart by what they are, and never by the text that is printed of them."""

import json
import shlex
from pathlib import Path

import pytest

from gpuagent_collector.answers import history
from gpuagent_collector.answers.history import Request as HistoryRequest
from gpuagent_collector.answers.history import study_history
from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.matrix import tabulate
from gpuagent_collector.runs.data import load_facts, load_runs
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.like import like_key
from gpuagent_collector.runs.parts import load_parts
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.comparing import codes, compared
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, made_up

TRAIN = "python train.py --learning-rate {rate} --optimizer {optimizer} --weight-decay 0.01 --batch-size {batch}"


def add_commands(store: SyntheticStore, repeats: int = 2) -> list[str]:
    """Add runs of eight commands that begin alike, on one node; return the commands."""
    node = store.node("alder-node", "alder")
    lines = [
        TRAIN.format(rate=rate, optimizer=optimizer, batch=batch)
        for rate in ("0.001", "0.01")
        for optimizer in ("adamw", "sgd")
        for batch in (32, 128)
    ]
    for repeat in range(1, repeats + 1):
        for line in lines:
            own = {"workload": "train.py", "parameters": {}, "command": json.dumps(shlex.split(line))}
            store.next_run(node, throughput=1300.0 if line.endswith("128") else 1000.0, repeat=repeat, **own)
    return lines


def test_runs_that_warm_up_count_in_no_answer_that_does_not_ask_for_them(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for repeat in range(2):
        for environment in ("bare", "docker"):
            experiment = "study-1" if repeat else "study-1-warm-up"
            store.next_run(node, environment=environment, experiment=experiment, repeat=repeat)
    assert "joined" not in codes(comparison := compared(store, by="environment"))
    assert set(comparison.layout.run_ids) == {"run-2", "run-3"}
    asked = compare(store.ask, Request(by="environment", experiment="study-1-warm-up"))
    assert set(asked.layout.run_ids) == {"run-0", "run-1"}
    assert compare(store.ask, Request(by="run", values=("run-0",))).layout.run_ids == ["run-0"]
    with pytest.raises(GpuAgentError, match="--experiment study-1-warm-up"):
        compare(store.ask, Request(by="environment", where="repeat = 0"))


def test_commands_that_begin_alike_are_sides_of_their_own_in_every_answer(store: SyntheticStore) -> None:
    add_commands(store)
    comparison = compared(store, by="command")
    sides = comparison.layout.sides
    assert len(sides) == 8
    assert all(len({run.command for run in comparison.layout.runs_of(side)}) == 1 for side in sides)
    table = tabulate(store.ask, Request(by="workload", everything=True), ["throughput"], "command")
    assert sorted(line.row for line in table.lines) == sorted(sides)
    assert {figure.lowest == figure.highest for line in table.lines for figure in line.figures.values()} == {True}


def test_histories_of_commands_can_be_told_apart(store: SyntheticStore) -> None:
    add_commands(store)
    found = study_history(store.ask, HistoryRequest())
    rendering = history.render(found)
    assert len({tuple(series["command"]) for series in rendering.record()["series"]}) == 8
    assert len({section.heading for section in history.render(found).document()[1:-1]}) == 8
    assert len({line["command"] for line in rendering.lines()}) == 8


def test_commands_are_kinds_of_their_own_where_units_are_compared(store: SyntheticStore) -> None:
    lines = add_commands(store)
    runs = load_runs(store.ask, find_facet("node"))
    assert len({like_key(run) for run in runs}) == len(lines)


def test_nodes_of_one_hostname_are_parts_of_their_own(store: SyntheticStore) -> None:
    nodes = [store.node("localhost", "lab", gpus=["NVIDIA L4"]) for _ in range(2)]
    for rank, node in enumerate(nodes):
        store.run("both", node, start_seconds=0, nodes=2, rank=rank, cpu_percent=20.0 + 60.0 * rank)
    runs = load_runs(store.ask, find_facet("run"))
    facts = load_facts(store.ask, ["both"])
    for kind in (PartKind.NODE, PartKind.GPU):
        assert len(load_parts(store.ask, runs, facts, kind)["both"]) == 2


def test_a_side_is_named_on_the_command_line_as_json_has_it(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        add_commands(store, repeats=4)
    _, out, _ = collector("compare", path, "--by", "command", "--format", "json", columns=80)
    asked = json.loads(out)["sides"][2:4]
    code, out, _ = collector("compare", path, "--by", "command", "--format", "json", "--", *asked, columns=80)
    assert (code, json.loads(out)["sides"]) == (0, asked)
    code, _, err = collector("compare", path, "--by", "command", asked[0], columns=80)
    assert (code, "--" in err.split()) == (2, True), err
    code, _, err = collector("compare", path, "--by", "command", "--", "nope", columns=80)
    assert (code, shlex.quote(asked[0]) in err) == (2, True), err


def test_a_recommendation_among_many_commands_tells_them_apart_on_one_line(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        add_commands(store, repeats=4)
    _, out, _ = collector("recommend", path, "train.py", "--by", "command", "--all", columns=120)
    for rate in ("0.001", "0.01"):
        for optimizer in ("adamw", "sgd"):
            for batch in ("32", "128"):
                assert f"{rate} · {optimizer} · {batch}" in out


def test_runs_lists_values_with_their_options(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        add_commands(store)
    out = collector("runs", path, columns=120)[1]
    assert "--lear… 0.001 --opti… adamw --batc… 32 " in out
