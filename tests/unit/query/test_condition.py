"""Conditions that users give: one expression, whatever it is made of, and nothing that reaches beyond it."""

import json

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.query.condition import parenthesised
from gpuagent_common.errors import MisuseError

HARMLESS = [
    "true",
    "a = 1 OR b = 2",
    "parameters->>'batch_size' = '64' AND started_at > now() - INTERVAL 1 DAY",
    "text = ');--'",
    "$$;)$$ = text",
    "a = 1 -- ) OR (true",
    "a = 1 /* ; */ AND b",
    "run_id IN (SELECT run_id FROM metrics WHERE value > 1)",
    "run_id IN (SELECT 'x' UNION SELECT 'y' ORDER BY 1 LIMIT 1)",
    "CASE WHEN a THEN b END",
    "text LIKE 'why?'",
]


@pytest.mark.parametrize("condition", HARMLESS)
def test_an_expression_stands_between_parentheses_as_it_was_given(condition: str) -> None:
    assert parenthesised(condition) == f"({condition}\n)"


@pytest.mark.parametrize(
    "condition",
    [
        *("", "  ", "-- nothing", "a,", "a, b", "a b", "a AS b", "b: a", "DISTINCT a", "ALL a", "("),
        *("a;", "a; DROP TABLE runs", "a; SELECT 1", "true) OR (true", "true) --", "true\n) --", "true)) OR ((true"),
        *("a FROM runs", "a WHERE b", "a GROUP BY b", "a HAVING b", "a QUALIFY b", "a ORDER BY b", "a LIMIT 1"),
        *("a USING SAMPLE 1", "a UNION SELECT b", "a) UNION SELECT (b", "a INTO b", "a WINDOW w AS ()"),
        *("a /*", "'a", '"a', "$$a", "a = ?", "a = $1", "a = $name", "a IN (SELECT ?)", "a\0) OR (b", "\ud800"),
    ],
)
def test_anything_else_is_refused_in_one_line(condition: str) -> None:
    with pytest.raises(MisuseError) as refused:
        parenthesised(condition)
    assert "\n" not in str(refused.value)


@given(st.lists(st.sampled_from(["true", "false", "(", ")", "OR", "AND", "--", "\n", "/*", "*/", "'", ";", "UNION"])))
def test_what_is_let_through_never_changes_what_stands_around_it(words: list[str]) -> None:
    try:
        within = parenthesised(" ".join(words))
    except MisuseError:
        return
    with duckdb.connect() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT 1, {within}, 2 LIMIT 3"]).fetchone()
    (statement,) = json.loads(row[0] if row else "{}")["statements"]
    first, _, last = statement["node"]["select_list"]
    assert (first["value"]["value"], last["value"]["value"]) == (1, 2)
    assert [modifier["type"] for modifier in statement["node"]["modifiers"]] == ["LIMIT_MODIFIER"]
