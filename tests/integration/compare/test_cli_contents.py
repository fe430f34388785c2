"""What the commands that answer print about stores of known content, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.compare.filled import OTHER_KERNEL
from tests.integration.recommend.scenes import PRICES
from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32
from tests.support.commands import Collector, csv_rows, made_up

pytestmark = pytest.mark.slow

BY_INTERFERENCE = ("compare", "--by", "interference")
RECOMMEND = ("recommend", "mnist", "--prices", str(PRICES))


def as_json(call: Collector, *arguments: str, **settings: Any) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(call(*arguments, "--json", **settings)[1])


def as_csv(call: Collector, *arguments: str) -> list[dict[str, str]]:
    """Return the rows that a command prints as CSV."""
    return csv_rows(call(*arguments, "--format", "csv")[1])


def test_a_comparison_with_many_warnings_fits_on_one_screen(
    call: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # commands name the store, and this folder's name is long
    path = Path("doubtful.duckdb")
    with made_up(path) as store:
        for turn, platform in enumerate(("alder", "birch", "cedar")):
            node = store.node(f"{platform}-node", platform, gpus=["NVIDIA L4"], cpu_threads=2, kernel=platform)
            for repeat in range(3):
                at = 5000 * turn + 20 * repeat
                store.run(f"{platform}-{repeat}", node, start_seconds=at, cpu_percent=100.0, environment=platform)
            store.run(f"{platform}-bad", node, start_seconds=5000 * turn + 900, status="failed", environment=platform)
            store.run(f"{platform}-odd", node, start_seconds=5000 * turn + 950, parameters={"batch_size": turn})
    lines = call("compare", store=path)[1].splitlines()
    assert len(lines) <= 24
    assert sum(line.startswith("! ") for line in lines) == 2
    assert "more warnings, metrics, hardware and charts" in " ".join(" ".join(lines[-4:]).split())
    warnings = as_json(call, "compare", store=path)["warnings"]
    assert len(warnings) > 4
    everything = " ".join(call("compare", "--all", columns=400, store=path)[1].split())
    assert all(warning["text"] in everything and warning["remedy"] in everything for warning in warnings)


def test_series_are_drawn_for_cpu_memory_gpu_and_gpu_memory(call: Collector) -> None:
    _, out, _ = call(*BY_INTERFERENCE, "--all")
    for title in ("Node CPU, %", "Node memory used, GB", "GPU utilisation, %", "GPU memory, GB"):
        assert title in out
    assert "Over time" not in call(*BY_INTERFERENCE, "--all", "--no-series")[1]


def test_the_sql_that_is_shown_has_the_condition_as_given(call: Collector) -> None:
    condition = "workload <> 'why?' AND repeat < 5"
    _, out, err = call(*BY_INTERFERENCE, "--where", condition, "--workload", "mnist", "--json", "--show-sql")
    assert f"SELECT run_id FROM runs WHERE ({condition}\n)" in err
    assert "run.workload = 'mnist'" in err
    assert json.loads(out)["where"] == condition
    assert json.loads(out)["blocks"][0]["runs"]["none"] == [f"none-{repeat}" for repeat in range(1, 5)]


def test_a_statistic_is_named_with_what_it_is_of(call: Collector) -> None:
    arguments = (*BY_INTERFERENCE, "--stat", "max", "--metric", "gpu_utilization_percent")
    _, out, _ = call(*arguments, "--all", columns=200)
    assert "difference in highest GPU utilisation between cpu-burn and none" in out
    assert " GPU utilisation, max *" in out
    assert " GPU memory, max " in out
    stats = {row["metric"]: row["stat"] for row in as_csv(call, *arguments)}
    assert (stats["gpu_utilization_percent"], stats["throughput"]) == ("max", "")


def test_several_facets_are_given_together_or_one_after_the_other(call: Collector) -> None:
    for by in (("--by", "interference,node"), ("--by", "interference", "--by", "node")):
        assert as_json(call, "compare", *by)["sides"] == ["cpu-burn · spruce", "none · spruce"]


def test_programs_get_the_spread_and_a_number_for_each_effect_and_power(call: Collector) -> None:
    rows = as_csv(call, "plan", "mnist", "--effect", "4")
    assert [(row["to_show"], row["effect"], row["power"]) for row in rows] == [
        ("difference", "0.04", "0.8"),
        ("difference", "0.04", "0.9"),
        ("equality", "0.02", "0.8"),
        ("equality", "0.02", "0.9"),
    ]
    found = as_json(call, "plan", "mnist", "--effect", "4")
    assert found["metric"] == "throughput"
    assert [need["repeats"] for need in found["needs"]] == [int(row["repeats"]) for row in rows]
    assert all(need["repeats_cautious"] >= need["repeats"] for need in found["needs"])
    assert 0.01 < found["needs"][0]["spread"] < 0.04


def test_more_comparisons_at_once_need_more_repeats(call: Collector) -> None:
    found = (as_json(call, "plan", "mnist", "--comparisons", number) for number in ("1", "10"))
    one, ten = (each["needs"][2]["repeats"] for each in found)
    assert ten > one


def test_csv_of_scaling_has_a_line_for_each_number_of_ranks(call: Collector) -> None:
    one, two = as_csv(call, "scaling")
    assert (one["ranks"], one["n"], one["speed_up"]) == ("1", "5", "")
    assert (two["ranks"], two["held"]) == ("2", "batch_per_rank_and_total_samples")
    assert float(two["speed_up"]) == pytest.approx(84_090 / 44_417)


def test_a_profile_shows_as_many_operations_as_asked_for_and_counts_the_rest(call: Collector) -> None:
    assert "16 more, none above " in call("profile", "run-0", "--top", "2")[1]


def test_csv_of_a_profile_has_all_operations_with_their_names_in_full(call: Collector) -> None:
    lines = as_csv(call, "profile", "run-0", "run-1", "--top", "1")
    first = lines[0]
    assert (first["table"], first["kind"], first["name"]) == ("kernels", "kernel", OTHER_KERNEL)
    assert (first["a_seconds"], first["a_calls"], first["b_calls"], first["only_on"]) == ("", "", "1", "b")
    assert float(first["b_seconds"]) == float(first["difference_seconds"]) == pytest.approx(2e-4 / 3)
    assert len(lines) == 19 + 2


def test_json_of_a_roofline_holds_the_roofs_the_points_their_runs_and_the_warnings(call: Collector) -> None:
    found = as_json(call, "roofline", "resnet18")
    (one,) = found["rooflines"]
    assert one["measured"] == {"flops_per_second": {"fp32": 1e13, "tf32": 1e14}, "bytes_per_second": 1e12}
    assert (one["ceilings_run"], one["ceilings_of"]) == ("run-0", "same_device")
    (point,) = one["points"]
    assert point["runs"] == ["run-1", "run-2", "run-3"]
    assert point["flops_per_second"] == pytest.approx(2.02e12)
    assert found["answer"].startswith("resnet18 (a) reaches 2.02 TFLOP/s at 5.05 FLOP/byte, 40 %")
    assert found["errors"] == found["warnings"] == []


def test_points_without_a_roof_fill_no_more_than_a_screen_and_are_in_all_data(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "processor.duckdb"
    with made_up(path) as store:
        node = store.node("elm", "laptop")
        for workload in ("gcn", "gpt", "mnist", "resnet18"):
            for environment in ("bare", "docker", "podman"):
                figures = {**fp32(1e9), "minimum_bytes_per_step": 1e7}
                add_trial(store, node, figures, workload=workload, environment=environment)
        store.rows["results"] = [row for row in store.rows["results"] if not row["name"].startswith("datasheet_")]
    _, out, _ = call("roofline", store=path)
    assert len(out.splitlines()) < 24
    assert "gcn bare" in out and "10 more" in out
    _, out, _ = call("roofline", "--format", "json", store=path)
    (one,) = json.loads(out)["rooflines"]
    assert [point["mark"] for point in one["points"]] == list("abcdefghijkl")
    _, out, _ = call("roofline", "--format", "markdown", store=path)
    assert "| l | resnet18 podman |" in out


def test_an_impossible_figure_is_printed_and_ends_with_one(call: Collector, tmp_path: Path) -> None:
    path = tmp_path / "impossible.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=[GPU])
        add_ceilings(store, node)
        add_trial(store, node, {**fp32(1e12), "executed_flops_per_step": 3e13, "dram_bytes_per_step": 1e12})
    code, out, _ = call("roofline", store=path)
    assert code == 1
    assert "Errors ───" in out


def test_a_recommendation_has_places_and_reasons_in_a_line_each(call: Collector) -> None:
    lines = [" ".join(line.split()) for line in call(*RECOMMEND, "--all")[1].splitlines()]
    assert "1 ● gke-l4 5 1 ms 2.81 J 0.250 USD 1 best" in lines
    assert "3 gke-a100 5 1.11 ms 2.81 J 1.11 USD 4.444 [4.378, 4.512] differs" in lines
    assert "launches 33 % 4 % 9 % ● 77 %" in lines
    assert "communication 33 % – – –" in lines
    _, unpriced, _ = call("recommend", "mnist", "--all")
    assert "USD" not in unpriced
    assert "unknown: give --prices" in " ".join(unpriced.split())


def test_csv_of_a_recommendation_has_a_line_for_each_side(call: Collector) -> None:
    best, second, third = as_csv(call, *RECOMMEND, "--weigh", "cost")
    assert [one["side"] for one in (best, second, third)] == ["gke-l4", "gke-t4", "gke-a100"]
    assert (best["score"], best["cost"], best["cost_unit"], best["bound_by"]) == ("", "0.25", "USD", "compute")
    assert (best["per"], best["cost_per"]) == ("item", "million items")
    assert (third["place"], third["verdict"], third["launch_percent"]) == ("3", "differs", "77")
    assert float(third["score"]) == pytest.approx(1.111 / 0.25, rel=1e-3)


def test_json_of_a_recommendation_holds_the_ranking_its_runs_the_bounds_and_the_warnings(call: Collector) -> None:
    found = as_json(call, "recommend", "mnist")
    (ranking,) = found["rankings"]
    assert found["answer"].startswith("mnist is fastest on gke-l4")
    assert found["weights"] == {"time": 1.0}
    assert [one["place"] for one in ranking["sides"]] == [1, 2, 3]
    assert ranking["runs"]["gke-t4"] == [f"gke-t4-{number}" for number in range(5)]
    (launch,) = (one for one in ranking["bounds"]["gke-a100"] if one["limit"] == "launch")
    assert (launch["percent"], launch["is_shown"]) == (77.0, True)
    assert launch["threshold_percent"] == pytest.approx(100 / 3)
    assert "one_node" in {warning["code"] for warning in found["warnings"]}
