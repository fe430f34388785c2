"""An experiment that separates the facts in which two sides differ, and the ratio divided among them."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest

from gpuagent.experiment.file import parse_experiment
from gpuagent.experiment.plan import trials
from gpuagent_collector.answers.why import (
    Ladder,
    find_by,
    plan_ladder,
    render_ladder,
    write_experiment,
)
from gpuagent_collector.answers.why_divided import divide_ratio, render_division
from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.present.table import Table
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.filled import Fill
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector

pytestmark = pytest.mark.slow

# Effects of the rungs of a ladder from bare to docker: CPU limit, container, shared memory, network.
EFFECTS = {"CPU limit": 0.9, "container and image": 0.98, "shared memory": 1.0, "network": 1.0}
NOISE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0008, 0.9992, 1.0003, 0.9997)


def ask_why(store: SyntheticStore, *sides: str, by: str = "environment") -> Ladder:
    return plan_ladder(store.ask, Request(by=by, values=sides))


def two_sides(store: SyntheticStore, ratio: float = 0.85, **docker: Any) -> None:
    """Add seven runs bare and seven in docker with two CPUs, on two kinds of node."""
    nodes = {
        "bare": store.node("alder", "lab", kernel="6.1.0"),
        "docker": store.node("alder", "lab", kernel="6.8.0", os="Ubuntu 24.04"),
    }
    given = {"docker": {"image": "workloads:1", "limits": "cpus=2", **docker}, "bare": {}}
    for repeat, noise in enumerate(NOISE[:7]):
        for environment, node in nodes.items():
            factor = ratio if environment == "docker" else 1.0
            store.run(
                f"{environment}-{repeat}",
                node,
                start_seconds=40 * repeat + 20 * (environment == "docker"),
                throughput=1000 * factor * noise ** (2 if environment == "docker" else 1),
                environment=environment,
                texts={"torch_version": {"bare": "2.11.0", "docker": "2.13.0"}[environment]},
                **given[environment],
            )


def climb(store: SyntheticStore, effects: dict[str, float], repeats: int = 9) -> None:
    """Add the runs of a ladder with these effects, on a node that drifts by a tenth in each repeat."""
    node = store.node("alder", "lab")
    facts = ["bare", *effects]
    for repeat in range(repeats):
        throughput = 1000 * 0.9**repeat
        for number, fact in enumerate(facts):
            throughput *= effects.get(fact, 1.0)
            store.run(
                f"rung-{number}-{repeat}",
                node,
                start_seconds=2000 + 20 * (repeat * len(facts) + number),
                throughput=throughput * NOISE[(repeat + 4 * number) % len(NOISE)],
                environment="bare" if number < len(facts) - 1 else "docker",
                experiment="why",
                repeat=repeat + 1,
                labels=json.dumps({"rung": f"{number} {fact}"}),
            )


def test_a_plan_changes_one_fact_after_the_other_and_names_the_rest(store: SyntheticStore) -> None:
    two_sides(store)
    ladder = ask_why(store, "docker", "bare")
    assert [rung.fact for rung in ladder.rungs] == ["bare", *EFFECTS]
    assert ladder.comparison.layout.sides == ("bare", "docker")
    assert [each.title for each in ladder.fixed] == ["Kernel"]
    assert [each.partition(" (")[0] for each in ladder.with_image] == ["System", "Torch version"]


def test_the_facet_is_found_by_its_values_and_commands_have_no_condition_of_our_own(store: SyntheticStore) -> None:
    two_sides(store)
    ladder = ask_why(store, "docker", "bare")
    assert find_by(store.ask, ("docker", "bare"), None) == "environment"
    with pytest.raises(MisuseError, match="docker and nowhere"):
        find_by(store.ask, ("docker", "nowhere"), None)
    assert not any("rung" in each.remedy for each in ladder.comparison.caveats)


def test_the_file_of_a_plan_is_an_experiment_with_a_cell_for_each_rung(store: SyntheticStore) -> None:
    two_sides(store)
    file = parse_experiment(write_experiment(ask_why(store, "bare", "docker")).encode(), "why.yaml")
    first, *_ = trials(file)
    cells = sorted((trial.cell for trial in first), key=lambda cell: sorted(cell.asked.labels.items()))
    assert [(cell.asked.cpus, cell.environment, list(cell.asked.options)) for cell in cells] == [
        (0, "bare", []),
        (2, "bare", []),
        (2, "docker:workloads:1", ["--network=host", "--ipc=host"]),
        (2, "docker:workloads:1", ["--network=host"]),
        (2, "docker:workloads:1", []),
    ]
    assert file.repeats == 10
    assert file.answers == ("plan mnist --why bare docker --by environment",)


@pytest.mark.parametrize(
    ("found", "detail", "line"),
    [
        ("observed", None, "observe: true"),
        (None, None, 'command: ["python3", "x.py"]'),
        (None, None, "metric: throughput"),
        ("pattern given", '{"pattern": "step {step}"}', 'pattern: "step {step}"'),
    ],
)
def test_a_program_of_ones_own_is_run_as_before(
    store: SyntheticStore, found: str | None, detail: str | None, line: str
) -> None:
    node = store.node("alder", "lab")
    for repeat in range(8):
        given: dict[str, Any] = {"parameters": {}, "command": '["python3", "x.py"]', "workload": "own"}
        store.run(f"r-{repeat}", node, start_seconds=20 * repeat, limits="cpus=2" if repeat % 2 else None, **given)
        event = {"run_id": f"r-{repeat}", "event": "found", "name": found, "rank": 0, "detail": detail}
        store.rows["run_events"] += [{**node.at(20 * repeat + 1), **event}] if found else []
    ladder = ask_why(store, "none", "cpus=2", by="limits")
    assert line in write_experiment(ladder)
    assert render_ladder(ladder, "why.yaml").next == "gpuagent experiment run why.yaml --platform lab"
    assert len(trials(parse_experiment(write_experiment(ladder).encode(), "why.yaml"))[0]) == 2


def test_between_bare_and_a_pod_is_a_container(store: SyntheticStore) -> None:
    for repeat in range(4):
        for turn, (environment, image) in enumerate((("bare", None), ("kubernetes", "reg/w:1"))):
            node = store.node(f"node-{environment}", environment)
            start = 40 * repeat + 20 * turn
            store.run(f"{environment}-{repeat}", node, start_seconds=start, environment=environment, image=image)
    ladder = ask_why(store, "bare", "kubernetes")
    assert [(rung.fact, rung.change) for rung in ladder.rungs[1:]] == [
        ("container and image", "bare → docker"),
        ("pod", "docker → kubernetes"),
    ]


def test_sides_without_a_fact_that_an_experiment_can_set_have_no_plan(store: SyntheticStore) -> None:
    for repeat in range(4):
        for name, kernel in (("alder", "6.1"), ("birch", "6.8")):
            node = store.node(name, name, kernel=kernel)
            store.run(f"{name}-{repeat}", node, start_seconds=20 * repeat)
    with pytest.raises(
        GpuAgentError, match=r"alder and birch differ only in what an experiment cannot change: .*Kernel"
    ):
        ask_why(store, "alder", "birch", by="platform")
    with pytest.raises(MisuseError, match="two different sides"):
        ask_why(store, "alder", "alder", by="platform")


def test_a_ratio_is_divided_among_the_facts_and_what_they_leave(store: SyntheticStore) -> None:
    two_sides(store, ratio=0.8)
    climb(store, EFFECTS)
    divided = divide_ratio(store.ask, Request(by="environment", values=("bare", "docker")), "why")
    found = {part.fact: part.test.judgement for part in divided.parts}
    assert {fact: judged.verdict.value for fact, judged in found.items()} == {
        "CPU limit": "differs",
        "container and image": "differs",
        "shared memory": "=",
        "network": "=",
    }
    for fact, effect in EFFECTS.items():
        assert (found[fact].shift.low or 9) <= effect <= (found[fact].shift.high or 0)
        assert found[fact].shift.matched
    assert sum(part.share or 0 for part in divided.parts) == pytest.approx(1)
    assert log(divided.ladder.estimate) == pytest.approx(log(0.9 * 0.98), abs=0.002)
    assert divided.rest
    assert (divided.rest.low or 9) <= 0.8 / (0.9 * 0.98) <= (divided.rest.high or 0) < 1


def test_open_facts_take_more_repeats_and_shown_ones_are_compared(store: SyntheticStore) -> None:
    two_sides(store, ratio=0.8)
    climb(store, EFFECTS)
    divided = divide_ratio(store.ask, Request(by="environment", values=("bare", "docker")), "why")
    rendered = render_division(divided)
    assert rendered.next == "collector compare --by label:rung --experiment why"
    (table,) = rendered.parts
    assert isinstance(table, Table)
    assert [row[-1] for row in table.grid(wide=False).rows] == ["differs", "differs", "=", "=", "", "", ""]
    (first, *_) = divided.parts
    judgement = replace(first.test.judgement, verdict=Verdict.NOT_SHOWN)
    undecided = replace(divided, parts=(replace(first, test=replace(first.test, judgement=judgement)),))
    made = first.test.other.runs
    again = f"gpuagent experiment run why.yaml --repeats {2 * made} --name why-{2 * made}"
    for name in ("why", "why-5"):
        assert render_division(replace(undecided, experiment=name)).next == again


def test_rungs_without_runs_are_counted_with_the_next_one_and_at_the_ends_with_the_rest(store: SyntheticStore) -> None:
    two_sides(store, ratio=0.8)
    climb(store, EFFECTS)
    for row in store.rows["run_states"]:
        if row["run_id"].startswith(("rung-2-", "rung-4-")) and row["status"] == "succeeded":
            row["status"] = "failed"
    divided = divide_ratio(store.ask, Request(by="environment", values=("bare", "docker")), "why")
    assert [part.fact for part in divided.parts] == ["CPU limit", "container and image + shared memory"]
    assert divided.outside == ("network",)
    printed = " ".join(str(part) for section in render_division(divided).document() for part in section.parts)
    assert "rungs succeeded" in printed


def _climbed(store: SyntheticStore) -> None:
    two_sides(store, ratio=0.8)
    climb(store, EFFECTS)


def test_the_commands_print_plan_and_division(
    collector: Collector, filled: Callable[[Fill], Path], tmp_path: Path
) -> None:
    place, file = filled(_climbed), tmp_path / "why.yaml"
    why = ("--why", "bare", "docker", "--by", "environment")
    code, printed, _ = collector("plan", place, *why, "-o", str(file), columns=80)
    assert code == 0
    assert f"experiment run --store {place} {file}" in " ".join(printed.replace("\\\n", "").split())
    assert parse_experiment(file.read_bytes(), "why.yaml").name == "why-bare-docker"
    assert collector("plan", place, *why, "-o", str(file), columns=80)[0] == 2  # it may have been edited
    code, printed, _ = collector("plan", place, *why, "--experiment", "why", columns=80)
    assert code == 0
    assert "unexplained rest" in printed
    code, printed, _ = collector("plan", place, *why, "--experiment", "why", "--json", columns=80)
    assert [part["part"] for part in json.loads(printed)["parts"]] == [
        *EFFECTS,
        "all rungs",
        "original runs",
        "unexplained rest",
    ]
    assert collector("plan", place, "--by", "environment", columns=80)[0] == 2
