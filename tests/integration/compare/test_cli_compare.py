"""`collector compare` as it is used: what it prints, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import (
    HOSTILE,
    Collector,
    asked_of,
    assert_golden,
    assert_inert,
    assert_inert_markdown,
    assert_refused,
    csv_rows,
    made_up,
    statements_shown,
)

GOLDEN = Path(__file__).with_name("golden_summary_80_columns.txt")
GOLDEN_ALL = Path(__file__).with_name("golden_80_columns.txt")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with five quiet and five disturbed runs of MNIST."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    with made_up(path) as store:
        quiet_and_burning(store, gpus=["NVIDIA L4"])
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every text that is shown would act on a terminal."""
    path = tmp_path_factory.mktemp("store") / "hostile.duckdb"
    with made_up(path) as store:
        for turn, platform in enumerate((f"a{HOSTILE}", f"b{HOSTILE}")):
            node = store.node(platform, platform, gpus=[HOSTILE], cpu_model=HOSTILE)
            for repeat in range(5):
                store.run(
                    f"{platform}-{repeat}",
                    node,
                    start_seconds=(2 * repeat + turn) * 20,
                    workload=HOSTILE,
                    environment=HOSTILE,
                    parameters={HOSTILE: HOSTILE},
                    texts={HOSTILE: HOSTILE},
                )
            store.run(f"{platform}-more", node, start_seconds=8000 + 20 * turn)
            store.run(f"{platform}-odd", node, start_seconds=9000 + turn, workload=f"{HOSTILE}{turn}", status=HOSTILE)
    return path


