"""Scaling over stores of known content: which runs make a curve, what its figures are, which warnings are raised."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.answers.scaling import answer, find_caveats, render
from gpuagent_collector.answers.scaling_curves import Curve, Held, Study, study_scaling, whole
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.present.table import Table
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.ranked import S2_MILLISECONDS, S2_SAMPLES, add_ranked, add_s2
from tests.integration.compare.synthetic import RUN_SECONDS, Node, SyntheticStore

pytestmark = pytest.mark.slow


def study(
    store: SyntheticStore, *, workload: str | None = None, platform: str | None = None, by: str = "ranks"
) -> Study:
    """Write what was added, and study it."""
    return study_scaling(store.ask, workload=workload, platform=platform, experiment=None, by=by)


def curves(store: SyntheticStore) -> list[Curve]:
    return [figures.curve for figures in study(store).curves]


def warnings(found: Study) -> dict[str, str]:
    return {caveat.code: caveat.text for caveat in find_caveats(found)}


def add_each(
    store: SyntheticStore, ranks: Iterable[int], *, on: str = "spruce", gpus: Sequence[str] = (), **run: Any
) -> Node:
    """Add a run of each number of ranks on one node, where each rank brings 100 items a second."""
    node = store.node(on, "laptop", gpus=gpus)
    for number in ranks:
        add_ranked(store, node, number, 100 * number, **run)
    return node


def points(curve: Curve) -> dict[int, int]:
    return {row.ranks: len(row.trials) for row in curve.rows}


def test_s2_s_speed_up_is_found_on_either_kind_of_store(any_store: SyntheticStore) -> None:
    add_s2(any_store)
    (figures,) = study(any_store, workload="vgg16").curves
    one, two = figures.rows
    assert figures.curve.settings.held is Held.TOTAL_SAMPLES
    assert dict(figures.curve.settings.amounts)["total samples"] == S2_SAMPLES
    assert one.throughput == pytest.approx(1000 * S2_SAMPLES / S2_MILLISECONDS[1])
    assert one.speed_up is None
    assert two.speed_up
    assert two.speed_up.estimate == pytest.approx(84_090 / 44_417)
    assert two.efficiency
    assert two.efficiency.estimate == pytest.approx(84_090 / 44_417 / 2)
    assert two.efficiency.low
    assert two.efficiency.high
    assert two.efficiency.low < 84_090 / 44_417 / 2 < two.efficiency.high
    rate = 1000 * S2_SAMPLES / S2_MILLISECONDS[2]
    assert two.measures["gpus"] == 2
    assert two.measures["items_per_gpu_second"] == pytest.approx(rate / 2)
    assert two.measures["items_per_gpu_joule"] == pytest.approx(rate / (2 * 150))
    assert two.measures["communication_percent"] == pytest.approx((19.8 + 21.5) / 2)
    assert two.measures["step_seconds"] == pytest.approx(64 / (rate / 2))
    assert "communication_percent" not in one.measures
    assert "exposed_communication_percent" not in two.measures


def test_a_median_has_an_interval_from_six_runs_on(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for rate in range(100, 106):
        add_ranked(store, node, 1, rate)
    for rate in range(200, 205):
        add_ranked(store, node, 2, rate)
    one, two = study(store).curves[0].rows
    assert (one.low, one.throughput, one.high) == (100, 102.5, 105)
    assert (two.low, two.throughput, two.high) == (None, 202, None)


def test_weak_and_strong_scaling_are_never_mixed(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for ranks, batch in ((1, 64), (2, 64), (2, 32), (4, 16)):
        add_ranked(store, node, ranks, 100 * ranks, parameters={"batch-size": batch})
    weak, strong = curves(store)
    assert (weak.settings.held, weak.settings.amounts) == (Held.RANK_BATCH, (("batch per rank", 64),))
    assert points(weak) == {1: 1, 2: 1}
    assert (strong.settings.held, strong.settings.amounts) == (Held.GLOBAL_BATCH, (("global batch", 64),))
    assert points(strong) == {1: 1, 2: 1, 4: 1}


def test_without_a_batch_size_it_is_not_known_which_scaling_it_is(store: SyntheticStore) -> None:
    add_each(store, (1, 2), parameters={"batch-size": None})
    assert [curve.settings.held for curve in curves(store)] == [Held.UNKNOWN]


def test_other_numbers_of_steps_are_other_curves_unless_all_samples_are_the_same(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for ranks, steps in ((1, 100), (2, 100), (2, 50), (4, 75)):
        add_ranked(store, node, ranks, 100, parameters={"steps": steps})
    held = {curve.settings.held: dict(curve.settings.amounts) for curve in curves(store)}
    assert held == {
        Held.RANK_BATCH: {"batch per rank": 64, "steps": 100},
        Held.TOTAL_SAMPLES: {"batch per rank": 64, "total samples": 6400},
    }


def test_runs_that_differ_in_anything_but_ranks_make_curves_of_their_own(store: SyntheticStore) -> None:
    node = add_each(store, (1, 2))
    others: list[dict[str, Any]] = [
        {"environment": "docker"},
        {"image": "torch:2"},
        {"interference": "cpu-burn"},
        {"parameters": {"precision": "bf16"}},
        {"workload": "cifar10"},
    ]
    for other in others:
        for ranks in (1, 2):
            add_ranked(store, node, ranks, 1, **other)
    assert [points(curve) for curve in curves(store)] == [{1: 1, 2: 1}] * (1 + len(others))


def test_platforms_and_gpu_models_are_never_mixed_and_a_platform_can_be_asked_for_alone(store: SyntheticStore) -> None:
    for hostname, platform, gpu in (("a", "x", "L4"), ("b", "x", "T4"), ("c", "y", "T4")):
        node = store.node(hostname, platform, gpus=[gpu, gpu])
        for ranks in (1, 2):
            add_ranked(store, node, ranks, 100)
    assert [(curve.settings.platform, curve.gpus) for curve in curves(store)] == [("x", "L4"), ("x", "T4"), ("y", "T4")]
    assert [figures.curve.settings.platform for figures in study(store, platform="y").curves] == ["y"]


def test_traced_and_counted_runs_are_points_beside_those_that_are_not(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    add_ranked(store, node, 1, 100)
    add_ranked(store, node, 2, 190, parameters={"profile": False})
    add_ranked(store, node, 2, 191, parameters={"profile": True, "trace": False}, communication_percents=(10, 20))
    add_ranked(store, node, 1, 101, parameters={"counters": "ncu"})
    (figures,) = study(store).curves
    assert points(figures.curve) == {1: 2, 2: 2}
    assert figures.rows[1].measures["communication_percent"] == 15


def test_unknown_ranks_are_those_with_reports(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    add_ranked(store, node, 1, 100, parameters={"ranks": None})
    add_ranked(store, node, 3, 280, parameters={"ranks": None})
    store.rows["results"] = [row for row in store.rows["results"] if row["name"] != "ranks"]
    assert [points(curve) for curve in curves(store)] == [{1: 1, 3: 1}]


def test_runs_that_failed_are_counted_in_their_row_and_in_no_figure(store: SyntheticStore) -> None:
    node = add_each(store, (1, 2), gpus=["L4", "L4"])
    add_ranked(store, node, 2, 0, status="failed", gpus=())
    add_ranked(store, node, 8, 0, status="timed_out", gpus=())
    found = study(store)
    (figures,) = found.curves
    assert [[trial.standing for trial in row.row.others] for row in figures.rows] == [[], ["failed"], ["timed_out"]]
    assert figures.rows[2].throughput is None
    assert figures.rows[2].speed_up is None
    text = "runs that are in no figure: 1 failed with 2 ranks, 1 timed out with 8 ranks"
    assert warnings(found)["unsuccessful"] == text


def test_cancelled_runs_are_in_no_row(store: SyntheticStore) -> None:
    node = add_each(store, (1, 2))
    for ranks in (1, 2):
        add_ranked(store, node, ranks, 0, status="cancelled")
    found = study(store)
    assert [row.row.others for row in found.curves[0].rows] == [(), ()]
    assert "left out: 2" in warnings(found)["cancelled"]
    assert "unsuccessful" not in warnings(found)


def test_an_own_program_gets_a_hint_that_works_for_it(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    store.run("own", node, start_seconds=0, parameters={}, command='["torchrun", "train.py"]', workload="torchrun")
    with pytest.raises(GpuAgentError, match="such as `gpuagent run --repeat 7 -- torchrun --nproc-per-node 2 SCRIPT`"):
        study(store)


def test_elastic_runs_are_left_out_with_a_warning(store: SyntheticStore) -> None:
    node = add_each(store, (1, 2))
    for ranks in (1, 2):
        add_ranked(store, node, ranks, 50, parameters={"elastic": "1:2"})
    found = study(store)
    assert [points(figures.curve) for figures in found.curves] == [{1: 1, 2: 1}]
    assert len(found.elastic) == 2
    assert "elastic" in warnings(found)


def test_the_fewest_ranks_are_the_baseline_and_a_missing_single_rank_makes_a_warning(store: SyntheticStore) -> None:
    node = add_each(store, (2,))
    add_ranked(store, node, 4, 300)
    found = study(store)
    _, four = found.curves[0].rows
    assert four.speed_up
    assert four.efficiency
    assert four.speed_up.estimate == pytest.approx(1.5)
    assert four.efficiency.estimate == pytest.approx(0.75)
    assert warnings(found).keys() == {"no_single_rank", "few_runs", "one_node", "on_cpu"}


def test_enough_runs_on_gpus_of_two_nodes_need_no_warning(store: SyntheticStore) -> None:
    for name in ("a", "b"):
        add_each(store, (1, 2, 1, 2), on=name, gpus=["L4", "L4"])
    assert warnings(study(store)) == {}


def test_rates_that_cannot_be_are_in_no_figure_and_their_ratio_is_a_number(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for ranks, rate in ((1, 1e-300), (2, 1e299), (2, math.inf), (4, math.nan), (8, math.inf)):
        add_ranked(store, node, ranks, rate)
    (figures,) = study(store).curves
    assert points(figures.curve) == {1: 1, 2: 1, 4: 0, 8: 0}
    speed_up = figures.rows[1].speed_up
    assert speed_up is not None
    assert math.isfinite(speed_up.estimate)


def test_too_short_measurements_make_a_warning(store: SyntheticStore) -> None:
    add_each(store, (1, 2))
    store.rows["results"].append({**store.rows["results"][-1], "name": "measure_short", "value": 1.0})
    text = warnings(study(store))["measure_short"]
    assert text.startswith("runs with 2 ranks")


@pytest.mark.parametrize(
    ("gpus", "ranks", "models", "warning"),
    [(["L4"], (1, 2), "L4", "shared_gpus"), (["L4", "T4", "L4", "T4"], (2, 4), "L4, T4", "mixed_gpus")],
)
def test_ranks_that_share_a_gpu_or_have_different_models_make_a_warning(
    store: SyntheticStore, gpus: list[str], ranks: tuple[int, int], models: str, warning: str
) -> None:
    add_each(store, ranks, gpus=gpus)
    found = study(store)
    assert found.curves[0].curve.gpus == models
    assert warning in warnings(found)


def test_equal_ranks_on_other_numbers_of_nodes_make_a_warning(store: SyntheticStore) -> None:
    add_each(store, (1, 2, 2), gpus=["L4", "L4"])
    there = store.node("b", "lab", gpus=["L4", "L4"])
    store.rows["run_devices"][-2] |= {**there.at(0, gpu=0), "time": store.rows["run_devices"][-2]["time"]}
    assert "mixed_placement" in warnings(study(store))


def test_runs_without_a_counterpart_are_left_out_with_a_warning(store: SyntheticStore) -> None:
    alone = add_ranked(store, add_each(store, (1, 2)), 4, 100, workload="gpt")
    found = study(store)
    assert [trial.run.run_id for trial in found.alone] == [alone]
    assert "left_out" in warnings(found)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([{"ranks": 1}], "all runs had 1 rank; run another number, such as `gpuagent run mnist --ranks 2 --repeat 7`"),
        ([{"ranks": 4}], "all runs had 4 ranks; run another number, such as `gpuagent run mnist --ranks 1 --repeat 7`"),
        (
            [{"ranks": 1, "environment": "bare"}, {"ranks": 2, "environment": "docker"}],
            r"no two of the numbers of ranks \(1, 2\) ran with the same settings",
        ),
        ([{"ranks": 1, "status": "failed"}], "no run succeeded and reported a throughput"),
        ([{"ranks": 2, "parameters": {"elastic": "1:2"}}], "all runs are elastic"),
    ],
    ids=["one-rank", "four-ranks", "unlike", "failed", "elastic"],
)
def test_the_reason_for_a_missing_curve_is_reported(
    store: SyntheticStore, runs: list[dict[str, object]], text: str
) -> None:
    node = store.node("spruce", "laptop")
    for run in runs:
        add_ranked(store, node, throughput=100, **run)  # type: ignore[arg-type]
    with pytest.raises(GpuAgentError, match=f"to show: {text}"):
        study(store)


@given(st.one_of(st.none(), st.booleans(), st.text(), st.floats(), st.lists(st.integers())))
def test_only_whole_numbers_from_one_up_are_counts(value: object) -> None:
    found = whole(value)
    assert found is None or (found == value and found >= 1 and not isinstance(value, bool))


def add_joint(store: SyntheticStore, hosts: Sequence[Node], throughput: float) -> None:
    """Add a run of one rank on each of these nodes, which share its throughput evenly."""
    turn = len(store.rows["run_requests"])
    for rank, host in enumerate(hosts):
        store.run(
            f"run-{turn}",
            host,
            start_seconds=turn * (RUN_SECONDS + 1),
            throughput=throughput / len(hosts),
            parameters={"ranks": 1, "batch-size": 64, "nodes": len(hosts), "rendezvous": f"{turn}:1"},
            nodes=len(hosts),
            rank=rank,
        )
        ended = {**host.at(RUN_SECONDS * (turn + 1) + turn), "run_id": f"run-{turn}", "rank": rank}
        store.rows["results"].append({**ended, "name": "ranks", "value": float(len(hosts))})


def test_nodes_of_a_run_are_no_repeats_of_it(store: SyntheticStore) -> None:
    hosts = [store.node(name, "lab", gpus=["NVIDIA L4"]) for name in ("lab-1", "lab-2")]
    for chance in (0.99, 1.0, 1.01, 1.02):
        add_joint(store, hosts[:1], 100 * chance)
        add_joint(store, hosts, 180 * chance)
    for by in ("ranks", "nodes"):
        figures = study(store, by=by).curves[0]
        assert [(row.row.ranks, row.row.nodes, len(row.row.trials)) for row in figures.rows] == [(1, 1, 4), (2, 2, 4)]
        assert figures.rows[1].throughput == pytest.approx(180, rel=0.03)
        assert figures.rows[1].measures["gpus"] == 2
    (block,) = compare(store.ask, Request(by="nodes")).layout.blocks
    assert [(cell.side, len(cell.runs)) for cell in block.cells] == [("1 node", 4), ("2 nodes", 4)]


def test_by_nodes_runs_make_a_curve_that_have_as_many_ranks_on_each(store: SyntheticStore) -> None:
    hosts = [store.node(name, "lab", gpus=["NVIDIA L4", "NVIDIA L4"]) for name in ("lab-1", "lab-2")]
    add_ranked(store, hosts[0], 2, 190)
    add_joint(store, hosts, 180)
    with pytest.raises(GpuAgentError, match="as many ranks"):
        study(store, by="nodes")


def test_arguments_that_differ_within_a_number_of_ranks_make_curves_of_their_own(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 2)
    for batch in (32, 128):
        for ranks in (1, 2):
            command = ["torchrun", "--nproc-per-node", str(ranks), "train.py", "--batch-size", str(batch)]
            run_id = add_ranked(store, node, ranks, 100.0 * ranks, command=json.dumps(command))
            (request,) = [row for row in store.rows["run_requests"] if row["run_id"] == run_id]
            request["parameters"] = "{}"
    found = study(store)
    assert {figures.curve.settings.arguments for figures in found.curves} == {
        (("--batch-size", "32"),),
        (("--batch-size", "128"),),
    }
    assert all(len(row.row.trials) == 1 for figures in found.curves for row in figures.rows)


def test_what_disturbed_runs_is_said_as_in_a_comparison(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA L4"] * 2)
    add_ranked(store, node, 1, 100.0)
    throttled = add_ranked(store, node, 2, 190.0)
    found = study(store)
    facts = replace(found.facts, metrics={throttled: {"gpu_throttled_percent": 30.0}})
    (caveat,) = [each for each in find_caveats(replace(found, facts=facts)) if each.code == "throttled"]
    assert "1 of 1 run on 2 ranks" in caveat.text


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ((10.0, 45.0), "Because waiting for data takes 40 % of the 50 % that is lost (all else 10 %)"),
        ((10.0, 15.0), "Of the 50 % that is lost, waiting for data takes 10 % (all else 40 %)"),
        ((10.0, 2.0), "Of the 50 % that is lost, waiting for data takes 0 % (all else 50 %)"),
    ],
)
def test_the_loss_of_efficiency_has_parts_that_add_up(
    store: SyntheticStore, waits: Sequence[float], words: str
) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA L4"] * 2)
    for throughput in (100.0, 100.0, 100.0, 100.0):
        add_ranked(store, node, 1, throughput)
        add_ranked(store, node, 2, throughput + 0.04)
    found = study(store)
    (figures,) = found.curves
    rows = [replace(row, measures={"data_wait_percent": wait}) for row, wait in zip(figures.rows, waits, strict=True)]
    assert words in answer(replace(found, curves=(replace(figures, rows=tuple(rows)),)))


def test_single_runs_show_nothing_however_far_apart(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab")
    add_ranked(store, node, 1, 100.0)
    add_ranked(store, node, 2, 722.0)
    found = study(store)
    assert found.curves[0].rows[1].verdict is Verdict.TOO_FEW
    rendered = render(found)
    assert "too few to show any difference in throughput between 2 ranks and 1 rank" in rendered.text
    assert "linear" not in rendered.text
    assert "more_than_linear" not in warnings(found)


def test_more_than_linear_is_warned_of(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab")
    for number in range(4):
        for ranks in (1, 2):
            add_ranked(store, node, ranks, 100.0 * ranks**2 + number)
    found = study(store)
    assert found.curves[0].rows[1].verdict is Verdict.DIFFERS
    assert "2 ranks" in warnings(found)["more_than_linear"]


def test_runs_of_one_round_are_pairs_as_in_a_comparison(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab")
    for repeat, chance in enumerate((0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5), start=1):
        for ranks in (1, 2):
            add_ranked(store, node, ranks, 100 * ranks**0.3 * chance, experiment="rounds", repeat=repeat)
    found = study(store)
    row = found.curves[0].rows[1]
    assert (row.pairs, row.verdict) == (7, Verdict.DIFFERS)
    assert row.speed_up
    assert (row.speed_up.low, row.speed_up.high) == pytest.approx((2**0.3, 2**0.3))
    assert "7 pairs of runs" in answer(found)


def test_without_a_shown_speed_up_the_sentence_says_so_and_more_runs_are_next(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA L4"] * 2)
    for ranks, throughputs in {1: (80, 100, 120, 140, 160), 2: (90, 105, 125, 145, 150)}.items():
        for throughput in throughputs:
            add_ranked(store, node, ranks, throughput, parameters={"batch-size": None})
    rendered = render(study(store))
    assert "mnist: no speed-up is shown up to 2 ranks (ratio 1.0" in rendered.text
    assert rendered.next is not None
    assert rendered.next.startswith("gpuagent bench mnist --vary ranks=1,2")


def test_the_answer_begins_with_the_curve_that_is_shown_best(store: SyntheticStore) -> None:
    for platform, repeats in (("few", 1), ("many", 5)):
        node = store.node(f"{platform}-1", platform, gpus=["NVIDIA L4"] * 2)
        for ranks in (1, 2):
            for number in range(repeats):
                add_ranked(store, node, ranks, 100.0 * ranks + number, parameters={"batch-size": None})
    rendered = render(study(store))
    assert rendered.text.startswith("mnist on many: 2 ranks have 1.98")
    assert "% of linear" in rendered.text
    (table,) = rendered.parts
    assert isinstance(table, Table)
    assert [row[:2] for row in table.grid(wide=False).rows] == [
        (f"mnist on {platform}", ranks) for platform in ("many", "few") for ranks in ("1", "2")
    ]
