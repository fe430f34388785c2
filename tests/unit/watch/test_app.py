import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from gpuagent_collector.watch.app import Watch, trend
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_common.errors import GpuAgentError
from tests.unit.watch.snapshots import LEFT, NODE, SNAPSHOT, large

SOURCE = "the collector at 127.0.0.1:50051\x1b[2J"


@asynccontextmanager
async def watching(
    first: Snapshot = SNAPSHOT, take: Callable[[], Snapshot] | None = None, columns: int = 80
) -> AsyncIterator[Pilot[None]]:
    interval_seconds = 0.01 if take else 1000.0
    app = Watch(take or (lambda: first), first, source=SOURCE, interval_seconds=interval_seconds)
    async with app.run_test(size=(columns, 24)) as pilot:
        await pilot.pause()
        yield pilot


def line(pilot: Pilot[None], name: str) -> str:
    return str(pilot.app.query_one(f"#{name}", Static).content)


def table(pilot: Pilot[None], name: str) -> DataTable[object]:
    return pilot.app.query_one(f"#{name}", DataTable)


def rows(pilot: Pilot[None], name: str) -> list[list[str]]:
    found = table(pilot, name)
    if not found.display:
        return []
    header = [str(column.label) for column in found.ordered_columns]
    return [header, *([str(cell) for cell in found.get_row_at(row)] for row in range(found.row_count))]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    while not condition():
        await pilot.pause(0.02)


async def test_all_lists_are_shown_with_as_many_columns_as_fit() -> None:
    async with watching() as pilot:
        assert line(pilot, "title").startswith(r"gpuagent · the collector at 127.0.0.1:50051\x1b[2J")
        assert line(pilot, "title").endswith(" 12:00:00 UTC")
        assert line(pilot, "summary") == "3 nodes · 1 silent · 3 GPUs · 1 held back · 1 run under way"
        assert [row[0] for row in rows(pilot, "nodes")] == ["node", "alder", r"birch\x1b[31m", "cedar"]
        assert rows(pilot, "runs")[2][:3] == ["gpt-0123456789", "cedar", "failed"]
        narrow = rows(pilot, "nodes")[0]
        await pilot.resize_terminal(160, 24)
        await pilot.pause()
        assert set(narrow) < set(rows(pilot, "nodes")[0])


async def test_nodes_that_left_do_not_push_the_runs_off_and_the_list_of_nodes_has_all() -> None:
    nodes = [*(replace(LEFT, hostname=f"ash-{number}") for number in range(20)), replace(NODE, gpus=[])]
    async with watching(replace(SNAPSHOT, nodes=nodes)) as pilot:
        assert [row[0] for row in rows(pilot, "nodes")] == ["node", "alder", "ash-0", "ash-1"]
        await pilot.press("2")
        assert len(rows(pilot, "nodes")) == 22


async def test_lists_follow_one_another_by_tab_and_are_chosen_by_number() -> None:
    async with watching() as pilot:
        shown = []
        for key in ("tab", "tab", "tab", "tab", "shift+tab", "3"):
            await pilot.press(key)
            shown.append([name for name in ("nodes", "GPUs", "runs") if rows(pilot, name)])
        assert shown == [["nodes"], ["GPUs"], ["runs"], ["nodes", "GPUs", "runs"], ["runs"], ["GPUs"]]
        assert line(pilot, "keys").endswith("GPUs")


async def test_sorting_goes_through_the_columns_and_can_be_reversed() -> None:
    async with watching() as pilot:
        await pilot.press("2", "s")
        assert line(pilot, "keys").endswith("nodes, by node")
        await pilot.press("r")
        assert line(pilot, "keys").endswith("by node reversed")
        assert rows(pilot, "nodes")[1][0] == "cedar"
        await pilot.press("S")
        assert line(pilot, "keys").endswith(" nodes")
        await pilot.press("S", "3")
        assert line(pilot, "keys").endswith(" GPUs")  # which have no column `note`