@pytest.fixture
def compare(filled: Path, collector: Collector) -> Collector:
    """Run `collector compare` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "compare")


def test_eighty_columns_read_as_agreed(compare: Collector) -> None:
    code, out, _ = compare("--by", "interference")
    assert code == 0
    assert_golden(out, GOLDEN)


def test_eighty_columns_of_everything_read_as_agreed(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", "--all", "--no-series")
    assert_golden(out, GOLDEN_ALL)


def test_a_comparison_with_many_warnings_fits_on_one_screen(compare: Collector, tmp_path: Path) -> None:
    path = tmp_path / "doubtful.duckdb"
    with made_up(path) as store:
        for turn, platform in enumerate(("alder", "birch", "cedar")):
            node = store.node(f"{platform}-node", platform, gpus=["NVIDIA L4"], cpu_threads=2, kernel=platform)
            for repeat in range(3):
                at = 5000 * turn + 20 * repeat
                store.run(f"{platform}-{repeat}", node, start_seconds=at, cpu_percent=100.0, environment=platform)
            store.run(f"{platform}-bad", node, start_seconds=5000 * turn + 900, status="failed", environment=platform)
            store.run(f"{platform}-odd", node, start_seconds=5000 * turn + 950, parameters={"batch_size": turn})
    _, out, _ = compare(store=path)
    lines = out.splitlines()
    assert len(lines) <= 24
    assert sum(line.startswith("! ") for line in lines) == 3
    assert "more warnings, the metrics, the hardware and charts" in lines[-1]
    warnings = json.loads(compare("--json", store=path)[1])["warnings"]
    assert len(warnings) > 4
    everything = " ".join(compare("--all", columns=400, store=path)[1].split())
    assert all(warning["text"] in everything and warning["remedy"] in everything for warning in warnings)


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
@pytest.mark.parametrize("everything", [(), ("--all",)], ids=["summary", "all"])
def test_no_line_is_wider_than_the_terminal(compare: Collector, columns: int, everything: tuple[str, ...]) -> None:
    _, out, _ = compare("--by", "interference", *everything, columns=columns)
    assert max(map(len, out.splitlines())) <= columns


def test_the_answer_comes_first_in_words(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", columns=400)
    assert "mnist: throughput is 34 % lower (worse) with cpu-burn than with none" in out.splitlines()[1]


def test_series_are_drawn_for_cpu_memory_gpu_and_gpu_memory(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", "--all")
    for title in ("Node CPU, %", "Node memory used, GB", "GPU utilisation, %", "GPU memory used, GB"):
        assert title in out
    assert "Over time" not in compare("--by", "interference", "--all", "--no-series")[1]


def test_csv_has_a_header_and_a_line_for_each_metric_of_each_cell(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", "--format", "csv")
    rows = csv_rows(out)
    throughput = {row["side"]: row for row in rows if row["metric"] == "throughput"}
    assert set(throughput) == {"none", "cpu-burn"}
    assert throughput["cpu-burn"]["verdict"] == "differs"
    assert float(throughput["cpu-burn"]["estimate"]) == pytest.approx(0.656, abs=0.001)
    assert throughput["none"]["estimate"] == ""
    assert {row["verdict"] for row in rows if row["metric"] != "throughput"} == {""}


def test_json_holds_the_answer_the_tests_the_specs_and_the_warnings(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", "--json")
    found = json.loads(out)
    assert found["sides"] == ["none", "cpu-burn"]
    assert found["tests"][0]["verdict"] == "differs"
    assert found["blocks"][0]["runs"]["none"] == [f"none-{repeat}" for repeat in range(1, 6)]
    assert [warning["code"] for warning in found["warnings"]] == ["one_node"]
    assert {"property": "Node", "differs": False, "values": {"none": ["spruce"], "cpu-burn": ["spruce"]}} in found[
        "specs"
    ]


def test_markdown_has_tables(compare: Collector) -> None:
    _, out, _ = compare("--by", "interference", "--format", "markdown")
    assert "| cpu-burn / none | 5 / 5 |" in out
    assert "## Warnings" in out


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
def test_hostile_names_do_nothing_to_a_terminal(compare: Collector, hostile: Path, output_format: str) -> None:
    assert_inert(compare("--format", output_format, "--all", "--show-sql", columns=400, store=hostile))


def test_hostile_names_mean_nothing_in_markdown(compare: Collector, hostile: Path) -> None:
    assert_inert_markdown(compare("--format", "markdown", store=hostile)[1])


def test_the_sql_shown_has_each_value_in_its_own_place(compare: Collector, filled: Path) -> None:
    _, _, err = compare("--workload", "why? or 'why'?", "--experiment", "?", "--show-sql")
    assert "run.workload = 'why? or ''why''?' AND run.experiment = '?'" in err


def test_the_sql_that_is_shown_has_the_condition_as_given(compare: Collector, filled: Path) -> None:
    condition = "workload <> 'why?' AND repeat < 5"
    _, out, err = compare("--by", "interference", "--where", condition, "--workload", "mnist", "--json", "--show-sql")
    assert f"SELECT run_id FROM runs WHERE ({condition}\n)" in err
    assert "run.workload = 'mnist'" in err
    assert json.loads(out)["where"] == condition
    assert json.loads(out)["blocks"][0]["runs"]["none"] == [f"none-{repeat}" for repeat in range(1, 5)]


def test_a_statistic_is_named_with_what_it_is_of(compare: Collector) -> None:
    arguments = ("--by", "interference", "--stat", "max", "--metric", "gpu_utilization_percent")
    _, out, _ = compare(*arguments, "--all", columns=200)
    assert "a difference in highest GPU utilisation between cpu-burn and none" in out
    assert " GPU utilisation, max *" in out
    assert " GPU memory, max " in out
    rows = csv_rows(compare(*arguments, "--format", "csv")[1])
    stats = {row["metric"]: row["stat"] for row in rows}
    assert (stats["gpu_utilization_percent"], stats["throughput"]) == ("max", "")


def test_several_facets_are_given_together_or_one_after_the_other(compare: Collector) -> None:
    for by in (("--by", "interference,node"), ("--by", "interference", "--by", "node")):
        assert json.loads(compare(*by, "--json")[1])["sides"] == ["cpu-burn · spruce", "none · spruce"]


def test_nothing_slow_to_import_is_needed_beside_the_answer() -> None:
    script = "import sys, gpuagent_collector.compare.comparison; assert not {'scipy', 'plotext'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_sql_behind_the_answer_is_shown_so_that_it_can_be_asked_again(compare: Collector, filled: Path) -> None:
    _, _, err = compare("--by", "interference", "--format", "csv", "--show-sql")
    statements = statements_shown(err, filled)
    assert len(statements) == 10


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("satori", "openshift"), 2, "collector: no run has the platform satori; there are: laptop\n"),
        ((), 1, "collector: nothing to compare: all runs have the platform laptop; try another --by, or run more\n"),
        (("none", "--by", "interference"), 2, "collector: none alone cannot be compared; name another of: "),
        (
            ("--by", "interference", "--where", "repeat = 1; SELECT 1"),
            2,
            "collector: --where: the text is more than one condition",
        ),
        (("--by", "interference", "--where", "color = 'red'"), 2, "collector: --where: Binder Error"),
        (
            ("--by", "interference", "--where", "getenv('HOME') = ''"),
            2,
            "collector: --where: a query cannot call the function getenv",
        ),
        (
            ("--where", "(SELECT true FROM duckdb_settings())"),
            2,
            "collector: --where: a query cannot call the table function duckdb_",
        ),
        (("--by", "interference", "--metric", "speed"), 2, "collector: --metric speed is unknown; there are: "),
        (
            ("--by", "interference", "--metric", "sm_active_percent"),
            1,
            "collector: no side and its baseline both have the metric ",
        ),
        (("--workload", "bert"), 2, "collector: no run has the workload bert; there are: mnist\n"),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(
    compare: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert_refused(compare(*arguments), code, message)


@pytest.mark.parametrize("delta", ["0", "-1", "many"])
def test_a_margin_that_is_no_share_is_refused(compare: Collector, delta: str) -> None:
    code, _, err = compare("--by", "interference", "--delta", delta)
    assert code == 2
    assert "--delta" in err
