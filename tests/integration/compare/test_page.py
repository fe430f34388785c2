"""What a comparison shows beside its verdicts: what stands behind each cell, groups, and the mean over workloads."""

import json
from itertools import product
from math import exp, log, prod

import pytest

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.document import render
from gpuagent_collector.compare.figures import count
from gpuagent_collector.metrics import GROUPS
from gpuagent_collector.present.table import Grid
from gpuagent_collector.statistics.verdicts import Verdict
from tests.integration.compare.comparing import alternate, codes, compared, texts
from tests.integration.compare.synthetic import RUN_SECONDS, SyntheticStore, quiet_and_burning

pytestmark = pytest.mark.slow


def tables(comparison: Comparison) -> list[Grid]:
    """Return all tables of the document."""
    parts = [part for section in render(comparison).document(wide=False) for part in section.parts]
    return [part for part in parts if isinstance(part, Grid)]


def text(comparison: Comparison) -> str:
    """Return the whole document, cells apart by bars."""
    return "\n".join("|".join(row) for grid in tables(comparison) for row in (grid.header, *grid.rows))


def test_missing_failed_and_unfinished_runs_nodes_and_gpus_are_counted_apart(store: SyntheticStore) -> None:
    gpus = {"gpus": ["NVIDIA L4", "NVIDIA L4"]}
    alder, birch = alternate(store, first_node=gpus, second_node=gpus)
    another = store.node("birch-node-2", "birch", gpus=["NVIDIA L4", "NVIDIA L4"])
    store.run("mute", birch, start_seconds=5000, repeat=6, throughput=None)
    store.run("elsewhere", another, start_seconds=5000, repeat=6)
    for number, (node, status) in enumerate(
        ((birch, "failed"), (birch, "timed_out"), (alder, "running"), (alder, "cancelled")), 1
    ):
        store.run(f"run-{number}", node, start_seconds=5000 + 100 * number, status=status)
    comparison = compared(store)
    cells = {cell.side: cell for cell in comparison.layout.blocks[0].cells}
    first, second = (count(cells[side], comparison.facts, comparison.figures.primary) for side in ("alder", "birch"))
    failed = {"failed": 1, "timed_out": 1}
    assert list(first) == ["succeeded", "missing", "failed", "cancelled", "unfinished", "nodes", "devices"]
    assert list(first.values()) == [5, 0, {}, 1, 1, 1, 2]
    assert list(second.values()) == [7, 1, failed, 0, 0, 2, 4]
    shown = text(comparison)
    for row in (
        "Runs that succeeded|5|7|",
        " without throughput|–|1|",
        "Failed|–|1 failed, 1 timed out|",
        "Cancelled|1|–|",
        "Not ended|1|–|",
        "Nodes|1|2|",
        "Different GPUs|2|4|",
    ):
        assert row in shown
    assert json.loads(render(comparison).json())["blocks"][0]["counts"]["birch"]["failed"] == failed


def test_groups_come_once_each_and_in_their_order(store: SyntheticStore) -> None:
    quiet_and_burning(store, gpus=["NVIDIA L4"])
    comparison = compared(store, by="interference", everything=True)
    headings = [row[0] for row in tables(comparison)[-1].rows if len(row) == 1]
    assert headings == [group for group in GROUPS if group in headings]
    assert {"Throughput", "Time", "GPU", "CPU", "Memory", "Energy", "Steadiness"} <= set(headings)


def test_details_are_shown_on_request_or_when_they_are_tested_and_one_workload_has_no_geometric_mean(
    store: SyntheticStore,
) -> None:
    alternate(store)
    detail = "Run's RSS, peak"
    comparison = compared(store)
    assert detail not in text(comparison)
    assert comparison.figures.overall == ()
    assert detail in text(compared(store, everything=True))
    assert f"{detail} *" in text(compared(store, metric="process_rss_peak_bytes"))


@pytest.mark.parametrize(
    ("of_alexnet", "said"),
    [
        (0.5, "25 % higher (better) for resnet18; 20 % to 50 % lower for "),
        (2.0, "25 % higher to 2 × as high (better) for resnet18, alexnet; 20 % to 50 % lower for "),
    ],
)
def test_several_workloads_have_a_geometric_mean_with_an_interval_that_holds(
    store: SyntheticStore, of_alexnet: float, said: str
) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    ratios = {"mnist": 0.5, "gcn": 0.8, "resnet18": 1.25, "alexnet": of_alexnet}
    for repeat in range(7):
        for index, (workload, ratio) in enumerate(ratios.items()):
            for turn, node in enumerate(nodes):
                store.run(
                    f"{workload}-{repeat}-{turn}",
                    node,
                    start_seconds=20 * (8 * repeat + 2 * index + turn),
                    workload=workload,
                    repeat=repeat + 1,
                    throughput=1000.0 * (ratio if turn else 1) * (1 + 0.001 * (repeat * (3 + turn) % 7)),
                )
    comparison = compared(store)
    (overall,) = comparison.figures.overall
    assert (overall.side, overall.baseline, overall.mean.pairs) == ("birch", "alder", 4)
    expected = exp(sum(map(log, ratios.values())) / 4)
    assert overall.mean.ratio == pytest.approx(expected, rel=0.005)
    assert overall.mean.low is not None
    assert overall.mean.high is not None
    assert overall.mean.low < expected < overall.mean.high
    assert " geometric mean of 4" in text(comparison)
    assert f"Over 4 workloads: throughput on birch compared with alder is {said}" in answer(comparison)
    assert json.loads(render(comparison).json())["geometric_means"][0]["ratio"] == overall.mean.ratio


