"""Where a workload should run, and why, from a store in which both are known."""

import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import product

import pytest

from gpuagent_collector.compare.comparison import Request as CompareRequest
from gpuagent_collector.compare.comparison import compare, cost_row
from gpuagent_collector.metrics.bounds import Limit
from gpuagent_collector.present.table import Table
from gpuagent_collector.present.terminal import table_width
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.recommend.answer import answer, render
from gpuagent_collector.recommend.study import Recommendation, Request, recommend
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.comparing import alternate
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.recommend.scenes import gke

pytestmark = pytest.mark.slow

TIME = {"time": 1.0}


def recommended(store: SyntheticStore, weights: Mapping[str, float] | None = TIME, **request: object) -> Recommendation:
    return recommend(store.ask, Request(workload="mnist", weights=weights, **request))  # type: ignore[arg-type]


def places(found: Recommendation) -> dict[str, int | None]:
    (ranking,) = found.rankings
    return {standing.side: standing.place for standing in ranking.standings}


def test_s0_is_answered_with_what_was_measured_and_the_rest_is_not_shown(store: SyntheticStore) -> None:
    gke(store)
    found = recommended(store)
    assert places(found) == {"gke-l4": 1, "gke-a100": 2, "gke-t4": 3}
    (reasons,) = found.reasons
    assert {one.side: [bound.limit for bound in one.shown] for one in reasons} == {
        "gke-l4": [Limit.COMPUTE],
        "gke-a100": [Limit.LAUNCH],
        "gke-t4": [],
    }
    said = answer(found)
    assert said.startswith("mnist is fastest on gke-l4: 1 ms per item (median of 5 runs); gke-a100 takes 1.11")
    assert "Because on gke-a100 the GPU waits longer for the host" in said
    assert "computing (70.0 %) on gke-l4 and launches (77 %) on gke-a100" in said
    assert "could not be determined on gke-t4" in said


def test_cost_and_weights_choose_another_platform_and_the_pareto_set_has_both(store: SyntheticStore) -> None:
    alternate(store, second={"throughput": 2000.0})
    prices = parse_prices(
        b"- {platform: alder, currency: USD, instance_hour: 1}\n- {platform: birch, currency: USD, instance_hour: 3}",
        "p.yaml",
    )
    assert places(recommended(store, prices=prices)) == {"birch": 1, "alder": 2}
    assert "alder is cheaper" in answer(recommended(store, prices=prices))
    unweighed = recommended(store, None, prices=prices)
    assert unweighed.weights == {"cost": 1.0}
    assert "birch is faster" in answer(unweighed)
    by_cost = recommended(store, {"cost": 1.0}, prices=prices)
    assert places(by_cost) == {"alder": 1, "birch": 2}
    (ranking,) = by_cost.rankings
    assert [standing.is_efficient for standing in ranking.standings] == [True, True]
    assert ranking.standings[1].judgement
    assert ranking.standings[1].judgement.shift.estimate == pytest.approx(1.5)
    weighed = recommended(store, {"time": 1.0, "cost": 2.0}, prices=prices)
    assert places(weighed) == {"alder": 1, "birch": 2}
    said = answer(weighed)
    assert "does best by time (weight 1) and cost (weight 2) on alder: 1 ms per item, 0.278 USD per million" in said


def test_settings_with_other_best_sides_are_named(store: SyntheticStore) -> None:
    nodes = {name: store.node(f"{name}-node", name) for name in ("alder", "birch")}
    for repeat, (size, ratio), name in product(range(5), ((32, 1.25), (64, 2.5)), nodes):
        rate = 1000.0 * (ratio if name == "birch" else 1.0) + repeat
        store.next_run(nodes[name], parameters={"batch_size": size}, throughput=rate, sampled=False)
    prices = parse_prices(
        b"- {platform: alder, currency: USD, instance_hour: 1}\n- {platform: birch, currency: USD, instance_hour: 2}",
        "p.yaml",
    )
    found = recommended(store, None, prices=prices)
    said = answer(found)
    assert said.startswith(
        "The setting decides where mnist costs least (on alder: mnist batch_size=32; on birch: mnist batch_size=64). "
    )
    # Each has a paragraph and a section of its own.
    assert any(line.startswith("mnist batch_size=64 costs least ") for line in said.splitlines())
    headings = [section.heading for section in render(found).sections]
    assert len(set(headings)) == len(headings)


