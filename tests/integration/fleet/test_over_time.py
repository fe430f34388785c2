"""Figures over time: levels, the facts that changed between them, and runs before and after an event."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from gpuagent_collector.answers.history import History, render, study_history
from gpuagent_collector.answers.history import Request as HistoryRequest
from gpuagent_collector.answers.history import answer as answer_history
from gpuagent_collector.cli import cli
from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.compare.document import render as render_comparison
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.present.table import Table
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import MisuseError
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.fleet.scenes import DAY_SECONDS, DAYS, add_history
from tests.support.commands import Collector, made_up, synthetic

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three nodes over 24 days."""
    path = tmp_path_factory.mktemp("time") / "runs.duckdb"
    with synthetic(path, add_history):
        return path


@pytest.fixture
def store(path: Path) -> Iterator[SyntheticStore]:
    with synthetic(path) as store:
        yield store


def compared(store: SyntheticStore, event: str, **request: object) -> Comparison:
    return compare(store.ask, Request(event=event, **request))  # type: ignore[arg-type]


def test_runs_before_and_after_a_driver_are_compared_node_by_node(store: SyntheticStore) -> None:
    comparison = compared(store, "driver")
    found = {test.block.held["node"]: test for test in comparison.figures.tests}
    assert {node: test.judgement.verdict for node, test in found.items()} == {
        "slowed": Verdict.DIFFERS,
        "same": Verdict.EQUAL,
    }
    assert (found["slowed"].baseline.side, found["slowed"].other.side) == ("before", "after")
    assert found["slowed"].judgement.shift.estimate == pytest.approx(0.94, abs=0.005)
    assert "lower (worse) after than before" in answer(comparison)
    (caveat,) = (each for each in comparison.caveats if each.code == "not_interleaved")
    assert "cannot take turns" in caveat.text


def test_an_event_may_be_named_with_its_value_and_a_reboot_is_one(store: SyntheticStore) -> None:
    assert len(compared(store, "driver=580").figures.tests) == 2
    assert len(compared(store, "reboot").figures.tests) == 2
    for nothing in ("driver=999", "torch"):
        with pytest.raises(NothingToCompareError, match=f"no node has runs on both sides of a change of {nothing}"):
            compared(store, nothing)
    # The last time has none in UTC that can be stored.
    for unknown in ("divers", "''", "9999-12-31T23:59-14:00"):
        with pytest.raises(MisuseError, match=f"--before {unknown} is unknown"):
            compared(store, unknown.strip("'"))


def test_a_time_divides_the_runs_of_all_nodes_that_have_some_on_both_sides(store: SyntheticStore) -> None:
    comparison = compared(store, "2030-01-13T00:00+00:00")
    assert {test.block.held["node"] for test in comparison.figures.tests} == {"slowed", "same"}
    assert all(test.baseline.side == "before" for test in comparison.figures.tests)
    assert str(render_comparison(comparison).next).startswith("collector peers ")
    assert [caveat.code for caveat in comparison.caveats].count("not_interleaved") == 1
    with pytest.raises(NothingToCompareError, match="no node has runs on both sides of 2031-01-01"):
        compared(store, "2031-01-01")


