"""Where runs lie below which roofs, on stores whose answers are known by hand."""

import json
from datetime import timedelta
from typing import Any

import pytest

from gpuagent_collector.answers.roofline import Study, find_caveats, find_errors, render, study_roofline
from gpuagent_collector.answers.roofline_points import Flops, Nearness, Point, Roofline, Side, Traffic
from gpuagent_collector.report.figures.rooflines import number_points, roofline_panel
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.synthetic import Node, SyntheticStore
from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32

pytestmark = pytest.mark.slow

MIXED = {"model_flops_per_step": 40e12, "model_flops_tf32_per_step": 36e12, "model_flops_fp32_per_step": 4e12}


def study(store: SyntheticStore, *workloads: str, by: str = "platform") -> Study:
    """Write what was added, and study it."""
    return study_roofline(store.ask, workloads=workloads, by=by, platform=None, experiment=None)


def only_roofline(found: Study) -> Roofline:
    (roofline,) = found.rooflines
    return roofline


def only_point(found: Study) -> Point:
    (point,) = only_roofline(found).points
    return point


def codes(found: Study) -> list[str]:
    return [caveat.code for caveat in find_caveats(found)]


@pytest.fixture
def node(store: SyntheticStore) -> Node:
    return store.node("spruce", "lab", gpus=[GPU])


@pytest.fixture
def measured(store: SyntheticStore, node: Node) -> Node:
    """The node, whose roofs were measured."""
    add_ceilings(store, node)
    return node


def test_sampled_bytes_are_the_share_of_the_stated_bandwidth_in_a_step(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, fp32(2e12), dram_active_percent=25.0, busy_percent=97.0)
    point = only_point(study(store))
    # 25 % of 2 TB/s for 1 s.
    assert (point.traffic_by, point.busy_percent) == (Traffic.SAMPLED, 97)
    assert (point.traffic_bytes, point.intensity, point.flops_per_second) == pytest.approx((5e11, 4, 2e12))
    # 4 FLOP/byte × 1 TB/s measured, × 2 TB/s stated; peaks 10 and 20 TFLOP/s.
    assert (point.measured.roof_percent, point.datasheet.roof_percent) == pytest.approx((50, 25))
    assert (point.measured.mfu_percent, point.datasheet.mfu_percent) == pytest.approx((20, 10))
    assert point.measured.side is Side.MEMORY


def test_a_program_that_reports_no_bandwidth_has_that_of_its_device(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, fp32(2e12), dram_active_percent=25.0, datasheet={})
    point = only_point(study(store))
    assert point.traffic_bytes == pytest.approx(5e11)
    assert point.busy_percent is not None


def test_samples_of_a_short_phase_are_no_bytes_and_more_steps_are_the_remedy(
    store: SyntheticStore, measured: Node
) -> None:
    add_trial(store, measured, fp32(7e12), dram_active_percent=25.0)
    for row in store.rows["run_events"]:
        # 3 s of the 12 are left.
        row["time"] += timedelta(seconds=9 * (row["name"] == "measure"))
    found = study(store)
    point = only_point(found)
    assert (point.traffic_by, point.busy_percent) == (None, None)
    assert point.measured.mfu_percent == pytest.approx(70)
    assert codes(found) == ["measure_short"]
    assert "sampled bytes are not used" in find_caveats(found)[0].text
    assert "arithmetic limits it" in render(found).text


def test_a_short_run_without_steps_has_the_remedy_of_its_point(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, fp32(1e12))
    add_trial(store, measured, {**fp32(1e12), "measure_short": 1.0}, steps=0, repeat=2)
    (caveat,) = (one for one in find_caveats(study(store)) if one.code == "measure_short")
    assert caveat.remedy == "run more steps, at least 11"  # of 1 s, a tenth more than 10 s


def test_other_arguments_of_a_program_are_a_point_of_their_own(store: SyntheticStore, measured: Node) -> None:
    for size, flops in (("16", 1e12), ("64", 4e12), ("16", 1e12)):
        command = json.dumps(["python", f"/tmp/{flops}/train.py", "--size", size])
        add_trial(store, measured, fp32(flops), workload="train.py", parameters={}, command=command)
    points = only_roofline(study(store)).points
    # The nearest to its peak is the first.
    assert [(point.label, len(point.trials)) for point in points] == [
        ("train.py --size 64", 1),
        ("train.py --size 16", 2),
    ]
    assert [point.measured.mfu_percent for point in points] == pytest.approx([40, 10])


