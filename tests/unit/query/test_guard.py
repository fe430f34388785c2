"""Conditions that users give: one expression, whatever it is made of, and nothing that reaches beyond it."""

import pytest

from gpuagent_collector.query.condition import parenthesised
from gpuagent_collector.query.guard import MAX_SQL_CHARACTERS, Guard
from gpuagent_common.errors import MisuseError

GUARD = Guard(["runs", "steps", "nodes", "host_samples"])

READABLE = [
    *("SELECT 1", "FROM runs", "TABLE runs", "VALUES (1), (2)", "FROM main.runs", "SELECT ?, ? + 1"),
    *("DESCRIBE runs", "DESCRIBE SELECT 1", "SHOW TABLES", "SHOW runs", "SUMMARIZE runs"),
    *("EXPLAIN SELECT 1", "EXPLAIN (SELECT 1)", "/* ü */ explain /* ü */ analyze -- ü\n FROM runs"),
    "SELECT * FROM RUNS -- the last comment",
    "WITH a AS (SELECT 1 AS x), b AS (FROM a) FROM b, a, runs",
    "WITH Alias AS MATERIALIZED (FROM runs) FROM (WITH inner_one AS (FROM ALIAS) FROM inner_one)",
    "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x WHERE a < 5) FROM x",
    "(SELECT 1 UNION ALL BY NAME SELECT 2) INTERSECT SELECT 3 EXCEPT SELECT 4 ORDER BY 1 DESC NULLS LAST LIMIT 10%",
    "SELECT repeat(run_id, 3), lpad(run_id, 10000, ' '), [x for x in range(10)], generate_series(1, 5, 2),"
    " format('{:.2f} {:>9}', 1.5, 'x'), printf('%08.3f', 1.5), rpad('', 3, run_id) FROM runs",
    "FROM range(3000000000) a, generate_series(TIMESTAMP '2026-01-01', TIMESTAMP '2027-01-01', INTERVAL 1 SECOND) b",
    "PIVOT runs ON status IN ('failed', 'lost') USING count(*) GROUP BY platform",
    "UNPIVOT runs ON exit_code, repeat INTO NAME name VALUE value",
    "FROM runs JOIN nodes USING (node_id) ASOF LEFT JOIN steps ON runs.started_at >= steps.time",
    "FROM runs, LATERAL (SELECT runs.repeat), unnest([1]) u, range(3), json_each(runs.parameters) TABLESAMPLE 10%",
    "SELECT DISTINCT ON (platform) * EXCLUDE (repeat) REPLACE (1 AS status) FROM runs USING SAMPLE 10 ROWS",
    "SELECT platform, count(*) FILTER (repeat > 1), median(repeat), quantile_cont(repeat, 0.5),"
    " list(status ORDER BY 1), arg_max(status, started_at), grouping(platform)"
    " FROM runs GROUP BY ROLLUP (platform) HAVING count(*) > 1",
    "SELECT lag(repeat) OVER w FROM runs WINDOW w AS (ORDER BY repeat) QUALIFY row_number() OVER w = 1",
    "SELECT parameters->>'epochs', parameters::JSON, repeat[1:2], {'a': 1}.a, map{'a': 1}, [x + 1 for x in [1, 2]],"
    " list_transform([1], lambda x: x + 1), coalesce(repeat, 1), CASE repeat WHEN 1 THEN 2 END, try_cast('1' AS INT),"
    " epoch(started_at), date_trunc('hour', started_at), time_bucket(INTERVAL 1 MINUTE, started_at), now(), today(),"
    " strftime(started_at, '%Y'), extract(year FROM started_at), started_at AT TIME ZONE 'UTC', hash(run_id), uuid(),"
    " run_id.upper(), run_id ILIKE 'x%', run_id SIMILAR TO 'x', repeat BETWEEN 1 AND 2, repeat IN (SELECT 1),"
    " EXISTS (SELECT 1), columns('a.*'), random(), percentile_cont(0.5) WITHIN GROUP (ORDER BY repeat) FROM runs",
]


@pytest.mark.parametrize("sql", READABLE)
def test_what_only_reads_the_store_passes(sql: str) -> None:
    GUARD.check(sql)


