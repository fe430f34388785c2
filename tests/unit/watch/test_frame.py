import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text

from gpuagent_collector.output.text import is_dangerous
from gpuagent_collector.watch.export import to_json
from gpuagent_collector.watch.frame import Screen, compose, snapshot_lines
from gpuagent_collector.watch.view import Scope, View
from tests.unit.watch.snapshots import GPU, NODE, SNAPSHOT, large

GOLDEN = Path(__file__).with_name("golden_80_columns.txt")


def screen(width: int = 80, height: int = 24, **rest: object) -> Screen:
    return Screen(width=width, height=height, source="the collector at 127.0.0.1:50051", **rest)  # type: ignore[arg-type]


def plain(lines: list[Text]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def test_a_snapshot_at_80_columns_looks_as_it_should() -> None:
    assert "\n".join(line.plain for line in snapshot_lines(SNAPSHOT, 80)) + "\n" == GOLDEN.read_text()


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("scope", list(Scope))
def test_a_frame_has_the_terminals_size_and_nothing_that_acts_on_it(width: int, scope: Scope) -> None:
    lines, _ = compose(SNAPSHOT, View(scope=scope), screen(width=width, trouble="\x1b[2J"))
    assert len(lines) == 24
    assert not any(is_dangerous(character) for line in lines for character in line.plain)
    assert all(line.cell_len <= width for line in lines[2:-1]) or width == 20


def test_a_wider_terminal_shows_more_columns() -> None:
    headers = [plain(compose(SNAPSHOT, View(), screen(width=width))[0])[2].split() for width in (44, 80, 160)]
    assert headers[0] == ["node", "age", "CPU", "note"]
    assert set(headers[0]) < set(headers[1]) < set(headers[2])


def test_a_hundred_nodes_are_paged_through_with_the_header_in_place() -> None:
    snapshot, view, seen = large(100), View(scope=Scope.GPUS), []
    for _ in range(100):
        lines, view = compose(snapshot, view, screen())
        assert plain(lines)[2].startswith("node")
        seen += plain(lines)[3:-1]
        view = View(scope=view.scope, offset=view.offset + screen().page - 1)
    assert len({line.split()[0] + line.split()[1] for line in seen}) == 800


def test_the_end_is_the_last_page() -> None:
    lines, view = compose(large(100), View(offset=10**9), screen())
    assert view.offset == 100 + 800 + 2 + 3 + 2 - 21
    assert plain(lines)[-1].endswith("all  887–907 of 907")
    assert plain(lines)[-2].startswith("gpt-0123456789")


def test_a_mig_instance_stands_below_its_gpu_and_is_not_counted_as_one() -> None:
    instance = replace(GPU, device_id=9, parent_device_id=GPU.device_id, gpu_instance_id=7, name="H200 MIG 1g.18gb")
    node = replace(NODE, gpus=[GPU, instance])
    lines = [line.plain for line in snapshot_lines(replace(SNAPSHOT, nodes=[node]), 80)]
    assert "1 GPU" in lines[0]
    assert [line.split()[1] for line in lines[6:8]] == ["0", "0.7"]


def test_what_is_wrong_is_said_in_the_last_line() -> None:
    trouble = "the collector at 127.0.0.1:50051 cannot be reached; trying again"
    assert plain(compose(SNAPSHOT, View(), screen(trouble=trouble))[0])[-1] == trouble


def test_a_filter_is_shown_while_it_is_typed_and_after() -> None:
    assert plain(compose(SNAPSHOT, View(), screen(typed="al"))[0])[-1].startswith("filter: al▏")
    lines = plain(compose(SNAPSHOT, View(words="oak", sort_by="CPU", reverse=True), screen())[0])
    assert lines[-1].endswith("all, by CPU reversed, filter: oak")
    assert "no run was there in the last hour that matches the filter" in lines


def test_help_fits_the_screen() -> None:
    lines = plain(compose(SNAPSHOT, View(), screen(helping=True))[0])
    assert lines[2].startswith("tab ")
    assert "before that, are not shown." in lines


def test_json_holds_everything_that_was_read_and_absent_is_null() -> None:
    document = json.loads(to_json(SNAPSHOT))
    assert document["taken_at"] == "2030-01-01T12:00:00Z"
    assert document["nodes"][0]["gpus"][1]["throttle_reasons"] == 0x40
    assert document["nodes"][1]["cpu_percent"] is None
    assert document["runs"][1]["reason"] == "ended with 1: out of memory"
    assert to_json(SNAPSHOT).isascii()
