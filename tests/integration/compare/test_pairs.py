"""Runs that an experiment made in pairs, compared as pairs."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from gpuagent_collector.answers.plan import answer as answer_plan
from gpuagent_collector.answers.plan import render as render_plan
from gpuagent_collector.answers.plan_needs import Question, plan_repeats
from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.document import render
from gpuagent_collector.compare.needed import find_needed
from gpuagent_collector.statistics.repeats import MOST_REPEATS
from gpuagent_collector.statistics.verdicts import Verdict
from tests.integration.compare.comparing import codes, compared
from tests.integration.compare.synthetic import Node, SyntheticStore

pytestmark = pytest.mark.slow

# The node slows down by a fifth from repeat to repeat; docker takes 1 % more or so.
DRIFT = [1000.0 * 0.8**repeat for repeat in range(7)]
COST = [0.990, 0.991, 0.989, 0.992, 0.988, 0.9905, 0.9895]


def drifting(store: SyntheticStore, *, experiment: str | None = "cost", node: Node | None = None) -> Node:
    """Add seven repeats of bare and docker on one node, in turns."""
    node = node or store.node("alder-node", "alder")
    for repeat, (bare, cost) in enumerate(zip(DRIFT, COST, strict=True)):
        for turn, (environment, throughput) in enumerate((("bare", bare), ("docker", bare * cost))):
            store.run(
                f"{environment}-{repeat}-{node.node_id}",
                node,
                start_seconds=(2 * repeat + turn) * 20,
                throughput=throughput,
                environment=environment,
                experiment=experiment,
                repeat=repeat + 1,
            )
    return node


def verdict(comparison: Comparison) -> tuple[Verdict, int | None]:
    (test,) = comparison.figures.tests
    return test.judgement.verdict, test.pairs


def by_environment(store: SyntheticStore, **request: Any) -> Comparison:
    return compared(store, by="environment", **{"delta": 0.001, **request})


def test_pairs_show_a_difference_that_drift_hides_from_independent_runs(store: SyntheticStore) -> None:
    drifting(store)
    comparison = by_environment(store)
    assert verdict(comparison) == (Verdict.DIFFERS, 7)
    assert comparison.figures.tests[0].judgement.shift.estimate == pytest.approx(0.99, abs=0.001)
    assert "7 pairs of runs" in answer(comparison)
    assert verdict(by_environment(store, unpaired=True)) == (Verdict.NOT_SHOWN, None)


def test_a_plan_takes_the_spread_within_repeats_of_an_experiment(store: SyntheticStore) -> None:
    drifting(store)
    (planned,) = plan_repeats(store.ask, Question()).blocks
    assert planned.matched
    assert planned.spread.seen < 0.002
    assert planned.spread.freedom == 6


def test_a_plan_never_takes_fewer_pairs_than_a_test_of_pairs_needs(store: SyntheticStore) -> None:
    drifting(store)
    (planned,) = plan_repeats(store.ask, Question(where="repeat <= 5", effects=(0.2, 9.0))).blocks
    five, six = (planned.least_effect(repeats, Question()) for repeats in (5, 6))
    assert planned.matched
    assert five and six and five > 0.2 > six
    # Of a large difference, fewer runs that count as independent are enough.
    assert [need.as_seen[0] for need in planned.needs[:2]] == [6, 4]


def test_more_repeats_never_show_less(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for repeat, share in enumerate((1.0, 0.9, 1.1, 0.95, 1.05, 1.15, 0.85), 1):
        # A side is fast where the other is slow.
        for environment, value in (("bare", 1000.0 * share), ("docker", 1000.0 / share)):
            same: dict[str, Any] = {"experiment": "cost", "repeat": repeat, "throughput": value}
            store.next_run(node, environment=environment, sampled=False, **same)
    (planned,) = plan_repeats(store.ask, Question()).blocks
    least = [planned.least_effect(repeats, Question()) or 0.0 for repeats in (5, 7, 10, 20)]
    assert planned.matched
    assert least == sorted(least, reverse=True)
    # As few pairs as can be significant show less than one run less on each side that count as independent.
    for question in (Question(comparisons=number) for number in range(1, 12)):
        least = [planned.least_effect(repeats, question) or 1e9 for repeats in range(4, 14)]
        assert least == sorted(least, reverse=True)
    (planned,) = plan_repeats(store.ask, Question(comparisons=5, effects=(8.0,))).blocks
    fewest = planned.needs[0].as_seen[0] or 0
    shown, not_shown = (
        planned.least_effect(repeats, Question(comparisons=5)) or 1e9 for repeats in (fewest, fewest - 1)
    )
    assert shown <= 8.0 < not_shown


@pytest.mark.parametrize("repeats", [2, 4, 7])
def test_an_undecided_comparison_and_the_plan_that_it_names_need_the_same_repeats(
    store: SyntheticStore, repeats: int
) -> None:
    node = store.node("alder-node", "alder")
    for repeat, factor in enumerate((1.0, 0.9, 1.1, 1.0, 1.2, 0.95, 1.0)[:repeats], 1):
        for turn, (environment, value) in enumerate((("bare", 1000.0), ("docker", 1030.0 * factor))):
            at = 100.0 * repeat + 50 * turn
            same: dict[str, Any] = {"experiment": "cost", "repeat": repeat, "throughput": value}
            store.run(f"{environment}-{repeat}", node, start_seconds=at, environment=environment, **same)
    comparison = compared(store, by="environment")
    needed = find_needed(comparison.figures, comparison.facts)
    assert needed and needed.repeats and needed.repeats >= 6
    next_command = render(comparison).next
    assert next_command and f"--effect {needed.percent:g}" in next_command
    (planned,) = plan_repeats(store.ask, Question(experiment="cost", effects=(needed.percent / 100,))).blocks
    assert planned.needs[0].as_seen[0] == needed.repeats
    advised = [each.remedy for each in comparison.caveats if each.code in ("few_pairs", "n_too_small")]
    assert all(f" {needed.repeats} runs" in remedy for remedy in advised)
    assert len(advised) == (repeats < 6)


def test_of_many_commands_a_plan_repeats_the_commonest_two(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    for number, program in enumerate(("sort", "uniq", "wc", "cut", "tr")):
        for _ in range(6 - number):
            own: dict[str, Any] = {"workload": "tools", "parameters": {}, "command": json.dumps([program, "file"])}
            store.next_run(node, throughput=1000.0 + 10 * len(store.rows["run_requests"]), **own)
    planned = render_plan(plan_repeats(store.ask, Question()))
    assert planned.next
    assert planned.next.startswith("gpuagent bench --rounds ")
    assert planned.next.endswith("'sort file' 'uniq file'")
    assert "of the commonest two commands, which" in planned.text


def test_of_many_commands_a_plan_repeats_the_two_that_are_farthest_apart_and_not_shown_to_be(
    store: SyntheticStore,
) -> None:
    node = store.node("alder-node", "alder")
    for program, level in (("sort", 1000.0), ("uniq", 3000.0), ("wc", 1040.0), ("cut", 3200.0), ("tr", 9000.0)):
        for share in (0.9, 1.0, 1.1, 0.95, 1.05):
            own: dict[str, Any] = {"workload": "tools", "parameters": {}, "command": json.dumps([program, "file"])}
            store.next_run(node, throughput=level * share, **own)
    planned = render_plan(plan_repeats(store.ask, Question()))
    assert planned.next
    assert planned.next.endswith("'uniq file' 'cut file'")
    assert "of two commands whose difference is not shown yet, which" in planned.text


def test_of_undecided_commands_a_plan_repeats_two_that_differ_in_one_option(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    levels = ((32, 0, 1000.0), (32, 2, 1010.0), (128, 0, 1040.0), (128, 2, 1060.0), (512, 0, 9000.0))
    for size, workers, level in levels:
        words = ["python", "train.py", "--batch-size", str(size), "--workers", str(workers)]
        for share in (0.9, 1.0, 1.1, 0.95, 1.05):
            own: dict[str, Any] = {"workload": "train.py", "parameters": {}, "command": json.dumps(words)}
            store.next_run(node, throughput=level * share, **own)
    planned = render_plan(plan_repeats(store.ask, Question()))
    assert planned.next
    assert planned.next.endswith("--vary batch-size=32,128 -- python train.py --workers 2")


def test_a_plan_counts_the_repeats_that_have_the_metric(store: SyntheticStore) -> None:
    """Runs that report no steps are no repeats of a throughput."""
    node = store.node("alder-node", "alder")
    for environment, runs, throughput in (("bare", 4, 1000.0), ("docker", 3, None)):
        for number in range(runs):
            value = throughput and throughput + 100 * number
            name = f"{environment}-{number}"
            store.run(name, node, start_seconds=20 * number, throughput=value, environment=environment)
    plan = plan_repeats(store.ask, Question())
    assert [planned.repeats for planned in plan.blocks] == [4]
    assert str(MOST_REPEATS) in answer_plan(plan)


def test_runs_of_no_experiment_are_independent(store: SyntheticStore) -> None:
    drifting(store, experiment=None)
    assert verdict(by_environment(store)) == (Verdict.NOT_SHOWN, None)


def test_two_runs_in_one_repeat_are_no_pairs(store: SyntheticStore) -> None:
    node = drifting(store)
    store.run("again", node, start_seconds=900, environment="bare", experiment="cost", repeat=1)
    assert verdict(by_environment(store))[1] is None


def test_runs_on_different_nodes_are_no_pairs(store: SyntheticStore) -> None:
    drifting(store)
    drifting(store, node=store.node("birch-node", "birch"))
    assert verdict(compared(store, by="node", where="environment = 'bare'"))[1] is None


def test_an_incomplete_pair_is_outside_the_test_and_in_the_warnings(store: SyntheticStore) -> None:
    node = drifting(store)
    for environment, status in (("bare", "succeeded"), ("docker", "failed")):
        at: dict[str, Any] = {"environment": environment, "experiment": "cost", "repeat": 8}
        store.run(f"{environment}-8", node, start_seconds=400, status=status, **at)
    comparison = by_environment(store)
    assert verdict(comparison)[1] == 7
    (caveat,) = [caveat for caveat in comparison.caveats if caveat.code == "unmatched"]
    assert caveat.text.endswith(": 1 bare and 0 docker")


def test_fewer_pairs_than_could_show_anything_are_tested_as_independent_runs(store: SyntheticStore) -> None:
    drifting(store)
    comparison = by_environment(store, where="repeat <= 5")
    assert verdict(comparison)[1] is None
    assert "unmatched" not in codes(comparison)
    (caveat,) = [caveat for caveat in comparison.caveats if caveat.code == "few_pairs"]
    assert "5 pairs of runs" in caveat.text
    # The independent runs may show one: the warning does not contradict a verdict.
    assert "show a difference" not in caveat.text
    assert "7 runs" in caveat.remedy
    assert "few_pairs" not in codes(by_environment(store, where="repeat <= 5", unpaired=True))


def test_intervals_of_an_experiment_that_could_stop_early_hold_at_every_look(store: SyntheticStore) -> None:
    node = drifting(store, experiment=None)
    for repeat in range(12):
        for turn, environment in enumerate(("bare", "docker")):
            store.run(
                f"{environment}-{repeat}-sequential",
                node,
                start_seconds=1000 + (2 * repeat + turn) * 20,
                throughput=1000.0 + repeat * (1 if turn else -1),
                environment=environment,
                experiment="sequential",
                repeat=repeat + 1,
                labels='{"until": "2% at 8,12,18,27,40"}',
            )
    comparison = by_environment(store, experiment="sequential")
    assert comparison.figures.alpha == pytest.approx(0.01)
    assert comparison.figures.tests[0].judgement.shift.alpha == pytest.approx(0.01)
    assert "sequential" in codes(comparison)


def several_commands(
    store: SyntheticStore, costs: Sequence[float], *, pause_seconds: int = 0, **command_costs: float
) -> None:
    """Add bare and docker, whose speed has a factor for the repeat and one for the command; `slow` is half as fast."""
    node = store.node("alder-node", "alder")
    for repeat, cost in enumerate(costs):
        for command, of_command in command_costs.items():
            for environment, of_environment in (("bare", 1.0), ("docker", cost * of_command)):
                store.run(
                    f"{environment}-{command}-{repeat}",
                    node,
                    start_seconds=len(store.rows["run_requests"]) * 20 + repeat * pause_seconds,
                    throughput=(500.0 if command == "slow" else 1000.0) * of_environment,
                    workload="mine",
                    parameters={},
                    command=json.dumps(["train", f"--mode={command}"]),
                    environment=environment,
                    experiment="cost",
                    repeat=repeat + 1,
                )


def test_runs_of_several_commands_are_paired_by_repeat_and_command(store: SyntheticStore) -> None:
    several_commands(store, COST[:4], fast=1.0, slow=1.0)
    comparison = by_environment(store)
    assert verdict(comparison) == (Verdict.DIFFERS, 8)
    assert "joined" not in codes(comparison)
    (warning,) = (caveat for caveat in comparison.caveats if caveat.code == "different_commands")
    assert warning.remedy.startswith("pairs have one")


def test_runs_of_a_factorial_experiment_are_paired_by_all_that_is_not_compared(store: SyntheticStore) -> None:
    several_commands(store, COST[:4], fast=1.0, slow=1.0)
    for row in store.rows["run_requests"]:
        workers = {"bare": 0, "docker": 4}[row["environment"]]
        row |= {"command": json.dumps([*json.loads(row["command"]), f"--workers={workers}"]), "environment": "bare"}
    comparison = compared(store, by="argument:workers", delta=0.001)
    assert verdict(comparison) == (Verdict.DIFFERS, 8)
    unpaired = compared(store, by="argument:workers", delta=0.001, unpaired=True)
    assert verdict(unpaired) == (Verdict.NOT_SHOWN, None)


def test_a_sweep_too_small_for_its_commands_shows_the_effect_of_each_argument(store: SyntheticStore) -> None:
    node = store.node("alder-node", "alder")
    cells = [(batch, optimizer) for batch in (32, 64, 128) for optimizer in ("sgd", "adam")]
    for repeat, (number, (batch, optimizer)) in product(range(4), enumerate(cells)):
        command = ["train", f"--batch={batch}", f"--optimizer={optimizer}"]
        run: dict[str, Any] = {"workload": "mine", "parameters": {}, "experiment": "sweep"}
        start = 20 * (6 * repeat + number)
        throughput = 1000.0 + 10 * repeat + batch + (30 if optimizer == "sgd" else 0)
        run |= {"command": json.dumps(command), "throughput": throughput, "repeat": repeat + 1}
        store.run(f"{number}-{repeat}", node, start_seconds=start, **run)
    by_command = compared(store, by="command")
    assert {test.judgement.verdict for test in by_command.figures.tests} == {Verdict.TOO_FEW}
    shown = {facet.name: tests[0].judgement.verdict for facet, tests in by_command.options}
    assert shown == {"argument:--batch": Verdict.DIFFERS, "argument:--optimizer": Verdict.DIFFERS}
    by_argument = compared(store, by="argument:optimizer")
    assert verdict(by_argument) == (Verdict.DIFFERS, 12)


def test_a_command_that_one_side_lacks_leaves_the_pairs_of_the_others(store: SyntheticStore) -> None:
    """Independent runs of a side without its slow command would be called faster for that alone."""
    several_commands(store, COST, fast=1.0, slow=1.0)
    for row in store.rows["run_requests"]:
        if row["environment"] == "docker" and "slow" in row["command"]:
            row["environment"] = "podman"
    comparison = by_environment(store, values=("bare", "docker"))
    assert verdict(comparison) == (Verdict.DIFFERS, 7)
    assert comparison.figures.tests[0].judgement.shift.estimate == pytest.approx(0.99, abs=0.001)
    assert "unmatched" in codes(comparison)


def test_sides_are_not_equal_if_a_command_is_faster_and_another_slower(store: SyntheticStore) -> None:
    several_commands(store, [1 + repeat / 10_000 for repeat in range(14)], fast=1.03, slow=0.97, usual=1.0)
    comparison = by_environment(store, delta=0.02)
    shift = comparison.figures.tests[0].judgement.shift
    assert verdict(comparison) == (Verdict.NOT_SHOWN, 42)
    assert shift.low is not None
    assert shift.high is not None
    assert 1 / 1.02 < shift.low < shift.high < 1.02


@pytest.mark.parametrize("pause_seconds", [0, 3600])
def test_experiments_are_joined_after_a_pause_also_where_only_paths_differ(
    store: SyntheticStore, pause_seconds: int
) -> None:
    several_commands(store, COST[:4], pause_seconds=pause_seconds, fast=1.0, slow=1.0)
    for row in store.rows["run_requests"]:
        row["command"] = json.dumps([*json.loads(row["command"]), f"--log=/logs/{row['repeat']}"])
        row["repeat"] = 1 + row["repeat"] % 2
    assert ("joined" in codes(by_environment(store))) is bool(pause_seconds)
