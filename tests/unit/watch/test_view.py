from dataclasses import replace

import pytest

from gpuagent_collector.watch.live import Dialogue
from gpuagent_collector.watch.view import Scope, View, select
from tests.unit.watch.snapshots import SNAPSHOT


def nodes(view: View) -> list[str | None]:
    return [(node.hostname or "")[:5] for node in select(SNAPSHOT, view).nodes]


def pressed(*keys: str) -> Dialogue:
    dialogue = Dialogue(view=View())
    for key in keys:
        dialogue.press(key, page=20)
    return dialogue


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
def test_rows_are_sorted_by_a_column_the_largest_first_and_those_without_a_value_last(
    view: View, order: list[str]
) -> None:
    assert nodes(view) == order


@pytest.mark.parametrize(
    ("words", "found"), [("", 3), ("ALDER", 1), ("silent", 1), ("lab cedar", 1), ("lab alder", 0), ("17", 0)]
)
def test_a_filter_keeps_rows_in_which_each_word_stands_figures_apart(words: str, found: int) -> None:
    assert len(nodes(View(words=words))) == found


def test_a_filter_for_a_node_keeps_its_gpus_and_runs() -> None:
    selection = select(SNAPSHOT, View(words="cedar"))
    assert [row.gpu.name for row in selection.gpus] == ["Tesla K80"]
    assert [run.workload for run in selection.runs] == ["gpt"]


def test_each_scope_selects_only_its_own_list() -> None:
    sizes = {scope: select(SNAPSHOT, View(scope=scope)) for scope in Scope}
    assert {scope: (len(each.nodes), len(each.gpus), len(each.runs)) for scope, each in sizes.items()} == {
        Scope.ALL: (3, 3, 2),
        Scope.NODES: (3, 0, 0),
        Scope.GPUS: (0, 3, 0),
        Scope.RUNS: (0, 0, 2),
    }


def test_sorting_goes_through_the_columns_and_back_to_the_lists_own_order() -> None:
    assert pressed("2", "s").view.sort_by == "node"
    assert pressed("2", "s", "s", "S", "S").view.sort_by is None
    assert pressed("2", "S").view.sort_by == "note"
    assert pressed("s", "r").view.reverse
    assert not pressed("s", "r", "s").view.reverse


def test_an_order_that_the_next_list_does_not_know_is_dropped() -> None:
    assert pressed("2", "s", "3").view.sort_by == "node"
    assert pressed("2", "S", "3").view.sort_by is None


def test_lists_follow_one_another_by_tab_and_are_chosen_by_number() -> None:
    assert [pressed(*["tab"] * times).view.scope for times in (1, 2, 3, 4)] == [*list(Scope)[1:], Scope.ALL]
    assert pressed("back tab").view.scope is Scope.RUNS
    assert pressed("4").view.scope is Scope.RUNS


def test_a_filter_is_typed_letter_by_letter_and_kept_or_dropped() -> None:
    typing = pressed("/", "q", "x", "backspace", "space", "up", "s")
    assert (typing.typed, typing.view.words, typing.over) == ("q s", "q s", False)
    assert pressed("/", "q", "enter").view == replace(View(), words="q")
    assert pressed("/", "q", "escape").view == View()
    assert pressed("/", "q", "enter", "escape").view == View()


def test_q_leaves_and_escape_does_not() -> None:
    assert pressed("q").over
    assert not pressed("escape").over
    assert not pressed("?", "escape").helping
    assert pressed("?").helping


def test_scrolling_stays_within_the_beginning() -> None:
    assert pressed("up", "page up", "down", "page down").view.offset == 20
    assert pressed("end", "home").view.offset == 0
