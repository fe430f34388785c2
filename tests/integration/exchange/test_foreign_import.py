"""Imports of results of foreign programs, by the command line, beside runs of gpuagent."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.exchange.conftest import BOTH_KINDS, NameStore, Run
from tests.integration.exchange.sites import content, execute, write_site

pytestmark = pytest.mark.slow

FILES = Path(__file__).parents[2] / "fixtures" / "imported"
Put = Callable[..., str]

# As serve-load writes its parameters, with those that no foreign file states.
OWN = {
    "api": "completions",
    "burstiness": 1.0,
    "concurrency": None,
    "duration": 60.0,
    "input": "256",
    "output": "64",
    "model": None,
    "rate": 4.0,
    "seed": 1,
    "server": None,
}


def add_own(store: SyntheticStore, platform: str, ttft: float, **parameters: Any) -> None:
    at = store.next_run(
        store.node(f"{platform}-1", platform), workload="serve-load", parameters={**OWN, **parameters}, throughput=200.0
    )
    store.report(at, dict.fromkeys(("ttft_p50_seconds", "ttft_p90_seconds"), ttft), unit="s")


@pytest.fixture
def put(run: Run, name_store: NameStore) -> Put:
    """Imports a file into a store of this name, and returns what was printed; the command must succeed."""

    def put_one(name: str | Path, *options: str, store: str = "a") -> str:
        code, printed = run("import", str(FILES / name), "--store", name_store(store), *options)
        assert code == 0, printed
        return printed

    return put_one


@BOTH_KINDS
def test_a_file_is_stored_once_by_any_name(put: Put, name_store: NameStore, tmp_path: Path) -> None:
    assert "1 run of vllm bench serve stored, none were already stored" in put("vllm-rate4.json", "--platform", "a")
    before = content(name_store("a"))
    copy = shutil.copy(FILES / "vllm-rate4.json", tmp_path / "other.json")
    assert "0 runs of vllm bench serve stored, 1 were already stored" in put(copy, "--platform", "b", "--name", "x")
    assert content(name_store("a")) == before


def test_a_line_that_is_appended_to_a_file_is_the_only_new_run(put: Put, name_store: NameStore, tmp_path: Path) -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    first, other = json.dumps(one), json.dumps({**one, "request_rate": 8.0})
    file = tmp_path / "all.json"
    # As --append-result writes it; the same line twice is two runs.
    for written, news in ((first, 1), (f"{first}\n{other}", 1), (f"{first}\n{other}\n{first}\n", 1), (f"{other}", 0)):
        file.write_text(written)
        assert f"{news} run{'' if news == 1 else 's'} of vllm bench serve stored" in put(file, "--platform", "a")
    rates = "SELECT json_extract(CAST(parameters AS JSON), '$.rate') AS rate FROM runs ORDER BY rate"
    assert execute(name_store("a"), rates) == [("4",), ("4",), ("8",)]


def test_counts_of_any_size_are_stored(put: Put, name_store: NameStore, tmp_path: Path) -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    large = tmp_path / "large.json"
    large.write_text(json.dumps({**one, "completed": 2**53 - 1, "failed": 2**53 - 1}))
    put(large, "--platform", "a")
    requests = "SELECT value FROM results WHERE name = 'requests'"
    assert execute(name_store("a"), requests) == [(float(2**54 - 2),)]


def test_a_run_that_was_removed_can_be_imported_again(put: Put, run: Run, name_store: NameStore) -> None:
    put("nccl-all-reduce.txt", "--platform", "wrong")
    ((run_id,),) = execute(name_store("a"), "SELECT run_id FROM runs")
    assert run("delete", "--run", run_id, "--yes", "--store", name_store("a"))[0] == 0
    put("nccl-all-reduce.txt", "--platform", "right")
    assert execute(name_store("a"), "SELECT platform, status FROM runs") == [("right", "succeeded")]
    put("nccl-all-reduce.txt", "--platform", "right")
    assert execute(name_store("a"), "SELECT count(*) FROM session_devices WHERE name = 'NVIDIA H200'") == [(8,)]


def test_metrics_are_those_of_the_file_and_nothing_else(put: Put, name_store: NameStore) -> None:
    put("vllm-rate4.json", "--platform", "a", "--gpu", "2 x NVIDIA H200", "--node", "n", "--label", "rack=7")
    found = dict(execute(name_store("a"), "SELECT metric, value FROM metrics"))
    assert found == {
        "throughput": 243.712,
        "items_per_gpu_second": 243.712 / 2,
        "gpus": 2.0,
        "ttft_p50_seconds": 0.0385,
        "ttft_p90_seconds": 0.05225,
        "ttft_p99_seconds": 0.081125,
        "tpot_p50_seconds": 0.00725,
        "tpot_p90_seconds": 0.008125,
        "tpot_p99_seconds": 0.0095,
        "e2e_p50_seconds": 0.49525,
        "e2e_p90_seconds": 0.5615,
        "e2e_p99_seconds": 0.64,
        "goodput_requests_per_second": 3.52,
        "requests_per_second": 3.808,
        "input_tokens_per_second": 60928 / 62.5,
        "requests": 240.0,
        "request_errors": 2.0,
        "run_seconds": 62.5,
        "measure_seconds": 62.5,
    }
    facts = "SELECT name, value_text FROM results WHERE name LIKE 'source%' ORDER BY name"
    assert execute(name_store("a"), facts) == [
        ("source_file", "vllm-rate4.json"),
        ("source_program", "vllm bench serve"),
    ]
    assert execute(name_store("a"), "SELECT labels FROM runs") == [('{"rack": "7", "imported": "vllm bench serve"}',)]


def test_without_a_time_a_run_has_no_duration(put: Put, run: Run, name_store: NameStore) -> None:
    put("nccl-all-reduce.txt", "--platform", "a")
    found = dict(execute(name_store("a"), "SELECT metric, value FROM metrics"))
    assert found.keys() == {"gpus", "ranks"}
    code, printed = run("show", "collectives", "--all", "--store", name_store("a"))
    assert code == 0
    assert "last change" in printed
    assert "Took" not in printed


def test_collectives_of_nccl_tests_are_shown(put: Put, run: Run, name_store: NameStore, tmp_path: Path) -> None:
    put("nccl-all-reduce.txt", "--platform", "a")
    code, printed = run("show", "collectives", "--store", name_store("a"))
    assert code == 0, printed
    _, _, table = printed.partition("\nCollectives ")
    (line,) = (line for line in table.splitlines() if "32 MiB" in line)
    assert line.split()[:2] == ["all-reduce", "4"]
    assert line.split()[-3:-1] == ["259", "GB/s"]
    figure = tmp_path / "links.svg"
    code, printed = run("plot", "collectives", "--store", name_store("a"), "-o", str(figure))
    assert code == 0, printed
    assert "<svg" in figure.read_text()


def test_a_result_of_two_nodes_is_one_run_on_both(put: Put, name_store: NameStore) -> None:
    put("nccl-two-nodes.txt", "--platform", "a")
    assert execute(name_store("a"), "SELECT nodes, status, reason FROM runs") == [(2, "failed", "3 wrong values")]
    assert execute(name_store("a"), "SELECT count(*), count(DISTINCT node_id) FROM run_devices") == [(4, 2)]


def test_imported_files_are_compared(put: Put, run: Run, name_store: NameStore, tmp_path: Path) -> None:
    other = tmp_path / "slow.json"
    other.write_text((FILES / "vllm-rate4.json").read_text().replace("52.25", "78.375"))
    put("vllm-rate4.json", "--platform", "fast")
    put(other, "--platform", "slow")
    code, printed = run("compare", "--metric", "ttft_p90_seconds", "--store", name_store("a"), "--json")
    assert code == 0, printed
    (tested,) = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["tests"]
    assert (tested["side"], tested["baseline"], tested["estimate"]) == ("slow", "fast", pytest.approx(1.5))


def test_a_result_is_compared_with_the_run_that_agrees_with_it(put: Put, run: Run, name_store: NameStore) -> None:
    def two_loads(store: SyntheticStore) -> None:
        add_own(store, "here", 0.025)
        add_own(store, "here", 0.5, rate=16.0)

    write_site(name_store("a"), two_loads)
    put("vllm-rate4.json", "--platform", "there")
    code, printed = run("serving", "--by", "platform", "--ttft", "55", "--store", name_store("a"), "--json")
    assert code == 0, printed
    document = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    (curve,) = document["curves"]
    points = {(point["side"], point["load"]): point["ttft_p90_seconds"] for point in curve["points"]}
    assert points == {("here", 4.0): 0.025, ("here", 16.0): 0.5, ("there", 4.0): 0.05225}
    assert curve["highest_load_kept"] == {"here": 4.0, "there": 4.0}
    assert "there: vllm bench" in printed
    assert run("compare", "here", "there", "--metric", "ttft_p90_seconds", "--store", name_store("a"))[0] == 0


@pytest.mark.parametrize("differing", [{"seed": 2}, {"model": "other"}, {"burstiness": 0.5}])
def test_a_result_that_fits_none_or_two_runs_stays_alone(
    differing: dict[str, Any], put: Put, run: Run, name_store: NameStore
) -> None:
    def fill(store: SyntheticStore) -> None:
        add_own(store, "here", 0.025, **differing)
        if "seed" in differing:
            add_own(store, "here", 0.025)

    write_site(name_store("a"), fill)
    put("vllm-rate4.json", "--platform", "there")
    code, printed = run("compare", "--metric", "ttft_p90_seconds", "--store", name_store("a"))
    assert code == 1
    assert "with other parameters" in printed


def test_a_model_that_is_left_open_agrees_with_any(put: Put, run: Run, name_store: NameStore) -> None:
    write_site(name_store("a"), lambda store: add_own(store, "here", 0.025, model="other"))
    put("vllm-rate4.json", "--platform", "there", "--param", "model=")
    code, printed = run("compare", "here", "there", "--metric", "ttft_p90_seconds", "--store", name_store("a"))
    assert code == 0, printed


def test_runs_on_unknown_nodes_are_no_neighbours(put: Put, run: Run, name_store: NameStore, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text((FILES / "vllm-rate4.json").read_text().replace("52.25", "78.375"))
    for store, node in (("unknown", ()), ("known", ("--node", "n"))):
        for file in ("vllm-rate4.json", other):
            put(file, "--platform", "a", *node, store=store)
        code, printed = run("show", "serve-load", "--store", name_store(store))
        assert code == 0, printed
        assert ("on the same node at the same time" in " ".join(printed.split())) == bool(node), printed


def test_prices_find_the_place_that_the_options_name(put: Put, run: Run, name_store: NameStore, tmp_path: Path) -> None:
    place = ("--platform", "gke", "--gpu", "NVIDIA L4", "--instance-type", "g2-standard-4")
    put("vllm-rate4.json", *place)
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "- {platform: gke, device: NVIDIA L4, instance_type: g2-standard-8, currency: USD, instance_hour: 9}\n"
        "- {platform: gke, device: NVIDIA L4, instance_type: g2-standard-4, currency: USD, instance_hour: 0.877363}\n"
    )
    store = ("--store", name_store("a"))
    code, printed = run("serving", "--ttft", "200", "--prices", str(prices), *store, "--json")
    assert code == 0, printed
    ((point,),) = (
        curve["points"] for curve in json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["curves"]
    )
    assert point["cost_per_million_items_usd"] == pytest.approx(0.877363 / 3600 / 243.712 * 1e6)


def test_options_complete_what_a_file_does_not_state(put: Put, name_store: NameStore) -> None:
    put("vllm-rate4.json", "--platform", "a", "--param", "input=256", "--param", "rate=8", "--param", "model=")
    ((parameters,),) = execute(name_store("a"), "SELECT parameters FROM runs")
    stated = json.loads(parameters)
    assert (stated["input"], stated["rate"], stated["model"]) == ("256", 8, None)


def test_a_bad_file_is_one_sentence_and_leaves_no_store(run: Run, name_store: NameStore, tmp_path: Path) -> None:
    for name, written in (
        ("a.json", b'{"date": "2026'),
        ("b.txt", b"hello\n"),
        ("c.json", b""),
        ("d.bin", b"\x00\xff"),
    ):
        (tmp_path / name).write_bytes(written)
        code, printed = run("import", str(tmp_path / name), "--store", name_store("none"), "--platform", "a")
        assert (code, printed.count("\n")) == (1, 1), printed
        assert printed.startswith("collector: ")
    assert not Path(name_store("none")).exists()


def test_a_file_that_is_bad_in_its_second_result_stores_nothing(
    put: Put, run: Run, name_store: NameStore, tmp_path: Path
) -> None:
    put("vllm-default.json", "--platform", "a")
    before = content(name_store("a"))
    whole = json.loads((FILES / "vllm-rate4.json").read_text())
    lines = tmp_path / "lines.json"
    lines.write_text(f"{json.dumps(whole)}\n{json.dumps({**whole, 'completed': 'many'})}\n")
    code, printed = run("import", str(lines), "--store", name_store("a"), "--platform", "a")
    assert code == 1
    assert "completed is 'many'" in printed
    assert content(name_store("a")) == before


def test_misuse_is_reported_with_the_remedy(run: Run, name_store: NameStore, site: str, tmp_path: Path) -> None:
    file = str(FILES / "vllm-rate4.json")
    code, printed = run("import", file, "--store", name_store("none"))
    assert (code, "add --platform NAME" in printed) == (2, True)
    code, printed = run("import", file, "--run", "satori-first", "--platform", "a", "--store", site)
    assert (code, "not taken as" in printed) == (2, True)
    two = ("import", str(FILES / "nccl-two-nodes.txt"), "--store", name_store("none"), "--platform", "a")
    for option in (("--node", "n"), ("--gpu", "2 x NVIDIA H200")):
        code, printed = run(*two, *option)
        assert (code, "names 2 nodes; leave out --node and --gpu" in printed) == (2, True)
    for gpus in ("0 x NVIDIA H200", "1000 x NVIDIA H200", "8 x ", "8 x"):
        code, printed = run("import", file, "--store", name_store("none"), "--platform", "a", "--gpu", gpus)
        assert (code, "N from 1 to 999" in printed) == (2, True)
    assert not Path(name_store("none")).exists()
    (tmp_path / "empty").mkdir()
    code, printed = run("import", str(tmp_path / "empty"), "--platform", "a", "--store", name_store("none"))
    assert (code, "name its file" in printed) == (2, True)


@pytest.mark.parametrize(
    ("total", "times", "more", "words"),
    [("total_input_tokens", 32, 0, "input ≈256 against ≈8192"), ("total_output_tokens", 1, 700, "")],
)
def test_only_other_lengths_are_another_setting(
    put: Put, run: Run, name_store: NameStore, tmp_path: Path, total: str, times: int, more: int, words: str
) -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    for place, tokens in (("short", one[total]), ("long", one[total] * times + more)):
        file = tmp_path / f"{place}.json"
        file.write_text(json.dumps({**one, total: tokens}))
        put(file, "--platform", place)
    code, printed = run("compare", "short", "long", "--store", name_store("a"))
    assert (code, words in printed) == (1 if words else 0, True), printed


def test_a_condition_that_a_file_lacks_is_asked_for(run: Run, name_store: NameStore, tmp_path: Path) -> None:
    file = tmp_path / "nccl-two-nodes.txt"
    content = (FILES / file.name).read_text().replace("values : 3 FAILED", "values : 0 OK")
    file.write_text(content.replace("15.00      3 ", "15.00      0 "))
    given = ("import", str(file), "--platform", "a", "--store", name_store("a"))
    code, printed = run(*given)
    assert (code, "does not state the collective; add --param collective=" in printed) == (2, True), printed
    assert not Path(name_store("a")).exists()
    assert run(*given, "--param", "collective=")[0] == 0


def test_a_model_s_folder_is_its_name(put: Put, run: Run, name_store: NameStore, tmp_path: Path) -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    for place, model in (("a", "/models/small"), ("b", "/data/small/"), ("c", "/models/large")):
        file = tmp_path / f"{place}.json"
        file.write_text(json.dumps({**one, "model_id": model}))
        put(file, "--platform", place)
    assert run("compare", "a", "b", "--store", name_store("a"))[0] == 0
    code, printed = run("compare", "a", "c", "--store", name_store("a"))
    assert (code, "model" in printed) == (1, True), printed


def test_a_run_takes_its_own_steps_from_a_chart_of_several(run: Run, site: str, tmp_path: Path) -> None:
    execute(site, "DELETE FROM steps WHERE run_id = 'satori-first'")
    chart = tmp_path / "chart.csv"
    chart.write_text("Step,a - loss,a - loss__MIN,a - loss__MAX,b - loss,b - loss__MIN,b - loss__MAX\n0,1,1,1,2,2,2\n")
    given = ("import", str(chart), "--store", site, "--run", "satori-first")
    code, printed = run(*given)
    assert (code, "2 runs (a, b)" in printed) == (2, True), printed
    code, printed = run(*given, "--log-run", "b")
    assert (code, "1 step and 1 value" in printed) == (0, True), printed
    stored = "SELECT name, json_extract(detail, '$.value') FROM run_events WHERE event = 'metric'"
    assert execute(site, f"{stored} AND run_id = 'satori-first'") == [("loss", "2.0")]
    assert run("import", str(chart), "--store", site, "--log-run", "b")[0] == 2


def test_steps_without_a_time_are_in_no_figure_that_is_of_time(run: Run, site: str, tmp_path: Path) -> None:
    execute(site, "DELETE FROM steps WHERE run_id = 'satori-first'")
    execute(site, "DELETE FROM run_metrics WHERE run_id = 'satori-first'")
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n" + "".join(f"{number},{9 - number}\n" for number in range(9)))
    code, printed = run("import", str(log), "--store", site, "--run", "satori-first")
    assert (code, "9 steps and 9 values" in printed) == (0, True), printed
    assert execute(site, "SELECT count(*), count(time) FROM steps WHERE run_id = 'satori-first'") == [(9, 0)]
    of_steps = "'time_to_first_step_seconds', 'step_seconds', 'steady_throughput'"
    stored = f"SELECT count(*) FILTER (metric IN ({of_steps})), count(*) > 0 FROM run_metrics"
    assert execute(site, f"{stored} WHERE run_id = 'satori-first' AND value IS NOT NULL") == [(0, True)]
