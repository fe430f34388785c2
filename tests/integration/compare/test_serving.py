"""Servers over levels of load in stores of known content: limits that are kept, crossings, warnings, every format."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.answers.plan import render as render_plan
from gpuagent_collector.answers.plan_needs import Question, plan_repeats
from gpuagent_collector.answers.serving import answer, answer_serving, find_caveats, render
from gpuagent_collector.answers.serving_curves import Study, choose_study, study_serving
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.plot.answers import draw_serving
from gpuagent_collector.plot.picture import in_style
from gpuagent_collector.present.table import Grid
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.report.chapters import write_serving
from gpuagent_collector.report.figures.serving import serving_panels
from gpuagent_collector.report.study import make_report
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.served import TTFT, add_searches, add_served, add_servers
from tests.integration.compare.synthetic import Node, SyntheticStore
from tests.support.commands import Collector, made_up

pytestmark = pytest.mark.slow


@pytest.fixture
def served(store: SyntheticStore) -> SyntheticStore:
    """Seven repeats of two servers at three loads, made in turns."""
    add_servers(store)
    return store


def study(
    store: SyntheticStore, *, percent: int | None = None, milliseconds: Mapping[str, float] | None = None, **asked: Any
) -> Study:
    request = Request(**{"by": "parameter:server", **asked})
    return study_serving(store.ask, request, percent=percent, milliseconds=milliseconds or {})


def test_each_side_keeps_the_limit_up_to_a_load_and_they_cross_between_two(served: SyntheticStore) -> None:
    found = study(served)
    (curve,) = found.curves
    # Of the runs' own parameter.
    assert dict(curve.limits.milliseconds) == {"ttft": 200.0}
    a, b = curve.best("a"), curve.best("b")
    assert a and b
    assert (a.load, b.load) == (4, 8)
    (crossing,) = curve.crossings
    assert (crossing.side, crossing.below, crossing.above, crossing.is_shown) == ("b", 4, 8, True)
    # The logarithm of the ratio goes from log(1.5) to log(0.2): it is 0 after a fifth of the way.
    assert crossing.about == pytest.approx(4 + 4 * 0.4055 / (0.4055 + 1.6094), abs=0.01)
    for point in curve.points["b"]:
        assert point.shift
        assert point.shift.matched
        assert point.shift.estimate == pytest.approx(TTFT["b"][point.load] / TTFT["a"][point.load])
    text = answer(found)
    assert "Within 200 ms TTFT (p90), a sustains 4 requests/s (400 tokens/s" in text
    assert ", b 8 requests/s or more (800 tokens/s" in text
    assert "b and a cross in TTFT p90 between 4 and 8 requests/s (about 4.80)." in text


def test_what_servers_say_of_themselves_stands_beside_a_difference(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
    own: dict[str, Any]
    for repeat in range(1, 8):
        own = {"server_requests_waiting": 25.0, "server_prefix_hit_percent": 71.0, "server_preemptions": 0.0}
        add_served(store, node, "a", 8, 0.9 + 0.01 * repeat, repeat, **own)
        own = {"server_requests_waiting": 0.0, "server_prefix_hit_percent": 72.0, "server_preemptions": 3.0}
        add_served(store, node, "b", 8, 0.2 + 0.01 * repeat, repeat, **own)
    text = answer(study(store))
    assert "the server of a has 25 requests waiting, that of b 0" in text
    # A hit more in a hundred is little, and what the quicker side does worse explains nothing.
    assert "cache" not in text
    assert "preempted" not in text


def test_another_limit_or_percentile_gives_another_answer(served: SyntheticStore) -> None:
    assert "a sustains 1 request/s (" in answer(study(served, milliseconds={"ttft": 70.0}))
    assert "b keeps it at no measured load" in answer(study(served, milliseconds={"ttft": 70.0}))
    assert "(p50)" in answer(study(served, percent=50))
    # No run has the figure that would show it.
    assert study(served, percent=50, milliseconds={"e2e": 1.0}).curves[0].points == {}


def test_energy_and_cost_are_those_of_a_token_at_the_limit(served: SyntheticStore) -> None:
    prices = parse_prices(b"- {platform: lab, currency: USD, instance_hour: 3.6}", "prices.yaml")
    found = study(served, prices=prices)
    a = found.curves[0].best("a")
    assert a
    # $ 0.001 a second for 400 tokens.
    assert a.figures["cost_per_million_items_usd"] == pytest.approx(2.5)
    # 150 W for 400 tokens a second.
    assert a.figures["gpu_energy_per_item_joules"] == pytest.approx(150 / 400, rel=0.02)
    assert "0.375 J per token, 2.50 USD per million tokens" in answer(found)
    assert "unpriced" not in {caveat.code for caveat in render(found).caveats}
    without = study(served, prices=parse_prices(b"- {platform: farm, currency: USD, instance_hour: 1}", "prices.yaml"))
    assert "prices.yaml has no entry for the platform lab, only for farm" in render(without).caveats[0].text


def test_one_side_is_described_and_one_platform_needs_no_name(served: SyntheticStore) -> None:
    found = study(served, by="platform", where="parameters->>'server' = 'a'")
    assert list(found.curves[0].points) == ["lab"]
    assert "lab sustains 4 requests/s" in answer(found)


def test_named_servers_are_compared_though_their_commands_differ(served: SyntheticStore) -> None:
    layout = compare(served.ask, Request(by="parameter:server", series=False, metric="ttft_p90_seconds")).layout
    assert [{cell.side for cell in block.cells} for block in layout.blocks] == [{"a", "b"}] * 3


def test_limits_of_the_client_and_failed_requests_are_warned_of(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    add_served(store, node, "a", 1, 0.1, 1, client_limited=1)
    add_served(store, node, "b", 1, 0.1, 1, request_errors=3)
    texts = {caveat.code: caveat.text for caveat in find_caveats(study(store))}
    assert "a at 1 request/s" in texts["client_limited"]
    assert "b at 1 request/s" in texts["request_errors"]
    assert "few_runs" in texts
    caveats = compare(store.ask, Request(by="parameter:server", series=False)).caveats
    assert "client_limited" in {caveat.code for caveat in caveats}


def test_servers_that_answer_otherwise_are_named_with_how_often(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    answers = {"a": "1a 2b 3c 4d", "again": "1a 2b 3c 4d", "coarse": "1a 2b ff 4d", "wrong": "f1 f2 f3 f4"}
    for repeat in range(1, 3):
        for server, said in answers.items():
            add_served(store, node, server, 1, 0.1, repeat, answers=said)
    # One of the repeats gave what `a` gave: no difference is shown.
    add_served(store, node, "coarse", 1, 0.1, 3, answers="1a 2b ff e4")
    text = answer(study(store))
    assert "Answers of again are those of a in all 4." in text
    assert "Answers of coarse differ from those of a in 1 of 4." in text
    assert "Answers of wrong differ from those of a in 4 of 4." in text
    caveats = {each.code: each for each in compare(store.ask, Request(by="parameter:server", series=False)).caveats}
    assert caveats["answers_differ"].text == "answers differ from those of a: coarse in 1 of 4, wrong in 4 of 4"


def add_failure(store: SyntheticStore, node: Node, server: str, rate: float, repeat: int) -> None:
    parameters = {"rate": rate, "server": server, "serve": f"start {server}", "input": "256", "slo-ttft": 200.0}
    request = {"workload": "serve-load", "experiment": "e", "repeat": repeat, "parameters": parameters}
    store.next_run(node, throughput=None, status="failed", **request)


def test_a_load_at_which_a_server_fails_is_not_kept(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    for repeat in range(1, 8):
        for server in "abc":
            add_served(store, node, server, 1, 0.1 if server == "a" else 0.2, repeat)
        for server in "bc":
            add_served(store, node, server, 8, 0.19, repeat)
        add_failure(store, node, "a", 8, repeat)
        add_failure(store, node, "never", 1, repeat)
    found = study(store)
    (curve,) = found.curves
    assert list(curve.points) == ["a", "b", "c", "never"]
    assert [(point.load, point.runs, point.failed, point.is_kept) for point in curve.points["a"]] == [
        (1, 7, 0, True),
        (8, 0, 7, False),
    ]
    # Ratios are to the first side alone, which has no figures there.
    assert [point.shift is None for point in curve.points["c"]] == [False, True]
    assert curve.crossings == ()
    text = answer(found)
    assert "a sustains 1 request/s (" in text
    assert "never keeps it at no measured load" in text
    texts = {caveat.code: caveat.text for caveat in find_caveats(found)}
    assert texts["unsuccessful"].endswith("never at 1 request/s")
    lines = [(line["side"], line["load"], line["runs"], line["failed_runs"]) for line in render(found).lines()]
    assert ("a", 8, 0, 7) in lines
    # Only the asked sides.
    assert list(study(store, values=("a", "b")).curves[0].points) == ["a", "b"]
    with in_style(180.0):
        assert "n = 7 runs a point" in draw_serving(found, 180.0).note
    assert not any("never" in panel.description for panel in serving_panels(found))


def test_ticks_of_latency_are_named_in_full_around_all_points(served: SyntheticStore) -> None:
    for panel in serving_panels(study(served)):
        assert panel.y.ends is not None
        lowest, highest = panel.y.ends
        assert all(lowest < y < highest for one in panel.series for y in one.ys)
        assert [float(name.replace(",", "")) for name in panel.y.names] == pytest.approx(panel.y.ticks)
        assert panel.y.ticks


def test_a_limit_that_was_not_reached_is_searched_next(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--param", "output=16", "--param", "rate=4"]
    for repeat in range(1, 4):
        for server in ("a", "b"):
            add_served(store, node, server, 4, 0.1, repeat, command=[*command, "--param", f"server={server}"])
    rendered = render(study(store))
    assert "b 4 requests/s or more (400 tokens/s). At 4 requests/s the runs are too few to compare" in rendered.text
    assert rendered.short
    assert rendered.short.endswith("The next command loads a higher to find its limit.")
    assert rendered.next is not None
    assert rendered.next.startswith("gpuagent bench serve-load --param output=16 --param rate=4 --server a")
    assert "--slo-ttft 200 --find rate --platform lab" in rendered.next
    named = Request(values=("b", "a"), series=False)
    assert choose_study(store.ask, named, percent=None, milliseconds={}).chosen.layout.sides == ("b", "a")


def test_a_limit_in_a_wide_gap_between_two_loads_is_searched_next(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--param", "output=16", "--param", "rate=1"]
    for rate, ttft in ((1, 0.1), (4, 0.3), (8, 0.4)):
        add_served(store, node, "a", rate, ttft, 1, command=[*command, "--param", "server=a"])
    rendered = render(study(store))
    assert rendered.short
    assert rendered.short.endswith("The next command finds the limit of a between 1 and 4 requests/s.")
    assert rendered.next
    assert "--param rate=1 --server a --slo-ttft 200 --find rate" in rendered.next
    # Twice the load is near enough.
    drawn = render(study(store, milliseconds={"ttft": 160.0}, experiment="e", values=("a",), percent=50)).next or ""
    assert drawn.startswith("collector plot serving --experiment e --by parameter:server --ttft 160 --at 50 -o ")
    assert drawn.endswith(".pdf a")


@pytest.mark.parametrize("slow", [0, 1])
def test_a_search_has_the_options_of_its_own_curve(store: SyntheticStore, slow: int) -> None:
    node = store.node("spruce", "lab")
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--param", "rate=4", "--param", "server=a"]
    for number, clients in enumerate(([], ["--clients", "3"])):
        ttft = 0.3 if number == slow else 0.1
        add_served(store, node, "a", 4, ttft, 1, command=[*command, *clients])
        row = store.rows["run_requests"][-1]
        row["parameters"] = json.dumps({**json.loads(row["parameters"]), "clients": 3 if clients else None})
    assert (" --clients 3 " in (render(study(store)).next or "")) == (slow == 0)


def test_servers_of_one_platform_are_compared_without_being_asked(served: SyntheticStore) -> None:
    asked: dict[str, Any] = {"percent": None, "milliseconds": {}}
    assert answer_serving(served.ask, **asked).heading == "Serving by parameter:server: a, b"
    assert answer_serving(served.ask, by="platform", values=("lab",), **asked).heading == "Serving by platform: lab"
    # A load is no side.
    for by in ("parameter:rate", "parameter:rate,parameter:server"):
        assert answer_serving(served.ask, by=by, **asked).heading == "Serving by parameter:server: a, b"


@pytest.mark.parametrize(
    ("ports", "curves"), [((8000,), [["farm", "lab"]]), ((8000, 8001), [["farm"], ["farm"], ["lab"], ["lab"]])]
)
def test_an_address_that_a_platform_has_for_itself_is_no_setting(
    store: SyntheticStore, ports: tuple[int, ...], curves: list[list[str]]
) -> None:
    nodes = {name: store.node(name, name, gpus=["NVIDIA L4"]) for name in ("lab", "farm")}
    for repeat in range(1, 8):
        for name, node in nodes.items():
            store.next_run(node)
            for port in ports:
                add_served(store, node, "unnamed", 4, 0.1, repeat, url=f"http://{name}:{port}")
    assert sorted([*curve.points] for curve in study(store, by="platform").curves) == curves


def test_every_format_has_every_point(served: SyntheticStore) -> None:
    rendering = render(study(served))
    lines = list(rendering.lines())
    assert {(line["side"], line["load"], line["is_kept"]) for line in lines} >= {("a", 8, False), ("b", 8, True)}
    record = json.loads(json.dumps(rendering.record()))
    assert record["curves"][0]["highest_load_kept"] == {"a": 4, "b": 8}
    assert len(record["curves"][0]["points"]) == len(lines) == 6


def test_a_store_without_servers_says_so(store: SyntheticStore) -> None:
    store.only_run()
    with pytest.raises(GpuAgentError, match="measured a server"):
        study(store, by="platform")


def test_a_report_has_a_chapter_of_servers_with_their_chart(served: SyntheticStore) -> None:
    now = datetime(2026, 11, 23)  # noqa: DTZ001 - UTC, as in the store
    report = make_report(served.ask, Request(by="parameter:server"), source="here", now=now)
    text = "".join(write_serving(report))
    assert "a sustains 4 requests/s" in text
    assert "TTFT p90 by tokens a second" in text


@pytest.mark.parametrize("width_mm", [85.0, 180.0])
def test_a_figure_for_print_has_a_line_for_each_side_and_the_limit(served: SyntheticStore, width_mm: float) -> None:
    with in_style(width_mm):
        picture = draw_serving(study(served), width_mm)
    ttft, tpot = (axes for part in picture.figure.subfigs for axes in part.axes if axes.lines)
    # A line of the limit beside those of the sides; there is none on the further tokens.
    assert (len(ttft.lines), len(tpot.lines)) == (3, 2)
    assert [name for _, name in picture.legend] == ["a", "b"]
    # The 95 % interval of the median of seven runs reaches from the smallest to the largest.
    ends = [path.get_extents() for lines in ttft.collections for path in lines.get_paths()]
    assert (ends[0].x0, ends[0].ymin, ends[0].ymax) == pytest.approx((100, 50.5, 53.5))
    assert (len(ends), len(tpot.collections)) == (6, 0)
    assert ", with 95 % intervals;" in picture.note


def test_a_figure_has_the_limits_of_the_command(call: Collector, tmp_path: Path) -> None:
    with made_up(tmp_path / "served.duckdb") as store:
        add_served(store, store.node("spruce", "lab"), "a", 1, 0.1, 1)
    words = ("plot", "serving", "--by=parameter:server", "--ttft=70", "--at=50", f"--output={tmp_path / 'figure.svg'}")
    assert call(*words, store=tmp_path / "served.duckdb")[0] == 0
    assert "the limit, 70 ms TTFT (p50)" in (tmp_path / "figure.svg").read_text()


def test_a_figure_shows_the_latency_that_is_limited(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    for repeat in range(1, 8):
        add_served(store, node, "a", 1, 0.1, repeat, e2e_p90_seconds=2.0)
    with in_style(180.0):
        found = study(store, milliseconds={"e2e": 5000.0})
        picture = draw_serving(found, 180.0)
    ttft, whole = (axes for part in picture.figure.subfigs for axes in part.axes if axes.lines)
    assert whole.get_ylabel().startswith("whole answer p90")
    assert (len(whole.lines), len(whole.collections)) == (2, 1)
    assert (len(ttft.lines), len(ttft.collections)) == (1, 0)
    printed = next(part for part in render(found).document()[0].parts if isinstance(part, Grid))
    assert list(printed.header)[3:5] == ["TTFT p90", "whole answer p90"]


def test_a_load_that_was_asked_for_plans_no_experiment_and_its_latency_does(
    collector: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "runs.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab")
        for repeat in range(1, 5):
            add_served(store, node, "a", 4, 0.1 * (1 + repeat / 50), repeat)
    for name in "throughput", "run_seconds":
        code, _, err = collector("plan", path, "serve-load", "--metric", name, columns=80)
        assert (code, "collector plan serve-load --metric ttft_p50_seconds" in err) == (1, True)
    for asked, planned in ((), "ttft_p90_seconds"), (("--metric", "ttft_p50_seconds"), "ttft_p50_seconds"):
        code, out, _ = collector("plan", path, "serve-load", *asked, "--format", "json", columns=80)
        assert (code, json.loads(out)["metric"]) == (0, planned)


def test_of_several_settings_a_plan_repeats_each(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--param"]
    for repeat in range(1, 5):
        for server in ("a", "b"):
            for rate in (4, 1):
                ttft = 0.1 * (1 + repeat * rate / 50)
                given = [f"rate={rate}", "--param", f"server={server}"]
                add_served(store, node, server, rate, ttft, repeat, command=[*command, *given])
    planned = render_plan(plan_repeats(store.ask, Question(workload="serve-load")))
    assert planned.next
    assert planned.next.startswith("collector plan serve-load -o plan.yaml && collector launch plan.yaml ")
    assert planned.next.endswith("--on node=spruce --wait")
    assert "asks a collector for 20 runs of each setting on spruce; with as many on the other side" in planned.text


def test_users_who_wait_for_their_answers_leave_the_throughput_to_the_server(store: SyntheticStore) -> None:
    node = store.node("spruce", "lab")
    for repeat in range(1, 5):
        add_served(store, node, "a", 4, 0.1, repeat)
    for row in store.rows["run_requests"]:
        row["parameters"] = json.dumps({**json.loads(row["parameters"]), "rate": None, "concurrency": 8})
    for number, row in enumerate(row for row in store.rows["results"] if row["name"] == "throughput"):
        row["value"] = 400.0 + number
    plan = plan_repeats(store.ask, Question(workload="serve-load"))
    assert (plan.metric.name, plan.blocks[0].runs) == ("throughput", 4)


def test_a_search_without_an_interval_says_so_and_goes_on_with_more_windows(store: SyntheticStore) -> None:
    add_searches(store, {"a": {"highest_rate": 9.0, "search_windows": 24.0, "client_limited": 1.0}})
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--find", "rate", "--output", "16"]
    for row in store.rows["run_requests"]:
        row["command"] = [*command, "--find-windows", "24"]
    rendered = render(study(store))
    assert "(no 95 % interval after 24 windows, 1 search). The load generator was the limit" in rendered.text
    assert rendered.next is not None
    assert rendered.next.startswith("gpuagent bench serve-load --find rate --param output=16 ")
    assert rendered.next.endswith("--find-windows 48 --clients 2 --platform lab")
    other = answer_serving(store.ask, percent=None, milliseconds={"ttft": 150.0})
    assert "searches within 150 ms TTFT (p90), as a search has the limit it was made with" in str(other.short)
    assert other.next == "gpuagent bench serve-load --find rate --param output=16 --find-windows 24 " + (
        "--slo-ttft 150 --platform lab"
    )


def test_a_search_says_the_highest_rate_and_that_a_server_is_erratic(store: SyntheticStore) -> None:
    steady = {"highest_rate": 12.25, "highest_rate_low": 12.0, "highest_rate_high": 12.5, "search_contradictions": 1.0}
    add_searches(
        store, {"a": steady, "b": {"highest_rate": 9.0, "highest_rate_low": 5.0, "search_contradictions": 8.0}}
    )
    found = study(store)
    assert not found.curves
    a, b = sorted(found.found, key=lambda one: one.side)
    assert (a.highest, a.low, a.high, a.runs) == (12.25, 12.0, 12.5, 1)
    assert (b.low, b.high, b.erratic) == (5.0, None, 0.4)
    rendered = render(found)
    assert rendered.text.count("200 ms TTFT and 20 ms TPOT (p90)") == 1
    assert ", b 9 requests/s (95 % interval from 5 on, 1 search). b is erratic: 40 %" in rendered.text
    assert rendered.text.count("erratic") == 1
    # Nothing is known of the command that searched.
    assert rendered.next is None
    (table,) = rendered.tables()
    assert [row["high"] for row in table.records()] == [12.5, None]
    with pytest.raises(GpuAgentError, match="no latency to draw"):
        draw_serving(found, 80.0)


def test_a_search_beside_plain_runs_is_one_sentence_and_the_other_server_is_next(store: SyntheticStore) -> None:
    add_searches(store, {"a": {"highest_rate": 12.0, "search_windows": 12.0}})
    for row in store.rows["run_requests"]:
        row["parameters"] = json.dumps({**json.loads(row["parameters"]), "find-windows": 12, "slo-tpot": None})
    node = store.node("spruce", "lab")
    command = ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--param", "rate=4"]
    for repeat in range(1, 4):
        for server in ("a", "b"):
            add_served(store, node, server, 4, 0.1, repeat, command=[*command, "--param", f"server={server}"])
    # Only a search has windows, whatever runs without one were given.
    for number, row in enumerate(store.rows["run_requests"][1:]):
        row["parameters"] = json.dumps({**json.loads(row["parameters"]), "find": None, "find-windows": 40 + number})
    # A platform without such runs hides no server.
    other = store.node("oak", "farm")
    store.next_run(other, throughput=1.0, workload="mnist", parameters={"steps": 1})
    rendered = answer_serving(store.ask, percent=None, milliseconds={})
    assert rendered.heading == "Serving by parameter:server: a, b"
    of_a, of_b = "12 requests/s (no 95 % interval after 12 windows, 1 search)", "4 requests/s or more (400 tokens/s)"
    assert rendered.text.startswith(f"Within 200 ms TTFT (p90), a sustains {of_a}, b {of_b}.")
    assert rendered.text.count("Within") == 1
    first, *details = rendered.document(brief=True)
    assert (details, sum(isinstance(part, Grid) for part in first.parts)) == ([], 1)
    assert rendered.next is not None
    assert rendered.next.startswith("gpuagent bench serve-load --param rate=4 --server b --slo-ttft 200 --find rate")
    # A search within other limits says nothing of those that are asked for.
    stricter = answer_serving(store.ask, percent=None, milliseconds={"ttft": 150.0})
    assert "150 ms TTFT (p90), a sustains 4 requests/s or more (400 tokens/s), b 4 requests/s" in stricter.text
    assert "200 ms" not in stricter.text


def test_of_several_named_servers_the_first_that_was_searched_too_briefly_is_searched_longer(
    store: SyntheticStore,
) -> None:
    closed = {"highest_rate": 12.0, "highest_rate_low": 11.0, "highest_rate_high": 13.0}
    add_searches(store, {"a": closed, "b": {"highest_rate": 9.0, "search_windows": 60.0}})
    for row in store.rows["run_requests"]:
        server = json.loads(row["parameters"])["server"]
        row["command"] = json.dumps(
            ["python", "-m", "gpuagent_workloads", "run", "serve-load", "--find", "rate", "--server", server]
        )
    rendered = answer_serving(store.ask, percent=None, milliseconds={})
    assert rendered.heading == "Serving by parameter:server: a, b"
    assert rendered.next == "gpuagent bench serve-load --find rate --server b --find-windows 120 --platform lab"
