"""Statements of viewers: nothing in them may grow within one step of DuckDB's, in which it counts and obeys nothing."""

import json
from itertools import chain

import pytest

from gpuagent_collector.query.columns import Column, store_columns
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.growth import Growth
from gpuagent_collector.query.guard import Guard
from gpuagent_collector.query.sizes import SMALL
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import LongestTexts, table_columns
from gpuagent_common.errors import MisuseError
from tests.fault.hostile import ATTACKS, nested

RELATIONS = {
    name: [
        *(Column(name, text, 256) for text in ("run_id", "platform", "status", "text")),
        *(Column(name, number, SMALL) for number in ("repeat", "value", "time")),
    ]
    for name in ("runs", "steps")
}
GROWTH, GUARD = Growth(RELATIONS), Guard(RELATIONS)


LONG_NAME = "n" * 3000


def check(sql: str, *parameters: Parameter) -> int | None:
    return GROWTH.check(GUARD.read(sql).tree, parameters)


# They grow from step to step, so that DuckDB's limits and the collector's end them.
STEPWISE = {"columns of stored", "cut message", "drawn", "join", "sample", "scan", "sort", "states", "texts", "wide"}
# They make of a row what is allowed; they take turns.
STEPWISE |= {"greatest", "latest", "modes", "quantiles", "windows", "answers", "counted", "listed", "medians", "sorted"}
STEPWISE |= {"steps", "stored"}


@pytest.mark.parametrize("attack", sorted(ATTACKS.keys() - STEPWISE))
def test_what_grows_within_a_step_is_refused(attack: str) -> None:
    with pytest.raises(MisuseError) as refused:
        check(ATTACKS[attack].replace("host_samples", "steps"))
    assert len(str(refused.value)) <= 160


