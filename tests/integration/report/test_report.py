import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.tables import cost_table
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.report import chapters
from gpuagent_collector.report.chapters import CHAPTERS
from gpuagent_collector.report.page import render
from gpuagent_collector.report.study import Missing, Report, make_report
from gpuagent_collector.store.retention import Retention, retain
from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, SyntheticStore, many_sides, quiet_and_burning
from tests.integration.profile.traced import add_traced, kernel, operator
from tests.integration.report.scenes import PRICES, everything
from tests.support.commands import Collector, made_up, synthetic
from tests.support.pages import Element, cells, figures, parse

pytestmark = pytest.mark.slow

NOW = datetime(2030, 1, 2, 9, 30)  # noqa: DTZ001 - as the store holds times


def report_on(store: SyntheticStore, **asked: Any) -> Report:
    return make_report(store.ask, Request(**asked), source="the store runs.duckdb", now=NOW)


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyntheticStore]:
    """A store with something for every chapter."""
    with synthetic(tmp_path_factory.mktemp("report") / "runs.duckdb", everything) as store:
        yield store


@pytest.fixture(scope="module")
def full(full_store: SyntheticStore) -> Report:
    return report_on(full_store, prices=parse_prices(PRICES.encode(), "prices.yaml"))


@pytest.fixture(scope="module")
def page(full: Report) -> Element:
    return parse(render(full))


def headings(page: Element) -> list[str]:
    return [heading.text for heading in page.all("h2")]


def test_every_chapter_that_has_something_is_there_and_in_the_table_of_contents(page: Element) -> None:
    assert headings(page) == [
        chapter.title for chapter in CHAPTERS if chapter.anchor not in ("missing", "run", "output", "serving")
    ]
    sections = [f"#{section.attributes['id']}" for section in page.all("section")]
    links = [link.attributes["href"] for link in page.all("nav")[0].all("a")]
    assert [link for link in links if link in sections] == sections
    # Each workload or setting has its place in the chapters that go through them.
    assert {"#over-time-0", "#over-time-1", "#metrics-1", "#kernels-0"} <= {*links} - {*sections}
    assert {link[1:] for link in links} <= {each.attributes.get("id") for each in page.everything()}
    writers = {name for name in vars(chapters) if name.startswith("write_")}
    assert writers - {"write_interval", "write_command"} == {chapter.write.__name__ for chapter in CHAPTERS}


def test_answer_and_tables_are_those_of_the_comparison(full_store: SyntheticStore, full: Report, page: Element) -> None:
    paragraphs = answer(compare(full_store.ask, full.comparison.request)).splitlines()
    assert [each.text for each in page.by_id("answer").all("p")][: len(paragraphs)] == paragraphs
    verdicts, *_ = (cells(table) for table in page.by_id("answer").all("table"))
    mnist = next(row for row in verdicts if row[0] == "mnist")
    assert mnist[1] == "7 / 7"
    assert mnist[3].startswith("0.79")
    assert mnist[-1] == "differs"
    metrics = cells(page.by_id("metrics").all("table")[0])
    assert ["GPU utilisation", "42.9 %", "97.1 %"] in [row[:3] for row in metrics]


def test_costs_are_by_workload_beside_the_verdicts_and_in_the_table_of_workloads(full: Report, page: Element) -> None:
    costs = cost_table(full.comparison)
    assert costs is not None
    shown = [[row[:2] for row in cells(each)] for each in page.by_id("answer").all("table")]
    assert [list(row[:2]) for row in costs.grid().rows] in [rows[1:] for rows in shown]
    assert not isinstance(full.matrix, Missing)
    assert "Cost" in {line.metric.group for line in full.matrix.lines}


