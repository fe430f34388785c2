import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.view import Scope, View, print_snapshot, rows_that_fit, select
from gpuagent_common.text import is_dangerous
from tests.unit.watch.snapshots import GPU, LEFT, NODE, RUN, SNAPSHOT

GOLDEN = Path(__file__).with_name("golden_80_columns.txt")

Print = Callable[..., str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Print:

    def print_it(
        snapshot: Snapshot = SNAPSHOT, output_format: OutputFormat = OutputFormat.TABLE, columns: int = 80
    ) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        print_snapshot(snapshot, output_format)
        return capfd.readouterr().out

    return print_it


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_snapshot_at_80_columns_looks_as_it_should(printed: Print) -> None:
    assert lines_of(printed()) == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("output_format", [OutputFormat.TABLE, OutputFormat.MARKDOWN])
def test_nothing_that_is_printed_acts_on_a_terminal(printed: Print, width: int, output_format: OutputFormat) -> None:
    text = printed(output_format=output_format, columns=width)
    assert not any(is_dangerous(character) for character in text if character != "\n")
    assert max(map(len, text.splitlines()[1:])) <= width or output_format is OutputFormat.MARKDOWN


def test_a_wider_terminal_shows_more_columns(printed: Print) -> None:
    headers = [lines_of(printed(columns=width))[2].split() for width in (50, 80, 160)]
    assert headers[0] == ["node", "age", "CPU", "note"]
    assert set(headers[0]) < set(headers[1]) < set(headers[2])


@pytest.mark.parametrize(
    ("nodes", "gpus", "runs", "expected"),
    [(1, 0, 2, (1, 0, 2)), (1, 0, 195, (1, 0, 11)), (2, 16, 195, (2, 4, 4)), (40, 320, 195, (5, 3, 3))],
)
def test_a_terminal_shows_the_first_rows_of_long_lists(
    nodes: int, gpus: int, runs: int, expected: tuple[int, ...]
) -> None:
    shown = rows_that_fit({Scope.NODES: nodes, Scope.GPUS: gpus, Scope.RUNS: runs}, 24)
    assert tuple(shown.values()) == expected


def test_a_terminal_names_the_command_that_lists_all_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("FORCE_COLOR", "1")
    runs = [replace(RUN, run_id=f"mnist-{number}") for number in range(195)]
    print_snapshot(replace(SNAPSHOT, runs=runs), OutputFormat.TABLE, ("--store", "runs.duckdb"))
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 22
    assert "more: collector runs --store runs.duckdb" in lines[-1]


def test_a_mig_instance_is_listed_below_its_gpu_and_is_not_counted_as_one(printed: Print) -> None:
    instance = replace(GPU, device_id=9, parent_device_id=GPU.device_id, gpu_instance_id=7, name="H200 MIG 1g.18gb")
    lines = lines_of(printed(replace(SNAPSHOT, nodes=[replace(NODE, gpus=[GPU, instance])])))
    assert "1 GPU" in lines[0]
    assert [line.split()[1] for line in lines[8:10]] == ["0", "0.7"]


def test_a_node_that_left_is_counted_apart_from_silent_ones(printed: Print) -> None:
    lines = lines_of(printed(replace(SNAPSHOT, nodes=[NODE, LEFT])))
    assert lines[0].startswith("2 nodes · 1 gone · 2 GPUs")
    assert lines[5].startswith("dune   openshift   4 min      –")
    assert lines[5].endswith("gone")


def test_nodes_that_left_come_last_and_leave_the_room_to_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("FORCE_COLOR", "1")
    gone = [replace(LEFT, hostname=f"ash-{number}") for number in range(8)]
    here = [replace(NODE, hostname=f"birch-{number}", gpus=[]) for number in range(4)]
    print_snapshot(replace(SNAPSHOT, nodes=[*gone, *here], runs=[RUN] * 8), OutputFormat.TABLE)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 22
    at = next(at for at, line in enumerate(lines) if "… and 8 more: collector nodes" in line)
    assert all(f"birch-{number}" in line for number, line in enumerate(lines[at - 4 : at]))
    assert sum(RUN.run_id in line for line in lines) == 8


def test_an_empty_store_is_described_in_words(printed: Print) -> None:
    text = printed(replace(SNAPSHOT, nodes=[], runs=[]))
    assert "no node has delivered in the last hour\n\nno GPU was found\n\nno run was under way" in text


def test_csv_has_a_header_for_each_list_and_figures_as_stored(printed: Print) -> None:
    nodes, gpus, runs = (
        list(csv.DictReader(io.StringIO(part))) for part in printed(output_format=OutputFormat.CSV).split("\n\n")
    )
    assert (nodes[0]["CPU"], nodes[1]["CPU"], nodes[1]["note"]) == ("17.3", "", "silent")
    assert (gpus[0]["memory"], runs[0]["items/s"]) == ("112000000000", "36728.4")
    assert "trend" not in gpus[0]


def test_json_holds_everything_that_was_read_and_absent_is_null(printed: Print) -> None:
    text = printed(output_format=OutputFormat.JSON)
    document = json.loads(text)
    assert document["taken_at"] == "2030-01-01T12:00:00Z"
    assert document["nodes"][0]["gpus"][1]["throttle_reasons"] == 0x40
    assert document["nodes"][1]["cpu_percent"] is None
    assert document["runs"][1]["reason"] == "ended with 1: out of memory"
    assert text.isascii()


def nodes(view: View) -> list[str | None]:
    return [(node.hostname or "")[:5] for node in select(SNAPSHOT, view)[Scope.NODES].rows]


@pytest.mark.parametrize(
    ("view", "order"),
    [
        (View(), ["alder", "birch", "cedar"]),
        (View(sort_by="platform"), ["cedar", "birch", "alder"]),
        (View(sort_by="platform", reverse=True), ["alder", "birch", "cedar"]),
        (View(sort_by="age"), ["birch", "cedar", "alder"]),
        (View(sort_by="CPU", reverse=True), ["alder", "cedar", "birch"]),
        (View(sort_by="GPU"), ["alder", "birch", "cedar"]),
        (View(sort_by="no such column"), ["alder", "birch", "cedar"]),
    ],
)
def test_rows_are_sorted_by_a_column_largest_first_and_absent_last(view: View, order: list[str]) -> None:
    assert nodes(view) == order


@pytest.mark.parametrize(
    ("words", "found"), [("", 3), ("ALDER", 1), ("silent", 1), ("lab cedar", 1), ("lab alder", 0), ("17", 0)]
)
def test_a_filter_keeps_rows_in_which_each_word_occurs_figures_apart(words: str, found: int) -> None:
    assert len(nodes(View(words=words))) == found


def test_a_filter_for_a_node_keeps_its_gpus_and_runs() -> None:
    selection = select(SNAPSHOT, View(words="cedar"))
    assert [row.gpu.name for row in selection[Scope.GPUS].rows] == ["Tesla K80"]
    assert [run.workload for run in selection[Scope.RUNS].rows] == ["gpt"]


def test_each_scope_selects_only_its_own_list() -> None:
    sizes = {scope: [len(each.rows) for each in select(SNAPSHOT, View(scope=scope)).values()] for scope in Scope}
    assert list(sizes.values()) == [[3, 3, 2], [3, 0, 0], [0, 3, 0], [0, 0, 2]]


def test_a_run_keeps_its_node_on_80_columns_beside_its_progress(printed: Print) -> None:
    running = replace(RUN, run_id=f"{RUN.run_id}-with-a-long-name", left_seconds=60.0, steps=400, steps_per_second=5.0)
    lines = lines_of(printed(replace(SNAPSHOT, runs=[running])))
    assert "alder" in next(line for line in lines if line.startswith("mnist-")).split()
