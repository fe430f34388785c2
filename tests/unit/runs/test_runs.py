"""Facts and settings of runs, which imported ones are alike, and which runs are like ones."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuagent_collector.runs.cells import Cell, lay_out, tell_apart
from gpuagent_collector.runs.data import Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import join_imported, say_present
from gpuagent_collector.runs.like import group_like, like_key
from gpuagent_collector.runs.settings import settings_of
from tests.support.bare_runs import bare_run, no_facts


@pytest.mark.parametrize(("run_ids", "statements"), [([], 0), (["run-1", "run-2"], 5)])
def test_facts_and_figures_of_runs_take_five_statements_and_of_none_none(run_ids: list[str], statements: int) -> None:
    asked: list[str] = []

    def ask(sql: str, parameters: object = ()) -> list[dict[str, object]]:
        asked.append(sql)
        return []

    facts = load_facts(ask, run_ids)
    assert len(asked) == statements
    assert not (facts.sessions or facts.metrics or facts.texts)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("cpus=8 memory=2G cpus=4@60s", (8.0, 2 * 2**30)),
        ("cpus=8 unlimited memory", (8.0, None)),
        ("cpus=all memory=8", (None, None)),
    ],
)
def test_limits_in_another_form_are_unknown(limits: str, expected: tuple[float | None, int | None]) -> None:
    settings = settings_of(Cell(side="a", runs=(bare_run(limits=limits),), others={}), no_facts())
    assert (settings.cpus, settings.memory_bytes) == expected


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("1000", "1000", True),
        ("1000", "1024", False),
        ("≈1000", "1024", True),
        ("≈1000.5", "≈1024", True),
        ("≈1000", "≈1100", False),
        ("≈1000", "normal:1000:10", False),
        ("≈1000", None, False),
    ],
)
def test_only_measured_lengths_are_alike_within_five_percent(one: str, other: str | None, are_alike: bool) -> None:
    imported = [_run("a", one, "vllm"), _run("b", other, "vllm")]
    assert (len({run.parameters for run in join_imported(imported)}) == 1) is are_alike
    own = _run("own", other, None)
    (joined, _) = join_imported([imported[0], own])
    assert (joined.parameters == own.parameters) is are_alike


def _run(run_id: str, length: str | None, imported: str | None) -> Run:
    return bare_run(run_id, workload="serve-load", imported=imported, parameters=json.dumps({"input": length}))


COMMAND = ("train.py", "--lr", "0.1", "--data", "/home/ada/data")
RUN = bare_run("one", platform="x", workload="train.py", environment="docker", image="torch:1", command=COMMAND)


@pytest.mark.parametrize(
    ("facet", "value"),
    [
        ("workload", "other.py"),
        ("parameters", '{"batch-size": 8}'),
        ("command", ("train.py", "--lr", "0.2", "--data", "/home/ada/data")),
        ("platform", "y"),
        ("environment", "bare"),
        ("image", "torch:2"),
        ("interference", "cpu-burn"),
        ("limits", "cpus=2"),
        ("device", "T4"),
        ("node_count", 2),
    ],
)
def test_runs_that_differ_in_a_facet_are_alike_only_without_it(facet: str, value: Any) -> None:
    changed: dict[str, Any] = {facet: value}
    other = replace(RUN, **changed)
    assert like_key(other) != like_key(RUN)
    left_out = "identity" if facet == "command" else facet
    assert like_key(other, left_out) == like_key(RUN, left_out)


def test_repeats_at_other_places_are_alike_and_keep_their_order() -> None:
    moved = replace(RUN, run_id="two", nodes="birch", repeat=2, command=(*RUN.command[:-1], "/data"))
    different = replace(RUN, run_id="three", image="torch:2")
    assert [[run.run_id for run in runs] for runs in group_like([moved, different, RUN]).values()] == [
        ["two", "one"],
        ["three"],
    ]


@pytest.mark.parametrize(
    ("procs", "paired", "expected"),
    [
        ({"satori": "1122", "vm": "112244"}, False, ["dist --procs 1", "dist --procs 2"]),
        # Made in pairs, and commands that differ in each run.
        ({"satori": "12", "vm": "12"}, True, ["dist"]),
        ({"satori": "123", "vm": "123"}, False, ["dist"]),
        # Beside like commands, those of one side alone are left out.
        ({"satori": "113", "vm": "114"}, False, ["dist --procs 1"]),
        # What cannot be separated from the sides does not divide.
        ({"satori": "1122", "vm": "3344"}, False, ["dist"]),
    ],
)
def test_runs_are_compared_by_their_arguments_where_two_sides_repeat_them(
    procs: dict[str, str], paired: bool, expected: list[str]
) -> None:
    runs = []
    for side, of_side in procs.items():
        for number, value in enumerate(of_side):
            design = {"experiment": "e", "repeat": 1, "nodes": "n"} if paired else {}
            command = ("python", "dist.py", "--procs", value)
            runs.append(
                bare_run(f"{side}-{number}", side=side, status="succeeded", workload="dist", command=command, **design)
            )
    layout = lay_out(runs, find_facet("platform"), ("satori", "vm"))
    assert [tell_apart(block, layout.blocks) for block in layout.blocks] == expected
    kept = len(layout.runs)
    assert kept + sum(one.runs for one in layout.left_out) == len(runs)


def test_names_of_experiments_are_listed_without_warm_ups_and_those_of_single_runs() -> None:
    single = "mine-20260714T091500"
    assert say_present(["a", "a-warm-up", "b-20260714", single]) == "there are: a, b-20260714"
    assert say_present([single]) == f"there are: {single}"
    assert say_present(["a-warm-up"]) == "there are: a-warm-up"
    assert say_present([]) == "the store has no runs yet"
    assert say_present([f"e{number}" for number in range(21)]).endswith("e19, …")