def test_a_statement_stays_as_written_and_explain_is_put_together_anew() -> None:
    assert GUARD.check("SELECT 1 -- ü") == "SELECT 1 -- ü"
    assert GUARD.check("/* ü */ explain /* ü */ analyze SELECT 1") == "EXPLAIN ANALYZE SELECT 1"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM run", "did you mean runs"),
        ("SELECT medain(repeat) FROM runs", "did you mean median"),
        ("SELEC 1", 'syntax error at or near "SELEC" (line 1)'),
        ("SELECT 1,\n2,\n3 +", "line 3"),
        ("SELECT 1; SELECT 2", "the text has 2 statements; send one at a time"),
        ("-- nothing", "the text has 0 statements"),
        ("PIVOT runs ON status", "PIVOT needs a list of values"),
        ("DROP TABLE runs", "a query cannot change anything"),
        ("FROM information_schema.tables", "`SHOW TABLES`"),
        ("SELECT 1" + " " * MAX_SQL_CHARACTERS, "longer than 100,000 characters"),
        ("SELECT '\udcff'", "not valid UTF-8"),
        ("SELECT " + "1+" * 900 + "1", "nested too deeply"),
        ("SELECT 1" + " UNION ALL SELECT 1" * 5000, "more than 5,000 tokens"),
        ("SELECT levenshtein(run_id, 'x') FROM runs", "cannot call the function levenshtein"),
        ("SELECT damerau_levenshtein('a', 'b')", "cannot call the function damerau_levenshtein"),
        ("SELECT bit_count(bitstring('1', 2000000000))", "cannot call the function bitstring"),
        ("SELECT list_resize([1], 4000000000)", "cannot call the function list_resize"),
        ("SELECT len(range(3000000000))", "range takes sizes up to 10,000 here, written as numbers, or FROM range(…)"),
        ("SELECT main.RANGE(repeat) FROM runs", "range takes sizes up to"),
        ("SELECT list_transform(range(0, 400000000), lambda x: x)", "range takes sizes up to"),
        ("SELECT generate_series(TIMESTAMP '2000-01-01', now()::TIMESTAMP, INTERVAL 1 SECOND)", "takes sizes up to"),
        ("FROM runs, LATERAL (SELECT range(20000))", "range takes sizes up to"),
        ("FROM unnest(range(20000))", "range takes sizes up to"),
        ("SELECT repeat('a', 4000000000)", "repeat takes sizes up to"),
        ("SELECT run_id.repeat(20000) FROM runs", "repeat takes sizes up to"),
        ("SELECT lpad('', 2000000000, 'x')", "lpad takes sizes up to 10,000 here"),
        ("SELECT rpad('', 10 * 1000000, 'x')", "rpad takes sizes up to"),
        ("SELECT format('{:>2000000000}', 'x')", "format takes a constant text here"),
        ("SELECT format('{:>{}}', 'x', 2000000000)", "format takes a constant text here"),
        ("SELECT printf('%2000000000d', 1)", "printf takes a constant text here"),
        ("SELECT printf('%*d', 2000000000, 1)", "printf takes a constant text here"),
        ("SELECT printf('%' || 2000000000 || 'd', 1)", "printf takes a constant text here"),
        # What DuckDB crashes of.
        ("SELECT lag(repeat, -9223372036854775808) OVER () FROM runs", "lag and lead take offsets up to 10,000 here"),
        ("SELECT lead(repeat, -9223372036854775807 - 1, 0) OVER () FROM runs", "written as numbers"),
        ("SELECT from_json('1', '" + "[" * 10_000 + '"INT"' + "]" * 10_000 + "')", "from_json takes a constant type"),
        ("SELECT json_transform('1', ?)", "json_transform takes a constant type"),
        ("SELECT TRY_CAST(run_id AS STRUCT(a VARIANT[])) FROM runs", "cannot cast to VARIANT"),
        ("SELECT variant_typeof('[[]]'::JSON)", "cannot call the function variant_typeof"),
        # A name that WITH defines is known where it is defined, not in its own definition or where a recursion starts.
        ("FROM (WITH only_there AS (SELECT 1) FROM only_there), only_there", "no table only_there"),
        ("""WITH "/etc/passwd" AS (FROM "/etc/passwd") FROM "/etc/passwd" """, "no table /etc/passwd"),
        ("""WITH RECURSIVE "/etc/x" AS (FROM "/etc/x" UNION ALL SELECT 'x') SELECT 1""", "no table /etc/x"),
    ],
)
def test_a_refusal_says_what_is_wrong(sql: str, words: str) -> None:
    with pytest.raises(MisuseError) as refusal:
        GUARD.check(sql)
    assert words in str(refusal.value)


HARMLESS = [
    *("true", "a = 1 OR b = 2", "parameters->>'batch_size' = '64' AND started_at > now() - INTERVAL 1 DAY"),
    *("text = ');--'", "$$;)$$ = text", "a = 1 -- ) OR (true", "a = 1 /* ; */ AND b"),
    "run_id IN (SELECT run_id FROM metrics WHERE value > 1)",
    *("run_id IN (SELECT 'x' UNION SELECT 'y' ORDER BY 1 LIMIT 1)", "CASE WHEN a THEN b END", "text LIKE 'why?'"),
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
