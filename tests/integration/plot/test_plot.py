"""`collector plot`: every kind of figure, at both widths of a journal."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.document import render
from gpuagent_collector.plot.draw import Kind, PlotRequest, write_plot
from gpuagent_collector.plot.picture import Picture, curve_style
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.report.page import render as render_page
from gpuagent_collector.report.study import make_report
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.comparing import alternate
from tests.integration.compare.filled import FILLS, HOSTILE_FILLS, Fill
from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.synthetic import MEASURE_SECONDS, SyntheticStore, many_sides
from tests.integration.plot.looking import assert_clear, axes_of, words_of, xs_of, ys_of
from tests.integration.plot.scenes import links, models, ranks, stacks
from tests.integration.recommend.scenes import gke
from tests.integration.report.scenes import PRICES, everything
from tests.support.commands import Collector, made_up, synthetic

pytestmark = pytest.mark.slow

Plot = Callable[..., Picture]


@pytest.fixture(scope="module")
def filled_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Fill], SyntheticStore]]:
    """Make a store that a function fills, once for all tests."""
    with ExitStack() as opened:
        yield cache(lambda fill: opened.enter_context(synthetic(tmp_path_factory.mktemp("plot") / "runs.duckdb", fill)))


def update(picture: Picture, _path: Path) -> None:
    """Give the texts of a figure their words, in a third of the time in which they have their places and a file."""
    picture.figure.set_layout_engine("none")
    picture.figure.draw_without_rendering()


@pytest.fixture
def plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plot:
    """Draw a figure of a store; unless it `is_saved`, nothing has its place."""

    def draw(
        store: SyntheticStore,
        names: str,
        *,
        width: float = 180.0,
        rows: str = "workload",
        is_saved: bool = False,
        **asked: Any,
    ) -> Picture:
        if not is_saved:
            monkeypatch.setattr(Picture, "save", update)
        kind = Kind(asked.pop("kind")) if "kind" in asked else None
        request = Request(**asked)
        wanted = PlotRequest(names=tuple(names.split(",")), kind=kind, request=request, rows=rows, width_mm=width)
        return write_plot(store.ask, wanted, tmp_path / "figure.svg")

    return draw


Filled = Callable[[Fill], SyntheticStore]


def ten(store: SyntheticStore) -> None:
    many_sides(store, sides=10, workloads=3, repeats=6, platform="a-platform-named", sampled=False)


@pytest.mark.parametrize(
    ("fill", "names", "asked"),
    [
        (models, "throughput,gpu_utilization_percent", {"kind": "dots"}),
        (models, "throughput,gpu_utilization_percent", {"kind": "bars"}),
        (models, "gpu_utilization_percent,cpu_percent,memory_used_bytes", {"kind": "time"}),
        (models, "gpu_utilization_percent", {"kind": "time", "values": ("vm",), "each": PartKind.GPU}),
        (models, "loss", {"kind": "steps"}),
        (ten, "throughput,run_seconds", {}),
        (ten, "throughput", {"kind": "bars"}),
        (FILLS["roofline"], "roofline", {}),
        (everything, "roofline", {}),
        (ranks, "scaling", {}),
        (gke, "frontier", {"by": "device"}),
        (gke, "because", {"by": "device"}),
        (stacks, "split", {}),
        (links, "collectives", {"by": "node"}),
    ],
)
def test_no_text_covers_another(filled_with: Filled, plot: Plot, fill: Fill, names: str, asked: dict[str, Any]) -> None:
    for width in (85.0, 180.0) if fill is models else (85.0,):
        picture = plot(filled_with(fill), names, width=width, is_saved=True, **asked)
        assert_clear(picture)
        assert picture.figure.get_size_inches()[0] * 25.4 == pytest.approx(width)
        assert "n = " in words_of(picture)


def test_dots_are_runs_and_medians_with_their_intervals(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(models), "throughput", kind="dots", workload="resnet50")
    (axes,) = axes_of(picture)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["container", "vm"]
    runs, interval, middle = axes.lines[:3]
    values = sorted(xs_of(runs))
    assert len(values) == 7
    assert xs_of(middle)[0] == values[3]
    assert sorted(xs_of(interval)) == [values[0], values[-1]]
    assert axes.get_title(loc="left") == "Throughput (items/s)"


def test_few_runs_have_no_interval(store: SyntheticStore, plot: Plot) -> None:
    models(store, repeats=3)
    (axes,) = axes_of(plot(store, "throughput", workload="resnet50"))
    assert len(axes.lines) == 4


def test_bars_have_their_values_and_differ_without_colour(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(models), "gpu_utilization_percent", kind="bars", rows="environment")
    (axes,) = axes_of(picture)
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len({bar.get_hatch() for bar in bars}) == 2
    widths = [bar.get_width() for bar in bars]
    assert [float(text.get_text()) for text in axes.texts] == pytest.approx(widths, rel=0.01)


def _two_units(store: SyntheticStore) -> None:
    node = store.node("ash", "lab")
    for number, workload in enumerate(("gcn", "mnist")):
        store.run(workload, node, start_seconds=20 * number, workload=workload)
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if (row["run_id"], row["name"]) == ("gcn", "throughput") else row["unit"]


@pytest.mark.parametrize("kind", ["dots", "bars"])
def test_figures_of_two_units_have_a_panel_each(filled_with: Filled, plot: Plot, kind: str) -> None:
    titles = [axes.get_title(loc="left") for axes in axes_of(plot(filled_with(_two_units), "throughput", kind=kind))]
    assert [title.rpartition("(")[2] for title in titles] == ["steps/s)", "items/s)"]


def test_over_time_each_workload_has_a_line_and_a_shade_where_it_measured(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(models), "gpu_utilization_percent,gpu_memory_used_bytes", kind="time", values=("vm",))
    upper, lower = axes_of(picture)
    assert [line.get_linestyle() for line in upper.lines][:3] != ["-"] * 3
    assert {name for _, name in picture.legend} == {"alexnet", "resnet18", "resnet50"}
    assert len(upper.lines) == 3
    assert upper.get_xlim() == lower.get_xlim()
    shade = upper.patches[0].get_extents().transformed(upper.transData.inverted())
    assert (shade.x0, shade.x1) == pytest.approx((0, 12))
    assert "n = 7" in words_of(picture)


def test_each_gpu_has_a_line(filled_with: Filled, plot: Plot) -> None:
    asked: dict[str, Any] = {"workload": "resnet18", "values": ("vm",), "each": PartKind.GPU}
    curves = plot(filled_with(models), "gpu_utilization_percent", kind="time", **asked)
    assert [name for _, name in curves.legend] == ["vm GPU 0", "vm GPU 1"]
    dots = plot(filled_with(models), "gpu_utilization_percent", kind="dots", **asked)
    names = [label.get_text() for label in axes_of(dots)[0].get_yticklabels()]
    assert names == ["resnet18", "resnet18, GPU 0", "resnet18, GPU 1"]


def test_beside_each_gpu_a_node_s_quantities_are_drawn_of_the_whole_run(filled_with: Filled, plot: Plot) -> None:
    asked: dict[str, Any] = {"workload": "resnet18", "values": ("vm",), "each": PartKind.GPU}
    picture = plot(filled_with(models), "cpu_percent,gpu_utilization_percent", kind="time", **asked)
    node, gpus = axes_of(picture)
    assert ([name for _, name in picture.legend], picture.missing) == (["vm", "vm GPU 0", "vm GPU 1"], [])
    (whole,) = [line for line in node.lines if len(xs_of(line)) > 2]
    parts = [line for line in gpus.lines if len(xs_of(line)) > 2]
    assert len({line.get_color() for line in (whole, *parts)}) == 3


def test_areas_are_explained_only_where_they_are_drawn(store: SyntheticStore, plot: Plot) -> None:
    store.only_run(on_gpus=1)
    assert "Areas" not in words_of(plot(store, "gpu_utilization_percent", kind="time"))


def _two_settings(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 2)
    for number, steps in ((1, 128), (2, 64)):
        for workload in ("vgg16", "sentiment"):
            parameters = {"ranks": number, "steps": steps, "batch-size": 64}
            store.next_run(node, workload=workload, gpus=node.gpus[:number], parameters=parameters)


@pytest.mark.parametrize("kind", ["dots", "bars", "time"])
def test_a_legend_names_the_parameter_of_its_values(filled_with: Filled, plot: Plot, kind: str) -> None:
    asked = {"kind": kind, "by": "parameter:ranks", "workload": "vgg16"}
    picture = plot(filled_with(_two_settings), "gpu_utilization_percent", each=PartKind.GPU, **asked)
    assert {name.split(" · ")[-1].split(" GPU")[0] for _, name in picture.legend} == {"ranks=1", "ranks=2"}


@pytest.mark.parametrize("kind", ["dots", "bars"])
def test_long_names_of_rows_have_two_lines_in_one_column(filled_with: Filled, plot: Plot, kind: str) -> None:
    asked: dict[str, Any] = {"kind": kind, "by": "parameter:ranks", "each": PartKind.GPU, "width": 85.0}
    picture = plot(filled_with(_two_settings), "gpu_utilization_percent,gpu_power_watts", is_saved=True, **asked)
    names = [label.get_text() for label in axes_of(picture)[0].get_yticklabels()]
    assert max(name.count("\n") for name in names) == 1
    assert "vgg16 steps=128 | 64, GPU 1" in [" ".join(name.split()) for name in names]
    assert_clear(picture)


def test_single_runs_are_drawn_over_time_with_the_names_of_their_phases(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(models), "gpu_utilization_percent", by="run", values=("run-1",))
    assert {"setup", "measure"} <= set(words_of(picture).split())
    assert "GPU utilisation, run-1" in words_of(picture)


def test_what_is_reported_by_step_is_found_by_its_name(filled_with: Filled, plot: Plot) -> None:
    store = filled_with(models)
    (axes,) = axes_of(plot(store, "loss", kind="steps", workload="resnet18"))
    # Seven runs and their median, on each of two sides.
    assert len(axes.lines) == 16
    assert ys_of(axes.lines[7])[:2] == [2.0, 1.0]
    assert "is stored" not in words_of(plot(store, "loss", kind="steps"))
    # Its course is also the first picture of a loss; the last one has other figures beside it.
    (axes,) = axes_of(plot(store, "loss", workload="resnet18"))
    assert axes.get_xlabel() == "step"
    assert "step" not in {axes.get_xlabel() for axes in axes_of(plot(store, "loss,throughput"))}
    with pytest.raises(GpuAgentError, match="these are: loss"):
        plot(store, "throughput", kind="steps")


def test_curves_that_coincide_differ_in_colour_and_show_their_marks_in_turn(store: SyntheticStore, plot: Plot) -> None:
    for index in range(10):
        of_run = store.next_run(store.node(f"node-{index}", f"side-{index:02}"))
        for step in range(200):
            detail = f'{{"step": {step}, "value": {1 / (1 + step)}}}'
            store.rows["run_events"].append({**of_run, "rank": 0, "event": "metric", "name": "loss", "detail": detail})
    picture = plot(store, "loss", kind="steps")
    (axes,) = axes_of(picture)
    assert len({line.get_color() for line in axes.lines}) == len(axes.lines) == 10
    assert len({(line.get_marker(), line.get_markevery()) for line in axes.lines}) == 10
    firsts = sorted(curve_style(index, 200)["markevery"][0] for index in range(10))
    assert min(later - first for first, later in pairwise(firsts)) > 0.02


def test_no_parts_are_drawn_where_no_difference_is_shown_and_a_command_is_named(
    store: SyntheticStore, plot: Plot
) -> None:
    alternate(store)
    with pytest.raises(GpuAgentError, match=r"no difference by platform is shown.*`collector "):
        plot(store, "because")


def test_many_sides_have_one_panel_of_parts_and_many_settings_no_more_than_a_page(
    store: SyntheticStore, plot: Plot
) -> None:
    nodes = {name: store.node(name, name) for name in "abcdefgh"}
    for repeat in range(7):
        for place, (name, node) in enumerate(nodes.items()):
            for size in range(12 if place < 2 else 1):
                start, rate = 20 * (200 * repeat + 20 * place + size), 1000.0 + 100 * place + repeat
                of: dict[str, Any] = {"start_seconds": start, "repeat": repeat, "throughput": rate}
                store.run(f"{name}-{size}-{repeat}", node, parameters={"batch_size": str(size)}, **of)
    one = plot(store, "because", where="run_id LIKE '%-0-%'", is_saved=True)
    (axes,) = axes_of(one)
    assert [label.get_text() for label in axes.get_yticklabels()] == list("abcdefgh")
    assert one.height_mm < 80
    assert_clear(one)
    page = plot(store, "because", values=("a", "b"))
    assert len(axes_of(page)) > 1
    assert page.height_mm <= 240
    assert "of 12 panels, for which a page has no room" in page.said


def test_differences_without_parts_are_counted_with_the_reason(store: SyntheticStore, plot: Plot) -> None:
    nodes = {name: store.node(name, name) for name in ("alder", "birch", "cedar")}
    for repeat in range(7):
        for (name, node), rate in zip(nodes.items(), (1000.0, 800.0, 500.0), strict=True):
            store.run(f"{name}-{repeat}", node, start_seconds=100 * repeat, repeat=repeat, throughput=rate + repeat)
    rows = store.rows
    is_read = {id(row): not row["run_id"].startswith("cedar") for row in rows["process_samples"]}
    rows["process_samples"] = [row for row in rows["process_samples"] if is_read[id(row)]]
    for row in rows["run_events"]:
        if row["run_id"].startswith("cedar") and row["name"] == "teardown":
            row["time"] += timedelta(seconds=0.3 - MEASURE_SECONDS)
    picture = plot(store, "because")
    assert len(axes_of(picture)) == 1
    said = "of 2 differences, because too few runs on cedar have a sample of their CPU in a measured phase of 300 ms"
    assert f"not divided: 1 {said}" in picture.said
    # The whole answer and the page say the same.
    answer = render(compare(store.ask, Request()))
    assert answer.facts["undivided"] in picture.said
    assert "Differences without parts" in {section.heading for section in answer.details()}
    page = render_page(make_report(store.ask, Request(), source="x", now=datetime(2030, 1, 2)), library="")  # noqa: DTZ001
    assert f"Not divided: 1 {said}" in page
    assert not render(compare(store.ask, Request(metric="step_seconds"))).facts["undivided"]
    with pytest.raises(GpuAgentError, match="not divided: 1 of 1 difference, because too few runs on cedar"):
        plot(store, "because", values=("alder", "cedar"))


def test_dropped_values_and_means_are_named_where_lines_join_them(store: SyntheticStore, plot: Plot) -> None:
    alder = store.node("alder-node", "alder")
    of_run = store.next_run(alder)
    metrics = [{"event": "metric", "name": "loss", "detail": f'{{"step": {4 * at}, "value": 1}}'} for at in range(600)]
    thinned = {"event": "thinned", "name": "metrics", "detail": '{"every": 4, "metrics": ["loss"]}'}
    # A program reports events of that name too.
    own = [{"event": "thinned", "name": "metrics", "detail": json.dumps(detail)} for detail in ({"every": "x"}, "loss")]
    store.rows["run_events"] += [{**of_run, "rank": 0, **event} for event in (*metrics, thinned, *own)]
    words = words_of(plot(store, "loss", kind="steps"))
    assert "1 run one printed" in words
    assert "means over 7 steps" in words


def test_points_are_below_the_roofs_that_were_measured(filled_with: Filled, plot: Plot) -> None:
    (axes,) = axes_of(plot(filled_with(FILLS["roofline"]), "roofline"))
    points = {(round(x), round(y / 1e11)) for line in axes.lines for x, y in zip(xs_of(line), ys_of(line), strict=True)}
    assert {(60, 300), (500, 5), (400, 4)} <= points
    # A point whose traffic is unknown has a rate all the same.
    assert [1e12, 1e12] in [ys_of(line) for line in axes.lines]
    assert "Dotted: the traffic" in words_of(plot(filled_with(FILLS["roofline"]), "roofline"))


def test_roofs_and_arrows_are_explained_where_drawn(store: SyntheticStore, filled_with: Filled, plot: Plot) -> None:
    both = words_of(plot(filled_with(FILLS["roofline"]), "roofline"))
    assert "measured roof" in both and "roof of the maker" in both
    roofs = {"datasheet_dram_bytes_per_second": 4.8e12, "datasheet_fp32_flops_per_second": 67e12}
    work = {"model_flops_fp32_per_step": 1e12, "model_flops_per_step": 1e12, "dram_bytes_per_step": 1e10}
    node = store.node("lab-1", "lab", gpus=["NVIDIA H200"])
    ended = store.next_run(node)
    store.report(ended, roofs | work)
    alone = words_of(plot(store, "roofline"))
    assert "roof of the maker" in alone
    assert "measured roof" not in alone


def _two_gpus(store: SyntheticStore) -> None:
    """Add a run of two ranks, of which the second takes twice as long, on two GPUs."""
    node = store.node("lab-1", "lab", gpus=["NVIDIA H200"] * 2)
    work = {"model_flops_per_step": 1e12, "minimum_bytes_per_step": 1e9, "datasheet_dram_bytes_per_second": 4.8e12}
    work |= {"model_flops_fp32_per_step": 1e12, "datasheet_fp32_flops_per_second": 67e12}
    add_ranked(store, node, 2, 100.0)
    (ended,) = store.rows["run_states"][-1:]
    at = {name: ended[name] for name in ("session_id", "node_id", "run_id", "time")}
    store.report(at, work)
    for row in [row for row in store.rows["steps"] if row["rank"] == 0]:
        store.rows["steps"].append({**row, "rank": 1, "wall_seconds": 2 * row["wall_seconds"]})
    for rank, row in enumerate(store.rows["run_devices"]):
        row["rank"] = rank


def test_each_gpu_and_rank_has_a_point_below_the_roofs(filled_with: Filled, plot: Plot) -> None:
    store = filled_with(_two_gpus)
    assert [name for _, name in plot(store, "roofline").legend] == ["a mnist (n = 1)", "roof of the maker"]
    for kind, names in ((PartKind.GPU, ("GPU 0", "GPU 1")), (PartKind.RANK, ("rank 0", "rank 1"))):
        picture = plot(store, "roofline", each=kind)
        assert [name for _, name in picture.legend][:2] == [
            f"{a} mnist {name} (n = 1)" for a, name in zip("ab", names, strict=True)
        ]
        (axes,) = axes_of(picture)
        rates = [ys_of(line)[0] for line in axes.lines if len(xs_of(line)) == 1]
        # The second rank reports no FLOPs of its own: the run's are those of each rank.
        assert rates[0] == pytest.approx(2 * rates[1])


def test_scaling_has_the_ideal_line_and_the_speed_up_of_each_number_of_ranks(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(ranks), "scaling")
    (axes,) = axes_of(picture)
    assert ys_of(axes.lines[0]) == [1, 8]
    curve = next(line for line in axes.lines if len(xs_of(line)) == 4)
    # Curves are drawn side by side.
    assert xs_of(curve) == pytest.approx([1, 2, 4, 8], rel=0.02)
    assert ys_of(curve)[-1] == pytest.approx(8**0.93, rel=0.02)
    assert [name for _, name in picture.legend][-1] == "ideal"


def test_the_frontier_joins_what_nothing_beats(filled_with: Filled, plot: Plot) -> None:
    prices = parse_prices(PRICES.encode(), "prices.yaml")
    picture = plot(filled_with(everything), "frontier", workload="mnist", prices=prices)
    labels = {axes.get_ylabel().partition(" (")[0] for axes in axes_of(picture)}
    assert labels == {"GPUs' energy per item", "cost per million items"}
    energy = axes_of(picture)[0]
    (joined,) = [line for line in energy.lines if line.get_linestyle() != "None"]
    assert len(xs_of(joined)) == 2
    assert "broken line" in picture.note


def alike(store: SyntheticStore) -> None:
    """Add commands that end with one loss; a larger batch takes less time and energy."""
    node = store.node("elm", "lab")
    for _, size in product(range(7), ("8", "16", "32")):
        command = json.dumps(["train", "--batch-size", size])
        ended = store.next_run(node, workload="train", parameters={}, command=command, throughput=float(size))
        store.report(ended, {"loss": 0.5})


def test_of_sides_with_equal_medians_none_is_the_lowest(filled_with: Filled, plot: Plot) -> None:
    said = plot(filled_with(alike), "loss", by="command").said
    assert ("lowest" in said, "0.500 with all 3 commands" in said) == (False, True)
    assert compare(filled_with(alike).ask, Request(by="command", metric="loss")).headline is None


def test_a_frontier_of_commands_says_which_is_best(filled_with: Filled, plot: Plot) -> None:
    prices = parse_prices(b'[{"platform": "lab", "currency": "USD", "instance_hour": 1}]', "prices.yaml")
    assert "with --batch-size 32" in plot(filled_with(alike), "frontier", by="command", prices=prices).said
    some = plot(
        filled_with(alike), "frontier", by="command", prices=prices, values=("--batch-size 8", "--batch-size 16")
    )
    assert "32" not in some.said


def on_one_side(store: SyntheticStore) -> None:
    for platform, batches in {"satori": (32, 64), "openshift": (64, 128)}.items():
        node = store.node(f"{platform}-1", platform)
        for batch in batches:
            store.next_run(node, parameters={"batch_size": batch})


def test_settings_of_one_side_are_named_and_leave_the_frontier_to_the_others(filled_with: Filled, plot: Plot) -> None:
    each = [{"platform": name, "currency": "USD", "instance_hour": 1} for name in ("satori", "openshift")]
    prices = parse_prices(json.dumps(each).encode(), "prices.yaml")
    picture = plot(filled_with(on_one_side), "frontier", prices=prices)
    assert len(axes_of(picture)) == 1
    assert "batch_size=32 (only on satori)" in picture.said
    of_one = parse_prices(json.dumps(each[:1]).encode(), "prices.yaml")
    missing = "prices.yaml has no entry for the platform openshift, only for satori"
    assert f"Not drawn: openshift, as {missing}." in plot(filled_with(on_one_side), "frontier", prices=of_one).said
    of_none = parse_prices(json.dumps([{**each[0], "platform": "gke"}]).encode(), "prices.yaml")
    with pytest.raises(GpuAgentError, match=r"prices\.yaml has no entry for the platform"):
        plot(filled_with(on_one_side), "frontier", prices=of_none)
    others = "CAST(parameters->>'batch_size' AS INTEGER) <> 64"
    with pytest.raises(GpuAgentError, match="mnist ran with other parameters on each side: batch_size"):
        plot(filled_with(on_one_side), "frontier", prices=prices, where=others)


def test_notes_explain_no_lines_that_are_not_drawn(filled_with: Filled, plot: Plot) -> None:
    prices = parse_prices(PRICES.encode(), "prices.yaml")
    alone = plot(
        filled_with(everything),
        "frontier",
        workload="mnist",
        prices=prices,
        where="platform = (SELECT min(platform) FROM runs WHERE workload = 'mnist')",
    )
    assert all(line.get_linestyle() == "None" for axes in axes_of(alone) for line in axes.lines)
    assert "line" not in alone.note
    few = plot(filled_with(everything), "throughput", kind="dots", where="repeat = 1", workload="mnist")
    assert "interval" not in few.note
    single = plot(filled_with(everything), "throughput", kind="bars", where="repeat = 1", workload="mnist")
    assert "lines" not in single.note


def test_stacks_of_layers_are_drawn_by_their_share_those_that_are_split_apart(filled_with: Filled, plot: Plot) -> None:
    upper, split_upper, lower, split_lower = axes_of(plot(filled_with(stacks), "split"))
    assert xs_of(upper.lines[0]) == [0, 50, 100]
    assert ys_of(upper.lines[0]) == pytest.approx([110] * 3)
    assert ys_of(lower.lines[0]) == [120] * 3
    # Out of memory: not timed.
    assert [(xs_of(line), ys_of(line)) for line in lower.lines[1:]] == [([50], [124])]
    assert xs_of(split_upper.lines[0]) == [12.5, 25, 37.5]
    assert [ys_of(line) for line in split_upper.lines[1:]] == [[90.0]] * 3
    assert split_lower.get_xlabel() == "layers on GPU 0 (%)"


def test_stacks_of_nearly_the_same_share_are_drawn_apart(store: SyntheticStore, plot: Plot) -> None:
    ended = store.next_run(store.node("lab-1", "lab"), workload="memory-limit", throughput=None, parameters={})
    for conv, fc, fits in ((61, 62, 1), (62, 61, 1), (62, 62, 0)):
        point = {"conv_layers": conv, "fc_layers": fc, "fits": fits} | ({"step_seconds": 0.11} if fits else {})
        store.report(ended, {f"point_conv{conv}_fc{fc}_{name}": float(value) for name, value in point.items()})
    _, lower = axes_of(plot(store, "split"))
    left, right = lower.get_xlim()
    assert 48 < left < 49.6 < 50.4 < right < 52


def test_stacks_of_which_none_fits_have_no_axis_of_time(store: SyntheticStore, plot: Plot) -> None:
    node = store.node("lab-1", "lab")
    ended = store.next_run(node, workload="memory-limit", throughput=None, parameters={"points": "62:62"})
    layers = {"point_conv62_fc62_conv_layers": 62.0, "point_conv62_fc62_fc_layers": 62.0}
    store.report(ended, {**layers, "point_conv62_fc62_fits": 0.0})
    (lower,) = axes_of(plot(store, "split"))
    assert xs_of(lower.lines[0]) == [50]


def test_collectives_are_drawn_by_size_with_a_panel_for_each_operation(filled_with: Filled, plot: Plot) -> None:
    picture = plot(filled_with(links), "collectives", by="node")
    panels = axes_of(picture)[:3]
    assert [axes.get_title(loc="left") for axes in panels] == ["all-gather", "all-reduce", "send-recv"]
    first, second = panels[0].lines
    assert xs_of(first) == [float(1 << power) for power in range(10, 31, 3)]
    assert ys_of(first)[-1] == pytest.approx(2 * ys_of(second)[-1]) == pytest.approx(198.5, rel=0.001)
    assert "lab-2, 2 ranks (n = 1)" in words_of(picture)


def test_a_figure_is_the_same_on_a_lake(any_store: SyntheticStore, plot: Plot) -> None:
    models(any_store, repeats=1)
    any_store.write()
    assert len(axes_of(plot(any_store, "throughput,step_seconds"))) == 2
    assert len(axes_of(plot(any_store, "gpu_utilization_percent", kind="time"))) == 1
    assert len(axes_of(plot(any_store, "loss", kind="steps"))) == 1


@pytest.mark.parametrize("name", ["compare", "scaling", "roofline"])
def test_hostile_names_are_texts(filled_with: Filled, plot: Plot, name: str) -> None:
    store = filled_with(HOSTILE_FILLS[name])
    drawn: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "compare": [("throughput", {}), ("throughput", {"kind": "bars"}), ("cpu_percent", {"kind": "time"})],
        "scaling": [("scaling", {})],
        "roofline": [("roofline", {})],
    }
    for names, asked in drawn[name]:
        assert "\x1b" not in words_of(plot(store, names, **asked))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one run without samples, steps and most of its columns."""
    path = tmp_path_factory.mktemp("bare") / "bare.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
        store.run("bare", node, start_seconds=0, throughput=5.0, phases=False, gpus=(), parameters={})
        for table in ("host_samples", "process_samples", "gpu_samples", "steps", "session_devices"):
            store.rows.pop(table, None)
        for row in store.rows["run_requests"]:
            row.update(environment=None, interference=None, repeat=None)
    return path


