"""`collector roofline` as it is used: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.integration.roofline.made_up import GPU, add_ceilings, add_trial, fp32
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

GOLDEN = Path(__file__).with_name("golden_80_columns.txt")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a point of each kind: bytes counted, sampled, bounded, unknown."""
    path = tmp_path_factory.mktemp("store") / "runs.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=[GPU])
        add_ceilings(store, node)
        for repeat in range(3):
            flops = fp32(2e12 * (1 + repeat / 100))
            add_trial(store, node, flops, dram_active_percent=20.0, busy_percent=97.0, workload="resnet18")
        bounded = {"minimum_bytes_per_step": 1e9}
        add_trial(store, node, {**fp32(5e11), **bounded}, busy_percent=46.0, environment="docker")
        add_trial(store, node, {**fp32(4e11), **bounded}, busy_percent=40.0)
        mixed = {"model_flops_per_step": 4e13, "model_flops_fp32_per_step": 4e12, "model_flops_tf32_per_step": 3.6e13}
        executed = {"executed_flops_per_step": 3e13, "executed_tensor_flops_per_step": 2.7e13}
        add_trial(store, node, {**mixed, **executed, "dram_bytes_per_step": 5e11}, workload="gpt")
        add_trial(store, node, fp32(1e12), workload="gcn")
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every text that is shown would act on a terminal."""
    path = tmp_path_factory.mktemp("store") / "hostile.duckdb"
    with made_up(path) as store:
        node = store.node(HOSTILE, HOSTILE, gpus=[HOSTILE])
        named = {"environment": HOSTILE, "image": HOSTILE, "interference": HOSTILE}
        add_ceilings(store, node)
        for row in store.rows["results"]:
            row["value_text"] = HOSTILE if row["name"] == "device" else row.get("value_text")
        for workload in (HOSTILE, f"other{HOSTILE}"):
            flops = {**fp32(1e12), "minimum_bytes_per_step": 1e9}
            add_trial(store, node, flops, texts={"device": HOSTILE}, workload=workload, **named)  # type: ignore[arg-type]
        store.run("failed", node, start_seconds=9999, status=HOSTILE)
    return path


@pytest.fixture
def roofline(filled: Path, collector: Collector) -> Collector:
    """Run `collector roofline` on the store and return exit code, stdout and stderr."""
    return asked_of(filled, collector, "roofline")


def test_eighty_columns_read_as_agreed(roofline: Collector) -> None:
    code, out, _ = roofline()
    assert code == 0
    assert_golden(out, GOLDEN)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(roofline: Collector, columns: int) -> None:
    _, out, _ = roofline(columns=columns)
    assert max(map(len, out.splitlines())) <= columns


def test_csv_has_a_header_and_a_line_for_each_point(roofline: Collector) -> None:
    _, out, _ = roofline("--format", "csv")
    lines = csv_rows(out)
    assert [line["workload"] for line in lines] == ["gcn", "gpt", "mnist", "mnist", "resnet18"]
    assert [line["bytes_by"] for line in lines] == ["", "counted", "at least", "at least", "sampled"]
    assert [line["flops_by"] for line in lines] == ["model", "executed", "model", "model", "model"]
    assert float(lines[4]["measured_roof_percent"]) == pytest.approx(40)
    assert {line["ceilings_run"] for line in lines} == {"run-0"}


def test_json_holds_the_roofs_the_points_their_runs_and_the_warnings(roofline: Collector) -> None:
    found = json.loads(roofline("resnet18", "--json")[1])
    (one,) = found["rooflines"]
    assert one["measured"] == {"flops_per_second": {"fp32": 1e13, "tf32": 1e14}, "bytes_per_second": 1e12}
    assert (one["ceilings_run"], one["ceilings_of"]) == ("run-0", "same_device")
    (point,) = one["points"]
    assert point["runs"] == ["run-1", "run-2", "run-3"]
    assert point["flops_per_second"] == pytest.approx(2.02e12)
    assert found["answer"].startswith("a resnet18 on NVIDIA H200: 2.02 TFLOP/s at 5.05 FLOP/byte, 40 %")
    assert found["errors"] == found["warnings"] == []


def test_an_impossible_figure_is_printed_and_ends_with_one(roofline: Collector, tmp_path: Path) -> None:
    path = tmp_path / "impossible.duckdb"
    with made_up(path) as store:
        node = store.node("spruce", "lab", gpus=[GPU])
        add_ceilings(store, node)
        add_trial(store, node, {**fp32(1e12), "executed_flops_per_step": 3e13, "dram_bytes_per_step": 1e12})
    code, out, _ = roofline(store=path)
    assert code == 1
    assert "Errors ───" in out
    assert "Read the error below" in " ".join(out.split())


@pytest.mark.parametrize("output_format", ["table", "markdown", "json"])
def test_hostile_names_do_nothing_to_a_terminal(roofline: Collector, hostile: Path, output_format: str) -> None:
    assert_inert(roofline("--format", output_format, "--show-sql", columns=400, store=hostile))


def test_hostile_names_mean_nothing_in_markdown(roofline: Collector, hostile: Path) -> None:
    assert_inert_markdown(roofline("--format", "markdown", store=hostile)[1])


def test_the_sql_behind_the_answer_is_shown_so_that_any_client_can_ask_it(roofline: Collector, filled: Path) -> None:
    _, _, err = roofline("--format", "csv", "--show-sql")
    statements = statements_shown(err, filled)
    assert sum("FROM results" in statement for statement in statements) >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("bert",),
            2,
            "collector: no such run has the workload bert; there are: ceilings, gcn, gpt, mnist, resnet18\n",
        ),
        (("--platform", "satori"), 2, "collector: no such run has the platform satori; there are: lab\n"),
        (("ceilings",), 1, "collector: no roofline to draw: "),
    ],
)
def test_misuse_ends_with_one_line_and_its_exit_code(
    roofline: Collector, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert_refused(roofline(*arguments), code, message)