# Of each workload the ratio, the scatter and the repeats.
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            {"mnist": (1.25, 0.001, 7), "gcn": (2.5, 0.001, 5)},
            "throughput on birch compared with alder is 25 % higher (better) for mnist, 2.5 × as high for gcn",
        ),
        (
            {"mnist": (2.5, 0.001, 7), "gcn": (0.98, 0.02, 4)},
            "compared with alder is 2.5 × as high (better) for mnist; undecided for gcn",
        ),
        (
            {"mnist": (1.08, 0.001, 5), **dict.fromkeys(("gcn", "cifar10", "gpt"), (0.95, 0.03, 7))},
            "7.9 % higher (better) for mnist; undecided for gcn, cifar10, gpt (together p = ",
        ),
    ],
)
def test_workloads_that_are_far_apart_are_given_one_by_one(
    store: SyntheticStore, made: dict[str, tuple[float, float, int]], said: str
) -> None:
    """The ratio that they have in common would be that of the workload with the most runs."""
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    for number, (repeat, workload, turn) in enumerate(product(range(7), made, (0, 1))):
        factor, scatter, repeats = made[workload]
        if repeat < repeats:
            throughput = 1000.0 * (factor if turn else 1.0) * (1 + scatter * (repeat * (3 + turn) % 7 - 3))
            store.run(f"run-{number}", nodes[turn], start_seconds=20 * number, workload=workload, throughput=throughput)
    comparison = compared(store)
    assert said in answer(comparison)
    # No workload has a ratio that all have in common.
    (row,) = [line for line in text(comparison).splitlines() if f"geometric mean of {len(made)}" in line]
    mean = float(row.split("|")[3].split(" ")[0])
    assert mean == pytest.approx(prod(factor for factor, *_ in made.values()) ** (1 / len(made)), rel=0.01)


def test_of_one_run_a_side_workloads_show_nothing_together_either(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    for number, (workload, node) in enumerate(product(("mnist", "gcn"), nodes)):
        store.run(f"run-{number}", node, start_seconds=20 * number, workload=workload, throughput=1000.0 + number)
    comparison = compared(store)
    (overall,) = comparison.figures.overall
    assert overall.verdict is Verdict.TOO_FEW
    assert "no measurable difference" not in answer(comparison)
    assert "~" not in text(comparison)


def test_workloads_that_are_each_the_same_are_the_same_together(store: SyntheticStore) -> None:
    nodes = [store.node(f"{name}-node", name) for name in ("alder", "birch")]
    for number, (repeat, workload, node) in enumerate(product(range(1, 8), ("mnist", "gcn"), nodes)):
        throughput = 1000.0 + number % 3
        store.run(
            f"run-{number}", node, start_seconds=20 * number, workload=workload, repeat=repeat, throughput=throughput
        )
    comparison = compared(store)
    assert {test.judgement.verdict for test in comparison.figures.tests} == {Verdict.EQUAL}
    assert "Over 2 workloads: throughput is the same on birch as on alder, to within 2 %" in answer(comparison)
    assert "no measurable difference" not in answer(comparison)
    assert "~" not in text(comparison)


def test_repeats_of_earlier_runs_make_a_warning(store: SyntheticStore) -> None:
    _, birch = alternate(store)
    for repeat in (1, 2):
        store.run(f"again-{repeat}", birch, start_seconds=90_000 + 20 * repeat, repeat=repeat)
    store.run("elsewhere", store.node("alder-node-2", "alder"), start_seconds=5000, repeat=1)
    comparison = compared(store)
    assert "2 runs of birch" in texts(comparison)
    assert "joined" not in codes(compared(store, where="started_at < TIMESTAMP '2030-01-02'"))


@pytest.mark.parametrize(("later", "is_named"), [(700.0, True), (1000.0, False)])
def test_the_remedy_for_repeats_is_the_history_where_their_level_changed(
    store: SyntheticStore, later: float, is_named: bool
) -> None:
    alder, birch = alternate(store, second={"throughput": 1000.0})
    for repeat in range(1, 6):
        store.run(f"again-{repeat}", birch, start_seconds=90_000 + 20 * repeat, repeat=repeat, throughput=later)
        store.run(f"other-{repeat}", alder, start_seconds=80_000 + 20 * repeat, repeat=5 + repeat)
    (remedy,) = (caveat.remedy for caveat in compared(store).caveats if caveat.code == "joined")
    assert ("`collector history mnist`" in remedy) is is_named


def specs(store: SyntheticStore, *texts_of_sides: dict[str, str]) -> dict[str, bool]:
    """Return the titles for two sides whose runs reported these texts, and whether the sides differ there."""
    for turn, reported in enumerate(texts_of_sides):
        node = store.node(f"node-{turn}", f"place-{turn}")
        store.run(f"run-{turn}", node, start_seconds=turn * (RUN_SECONDS + 1), texts=reported)
    return {row.title: row.differs for row in compared(store).specs}


def test_versions_that_workloads_report_are_compared(store: SyntheticStore) -> None:
    assert specs(store, {"cudnn_version": "91900"}, {"cudnn_version": "90100"})["cuDNN version"]


def test_where_a_run_left_its_trace_or_why_it_has_none_is_no_property_of_a_side(store: SyntheticStore) -> None:
    trace = {"trace_file": "/runs/a/trace.0.json.gz"}
    failed = {"trace_failed": "no CUPTI", "counters_failed": "not permitted"}
    assert not [title for title in specs(store, trace, failed) if title.startswith(("Trace", "Counters"))]