def test_differences_that_are_not_drawn_are_named_with_a_command(
    full: Report, page: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = len(full.comparison.reasons)
    assert len(page.by_id("answer").all("figure")) == reasons > 1
    assert "plot because" not in page.by_id("answer").text
    monkeypatch.setattr(chapters, "_MOST_PANELS", 1)
    fewer = parse(render(full)).by_id("answer")
    assert len(fewer.all("figure")) == 1
    assert "collector plot because " in fewer.text
    assert "--prices prices.yaml -o because.png" in fewer.text


def test_courses_are_of_the_median_runs_and_begin_where_they_measured(full: Report, page: Element) -> None:
    drawn = figures(page)
    assert {"Phases", "Node CPU, %", "GPU utilisation, %", "SMs active, %", "SM clock, MHz"} <= drawn.keys()
    assert [course.side for course in full.courses[0]] == ["gke-a100", "gke-l4"]
    measure = next(phase for phase in full.courses[0][0].phases if phase.name == "measure")
    assert (measure.from_seconds, measure.to_seconds) == (0, 12)
    lines = [trace for trace in drawn["GPU utilisation, %"]["data"] if "name" in trace]
    assert [trace["name"] for trace in lines] == ["gke-a100", "gke-l4"]
    assert max(lines[1]["y"]) > 90
    of_a100, of_l4 = full.step_times[0]
    assert (of_a100.steps, of_l4.steps) == (7 * 120, 7 * 120)
    assert list(of_l4.seconds) == sorted(of_l4.seconds)
    assert of_a100.seconds[100] == pytest.approx(64 / 11_800, rel=0.02)


def test_each_workload_has_curves_and_kernels_folded_after_the_first(full: Report, page: Element) -> None:
    blocks = full.comparison.layout.blocks
    assert len(full.courses) == len(blocks) > 1
    assert all(course.curves for courses in full.courses for course in courses)
    folded = page.by_id("over-time-1")
    assert folded.tag == "details"
    titles = {figure.all("figcaption")[0].text for figure in folded.all("figure")}
    assert {"Phases", "GPU utilisation, %"} <= titles


def test_kernels_are_those_of_every_traced_workload(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
    for workload in ("mnist", "gcn"):
        add_traced(store, node, [kernel(f"kernel_of_{workload}", 1.0)], workload=workload)
    chapter = parse(render(report_on(store))).by_id("kernels")
    assert "kernel_of_mnist" in chapter.text
    assert "kernel_of_gcn" in chapter.text
    assert len(chapter.all("figure")) == 2


def test_roofline_kernels_scaling_bounds_and_costs_agree_with_their_commands(page: Element) -> None:
    assert "2.19 TFLOP/s at ≤ 50 FLOP/byte" in page.by_id("roofline").text
    assert "ampere_sgemm_128x64_tn" in page.by_id("kernels").text
    assert "2 ranks have 1." in page.by_id("scaling").text
    assert "launches (57 %) on gke-a100" in page.by_id("bounds").text
    costs = page.by_id("costs")
    assert "those of prices.yaml" in costs.text
    captions = {figure.text.partition(",")[0] for figure in costs.all("figcaption")}
    assert captions >= {"GPUs' energy by time", "Cost by time"}


def test_the_commands_and_every_statement_stand_at_the_end_and_the_guard_takes_them(
    full_store: SyntheticStore, full: Report, page: Element
) -> None:
    reproduce = page.by_id("reproduce")
    assert "collector report -o report.html --prices prices.yaml" in reproduce.text
    assert "gpuagent_workloads run mnist" in reproduce.text
    guard = Guard(store_relations(full_store.connection))
    statements = [one for of_topic in full.statements.values() for one in of_topic]
    assert len(statements) > 30
    for statement in statements:
        guard.check(statement)
    assert all(statement in reproduce.text for statement in full.statements["Over time"])
    # Once each, whatever the number of topics that asked it.
    shown = [statement for statement in dict.fromkeys(statements) if statement in reproduce.text]
    assert all(
        reproduce.text.count(statement) == 1 for statement in full.statements["Comparison"] if statement in shown
    )


def test_of_many_workloads_and_sides_the_smaller_ones_have_values_without_ratios(store: SyntheticStore) -> None:
    many_sides(store, sides=10, workloads=8, platform="a-platform-named", sampled=False)
    text = render(report_on(store), library="plotly.js")
    metrics = parse(text).by_id("metrics")
    # The largest have a table for each pair of sides, the smaller ones one of values.
    assert len([title for title in metrics.all("h3") if title.text.startswith("workload-")]) == 6
    assert "compare --workload workload-0" in metrics.text
    assert len(text) < 2_500_000


def test_every_chart_is_one_that_plotly_knows(page: Element) -> None:
    drawn = figures(page)
    assert len(drawn) >= 15
    for figure in drawn.values():
        # The page's script puts a colour in the place of its name.
        coloured = json.loads(re.sub(r'"--[^"]*"', '"#123456"', json.dumps(figure)))
        go.Figure(data=coloured["data"], layout=coloured["layout"])


def test_what_the_store_has_nothing_of_is_said_with_how_to_get_it(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    for table in ("steps", "gpu_samples", "host_samples", "process_samples"):
        store.rows.pop(table, None)
    report = report_on(store, by="interference")
    assert isinstance(report.roofline, Missing)
    page = parse(render(report))
    missing = page.by_id("missing").text
    for told in ("Over time: no samples", "Times of steps: no run", "--profile", "--ranks 2", "--prices"):
        assert told in missing
    assert not {"Over time", "Roofline", "Kernels and operators", "Scaling", "Energy and cost"} & set(headings(page))


def test_a_curve_is_interrupted_where_samples_are_missing(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    turn = RUN_SECONDS + 1
    store.rows["host_samples"] = [
        row for row in store.rows["host_samples"] if not 6 <= (row["time"] - EPOCH).total_seconds() % turn <= 9
    ]
    report = report_on(store, by="interference")
    before, after = next(curve for chart, curve in report.courses[0][0].curves.items() if chart.title == "Node CPU")
    # Zero is 3 s after the start, where the run began to measure.
    assert before[-1].seconds == pytest.approx(2.5, abs=0.1)
    assert after[0].seconds == pytest.approx(6.5, abs=0.1)


def test_curves_go_on_where_samples_were_thinned_out(store: SyntheticStore) -> None:
    everything(store)
    read = report_on(store).courses[0][0].curves
    later = EPOCH + timedelta(days=9)
    thinned = sum(
        done.removed
        for done in retain(store.connection, Retention(samples=timedelta(days=7)), later, sorted_by_node=False)
    )
    assert thinned > 1000
    course = report_on(store).courses[0][0]
    assert course.curves.keys() == read.keys()
    for chart, stretches in course.curves.items():
        if chart.table == "steps":
            continue
        now, before = [reading for each in stretches for reading in each], list(chain(*read[chart]))
        assert len(before) / 3 < len(now) < len(before)
        for figure, of in (("low", min), ("high", max)):
            ends = [of(getattr(reading, figure) for reading in readings) for readings in (now, before)]
            assert ends[0] == pytest.approx(ends[1], rel=0.01)


def test_more_sides_than_colours_are_compared_all_the_same(store: SyntheticStore) -> None:
    for number in range(13):
        node = store.node(f"node-{number}", f"place-{number}")
        for repeat in range(2):
            store.run(f"run-{number}-{repeat}", node, start_seconds=(repeat * 13 + number) * 20, repeat=repeat)
    report = report_on(store)
    assert len(report.courses[0]) == 6
    page = parse(render(report))
    assert len(page.by_id("metrics").all("h3")) == 1
    assert "place-12" in page.by_id("distributions").all("script")[0].text


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`--side-0`<b>\u202e&lt;"


def test_hostile_names_stay_texts_wherever_they_stand(store: SyntheticStore) -> None:
    nodes = [store.node(f"{HOSTILE}{name}", f"{name}{HOSTILE}", gpus=[HOSTILE]) for name in ("a", "b")]
    for repeat in range(2):
        for name, node in zip(("a", "b"), nodes, strict=True):
            asked: dict[str, Any] = {"workload": HOSTILE, "parameters": {HOSTILE: HOSTILE}, "texts": {"data": HOSTILE}}
            operations = [kernel(f"{HOSTILE}{name}", 1.0), operator(HOSTILE, 1.0)]
            add_traced(store, node, operations, results={"loss": 1.0}, repeat=repeat, **asked)
    html = render(report_on(store, metric="throughput"))
    page = parse(html)
    scripts = page.all("script")
    assert [each.attributes.get("type") for each in scripts[-2:]] == [None, None]
    assert {each.attributes.get("type") for each in scripts[:-2]} == {"application/json"}
    assert page.all("img") == page.all("b") == []
    assert not [name for each in page.everything() for name in each.attributes if name.startswith("on")]
    # What plotly is given has neither tags nor characters that reorder what stands beside them.
    # Long names of sides are on several lines.
    drawn = json.dumps(figures(page), ensure_ascii=False).replace("<br>", "")
    assert "alert(1)" in drawn
    assert not set("<>\u202e") & set(drawn)
    assert "alert(1)" in page.by_id("where").text


def test_figures_that_are_no_numbers_are_left_out_of_charts(store: SyntheticStore) -> None:
    quiet_and_burning(store)
    for step, odd in zip(store.rows["steps"], (float("nan"), float("inf"), None, 0.0), strict=False):
        step["wall_seconds"] = odd
    page = parse(render(report_on(store, by="interference")))
    drawn = figures(page)["Time of a step: share of steps that took no longer"]["data"]
    assert drawn[0]["x"][-1] is None
    assert drawn[0]["x"][0] == 0


def test_the_parts_of_a_difference_lead_from_one_side_to_the_other(store: SyntheticStore) -> None:
    quiet_and_burning(store, gpus=["NVIDIA L4"])
    page = parse(render(report_on(store, by="interference")))
    (bars,) = figures(page)["From none to cpu-burn: time per step"]["data"]
    ends = [base + length for base, length in zip(bars["base"], bars["x"], strict=True)]
    assert ends[-1] == pytest.approx(ends[-2], rel=1e-3)


def test_a_side_keeps_its_colour_in_all_charts(store: SyntheticStore) -> None:
    for number, (place, workload) in enumerate((("a", "gpt"), ("b", "gpt"), ("b", "mnist"), ("c", "mnist"))):
        node = store.node(f"{place}-{workload}", place)
        for repeat in range(2 if workload == "gpt" else 3):
            start = 20.0 * (10 * number + repeat)
            store.run(f"{place}-{workload}-{repeat}", node, start_seconds=start, workload=workload, repeat=repeat)
    page = parse(render(report_on(store)))
    lines = [trace for trace in figures(page)["Node CPU, %"]["data"] if "name" in trace]
    assert [(trace["name"], trace["line"]["color"]) for trace in lines] == [("b", "--side-1"), ("c", "--side-2")]
    keys = page.by_id("over-time").all("ul")[0].all("path")
    assert [path.attributes["class"] for path in keys] == ["side-1", "side-2"]


@pytest.fixture
def report(collector: Collector, tmp_path: Path) -> Collector:
    """Run `collector report` on a store of MNIST alone and beside a CPU load."""
    with made_up(tmp_path / "runs.duckdb") as store:
        quiet_and_burning(store)
    return lambda *arguments: collector("report", tmp_path / "runs.duckdb", *arguments, columns=80)


def test_the_file_is_written_with_its_command_and_only_replaced_on_request(report: Collector, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    code, out, err = report(str(path), "--by", "interference")
    assert (code, err) == (0, f"reading the store {tmp_path / 'runs.duckdb'}\n")
    assert any(line.startswith(f"{path}:") for line in out.splitlines())
    assert " ".join(out.split()).endswith("mnist --by interference")  # what comes after a difference
    assert path.stat().st_size < 1_000_000
    (library,) = tmp_path.glob("plotly-*.js")
    assert f'<script src="{library.name}"></script>' in path.read_text()
    page = parse(path.read_text())
    assert "interference: none, cpu-burn" in page.all("h1")[0].text
    assert f"collector compare --store {tmp_path / 'runs.duckdb'} --by interference" in page.by_id("reproduce").text
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".out")] == []

    path.write_text("mine")
    code, _, err = report(str(path), "--by", "interference")
    assert code == 2
    assert "with --force" in err
    assert path.read_text() == "mine"
    library.unlink()
    code, _, _ = report(str(path), "--by", "interference", "--inline", "--force")
    assert (code, path.stat().st_size > 4_000_000, library.exists()) == (0, True, False)
    code, _, _ = report(str(path), "cpu-burn", "none", "--by", "interference", "--delta", "5", "--force")
    assert code == 0
    shown = parse(path.read_text()).by_id("reproduce").text
    assert "--by interference --delta 5 cpu-burn none" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{}/nowhere/out.html", "--by", "interference"], 2, "the directory"),
        (["{}", "--by", "interference"], 2, ".html"),
        (["{}/out.html", "--by", "label:rack"], 1, "nothing to compare: no run has the label rack"),
        (["{}/out.html", "--by", "colour"], 2, "--by colour is unknown"),
        (["{}/out.html", "--by", "interference", "--where", "repeat > 99"], 2, "no run satisfies --where"),
        (["{}/out.html", "--by", "interference", "--metric", "beauty"], 2, "--metric beauty is unknown"),
    ],
)
def test_what_makes_no_sense_is_said_and_writes_nothing(
    report: Collector, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    ended, _, err = report(*(each.format(tmp_path) for each in arguments))
    assert ended == code
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "out.html").exists()
