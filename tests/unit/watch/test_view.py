import pytest

from gpuagent_collector.watch.view import Scope, View, select
from tests.unit.watch.snapshots import SNAPSHOT


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
def test_rows_are_sorted_by_a_column_the_largest_first_and_those_without_a_value_last(
    view: View, order: list[str]
) -> None:
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
    assert sizes == {
        Scope.ALL: [3, 3, 2],
        Scope.NODES: [3, 0, 0],
        Scope.GPUS: [0, 3, 0],
        Scope.RUNS: [0, 0, 2],
    }