def test_executed_flops_and_counted_bytes_go_before_all_others(store: SyntheticStore, measured: Node) -> None:
    executed = {"executed_flops_per_step": 30e12, "executed_tensor_flops_per_step": 27e12, "dram_bytes_per_step": 5e11}
    results = {**MIXED, **executed, "minimum_bytes_per_step": 1e9}
    add_trial(store, measured, results, dram_active_percent=50.0)
    point = only_point(study(store))
    assert (point.flops_by, point.traffic_by) == (Flops.EXECUTED, Traffic.COUNTED)
    assert point.mix == {"fp32": pytest.approx(3e12), "tf32": pytest.approx(27e12)}
    assert point.intensity == pytest.approx(60)
    # 27 at 100 and 3 at 10 TFLOP/s take 0.27 and 0.3 s; the ridge of that lies at 52.6 FLOP/byte.
    assert point.measured.roof_percent == pytest.approx(57)
    assert point.measured.side is Side.COMPUTE
    # MFU is of model FLOPs: 36 at 100 and 4 at 10 take 0.36 and 0.4 s of the second.
    assert point.measured.mfu_percent == pytest.approx(76)
    assert codes(study(store)) == []


def test_a_lower_bound_of_bytes_bounds_the_intensity_and_hides_computing(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, {**fp32(5e11), "minimum_bytes_per_step": 1e9}, workload="a")
    add_trial(store, measured, {**fp32(5e11), "minimum_bytes_per_step": 1e11}, workload="b")
    found = study(store)
    left, right = only_roofline(found).points
    assert right.traffic_by is left.traffic_by is Traffic.LEAST
    assert (right.measured.side, left.measured.side) == (None, Side.MEMORY)
    assert codes(found) == ["bytes_at_least"]


@pytest.mark.parametrize("sampled", [{}, {"dram_active_percent": 25.0, "steps": 6}], ids=["none", "too many samples"])
def test_without_bytes_a_point_has_its_mfu(store: SyntheticStore, measured: Node, sampled: dict[str, Any]) -> None:
    add_trial(store, measured, fp32(1e12), **sampled)
    found = study(store)
    point = only_point(found)
    assert point.traffic_by is None
    assert (point.intensity, point.measured.roof_percent, point.measured.side) == (None, None, None)
    assert point.measured.mfu_percent == pytest.approx(10)
    assert codes(found) == ["no_bytes"]


def test_repeats_are_one_point_at_their_medians(store: SyntheticStore, measured: Node) -> None:
    for repeat, (flops, seconds) in enumerate(((1e12, 1.0), (1e12, 1.01), (1e12, 5.0)), 1):
        add_trial(store, measured, fp32(flops), step_seconds=seconds, repeat=repeat)
    point = only_point(study(store))
    assert len(point.trials) == 3
    assert point.seconds == pytest.approx(1.01)


def test_a_counted_run_and_its_repeats_without_counters_are_one_point(store: SyntheticStore, measured: Node) -> None:
    counted = {"executed_flops_per_step": 1e12, "dram_bytes_per_step": 1e12}
    for counters, results in (("none", {}), ("ncu", counted)):
        parameters = {"counters": counters, "batch-size": 64}
        add_trial(store, measured, {**fp32(2e12), **results}, parameters=parameters)
    point = only_point(study(store))
    assert (point.flops, point.intensity) == pytest.approx((1e12, 1))


def test_a_step_s_time_on_a_gpu_is_the_gpu_s_and_on_a_cpu_the_wall_s(store: SyntheticStore) -> None:
    for hostname, gpus in (("oak", [GPU]), ("elm", [])):
        add_trial(store, store.node(hostname, hostname, gpus=gpus), fp32(1e12), step_seconds=1.0)
    assert [each.points[0].seconds for each in study(store).rooflines] == [pytest.approx(1)] * 2


def test_ranks_are_averaged_since_each_has_a_device_of_its_own(store: SyntheticStore, measured: Node) -> None:
    run_id = add_trial(store, measured, fp32(1e12))
    for table, other in (("results", {}), ("steps", {"gpu_seconds": 3.0})):
        of_run = [row for row in store.rows[table] if row["run_id"] == run_id]
        store.rows[table] += [{**row, "rank": 1, **other} for row in of_run]
    assert only_point(study(store)).flops_per_second == pytest.approx(1e12 / 2)


