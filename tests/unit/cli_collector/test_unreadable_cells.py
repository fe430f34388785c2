"""Runs whose settings are not of the form that agents send: they are unknown, and no command ends because of them."""

from collections.abc import Sequence

import pytest

from gpuagent_collector.json_cells import UNKNOWN, parse_object, read_object, read_words
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.runs import Reports
from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import made_up
from tests.unit.cli_collector.conftest import Collector

_DAMAGE = """
UPDATE run_requests SET parameters = $parameters, labels = $labels, command = $command
WHERE run_id IN (SELECT run_id FROM run_requests ORDER BY time LIMIT 1 OFFSET $place)
"""
_BAD = (
    {"parameters": '"nonsense"', "labels": "[1, 2]", "command": "{}"},
    {"parameters": "[1]", "labels": '"x"', "command": '["a", {"b": 1}]'},
    {"parameters": '{"a": {"b": 1}}', "labels": '{"a": [1]}', "command": "7"},
)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("store") / "damaged.duckdb"
    with made_up(path) as made:
        quiet_and_burning(made, repeats=4)
    with Store.open(str(path)) as store, store.connect() as connection:
        for place, cells in enumerate(_BAD):
            connection.execute(_DAMAGE, {**cells, "place": place})
    return str(path)


def test_every_command_goes_on_and_says_unknown(collector: Collector, damaged: str) -> None:
    (run_id,) = _ask(damaged, "SELECT run_id FROM run_requests ORDER BY time LIMIT 1")
    for words in (["runs"], ["show", run_id], ["show", run_id, "--json"]):
        outcome = collector(*words, "--store", damaged)
        assert (outcome.code, UNKNOWN in outcome.out) == (0, True), outcome.err
    for words in (["runs", "--json"], ["compare"], ["peers", run_id], ["outliers"], ["history"], ["plan"]):
        outcome = collector(*words, "--store", damaged)
        assert outcome.code == 0, outcome.err
    for words in (["scaling"], ["serving"]):  # without the damage, there is nothing to show either
        assert collector(*words, "--store", damaged).code == 1


def test_a_report_is_written(damaged: str) -> None:
    with Store.open(damaged) as store:
        answer = Reports(Asker(store.connect, Limits()), source="runs.duckdb").answer({})
    assert answer.status_code == 200


def _ask(path: str, sql: str) -> Sequence[str]:
    with Store.open(path) as store, store.connect() as connection:
        return [text for (text,) in connection.execute(sql).fetchall()]


@pytest.mark.parametrize(
    "text", ["nonsense", "[1]", "null", '"x"', "7", '{"a": [1]}', '{"a": 1e999}', '{"a": "\\ud800"}', "[" * 100_000]
)
def test_a_cell_that_is_no_object_of_values_is_unknown(text: str) -> None:
    assert read_object(text, "labels") == {"labels": UNKNOWN}
    assert parse_object(text) is None
    assert read_words(text) == (UNKNOWN,)


def test_a_cell_without_anything_is_empty() -> None:
    for absent in (None, ""):
        assert (read_object(absent, "labels"), parse_object(absent), read_words(absent)) == ({}, {}, ())
    assert read_object('{"a": 1, "b": null}', "labels") == {"a": 1, "b": None}
    assert read_words('["a", "b"]') == ("a", "b")