async def test_a_filter_is_typed_and_kept_or_dropped() -> None:
    async with watching() as pilot:
        await pilot.press("slash", *"cedaq", "backspace", "r", "enter")
        assert [row[0] for row in rows(pilot, "nodes")] == ["node", "cedar"]
        assert line(pilot, "keys").endswith("all, filter: cedar")
        await pilot.press("slash", "q")
        assert rows(pilot, "runs") == [["no run was under way in the last hour that matches the filter"]]
        await pilot.press("escape")
        assert len(rows(pilot, "nodes")) == 4
        assert line(pilot, "keys").endswith(" all")


async def test_a_hundred_nodes_are_paged_through_with_the_header_in_place() -> None:
    async with watching(large(100)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        gpus = table(pilot, "GPUs")
        assert (gpus.row_count, gpus.size.height) == (800, 21)
        for key, line_number in (("pagedown", 21), ("j", 22), ("k", 21), ("space", 42), ("home", 0), ("end", 780)):
            await pilot.press(key)
            await pilot.pause()
            assert gpus.scroll_y == line_number, key
        await pilot.press("1")
        await pilot.pause()
        await pilot.press("end")
        await pilot.pause()
        assert pilot.app.query_one("#body").scroll_y > 800


async def test_help_replaces_the_lists_and_goes_away() -> None:
    async with watching() as pilot:
        await pilot.press("question_mark")
        assert not rows(pilot, "nodes")
        assert pilot.app.query_one("#help").display
        await pilot.press("escape")
        assert rows(pilot, "nodes")
        assert not pilot.app.query_one("#help").display


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
async def test_the_view_is_left_by_q_or_an_interrupt(key: str, code: int) -> None:
    async with watching() as pilot:
        await pilot.press(key)
    assert (pilot.app.return_code, pilot.app.is_running) == (code, False)


async def test_new_snapshots_change_cells_and_rows() -> None:
    later = replace(
        SNAPSHOT, nodes=[replace(NODE, hostname="oak", figures={**NODE.figures, "cpu_percent": 99.0})], runs=[]
    )
    snapshots: Iterator[Snapshot] = iter([large(4), SNAPSHOT])
    async with watching(take=lambda: next(snapshots, later)) as pilot:
        await until(pilot, lambda: len(rows(pilot, "nodes")) == 2)
        assert rows(pilot, "nodes")[1][0] == "oak"
        assert "99 %" in rows(pilot, "nodes")[1]
        await until(pilot, lambda: rows(pilot, "GPUs")[1][3] == "▇" * 12)


async def test_a_collector_that_goes_away_is_reported_until_it_comes_back() -> None:
    back = threading.Event()

    def take() -> Snapshot:
        if not back.is_set():
            raise GpuAgentError("the collector cannot be reached\x1b[2J")
        return large(2)

    async with watching(take=take) as pilot:
        await until(pilot, lambda: "cannot be reached" in line(pilot, "keys"))
        assert "reached\\x1b[2J" in line(pilot, "keys")
        assert len(rows(pilot, "nodes")) == 4
        back.set()
        await until(pilot, lambda: line(pilot, "keys").startswith("q quit"))
        assert len(rows(pilot, "nodes")) == 3


async def test_a_collector_that_does_not_answer_is_reported_and_keys_still_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpuagent_collector.watch.app._PATIENCE_SECONDS", -1.0)
    answer = threading.Event()

    def hang() -> Snapshot:
        answer.wait()
        return SNAPSHOT

    async with watching(take=hang) as pilot:
        await until(pilot, lambda: line(pilot, "keys") == "no answer since 12:00:00 UTC")
        await pilot.press("2")
        assert not rows(pilot, "GPUs")
        answer.set()


def test_a_trend_has_one_scale_for_all_gpus_and_blanks_where_nothing_was_read() -> None:
    assert trend([0.0, 15.0, None, 99.0, 100.0]) == "       ▁▂ ▇▇"
    assert trend([3.0] * 12) == "▁" * 12