@pytest.fixture
def command(collector: Collector, bare: Path) -> Collector:
    """Run `collector plot` on that store."""
    return lambda *arguments: collector("plot", bare, *arguments, columns=80)


def test_the_remedy_for_a_metric_as_an_option_has_the_stores_the_sides_and_the_file(
    collector: Collector, bare: Path, tmp_path: Path
) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES)
    asked = ("plot", str(bare), "because", "--by", "environment", "bare", "docker", "--metric", "step_seconds")
    prices = f"--prices {tmp_path / 'prices.yaml'}"
    code, _, err = collector(*asked, *prices.split(), "-o", str(tmp_path / "out.png"), columns=80)
    command = f"plot --store {bare} step_seconds --by environment {prices} -o {tmp_path / 'out.png'} bare docker"
    assert (code, f"`collector {command}`" in err) == (2, True)


def test_files_have_the_size_and_the_format_of_their_names(command: Collector, tmp_path: Path) -> None:
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        path = tmp_path / f"figure{ending}"
        code, out, _ = command("throughput", "-o", str(path), "--width", "85mm")
        # What the figure shows, as an answer has it, and then its size.
        assert (code, out.startswith("mnist: throughput is 5 items/s"), f"\n{path}: 85 × " in out) == (0, True, True)
        assert path.read_bytes().startswith(start)
    code, _, err = command(
        "throughput,gpu_power_watts", "--kind", "bars", "--force", "-o", str(tmp_path / "figure.png")
    )
    assert (code, "has it: gpu_power_watts" in err) == (0, True)
    with Image.open(tmp_path / "figure.png") as image:
        assert image.size[0] == pytest.approx(180 / 25.4 * 300, abs=1)
    again = tmp_path / "again.svg"
    command("throughput", "-o", str(again), "--width", "85mm")
    assert again.read_bytes() == (tmp_path / "figure.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gpu_utilization_percent", "--kind", "time"), 1, "no samples of GPU utilisation in these runs"),
        (("gpu_power_watts", "--kind", "dots"), 1, "no run that succeeded has gpu_power_watts"),
        (("roofline",), 1, "no roofline to draw"),
        (("scaling",), 1, "no scaling to show"),
        (("frontier",), 1, "no frontier to draw"),
        (("split",), 1, "split draws runs of memory-limit, and there are none"),
        (("split", "--workload", "mnist"), 1, "no run reports stacks of layers"),
        (("collectives", "--workload", "mnist"), 1, "no run reports collectives by size"),
        (("loss", "--kind", "steps"), 1, "no run reports loss by step; these runs report nothing by step"),
        (("thruput",), 2, "thruput is neither a metric nor reported by step; did you mean throughput?"),
        (("cost_per_run_usd",), 2, "cost_per_run_usd needs prices: add --prices FILE"),
        (("run_seconds", "--kind", "time"), 2, "run_seconds has no curve over time"),
        (("roofline", "--kind", "bars"), 2, "--kind bars is for metrics; roofline is a kind of its own"),
        (("scaling", "--each", "gpu"), 2, "--each gpu is not for scaling: a speed-up is of whole runs; "),
        (("frontier", "--each", "node"), 2, "--each node is not for frontier: energy and cost are of whole runs; "),
        (("split", "--each", "rank"), 2, "--each rank is not for split"),
        (("roofline", "--each", "node"), 2, "roofs are of one device; try --each gpu, --each rank"),
        (("because", "--metric", "run_seconds"), 2, "plot takes no --metric, but the metric in place of because"),
        (("because", "--metric", "cost_per_run_usd"), 2, "a cost with --prices: `collector plot "),
        (("because", "--metric", "nope"), 2, "plot takes no --metric: `collector plot "),
        (("throughput,because",), 2, "because is a figure of its own: `collector plot "),
        ((), 2, "name what to draw"),
        (("throughput", "--width", "2m"), 2, "--width 2m is no width from 60mm to 400mm"),
        (("throughput", "mars"), 2, "no run has the platform mars; there are: lab"),
        (("throughput", "--rows", "color"), 2, "--by color is unknown"),
    ],
)
def test_an_empty_answer_and_misuse_are_told_in_one_line_and_leave_no_file(
    command: Collector, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, out, err = command(*arguments, "-o", str(tmp_path / "out.pdf"))
    assert (ended, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*out.pdf*"))


def test_a_file_is_only_replaced_on_request_and_needs_a_known_ending(command: Collector, tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    path.write_text("mine")
    assert "with --force" in command("throughput", "-o", str(path))[2]
    assert path.read_text() == "mine"
    assert command("throughput", "-o", str(path), "--force")[0] == 0
    code, _, err = command("throughput", "-o", str(tmp_path / "figure.jpg"))
    assert (code, "end it with .png or .svg or .pdf" in err) == (2, True)


def test_without_matplotlib_one_line_says_how_to_install_it(
    command: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "gpuagent_collector.plot"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = command("throughput", "-o", str(tmp_path / "figure.png"))
    assert code == 1
    assert err.endswith("pip install matplotlib\n")