@pytest.mark.parametrize(("precision", "peak_known"), [("tf32", True), ("default", False)])
def test_a_precision_of_one_arithmetic_is_used_where_the_flops_are_not_divided(
    store: SyntheticStore, measured: Node, precision: str, peak_known: bool
) -> None:
    add_trial(store, measured, {"model_flops_per_step": 50e12}, texts={"precision": precision})
    found = study(store)
    assert (only_point(found).measured.mfu_percent == pytest.approx(50)) is peak_known
    assert ("no_peak" in codes(found)) is not peak_known


def test_the_newest_roofs_of_the_run_s_own_gpu_are_held_against_it(store: SyntheticStore, node: Node) -> None:
    twin = store.node("oak", "lab", gpus=[GPU])
    add_ceilings(store, node)
    expected = add_ceilings(store, node)
    add_ceilings(store, twin)
    add_ceilings(store, node, quick=True)
    add_trial(store, node, fp32(1e12))
    ceilings = only_roofline(study(store)).ceilings
    assert ceilings
    assert (ceilings.run.run_id, ceilings.nearness) == (expected, Nearness.SAME_DEVICE)


@pytest.mark.parametrize(("gpus", "nearness"), [(2, Nearness.SAME_NODE), (1, Nearness.OTHER_NODE)])
def test_roofs_of_another_gpu_of_the_model_have_a_warning(store: SyntheticStore, gpus: int, nearness: Nearness) -> None:
    node = store.node("spruce", "lab", gpus=[GPU] * gpus)
    elsewhere = node if gpus == 2 else store.node("oak", "cloud", gpus=[GPU])
    add_ceilings(store, elsewhere)
    store.rows["run_devices"] = [{**row, "device_id": elsewhere.gpus[-1]} for row in store.rows["run_devices"][:1]]
    add_trial(store, node, fp32(1e12), gpus=node.gpus[:1])
    found = study(store)
    ceilings = only_roofline(found).ceilings
    assert ceilings
    assert ceilings.nearness is nearness
    assert "roofs_of_another_device" in codes(found)


def test_roofs_of_another_model_are_never_used(store: SyntheticStore, measured: Node) -> None:
    other = store.node("oak", "cloud", gpus=["NVIDIA L4"])
    add_trial(store, other, fp32(1e12), texts={"device": "NVIDIA L4"})
    found = study(store)
    assert only_roofline(found).ceilings is None
    assert only_point(found).measured.mfu_percent is None
    assert only_point(found).datasheet.mfu_percent == pytest.approx(5)
    assert codes(found) == ["no_ceilings", "no_bytes"]


def test_a_processor_is_another_device_with_another_number_of_threads(store: SyntheticStore) -> None:
    node = store.node("elm", "laptop")
    add_ceilings(store, node)
    add_trial(store, node, fp32(1e12))
    roofline = only_roofline(study(store))
    assert roofline.device == "AMD EPYC 9654 96-Core Processor with 8 threads"
    assert roofline.ceilings is None  # the made-up measurement does not say its threads


def test_executed_flops_above_every_roof_are_an_error(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, {**fp32(1e12), "executed_flops_per_step": 21e12, "dram_bytes_per_step": 1e9})
    found = study(store)
    (error,) = find_errors(found)
    assert error.code == "executed_above_roof"
    assert error.text.startswith("point a:")
    assert codes(found) == []


@pytest.mark.parametrize(
    ("results", "warnings"),
    [
        ({**fp32(21e12), "minimum_bytes_per_step": 1e9}, ["model_above_roof", "bytes_at_least"]),
        # More than was measured and less than is stated puts the measurement in doubt.
        ({**fp32(15e12), "dram_bytes_per_step": 1e9}, ["above_measured_roof"]),
    ],
    ids=["above every roof", "above the measured roof"],
)
def test_model_flops_above_a_roof_are_a_warning(
    store: SyntheticStore, measured: Node, results: dict[str, float], warnings: list[str]
) -> None:
    add_trial(store, measured, results)
    found = study(store)
    assert find_errors(found) == ()
    assert codes(found) == warnings


def test_runs_that_are_in_no_point_make_warnings(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, {**fp32(1e12), "dram_bytes_per_step": 1e12, "measure_short": 1.0})
    add_trial(store, measured, {}, workload="cpu-burn")
    add_trial(store, measured, {}, status="failed")
    add_trial(store, measured, {}, status="cancelled")
    found = study(store)
    assert codes(found) == ["measure_short", "left_out", "unsuccessful"]
    # It cannot change a point.
    assert [run.status for run in found.cancelled] == ["cancelled"]
    assert "runs that are in no point: 1 failed" in [caveat.text for caveat in find_caveats(found)]
    assert "1 cpu-burn" in find_caveats(found)[1].text