@pytest.mark.parametrize(
    "sql",
    [
        # Through the names of columns, tables and structs.
        *("SELECT concat(b, b, b, b) FROM (SELECT repeat('x', 9999) AS a) t(b), runs", "SELECT s.a || s.a FROM ({}) t"),
        "SELECT run_id FROM runs ORDER BY repeat(repeat('x', 9999), 9999)",
        "SELECT upper(\"repeat('x', 9999)\") FROM (SELECT repeat('x', 9999), run_id FROM runs)",
        "SELECT concat(t, t, t, t) FROM (SELECT repeat('x', 9999) AS a) t, runs",
        "WITH a AS (SELECT repeat('x', 9999) AS b) SELECT concat(b, b, b, b) FROM a, runs",
        "SELECT repeat('x', 9999) AS a, a || a AS b, b || b AS c, c || c AS d FROM runs",
        "SELECT concat(a, a, a, a) FROM (SELECT 'x' AS a UNION ALL SELECT repeat('x', 9999)), runs",
        "SELECT concat(a, a, a, a) FROM (SELECT 1 AS b, 1 AS a UNION BY NAME SELECT repeat('x', 9999) AS a), runs",
        "SELECT concat(a, a, a, a) FROM (VALUES ('x'), (repeat('x', 9999))) t(a), runs",
        "SELECT concat(x, x, x, x) FROM (SELECT * RENAME (a AS x) FROM (SELECT repeat('x', 9999) AS a)), runs",
        "SELECT concat(x, x, x, x) FROM (SELECT * REPLACE (repeat('x', 9999) AS x) FROM (SELECT 'x' AS x)), runs",
        "SELECT COLUMNS(*)::VARCHAR || COLUMNS(*)::VARCHAR FROM runs a, runs b, runs c, runs d, runs e, runs f, runs g",
        # Through the names themselves, which are in the texts and types of structs and rows.
        f"SELECT concat({', '.join(['s'] * 99)}) FROM (SELECT {{'{LONG_NAME}': value}} AS s FROM runs)",
        f"SELECT concat({', '.join(['t'] * 99)}) FROM (SELECT value + length('{LONG_NAME}') FROM runs) t",
        f"SELECT concat({', '.join(['t'] * 99)}) FROM (SELECT value AS {LONG_NAME} FROM runs) t",
        f"SELECT concat({', '.join(['t'] * 99)}) FROM (SELECT value FROM runs UNION SELECT 1) t({LONG_NAME})",
        f"SELECT concat({', '.join(['t'] * 99)}) FROM (SELECT * RENAME (value AS {LONG_NAME}) FROM runs) t",
        f"SELECT concat({', '.join(['s'] * 99)}) FROM (SELECT row(value)::STRUCT({LONG_NAME} INT) AS s FROM runs)",
        f"SELECT concat({', '.join(['s'] * 99)}) FROM (SELECT typeof({{'{LONG_NAME}': value}}) AS s FROM runs)",
        f"SELECT concat({', '.join(['column_name'] * 99)}) FROM (DESCRIBE SELECT value AS {LONG_NAME} FROM runs)",
        # Texts that are longer than a number.
        f"SELECT concat({', '.join(['bar(value, 0, 1, 1000)'] * 99)}) FROM runs",
        f"SELECT concat({', '.join(['h'] * 999)}) FROM (SELECT sha256(left(run_id, 0)) AS h FROM runs)",
        "SELECT repeat('1,', 999)::INT[] FROM runs",
        # Once for each column, or while it is planned.
        *(f"SELECT 1 FROM runs {words} repeat(COLUMNS(*), 9) > ''" for words in ("WHERE", "ORDER BY")),
        *(f"SELECT 1 FROM runs {words} COLUMNS(repeat(repeat('x', 9999), 9999))" for words in ("QUALIFY", "ORDER BY")),
        "SELECT 1 FROM runs ORDER BY COLUMNS(* REPLACE (repeat(repeat(run_id, 9999), 9999) AS run_id))",
        "SELECT length(COLUMNS(*)::VARCHAR) FROM (SELECT s.* FROM (SELECT {'a': 1, 'b': 2} AS s))",
        "SELECT COLUMNS(lambda c: length(repeat(repeat(c, 9999), 9999)) > 0) FROM runs",
        nested("SELECT 1 AS a", "SELECT COLUMNS('a'), COLUMNS('a') FROM ({})", 22),
        "SELECT (SELECT repeat('x', 9999)) || run_id || (SELECT repeat('x', 9999)) FROM runs",
        "SELECT concat(a, a, a, a) FROM runs, LATERAL (SELECT repeat(run_id, 99) AS a)",
        "SELECT concat(a, a, a, a) FROM (SELECT unnest({'a': repeat('x', 9999)})), runs",
        # What is gathered from many rows.
        "SELECT replace('', 'a', string_agg(run_id)), repeat(repeat(run_id, 9999), 9999) FROM runs",
        "SELECT list(l) FROM (SELECT list(run_id) AS l FROM runs), steps",
        "SELECT list(run_id) FROM runs WHERE run_id IN (SELECT list(run_id)[1] FROM runs)",
        *("SELECT l FROM (SELECT list(run_id) AS l FROM runs), steps", "SELECT list(run_id) || [''] FROM runs"),
        "SELECT string_agg(run_id) OVER () FROM runs",
        "SELECT l FROM (SELECT list(run_id)[1:9999] AS l FROM runs)",
        "SELECT l FROM (SELECT list(run_id)[-9:] AS l FROM runs)",
        # Slow within a step.
        *("SELECT json_contains(text, status) FROM runs", "SELECT list_has_any([value], [time]) FROM runs"),
        "SELECT contains(repeat(text, 30), repeat(text, 30)) FROM runs",
        "SELECT repeat('a', 9999) || run_id LIKE '%" + "a" * 5000 + "b%' FROM runs",
        "SELECT replace(repeat('a', 9999) || run_id, repeat('a', 5000) || 'b', '') FROM runs",
        "SELECT regexp_matches(text, '(a?){1000}a{1000}b') FROM runs",
        "SELECT regexp_matches(text, '\\pL{40}c') FROM runs",
        "SELECT regexp_matches(text, '([[:alpha:]]|x){99}') FROM runs",
        "SELECT regexp_matches(text, '(a|b)*a((a|b){9}){9}') FROM runs",
        "SELECT regexp_matches(repeat('a', 9999) || run_id, '(a|b)*a(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)c') FROM runs",
        *("SELECT run_id LIKE platform FROM runs", "SELECT regexp_matches(run_id, platform) FROM runs"),
        *("SELECT max(value, 9999) FROM runs", "SELECT run_id COLLATE de FROM runs", "SELECT run_id::BIT FROM runs"),
        *("SELECT json_extract(text, '$**') FROM runs", "SELECT json_extract(text, run_id) FROM runs"),
        nested("SELECT 1", "SELECT (SELECT count(*) FROM runs WHERE run_id > r.run_id AND EXISTS ({})) FROM runs r", 8),
    ],
)  # fmt: skip
def test_no_name_hides_what_grows(sql: str) -> None:
    with pytest.raises(MisuseError):
        check(sql.replace("({})", "(SELECT {'a': repeat('x', 9999)} AS s)"))