def test_the_time_and_cost_of_programs_that_count_steps_are_those_of_a_step(store: SyntheticStore) -> None:
    alternate(store, second={"throughput": 2000.0})
    for row in store.rows["results"]:
        row["unit"] = "steps/s" if row["name"] == "throughput" else row["unit"]
    prices = parse_prices(
        b"- {platform: alder, currency: USD, instance_hour: 1}\n- {platform: birch, currency: USD, instance_hour: 3}",
        "p.yaml",
    )
    found = recommended(store, prices=prices)
    assert {one.name: one.per for one in found.rankings[0].criteria}["cost"] == "million steps"
    assert "500 µs per step" in answer(found)
    (because,) = recommended(store, None, prices=prices).because
    assert because and because.of == "million steps"
    comparison = compare(store.ask, CompareRequest(prices=prices))
    cost = cost_row(comparison.figures.blocks[0])
    assert cost and cost.metric.title == "Cost per million steps"


@pytest.mark.parametrize(("nodes", "has_own"), [(1, False), (2, True)])
def test_only_a_side_with_a_price_of_its_own_would_break_even(store: SyntheticStore, nodes: int, has_own: bool) -> None:
    of_side = [store.node(f"node-{number}", "alder") for number in range(nodes)]
    for repeat, (turn, environment) in product(range(1, 8), enumerate(("bare", "docker"))):
        throughput = (1000.0 if turn else 2000.0) + repeat
        store.next_run(of_side[turn % nodes], environment=environment, throughput=throughput, repeat=repeat)
    prices = parse_prices(b"- {platform: alder, currency: USD, instance_hour: 1}", "p.yaml")
    said = answer(recommended(store, None, prices=prices, by="environment"))
    assert "mnist costs least in bare" in said
    assert ("would break even" in said) is has_own


def test_sides_without_a_shown_difference_are_tied(store: SyntheticStore) -> None:
    alternate(store)
    found = recommended(store)
    assert places(found) == {"alder": 1, "birch": 1}
    (ranking,) = found.rankings
    assert [one.judgement.verdict for one in ranking.standings if one.judgement] == [Verdict.EQUAL]
    assert "no measurable difference in time between alder and birch: they are equal" in answer(found)
    prices = parse_prices(
        b"- {platform: alder, currency: USD, instance_hour: 1}\n- {platform: birch, currency: USD, instance_hour: 3}",
        "p.yaml",
    )
    assert answer(recommended(store, prices=prices)).startswith("mnist: alder is cheaper (")
    by_cost = recommended(store, None, prices=prices)
    (because,) = by_cost.because
    assert because and because.lead and because.lead.name == "price"
    assert "no measurable difference in time" in answer(by_cost)


def test_lines_have_the_criteria_and_the_verdicts_of_the_screen(store: SyntheticStore) -> None:
    alternate(store)
    text = b"- {platform: alder, currency: USD, instance_hour: 1}\n- {platform: %s, currency: USD, instance_hour: 3}"
    asked: list[tuple[Mapping[str, float] | None, bytes, str, str, int]] = [
        (None, b"birch", "cost", "best", 0),
        (None, b"birk", "time", "baseline", 1),
        ({"time": 1.0, "cost": 2.0}, b"birch", "time=1,cost=2", "best", 0),
    ]
    for weights, platform, criteria, verdict, notes in asked:
        rendered = render(recommended(store, weights, prices=parse_prices(text % platform, "p.yaml")))
        lines = rendered.lines()
        assert [line["criteria"] for line in lines] == [criteria] * 2
        assert (lines[0]["verdict"], lines[0]["time_unit"]) == (verdict, "seconds")
        assert len(rendered.beside_csv) == notes


@pytest.mark.parametrize("unpriced", ["gke-a100", "gke-t4"])
def test_a_side_without_a_price_is_named_and_the_others_are_ranked(store: SyntheticStore, unpriced: str) -> None:
    """The first side is the baseline of all others, unless it is the one without a price."""
    gke(store)
    hours = {"gke-a100": 3.6, "gke-l4": 0.9, "gke-t4": 1.1}
    entry = "- {{platform: {}, currency: USD, instance_hour: {}}}"
    file = "\n".join(entry.format(*each) for each in hours.items() if each[0] != unpriced)
    found = recommended(store, None, prices=parse_prices(file.encode(), "p.yaml"))
    assert places(found).keys() == hours.keys() - {unpriced}
    assert f"{unpriced} is not ranked: p.yaml has no entry for the platform {unpriced}" in answer(found)
    *_, last = render(found).lines()
    assert (last["side"], last["n"], last["time"] > 0) == (unpriced, 5, True)
    assert {last[name] for name in ("place", "cost", "verdict", "score", "bound_by")} <= {None, ""}