def test_figures_that_are_none_are_absent(store: SyntheticStore, measured: Node) -> None:
    for value in (0.0, -1.0, float("inf"), float("nan")):
        figures = {**fp32(1e12), "executed_flops_per_step": value, "dram_bytes_per_step": value}
        add_trial(store, measured, figures, environment=str(value))
    (roofline,) = study(store).rooflines
    assert [(point.flops_by, point.traffic_by) for point in roofline.points] == [(Flops.MODEL, None)] * 4


def test_labels_of_points_have_the_settings_that_differ_on_their_device(store: SyntheticStore, measured: Node) -> None:
    other = store.node("oak", "cloud", gpus=["NVIDIA L4"])
    add_trial(store, measured, fp32(1e12), environment="docker", parameters={"precision": "bf16"})
    add_trial(store, measured, fp32(1e12), parameters={"precision": "fp32"})
    add_trial(store, other, fp32(1e12), texts={"device": "NVIDIA L4"})
    found = study(store)
    labels = [point.label for roofline in found.rooflines for point in roofline.points]
    assert labels == ["mnist docker precision=bf16", "mnist bare precision=fp32", "mnist"]


def test_another_facet_divides_points(store: SyntheticStore, measured: Node) -> None:
    for driver in ("a", "b", "b"):
        add_trial(store, measured, fp32(1e12), labels=f'{{"driver": "{driver}"}}')
    assert len(only_roofline(study(store)).points) == 1
    found = study(store, by="label:driver")
    labels = [point.label for point in only_roofline(found).points]
    assert labels == ["mnist label:driver=a", "mnist label:driver=b"]


def test_only_what_was_asked_for_is_shown(store: SyntheticStore, measured: Node) -> None:
    for workload in ("mnist", "gpt", "gcn"):
        add_trial(store, measured, fp32(1e12), workload=workload)
    assert [each.run.workload for each in only_roofline(study(store, "gpt", "gcn")).points] == ["gcn", "gpt"]


def test_runs_without_flops_make_no_roofline(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, {})
    with pytest.raises(GpuAgentError, match="roofline to draw"):
        study(store)


def test_points_that_would_hide_one_another_share_a_mark(store: SyntheticStore, measured: Node) -> None:
    for workload, flops in (("a", 1e12), ("b", 1.01e12), ("c", 9e12)):
        add_trial(store, measured, {**fp32(flops), "dram_bytes_per_step": 1e12}, workload=workload)
    roofline = only_roofline(study(store))
    panel = roofline_panel(roofline, number_points([roofline], ["lab"]))
    assert [series.labels for series in panel.series if "c" in series.labels] == [("a,b", "c")]


def test_a_peak_is_labelled_above_both_of_its_roofs(store: SyntheticStore, measured: Node) -> None:
    add_trial(store, measured, {**fp32(1e12), "dram_bytes_per_step": 1e12})
    roofline = only_roofline(study(store))
    panel = roofline_panel(roofline, number_points([roofline], ["lab"]))
    peaks = [(y, text) for each in panel.series for y, text in zip(each.ys, each.labels, strict=False)]
    assert (20e12, "FP32 10 of 20 TFLOP/s") in peaks


def test_without_roofs_there_is_nothing_to_draw(store: SyntheticStore) -> None:
    node = store.node("elm", "laptop")
    add_trial(store, node, {**fp32(1e9), "minimum_bytes_per_step": 1e9})
    for row in store.rows["results"]:
        row["name"] = row["name"].removeprefix("datasheet_")
    found = study(store)
    assert not only_roofline(found).is_drawn
    assert codes(found) == ["no_ceilings"]  # no memory traffic but a GPU's can be counted
    assert render(found).next == "gpuagent bench ceilings --rounds 1 --warm-up 0 --threads 8"


def test_a_bound_names_the_height_of_its_roof_and_one_workload_is_explained_next(
    store: SyntheticStore, measured: Node
) -> None:
    add_trial(store, measured, {**fp32(1e12), "minimum_bytes_per_step": 1e9})
    rendered = render(study(store))
    assert "% of the measured roof, which is 10 TFLOP/s there; no roof is shown to limit it" in rendered.text
    assert rendered.next == "collector recommend mnist --all"
