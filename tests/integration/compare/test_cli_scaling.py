"""`collector scaling` as it is used: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.integration.compare.ranked import add_ranked, add_s2
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

GOLDEN = Path(__file__).with_name("golden_scaling_80_columns.txt")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with S2's runs, and one of MNIST that has no counterpart."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    with made_up(path) as store:
        add_s2(store)
        add_ranked(store, store.node("spruce", "laptop"), 2, 100)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every text that is shown would act on a terminal."""
    path = tmp_path_factory.mktemp("store") / "hostile.duckdb"
    with made_up(path) as store:
        node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE, HOSTILE])
        named = {"environment": HOSTILE, "image": HOSTILE, "interference": HOSTILE, "parameters": {HOSTILE: HOSTILE}}
        for ranks in (1, 2):
            add_ranked(store, node, ranks, 100, workload=HOSTILE, **named)  # type: ignore[arg-type]
        add_ranked(store, node, 2, 100, workload=HOSTILE, status=HOSTILE, **named)  # type: ignore[arg-type]
        add_ranked(store, node, 2, 100, workload=f"alone{HOSTILE}")
    return path


@pytest.fixture
def scaling(filled: Path, collector: Collector) -> Collector:
    """Run `collector scaling` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "scaling")


def test_eighty_columns_read_as_agreed(scaling: Collector) -> None:
    code, out, _ = scaling("vgg16")
    assert code == 0
    assert_golden(out, GOLDEN)


@pytest.mark.parametrize("columns", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(scaling: Collector, columns: int) -> None:
    _, out, _ = scaling(columns=columns)
    assert max(map(len, out.splitlines())) <= columns


def test_a_wide_terminal_shows_the_interval_of_the_efficiency(scaling: Collector) -> None:
    assert "94.7 % [91.9, 97.5]" in scaling(columns=160)[1]


def test_csv_has_a_header_and_a_line_for_each_number_of_ranks(scaling: Collector) -> None:
    _, out, _ = scaling("--format", "csv")
    one, two = csv_rows(out)
    assert (one["ranks"], one["n"], one["speed_up"]) == ("1", "5", "")
    assert (two["ranks"], two["held"]) == ("2", "batch_per_rank_and_total_samples")
    assert float(two["speed_up"]) == pytest.approx(84_090 / 44_417)


def test_json_holds_the_answer_the_curves_their_runs_and_the_warnings(scaling: Collector) -> None:
    found = json.loads(scaling("--json")[1])
    (curve,) = found["curves"]
    assert found["answer"].startswith("vgg16: 1.89 times the throughput on 2 ranks as on 1")
    assert curve["amounts"] == {"batch per rank": 64, "total samples": 8192}
    assert curve["rows"][1]["runs"] == [f"run-{number}" for number in range(1, 10, 2)]
    assert curve["rows"][1]["nodes"] == ["lab-1"]
    assert found["left_out"] == ["run-10"]
    assert [warning["code"] for warning in found["warnings"]] == ["one_node", "left_out"]


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
def test_hostile_names_do_nothing_to_a_terminal(scaling: Collector, hostile: Path, output_format: str) -> None:
    assert_inert(scaling("--format", output_format, "--show-sql", columns=400, store=hostile))


def test_hostile_names_mean_nothing_in_markdown(scaling: Collector, hostile: Path) -> None:
    assert_inert_markdown(scaling("--format", "markdown", store=hostile)[1])


def test_the_sql_behind_the_answer_is_shown_so_that_any_client_can_ask_it(scaling: Collector, filled: Path) -> None:
    _, _, err = scaling("--format", "csv", "--show-sql")
    statements = statements_shown(err, filled)
    assert len(statements) == 10


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bert",), 2, "collector: no run has the workload bert; there are: mnist, vgg16\n"),
        (("--platform", "satori"), 2, "collector: no such run has the platform satori; there are: lab, laptop\n"),
        (("--experiment", "e"), 2, "collector: no run has the experiment e; "),
        (("mnist",), 1, "collector: no scaling to show: all runs had 2 ranks; run another number, such as "),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(
    scaling: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert_refused(scaling(*arguments), code, message)