def test_a_factor_is_within_its_interval_as_printed(store: SyntheticStore) -> None:
    nodes = [store.node(f"{platform}-node", platform) for platform in "ab"]
    for repeat, (turn, node) in product(range(9), enumerate(nodes)):
        store.next_run(node, throughput=(1000 + repeat / 100) / (1, 1.1249)[turn], repeat=repeat, sampled=False)
    found = re.search(r"([\d.]+) times .* interval ([\d.]+) to ([\d.]+)", answer(recommended(store)))
    assert found
    estimate, low, high = map(float, found.groups())
    assert low <= estimate <= high


def test_over_unlike_settings_sides_have_ranges_and_the_best_two_are_compared_next(store: SyntheticStore) -> None:
    nodes = [store.node(f"{platform}-node", platform) for platform in "abc"]
    for repeat, size, (turn, node) in product(range(7), (32, 64), enumerate(nodes)):
        rate = (1000.0 + repeat / 10) / ((1, 1.1, 2)[turn] + (size == 64) * (0, 0.2, 1)[turn])
        store.next_run(node, parameters={"batch_size": size}, throughput=rate, repeat=repeat, sampled=False)
    found = render(recommended(store))
    assert "9.1 % to 23 % lower on b and 50 % to 67 % lower on c than on a" in found.text
    assert str(found.next).endswith(" b a")


def test_over_settings_a_side_without_a_price_is_not_said_to_lack_runs(store: SyntheticStore) -> None:
    nodes = [store.node(f"{platform}-node", platform) for platform in "abc"]
    for repeat, size, (turn, node) in product(range(5), (32, 64), enumerate(nodes)):
        rate = (1000.0 + repeat) / (1 + turn)
        store.next_run(node, parameters={"batch_size": size}, throughput=rate, repeat=repeat, sampled=False)
    entry = "- {{platform: {}, currency: USD, instance_hour: 1}}"
    said = answer(recommended(store, None, prices=parse_prices("\n".join(map(entry.format, "bc")).encode(), "p.yaml")))
    assert said.startswith("mnist costs least on b.")
    assert "a is not ranked" in said
    assert "has runs of" not in said


def test_a_platform_without_a_price_is_named_where_settings_are_compared(store: SyntheticStore) -> None:
    nodes = [store.node(f"{platform}-node", platform) for platform in "abc"]
    for repeat, size, node in product(range(5), (32, 64), nodes):
        rate = size * (10.0 + repeat / 100)
        store.next_run(node, parameters={"batch_size": size}, throughput=rate, repeat=repeat, sampled=False)
    entry = "- {{platform: {}, currency: USD, instance_hour: 1}}"
    for priced in ("ab", "a", "abc"):
        known = parse_prices("\n".join(map(entry.format, priced)).encode(), "p.yaml")
        said = answer(recommended(store, None, by="parameter:batch_size", prices=known))
        assert ("p.yaml has no entry" in said) is (len(priced) < len(nodes))


def test_other_facets_can_be_chosen_from(store: SyntheticStore) -> None:
    alternate(store, first={"environment": "docker"}, second={"throughput": 2000.0, "environment": "bare"})
    found = recommended(store, by="environment")
    assert places(found) == {"bare": 1, "docker": 2}
    assert answer(found).startswith("mnist is fastest in bare")


def test_unknown_figures_cannot_be_weighed_and_prices_of_one_side_only_are_named(store: SyntheticStore) -> None:
    alternate(store)
    prices = parse_prices(b"- {platform: alder, currency: USD, instance_hour: 1}", "p.yaml")
    others = parse_prices(b"- {platform: cedar, currency: USD, instance_hour: 1}", "p.yaml")
    lacking = "no two sides with like runs both have"
    for weighed, known, message in (
        ("cost", None, f"{lacking} cost: give --prices"),
        ("energy", None, f"{lacking} energy: energy needs a GPU that reports its power"),
        ("cost", prices, r"p\.yaml has no entry for the platform birch"),
        ("cost", others, r"p\.yaml has no entry for the platforms alder, birch"),
    ):
        with pytest.raises(GpuAgentError, match=message):
            recommended(store, {weighed: 1.0}, prices=known)
    for weights, is_said in ((TIME, False), (None, True)):
        rendered = render(recommended(store, weights, prices=prices))
        assert ("p.yaml has no entry for the platform birch" in rendered.text) is is_said
        assert ("unpriced" in {caveat.code for caveat in rendered.caveats}) is not is_said