def test_levels_of_unlike_work_have_no_range(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        node = store.node("ash", "lab")
        store.next_run(node, throughput=1000.0)
        store.next_run(node, throughput=2000.0, parameters={"batch_size": 7})
        alike = answer_history(study_history(store.ask, HistoryRequest()))
        store.next_run(node, throughput=10.0, workload="gcn")
        several = study_history(store.ask, HistoryRequest())
    unlike = answer_history(replace(several, without=("mute",), recorded=None))
    assert "It is 1,000 items/s to 2,000 items/s in 2 settings." in alike
    assert "items/s to" not in unlike
    assert "1 run of each setting. No throughput is known of mute" in unlike


@pytest.mark.parametrize(("programs", "missing"), [("ab", 3), ("abcdef", 3)])
def test_of_several_settings_a_history_makes_the_runs_that_the_first_lacks(
    tmp_path: Path, programs: str, missing: int
) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        node = store.node("spruce", "lab")
        for number, program in enumerate(programs):
            own: dict[str, Any] = {"workload": "tools", "parameters": {}, "command": json.dumps([program, "file"])}
            for _ in range(7 - number):
                store.next_run(node, **own)
        rendered = render(study_history(store.ask, HistoryRequest()))
    # By its agent, since it is not this node.
    assert rendered.next == f"collector launch --on node=spruce --repeat {missing} --wait --name tools -- a file"
    asked = f"asks a collector for {missing} more runs of the first setting on spruce."
    assert rendered.text.endswith(f"The next command {asked}")


@pytest.mark.parametrize("is_own", [True, False])
def test_the_runs_that_a_history_asks_for_are_enough_and_of_every_setting(tmp_path: Path, is_own: bool) -> None:
    def study(runs: int) -> History:
        with synthetic(tmp_path / f"{runs}.duckdb") as store:
            node = store.node(os.uname().nodename, "lab")
            for _, size in product(range(runs), ("8", "32")):
                command = json.dumps(["tool", "--batch-size", size]) if is_own else None
                own: dict[str, Any] = {"parameters": {} if is_own else {"batch_size": int(size)}, "command": command}
                store.next_run(node, workload="tool", throughput=float(size), **own)
            for row in store.rows["results"]:
                row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
            return study_history(store.ask, HistoryRequest())

    words = shlex.split(render(study(1)).next or "")
    assert "batch-size=8,32" in words
    # Items would be another history than that of these steps.
    assert "--items-per-step" not in words
    rounds = int(words[words.index("--rounds") + 1])
    assert [one.is_tested for one in study(1 + rounds).series] == [True, True]
    assert [one.is_tested for one in study(rounds).series] == [False, False]


def test_the_runs_that_a_history_asks_for_are_of_one_platform_and_it_says_of_which(tmp_path: Path) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        for platform in ("px", "py"):
            node = store.node(os.uname().nodename, platform)
            for _ in range(4):
                store.next_run(node, workload="tool", parameters={}, command=json.dumps(["tool"]))
        rendered = render(study_history(store.ask, HistoryRequest()))
    assert "--platform px" in (rendered.next or "")
    assert "6 more runs on px; " in rendered.text


def test_a_change_has_the_warnings_of_its_own_runs(tmp_path: Path) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        changed, steady, calm = (store.node(name, "lab", cpu_threads=2) for name in ("changed", "steady", "calm"))
        for number in range(16):
            rate = 100.0 + number % 3
            store.next_run(changed, throughput=rate if number < 8 else rate / 2, cpu_percent=100.0)
            store.next_run(steady, throughput=rate, cpu_percent=100.0)
            store.next_run(calm, throughput=rate)
        for row in store.rows["process_samples"]:
            row["cpu_cores"] = 0.44
        (caveat,) = render(study_history(store.ask, HistoryRequest())).caveats
    assert (caveat.code, "during all 16 runs" in caveat.text) == ("foreign_load", True)


@pytest.mark.parametrize("loaded", [0, 1, 4])
def test_load_of_others_that_came_with_a_change_is_named_beside_facts(tmp_path: Path, loaded: int) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        node = store.node("ash", "lab", cpu_threads=2)
        for number in range(16):
            is_loaded = number < loaded or number >= 8
            rate = (100.0 if number < 8 else 50.0) + number % 3
            store.next_run(node, throughput=rate, cpu_percent=100.0 if is_loaded else 20.0)
        for row in store.rows["process_samples"]:
            row["cpu_cores"] = 0.4
        history = study_history(store.ask, HistoryRequest())
    ((_, _, after),) = history.changes
    assert after.disturbed == (f"CPU load of others ({loaded} of 8 runs before, 8 of 8 after)",)
    assert after.disturbed[0] in answer_history(history)


def histories_of_settings(path: Path, runs: Mapping[str, int], **request: Any) -> History:
    """Return histories of one program with as many runs of each setting, in an experiment of the setting's letter."""
    with synthetic(path) as store:
        node = store.node("spruce", "lab")
        for name, number in runs.items():
            own: dict[str, Any] = {"workload": "tool", "parameters": {}, "command": json.dumps(["tool", name])}
            for index in range(number):
                rate = 100.0 + index % 7 + (50.0 if name == "a" and index >= number // 2 else 0.0)
                store.next_run(node, throughput=rate, experiment=name[0], **own)
        return study_history(store.ask, HistoryRequest(**request))


def test_a_change_stays_when_settings_of_other_numbers_of_runs_come(tmp_path: Path) -> None:
    six = dict.fromkeys("abcdef", 10)
    for number, others in enumerate(({}, {"g": 7, "h": 9}, {"b": 20, "c": 20, "d": 30, "g": 10, "h": 10})):
        history = histories_of_settings(tmp_path / f"{number}.duckdb", {**six, **others})
        ((series, *_),) = history.changes
        assert (series.command or ())[1:] == ("a",)
        assert series.level == pytest.approx(2 / 252, rel=0.1)
        assert sum(one.level or 0 for one in history.series) == pytest.approx(0.05)


def test_a_history_that_is_not_tested_has_the_runs_that_it_needs(tmp_path: Path) -> None:
    runs = {"b": 20, **dict.fromkeys("acdefgh", 10)}
    rendered = render(histories_of_settings(tmp_path / "few.duckdb", runs))
    table = rendered.parts[0]
    assert isinstance(table, Table)
    assert [row[-1] for row in table.grid().rows] == ["none shown", *["needs 12 runs"] * 7]
    assert rendered.text.endswith("One history was tested; it takes 12 runs of each to test all 8.")
    enough = histories_of_settings(tmp_path / "enough.duckdb", {name: max(12, number) for name, number in runs.items()})
    assert all(one.is_tested for one in enough.series)


def test_a_history_of_an_experiment_leads_to_that_of_all_since_new_runs_are_of_another(tmp_path: Path) -> None:
    rendered = render(histories_of_settings(tmp_path / "runs.duckdb", {"a1": 7, "a2": 7, "b": 9}, experiment="a"))
    assert rendered.next == "collector history tool"
    assert "7 runs of each setting" in rendered.text
    assert "to test both" in rendered.text


@pytest.fixture(scope="module")
def history(path: Path) -> History:
    with synthetic(path) as store:
        return study_history(store.ask, HistoryRequest(workload="mnist"))


def test_a_change_of_level_is_found_with_the_facts_that_changed_there(history: History) -> None:
    series = {one.node: one for one in history.series}
    before, after = series["slowed"].levels
    assert (before.values, after.values) == (DAYS, DAYS)
    assert {release.words for release in after.releases} == {"driver 550 → 580", "reboot"}
    assert after.p_value is not None
    assert after.p_value <= (series["slowed"].level or 0)


def test_facts_that_changed_without_effect_are_listed(history: History) -> None:
    (same,) = (one for one in history.series if one.node == "same")
    assert len(same.levels) == 1
    assert {release.words for release in same.quiet} == {"driver 550 → 580", "reboot"}


def test_firmware_that_was_unknown_before_is_no_change(history: History) -> None:
    releases = [release for one in history.series for level in one.levels for release in level.releases]
    assert "bios" not in {release.event for release in releases}


def test_a_change_between_few_days_may_be_one_of_days(tmp_path: Path) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        node = store.node("new", "fleet")
        for day, rate in enumerate((1000.0, 1000.0, 900.0)):
            for number in range(6):
                start_seconds = day * DAY_SECONDS + 60 * number
                throughput = rate * store.chance.gauss(1, 0.004)
                store.run(f"{day}-{number}", node, start_seconds=start_seconds, throughput=throughput)
        history = study_history(store.ask, HistoryRequest(workload="mnist"))
        (series,) = history.series
        # The third day, to which the runs before it do not belong.
        next_command = render(history).next
        assert next_command == f"collector compare --before {series.levels[1].first.isoformat()} --workload mnist"
        before, after = compared(store, next_command.split()[3]).layout.blocks[0].cells
    assert (len(series.levels), series.is_daily, series.days) == (2, False, 3)
    assert "fewer than 8 days" in answer_history(history)
    assert (len(before.runs), len(after.runs)) == (12, 6)
    text = " ".join(str(part) for section in render(history).document() for part in section.parts)
    assert "3 days" in text


def test_a_history_is_named_by_what_sets_it_apart_from_those_of_other_workloads(tmp_path: Path) -> None:
    with made_up(tmp_path / "runs.duckdb") as store:
        node = store.node("ash", "lab")
        store.run("built-in", node, start_seconds=0, parameters={"batch_size": 64, "seed": 1, "steps": 60})
        for number in (1, 2):
            command = json.dumps(["python", "train.py", "--lr", str(number)])
            own: dict[str, Any] = {"workload": "train.py", "parameters": {}, "command": command}
            store.run(f"own-{number}", node, start_seconds=20 * number, **own)
        history = study_history(store.ask, HistoryRequest())
    overview = render(history).parts[0]
    assert isinstance(overview, Table)
    assert [row[0] for row in overview.grid().rows] == ["mnist", "train.py --lr 1", "train.py --lr 2"]


def test_unchanged_histories_are_named_once_and_lead_to_their_runs(tmp_path: Path) -> None:
    with synthetic(tmp_path / "runs.duckdb") as store:
        node = store.node("spruce", "lab")
        for number in range(10):
            store.next_run(node, workload="sleep", parameters={}, command='["sleep", "1"]', throughput=1.0)
            for size in ("32", "128"):
                command = json.dumps(["python", "train.py", "--batch-size", size, "--lr", size])
                own: dict[str, Any] = {"workload": "train.py", "command": command, "parameters": {}}
                store.next_run(node, throughput=1000.0 + number % 2, **own)
        rendered = render(study_history(store.ask, HistoryRequest()))
    assert rendered.next == "collector show sleep"
    (overview,) = rendered.parts
    assert isinstance(overview, Table)
    grid = overview.grid(wide=False)
    assert grid.header == ("history", "runs", "level", "change")
    named = {f"train.py --batch-size {size} --lr {size}" for size in ("32", "128")}
    assert {row[0] for row in grid.rows} == {*named, "sleep"}


@pytest.fixture
def run(path: Path) -> Callable[..., Result]:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["compare", "--store", str(path), *arguments], standalone_mode=False)

    return invoke


def test_a_regression_fails_and_junit_says_which(run: Callable[..., Result], tmp_path: Path) -> None:
    junit = tmp_path / "out.xml"
    result = run("--before", "driver", "--max-regression", "3", "--junit", str(junit))
    assert result.return_value == 1 or result.exit_code == 1
    assert "regressed: mnist on slowed: after / before (throughput 0.9" in result.stderr
    suite = ElementTree.parse(junit).getroot()  # noqa: S314 - of ours
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "mnist on same: after / before": ["system-out"],
        "mnist on slowed: after / before": ["failure"],
    }