@pytest.mark.parametrize("sql", ["SELECT list(run_id) FROM runs", "SELECT left(string_agg(run_id), 9) FROM runs"])
def test_what_gathers_from_many_rows_takes_all_memory_at_once(sql: str) -> None:
    assert check(sql) is None


def test_aggregates_that_duckdb_does_not_count_take_all_memory_at_once() -> None:
    for attack in ("greatest", "latest", "medians", "modes", "quantiles", "sample", "states", "windows"):
        assert check(ATTACKS[attack]) is None, attack
    assert (check("SELECT max(value), arg_max(value, time), any_value(run_id) FROM runs") or 0) < 1024


def test_a_sample_of_a_share_keeps_rows_only_if_it_is_drawn_from_all() -> None:
    assert check("SELECT * FROM runs TABLESAMPLE reservoir(10%)") is None
    assert check("SELECT * FROM (SELECT * FROM runs USING SAMPLE 10 ROWS)") is None
    assert check("SELECT * FROM runs USING SAMPLE 10%") == check("SELECT * FROM runs")


def test_a_column_counts_as_the_longest_text_that_the_store_has_in_one_of_its_name() -> None:
    longest = LongestTexts()
    growth = Growth(RELATIONS, longest)
    sql = "SELECT status, concat(text, text) FROM runs"
    usual, other = check(sql) or 0, check("SELECT status FROM runs")
    longest.note("text", 60_000)
    # It is still let through: what agents store decides only when it runs.
    assert (growth.check(GUARD.read(sql).tree) or 0) >= usual + 2 * (60_000 - 256)
    assert growth.check(GUARD.read("SELECT status FROM runs").tree) == other
    longest.note("text", 9)
    assert longest.of("text") == 60_000


@pytest.mark.parametrize("value", ["x" * 20_000, ["x" * 20_000]], ids=["text", "list"])
def test_a_parameter_counts_with_its_value(value: Parameter) -> None:
    check("SELECT ? FROM runs", "x")
    with pytest.raises(MisuseError):
        check("SELECT ?, ?, ?, ? FROM runs", value, value, value, value)


def test_of_a_list_of_parameters_only_elements_reach_a_row() -> None:
    names = [f"run-{place}" for place in range(10_000)]
    check("FROM runs WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))", names)
    check("FROM runs WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))", json.dumps(names))
    check("FROM runs WHERE run_id IN (SELECT unnest(from_json(?::VARCHAR, '[\"VARCHAR\"]')))", json.dumps(names))
    check(f"FROM runs WHERE run_id IN (SELECT unnest({names[:900]}))")
    for text in (json.dumps(["x" * 99_999]), json.dumps([names]), "x" * 99_999):
        with pytest.raises(MisuseError):
            check("SELECT unnest(CAST(? AS VARCHAR[])) FROM runs", text)
    check("FROM unnest(CAST(? AS VARCHAR[])) WITH ORDINALITY AS chosen(run_id, place)", names)


