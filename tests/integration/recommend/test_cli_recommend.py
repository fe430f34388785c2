"""`collector recommend` as it is used: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.integration.recommend.scenes import PRICES, gke
from tests.support.commands import (
    HOSTILE,
    Collector,
    asked_of,
    assert_inert,
    assert_inert_markdown,
    csv_rows,
    made_up,
    statements_shown,
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with S0's question, and prices beside it."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    with made_up(path) as store:
        gke(store)
    path.with_name("prices.yaml").write_text(PRICES)
    return path


@pytest.fixture
def recommend(filled: Path, collector: Collector) -> Collector:
    """Run `collector recommend` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "recommend")


@pytest.fixture
def prices(filled: Path) -> tuple[str, str]:
    """The option that names the prices."""
    return "--prices", str(filled.with_name("prices.yaml"))


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_no_line_is_wider_than_the_terminal(recommend: Collector, prices: tuple[str, str], columns: int) -> None:
    code, out, _ = recommend("mnist", *prices, columns=columns)
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns


def test_eighty_columns_show_places_and_reasons_in_a_line_each(recommend: Collector, prices: tuple[str, str]) -> None:
    lines = [" ".join(line.split()) for line in recommend("mnist", *prices)[1].splitlines()]
    assert "1 ● gke-l4 (n 5) 1 ms 2.81 J 0.250 USD 1 best" in lines
    assert "2 gke-a100 (n 5) 1.11 ms 2.81 J 1.11 USD 1.111 [1.095, 1.128] differs" in lines
    assert "launches 33 % 4 % ● 77 % 9 %" in lines
    assert "communication 33 % – – –" in lines


def test_without_prices_there_is_no_cost_with_a_note(recommend: Collector) -> None:
    out = recommend("mnist")[1]
    assert "USD" not in out
    assert "Cost is unknown: give --prices FILE." in " ".join(out.split())


def test_csv_has_a_header_and_a_line_for_each_side(recommend: Collector, prices: tuple[str, str]) -> None:
    _, out, _ = recommend("mnist", "--weigh", "cost", *prices, "--format", "csv")
    best, second, third = csv_rows(out)
    assert [one["side"] for one in (best, second, third)] == ["gke-l4", "gke-t4", "gke-a100"]
    assert (best["score"], best["cost"], best["cost_unit"], best["bound_by"]) == ("", "0.25", "USD", "compute")
    assert (third["place"], third["verdict"], third["launch_percent"]) == ("3", "differs", "77")
    assert float(third["score"]) == pytest.approx(1.111 / 0.25, rel=1e-3)


def test_json_holds_the_answer_the_ranking_its_runs_the_bounds_and_the_warnings(recommend: Collector) -> None:
    found = json.loads(recommend("mnist", "--json")[1])
    (ranking,) = found["rankings"]
    assert found["answer"].startswith("mnist: run it on gke-l4")
    assert found["weights"] == {"time": 1.0}
    assert [one["place"] for one in ranking["sides"]] == [1, 2, 3]
    assert ranking["runs"]["gke-t4"] == [f"gke-t4-{number}" for number in range(5)]
    (launch,) = (one for one in ranking["bounds"]["gke-a100"] if one["limit"] == "launch")
    assert (launch["percent"], launch["is_shown"]) == (77.0, True)
    assert launch["threshold_percent"] == pytest.approx(100 / 3)
    assert "one_node" in {warning["code"] for warning in found["warnings"]}


def test_the_sql_behind_the_answer_is_shown_so_that_any_client_can_ask_it(
    recommend: Collector, filled: Path, prices: tuple[str, str]
) -> None:
    _, _, err = recommend("mnist", "--format", "csv", "--show-sql", *prices)
    statements = statements_shown(err, filled)
    assert len(statements) > 8


def test_hostile_names_do_nothing_to_a_terminal_and_mean_nothing_in_markdown(
    recommend: Collector, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.duckdb"
    with made_up(path) as store:
        for turn in range(8):
            node = store.node(HOSTILE, f"{turn % 2}{HOSTILE}", gpus=[HOSTILE])
            store.run(f"{turn}", node, start_seconds=turn * 20, workload=HOSTILE, parameters={HOSTILE: HOSTILE})
    for form in ("table", "markdown", "json"):
        assert_inert(recommend(HOSTILE, "--format", form, columns=400, store=path))
    assert_inert_markdown(recommend(HOSTILE, "--format", "markdown", store=path)[1])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bert",), 2, "collector: no run has the workload bert; there are: ceilings, mnist"),
        (("mnist", "--by", "environment"), 1, "collector: nothing to compare: all runs have the environment bare"),
        (("mnist", "--weigh", "time,cost"), 1, "collector: no two sides with like runs both have time and cost"),
        (("mnist", "--weigh", "speed"), 2, "speed cannot be weighed; there are time, energy and cost"),
        (("mnist", "--weigh", "time=0"), 2, "a weight is a number above 0, not 0"),
        (("mnist", "--weigh", "time=nan"), 2, "a weight is a number above 0, not nan"),
        (("mnist", "--weigh", "time="), 2, "a weight is a number above 0, not nothing"),
        (("mnist", "--weigh", "time,time=2"), 2, "time is weighed twice"),
        (("mnist", "--weigh", ""), 2, "nothing cannot be weighed"),
        (("mnist", "--delta", "nan"), 2, "--delta"),
    ],
)
def test_misuse_ends_with_what_is_wrong_and_its_exit_code(
    recommend: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended, out, err = recommend(*arguments)
    assert (ended, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