def test_a_larger_loss_is_tolerated_where_that_is_asked(run: Callable[..., Result]) -> None:
    result = run("--before", "driver", "--max-regression", "10")
    assert (result.exit_code, result.return_value) == (0, 0)
    assert result.stderr.count("sound: mnist") == 2


def test_a_loss_that_few_runs_cannot_exclude_is_undecided_and_passes(run: Callable[..., Result]) -> None:
    few = "started_at BETWEEN '2030-01-10' AND '2030-01-16'"
    result = run("--before", "driver", "--max-regression", "3", "--where", few)
    assert (result.exit_code, result.return_value) == (0, 0)
    assert "undecided: mnist" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--junit", "x"], "--junit writes conclusions of --max-regression"),
        (["--before", "driver", "a", "b"], "--before has two sides of its own"),
        (["--before", "driver", "--by", "node"], "leave out names of sides, --by"),
        (["--before", "driver", "--max-regression", "1", "--metric", "sm_clock_mhz"], "no better direction"),
    ],
)
def test_contradicting_options_are_misuse(run: Callable[..., Result], arguments: list[str], problem: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, MisuseError)
    assert problem in str(result.exception)


def test_of_several_changes_the_newest_is_compared_without_the_runs_before_the_level(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    with synthetic(path) as store:
        node = store.node("new", "fleet")
        for rate in (1000.0, 500.0, 2000.0):
            for _ in range(8):
                store.next_run(node, throughput=rate * store.chance.gauss(1, 0.004))
        rendered = render(study_history(store.ask, HistoryRequest(workload="mnist")))
    assert re.search(r"\bBefore that: −\d", rendered.text)
    next_command = rendered.next
    assert next_command
    name, *words = shlex.split(next_command)[1:]
    code, out, _ = collector(name, path, *words, "--format", "json", columns=80)
    (test,) = json.loads(out)["tests"]
    assert (code, round(test["estimate"])) == (0, 4)


@pytest.mark.parametrize("others", [{"parameters": {"batch_size": 64, "amp": True}}, {"limits": "cpus=2"}])
def test_runs_with_a_setting_that_the_changed_ones_lack_are_left_out(
    collector: Collector, tmp_path: Path, others: dict[str, Any]
) -> None:
    path = tmp_path / "runs.duckdb"
    with synthetic(path) as store:
        node = store.node("new", "fleet")
        for number in range(20):
            rate = 1000.0 + number % 2
            store.next_run(node, throughput=rate if number < 10 else rate / 2, parameters={"batch_size": 64})
            store.next_run(node, throughput=rate, **{"parameters": {"batch_size": 64}, **others})
        history = study_history(store.ask, HistoryRequest(workload="mnist"))
    ((series, *_),) = history.changes
    name, *words = shlex.split(render(history).next or "")[1:]
    (block,) = json.loads(collector(name, path, *words, "--format", "json", columns=80)[1])["blocks"]
    assert set(block["runs"]["before"] + block["runs"]["after"]) == set(series.run_ids)


@pytest.mark.parametrize(("changed", "other"), [("items/s", "steps/s"), ("steps/s", "items/s")])
def test_a_unit_of_throughput_has_a_history_of_its_own(
    collector: Collector, tmp_path: Path, changed: str, other: str
) -> None:
    path = tmp_path / "runs.duckdb"
    with synthetic(path) as store:
        node = store.node("new", "fleet")
        for number in range(32):
            rate = (30.0, 30.0, 1000.0, 500.0)[number // 8] + number % 2
            run = store.next_run(node, throughput=rate)
            for row in store.rows["results"]:
                is_of_run = (row["run_id"], row["name"]) == (run["run_id"], "throughput")
                row["unit"] = (other if number < 16 else changed) if is_of_run else row["unit"]
        history = study_history(store.ask, HistoryRequest(workload="mnist"))
    ((series, before, after),) = history.changes
    assert [one.unit for one in history.series] == [other, changed]
    assert answer_history(history).startswith(f"mnist in {changed} on new: throughput fell ")
    name, *words = shlex.split(render(history).next or "")[1:]
    (block,) = json.loads(collector(name, path, *words, "--format", "json", columns=80)[1])["blocks"]
    assert set(block["runs"]["before"] + block["runs"]["after"]) == set(series.run_ids)
    assert (before.runs, after.runs) == (8, 8)


def settings_of_programs(batch: int) -> dict[str, Any]:
    command = json.dumps(["python", "/home/me/train.py", "--batch-size", str(batch), "--workers", "32"])
    return {"workload": "train.py", "parameters": {}, "command": command}


def settings_of_workloads(batch: int) -> dict[str, Any]:
    return {"parameters": {"batch_size": batch, "seed": 1}}


@pytest.mark.parametrize("settings", [settings_of_programs, settings_of_workloads])
@pytest.mark.parametrize("runs_a_day", [1, 3, 1000])
def test_the_change_of_one_setting_on_one_node_is_compared_alone_with_the_same_figures(
    collector: Collector, tmp_path: Path, settings: Callable[[int], dict[str, Any]], runs_a_day: int
) -> None:
    path = tmp_path / "runs.duckdb"
    with synthetic(path) as store:
        nodes = [store.node(name, platform) for name, platform in (("one", "lab"), ("two", "lab"), ("far", "cloud"))]
        for number in range(30):
            for place, (node, batch) in enumerate(product(nodes, (32, 128))):
                is_slow = node is nodes[1] and batch == 128 and number >= 15
                start_seconds = number // runs_a_day * DAY_SECONDS + (number % runs_a_day * 10 + place) * 20
                rate = (500.0 if is_slow else 1000.0) * store.chance.gauss(1, 0.004)
                own: dict[str, Any] = {"start_seconds": start_seconds, "throughput": rate, **settings(batch)}
                store.run(f"{number}-{place}", node, **own)
        history = study_history(store.ask, HistoryRequest())
    ((series, before, after),) = history.changes
    assert " two (lab)" in answer_history(history)
    assert "128" in answer_history(history).partition(":")[0]
    name, *words = shlex.split(render(history).next or "")[1:]
    (block,) = json.loads(collector(name, path, *words, "--format", "json", columns=80)[1])["blocks"]
    assert {side: len(runs) for side, runs in block["runs"].items()} == {"before": before.runs, "after": after.runs}
    assert set(block["runs"]["before"] + block["runs"]["after"]) == set(series.run_ids)
    (medians,) = (row["sides"] for row in block["metrics"] if row["metric"] == "throughput")
    assert medians["before"]["median"] == pytest.approx(before.median)
    assert medians["after"]["median"] == pytest.approx(after.median)