USEFUL = [
    *("SELECT 1", "FROM runs", "SHOW TABLES", "DESCRIBE runs", "SUMMARIZE runs", "EXPLAIN ANALYZE FROM runs"),
    "SELECT platform, count(*), avg(value), median(value), quantile_cont(value, 0.9), stddev(value), max(time),"
    " arg_max(status, time), count(DISTINCT run_id), bool_or(value > 1) FILTER (repeat = 1)"
    " FROM runs JOIN steps USING (run_id) WHERE platform ILIKE '%gke%' AND text LIKE '%a_b%' GROUP BY ALL ORDER BY 2",
    "SELECT run_id, list(value ORDER BY time), string_agg(DISTINCT status, ', ') FROM steps GROUP BY run_id",
    "SELECT l[1] FROM (SELECT (list(run_id ORDER BY time) FILTER (value > 1))[1:9] AS l FROM steps GROUP BY status)",
    "SELECT left(string_agg(status, ', '), 100) AS states FROM runs GROUP BY platform HAVING len(list(run_id)) > 3",
    "WITH best AS (SELECT run_id, max(value) AS value FROM steps GROUP BY run_id)"
    " SELECT upper(platform) || ': ' || value, rank() OVER (PARTITION BY platform ORDER BY value DESC)"
    " FROM runs JOIN best USING (run_id) QUALIFY row_number() OVER () < 9",
    "SELECT text->>'epochs', json_extract_string(text, '$.a.b'), regexp_extract(run_id, '\\d+'),"
    " split_part(run_id, '-', 1),"
    " replace(run_id, '-', '_'), format('{:.2f} {:>9}', value, run_id), strftime(to_timestamp(value), '%Y-%m-%d'),"
    " coalesce(status, 'none'), CASE WHEN value > 1 THEN 'high' ELSE 'low' END, value::INT,"
    " concat_ws('/', platform, run_id)"
    " FROM runs WHERE run_id IN (SELECT run_id FROM steps WHERE value > (SELECT avg(value) FROM steps))",
    "SELECT regexp_extract(run_id, '(gpt|bert)-[0-9]{1,3}-\\d{4}-\\d{2}'), regexp_matches(text, '^a.*b$') FROM runs",
    "SELECT contains(text, 'a'), text LIKE '%loss%', replace(text, 'a', ''), trim(text), text ILIKE '%b' FROM runs",
    "SELECT time_bucket(INTERVAL 1 MINUTE, time::TIMESTAMP) AS minute, avg(value) FROM steps GROUP BY 1 ORDER BY 1",
    "SELECT u.unnest, r.range FROM unnest([1, 2, 3]) u, range(1000000000) r, json_each('[1]')",
    "(SELECT run_id FROM runs UNION ALL SELECT run_id FROM steps) EXCEPT SELECT run_id FROM runs ORDER BY 1 LIMIT 3",
    "SELECT " + " + ".join(["value"] * 200) + " FROM runs",
]  # fmt: skip


@pytest.mark.parametrize("sql", USEFUL)
def test_what_people_ask_passes(sql: str) -> None:
    check(sql)


def test_the_columns_of_a_store_have_their_sizes(store: Store) -> None:
    with store.connect() as connection:
        columns = {(column.relation, column.name): column.size for column in chain(*store_columns(connection).values())}
    assert columns["runs", "run_id"] > SMALL
    assert columns["core_samples", "cpu_percent"] == columns["runs", "started_at"] == SMALL


def test_texts_of_views_have_the_names_of_the_texts_that_they_show(store: Store) -> None:
    with store.connect() as connection:
        tables = table_columns(connection)
        texts = {
            column for columns in tables.values() for column, kind in columns.items() if kind in ("VARCHAR", "JSON")
        }
        shown = {
            column.name
            for relation, columns in store_columns(connection).items()
            for column in columns
            if relation not in tables and column.size > SMALL
        }
    assert shown - texts == {"reasons"}  # of few words
