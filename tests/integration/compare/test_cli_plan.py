"""`collector plan` as it is used."""

import json
from pathlib import Path

import pytest

from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import Collector, asked_of, assert_golden, assert_refused, csv_rows, made_up

GOLDEN = Path(__file__).with_name("golden_plan_80_columns.txt")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with five quiet and five disturbed runs of MNIST, 2 % apart, and a single run of GCN."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    with made_up(path) as store:
        quiet_and_burning(store)
        store.run("alone", store.node("fir", "desk"), start_seconds=9000, workload="gcn")
    return path


@pytest.fixture
def plan(filled: Path, collector: Collector) -> Collector:
    """Run `collector plan` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "plan")


def test_eighty_columns_read_as_agreed(plan: Collector) -> None:
    code, out, _ = plan()
    assert code == 0
    assert_golden(out, GOLDEN)


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_no_line_is_wider_than_the_terminal(plan: Collector, columns: int) -> None:
    assert max(map(len, plan(columns=columns)[1].splitlines())) <= columns


def test_programs_get_the_spread_and_a_number_for_each_effect_and_power(plan: Collector) -> None:
    rows = csv_rows(plan("mnist", "--effect", "4", "--format", "csv")[1])
    assert [(row["to_show"], row["effect"], row["power"]) for row in rows] == [
        ("difference", "0.04", "0.8"),
        ("difference", "0.04", "0.9"),
        ("equality", "0.02", "0.8"),
        ("equality", "0.02", "0.9"),
    ]
    found = json.loads(plan("mnist", "--effect", "4", "--json")[1])
    assert found["metric"] == "throughput"
    assert [need["repeats"] for need in found["needs"]] == [int(row["repeats"]) for row in rows]
    assert all(need["repeats_cautious"] >= need["repeats"] for need in found["needs"])
    assert 0.01 < found["needs"][0]["spread"] < 0.04


def test_more_comparisons_at_once_need_more_repeats(plan: Collector) -> None:
    one, ten = (
        json.loads(plan("mnist", "--comparisons", number, "--json")[1])["needs"][2]["repeats"] for number in ("1", "10")
    )
    assert ten > one


def test_markdown_has_a_table(plan: Collector) -> None:
    assert "| a difference of 5 % |" in plan("--format", "markdown")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("gcn",), 1, "collector: the spread of throughput is unknown: it takes two or more"),
        (("vgg16",), 2, "collector: no run has the workload vgg16; there are: gcn, mnist"),
        (("--metric", "speed"), 2, "collector: --metric speed is unknown; there are: throughput"),
        (("--metric", "gpu_idle_percent"), 1, "collector: the spread of gpu_idle_percent is unknown"),
        (("--where", "repeat = "), 2, "collector: --where: syntax error"),
    ],
)
def test_what_cannot_be_planned_is_explained_in_one_line(
    plan: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert_refused(plan(*arguments), code, message)


@pytest.mark.parametrize("effect", ["nan", "0", "-1", "many"])
def test_an_effect_that_is_no_share_is_refused(plan: Collector, effect: str) -> None:
    code, _, err = plan("--effect", effect)
    assert code == 2
    assert "--effect" in err