@pytest.mark.parametrize("seconds", [3, 12])
def test_of_a_short_phase_reported_operators_say_how_long_the_gpu_waits(store: SyntheticStore, seconds: int) -> None:
    alternate(store, first_node={"gpus": ["NVIDIA H200"]})
    for row in store.rows["gpu_samples"]:
        row |= {"utilization_percent": 40.0, "dram_active_percent": 20.0}
    for row in store.rows["run_events"]:
        row["time"] += timedelta(seconds=(12 - seconds) * (row["name"] == "measure"))
    # A step takes 64 ms, of which operators keep the GPU for 16.
    for run in [*store.rows["run_requests"]]:
        at = {name: run[name] for name in ("session_id", "node_id", "run_id", "time")}
        of_steps = {"kind": "operator", "name": "mm", "calls": 5, "steps": 5, "gpu_self_seconds": 0.08}
        store.rows["op_times"].append({**at, "rank": 0, **of_steps})
    ((first, _),) = recommended(store).reasons
    assert first.idle_percent == pytest.approx(75 if seconds == 3 else 60, abs=1)
    assert (first.short_seconds is not None) is (seconds == 3)


def test_the_cores_of_a_run_on_two_nodes_are_those_of_both(store: SyntheticStore) -> None:
    for turn, platform in enumerate(("alder", "birch")):
        node, other = (store.node(f"{platform}-{n}", platform, cpu_threads=4) for n in (1, 2))
        store.run(f"{platform}-run", node, start_seconds=20 * turn)
        own = [row for row in store.rows["process_samples"] if row["run_id"] == f"{platform}-run"]
        there = {"session_id": other.session_id, "node_id": other.node_id}
        store.rows["process_samples"].extend({**row, **there} for row in own)
        store.rows["run_devices"].append({**there, "time": own[0]["time"], "run_id": f"{platform}-run", "rank": 1})
    ((alder, _),) = recommended(store).reasons
    (host,) = (bound for bound in alder.bounds if bound.limit is Limit.HOST)
    assert (host.sign, host.percent) == ("the run's own CPU, of what it may use", 50.0)


def test_servers_are_not_ranked_by_the_load_that_they_were_asked_for(store: SyntheticStore) -> None:
    alternate(store, first={"workload": "serve-load"}, second={"workload": "serve-load"})
    with pytest.raises(GpuAgentError, match="each load does: `collector serving`"):
        recommend(store.ask, Request(workload="serve-load", by="platform", weights={"time": 1.0}))


def test_a_load_of_others_is_the_first_warning_and_bounds_no_run(store: SyntheticStore) -> None:
    busy = {"cpu_threads": 2}
    alternate(store, first={"cpu_percent": 100.0}, first_node=busy, second_node=busy)
    for row in store.rows["process_samples"]:
        row["cpu_cores"] = 0.44
    found = recommended(store)
    assert Limit.HOST not in {bound.limit for one in found.reasons[0] for bound in one.shown}
    assert found.caveats[0].code == "foreign_load"
    assert found.caveats[0].text.startswith("others used up to 1.5")
    assert found.caveats[0].text.endswith(" of 2 cores during all 5 runs on alder")


def test_interference_on_purpose_is_no_load_of_others(store: SyntheticStore) -> None:
    alternate(store, first={"cpu_percent": 100.0, "interference": "cpu-burn"}, second={"interference": "cpu-burn"})
    assert "foreign_load" not in {caveat.code for caveat in recommended(store).caveats}


def test_a_block_without_the_weighed_figures_is_left_out_with_a_warning(store: SyntheticStore) -> None:
    nodes = alternate(store, first_node={"gpus": ["NVIDIA L4"]}, second_node={"gpus": ["NVIDIA L4"]})
    for number, node in enumerate(nodes):
        store.run(
            f"other-{number}", node, start_seconds=900 + 20 * number, parameters={"batch_size": 8}, throughput=None
        )
    found = recommended(store, {"energy": 1.0})
    (said,) = (caveat.text for caveat in found.caveats if caveat.code == "unranked")
    assert "weighed: mnist batch_size=8" in said


@pytest.mark.parametrize(("platform", "has_energy"), [("oak", True), ("oak-north", False)])
def test_a_usual_terminal_has_energy_beside_cost_only_where_it_fits(
    store: SyntheticStore, platform: str, has_energy: bool
) -> None:
    nodes = [store.node(f"node-{number}", f"{platform}-{number}", gpus=["NVIDIA L4"]) for number in (1, 2)]
    for repeat, (turn, node) in product(range(5), enumerate(nodes, start=1)):
        store.next_run(node, throughput=1000.0 * turn + repeat)
    price = "- {{platform: {}-{}, currency: USD, instance_hour: 1}}"
    listed = "\n".join(price.format(platform, number) for number in (1, 2))
    table = render(recommended(store, None, prices=parse_prices(listed.encode(), "p.yaml"))).parts[0]
    assert isinstance(table, Table)
    narrow, wide = table.grid(wide=False), table.grid()
    assert ("energy" in narrow.header, "energy" in wide.header) == (has_energy, True)
    columns = zip(narrow.header, *narrow.rows, strict=True)
    assert table_width([max(map(len, column)) for column in columns]) <= 80
