import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.query.execute import (
    BATCH_ROWS,
    STATM,
    Execution,
    Limits,
    QueryCancelledError,
    QueryMemoryError,
    QueryTimeoutError,
    resident_bytes,
)
from gpuagent_collector.store import Store
from gpuagent_common.errors import GpuAgentError, MisuseError

Execute = Callable[..., Execution]

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 7"

FAILED_MIDWAY = "the statement failed"


@pytest.fixture
def execute(shared_store: Store) -> Iterator[Execute]:
    """Makes executions with limits, which are closed after the test."""
    with ExitStack() as opened:
        yield lambda **limits: opened.enter_context(closing(Execution(shared_store.connect, Limits(**limits))))


def test_rows_come_as_they_are_taken(execute: Execute) -> None:
    rows = execute().start("FROM range(1000000000000)")
    assert rows.read_next_batch().num_rows == BATCH_ROWS


def test_parameters_take_the_place_of_question_marks(execute: Execute) -> None:
    table = execute().start("SELECT ? AS a, ? AS b, ? AS c", ["x'; DROP", 2, None]).read_all()
    assert table.to_pylist() == [{"a": "x'; DROP", "b": 2, "c": None}]


@pytest.mark.parametrize(
    ("rows", "limit", "given", "truncated"), [(5, 5, 5, False), (6, 5, 5, True), (25_000, 15_000, 15_000, True)]
)
def test_the_row_limit_cuts_and_says_so(execute: Execute, rows: int, limit: int, given: int, truncated: bool) -> None:
    execution = execute(rows=limit)
    assert execution.start(f"FROM range({rows})").read_all().num_rows == given
    assert execution.truncated is truncated


def test_the_size_limit_cuts_before_the_batch_that_is_too_much(execute: Execute) -> None:
    execution = execute(size_bytes=4 * 8 * BATCH_ROWS - 1)
    assert execution.start("FROM range(1000000)").read_all().num_rows == 3 * BATCH_ROWS
    assert execution.truncated


def test_what_is_kept_of_the_store_s_file_in_memory_stops_no_query(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        with store.connect() as writer:
            writer.execute("INSERT INTO core_samples (cpu_percent) SELECT random() FROM range(4_000_000)")
            writer.execute("CHECKPOINT")
            kept = writer.execute("SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'BASE_TABLE'").fetchall()
        limits = Limits(timeout_seconds=0.5, store_memory_bytes=kept[0][0] // 2)
        execution = Execution(store.connect, limits)
        with pytest.raises(QueryTimeoutError):
            execution.start("FROM range(1_000_000_000_000) WHERE range < 0").read_all()
        execution.close()


def test_what_functions_make_beside_duckdb_s_memory_stops_a_query(execute: Execute) -> None:
    # The state of a median: DuckDB does not count it.
    execution = execute(other_memory_bytes=resident_bytes() + 2**25)
    with pytest.raises(QueryMemoryError):
        execution.start("SELECT median(range) FROM range(1000000000000)").read_all()


def test_a_statement_beyond_its_limit_is_reported_once(shared_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_collector.query.execute.OBEY_SECONDS", 0.05)
    reported: list[bool] = []
    execution = Execution(shared_store.connect, Limits(timeout_seconds=0.05), on_stuck=reported.append)
    # All combinations for the wildcards, in one function: about a second without a look at interrupts.
    with pytest.raises(QueryTimeoutError):
        execution.start("SELECT repeat('a', 180) LIKE '%_a%_a%_a%b' FROM range(2)").read_all()
    execution.close()
    assert reported == [False]


@pytest.mark.parametrize("message", ["INTERRUPT Error: Interrupted!", "", "Invalid Input Error: "])
def test_a_failure_without_a_reason_is_a_mistake_in_the_statement(execute: Execute, message: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(message)

    with pytest.raises(MisuseError, match="TRY_CAST"):
        list(execute()._batches(iter(fail, None)))  # type: ignore[arg-type] # as Arrow's reader fails


@pytest.mark.parametrize(
    ("limits", "stop", "error", "words"),
    [
        ({"timeout_seconds": 0.2}, None, QueryTimeoutError, r"exceeded its 0\.2 s"),
        ({}, Execution.cancel, QueryCancelledError, "was cancelled"),
        ({}, Execution.evict, QueryMemoryError, "stopped to free memory"),
    ],
    ids=["time", "another thread", "the store's memory"],
)
def test_a_query_is_stopped_by_its_time_another_thread_and_the_store_s_memory(
    execute: Execute,
    limits: dict[str, float],
    stop: Callable[[Execution], None] | None,
    error: type[GpuAgentError],
    words: str,
) -> None:
    execution = execute(**limits)
    if stop is not None:
        threading.Timer(0.1, stop, [execution]).start()
    with pytest.raises(error, match=words):
        execution.start(ENDLESS).read_all()


def test_a_reader_who_stops_reading_runs_out_of_time_too(execute: Execute) -> None:
    rows = execute(timeout_seconds=0.2).start("FROM range(1000000000000)")
    with pytest.raises(QueryTimeoutError):
        for _ in rows:
            pass


def test_a_query_that_was_cancelled_before_it_began_never_begins(execute: Execute) -> None:
    execution = execute()
    execution.cancel()
    with pytest.raises(QueryCancelledError):
        execution.start("SELECT 1")


def test_closing_stops_a_query_that_is_under_way(shared_store: Store) -> None:
    execution = Execution(shared_store.connect, Limits())
    outcome: list[GpuAgentError] = []

    def read() -> None:
        try:
            execution.start(ENDLESS).read_all()
        except GpuAgentError as error:
            outcome.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    execution.close()
    reader.join()
    assert isinstance(outcome[0], QueryCancelledError)


def test_a_query_that_needs_too_much_memory_says_so() -> None:
    with duckdb.connect(config={"memory_limit": "64 MB", "max_temp_directory_size": "0 MB"}) as instance:
        execution = Execution(instance.cursor, Limits())
        with pytest.raises(QueryMemoryError, match="needs more memory"):
            execution.start("SELECT list(range) FROM range(1000000000)").read_all()
        execution.close()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT stat FROM runs", "there is no column stat; similar: status"),
        ("SELECT r.stat FROM runs AS r", "there is no column stat in r; similar: status"),
        ("SELECT x.stat FROM (FROM runs) x", "there is no column stat in x; `collector schema"),
        (
            'FROM runs WHERE platform = "it\'s on"',
            "there is no column it's on; a text stands in single quotes: 'it''s on'",
        ),
        ("SELECT throughput FROM runs", "there is no column throughput; it is a metric: SELECT run_id, value FROM"),
        ("SELECT workload FROM metrics", "there is no column workload; it is in runs"),
        # In rare cases DuckDB tells no reason.
        ("SELECT 'x'::INT", ("could not convert string 'x' to INT32", FAILED_MIDWAY)),
        (
            "SELECT CASE WHEN range < 50000 THEN '1' ELSE 'x' END::INT FROM range(100000)",
            ("could not convert string", FAILED_MIDWAY),
        ),
        ("SELECT ?", "values were not provided"),
    ],
)
def test_a_mistake_is_a_line_with_duckdbs_hint(execute: Execute, sql: str, words: str | tuple[str, ...]) -> None:
    execution = execute()
    with pytest.raises(MisuseError) as mistake:
        execution.start(sql).read_all()
    assert str(mistake.value).startswith(words)
    assert "\n" not in str(mistake.value)


def test_times_without_a_zone_are_utc_whatever_the_machine_says(execute: Execute) -> None:
    table = (
        execute()
        .start("SELECT TIMESTAMP '2026-01-01 00:00:00'::TIMESTAMPTZ = '2026-01-01T00:00:00Z' AS utc")
        .read_all()
    )
    assert table.to_pylist() == [{"utc": True}]


def test_a_store_closed_after_a_query_leaves_no_failing_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    before = set(threading.enumerate())
    for _ in range(20):
        execution = Execution(store.connect, Limits())
        execution.start("SELECT 1").read_all()
        execution.close()
    assert not [thread for thread in set(threading.enumerate()) - before if "_interrupt_when_due" in thread.name]
    store.close()
    assert failures == []


# Of three threads, as a machine of many processors has them: each with a part of the memory of its own.
_MEMORY = """
import threading
import duckdb
from gpuagent_collector.query.execute import keep_little_memory, resident_bytes, return_memory
keep_little_memory()
store = duckdb.connect(config={"threads": 1})
def ask(sql):
    store.cursor().execute(sql).fetchone()
before = resident_bytes()
for sql in ("SELECT len(list(repeat('x', 30_000))) FROM range(4_000)", "SELECT median(range) FROM range(9_000_000)"):
    ended, threads = threading.Event(), []
    for _ in range(3):
        answered = threading.Event()
        def work():
            ask(sql)
            answered.set()
            ended.wait()
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        answered.wait()
    return_memory()
    print((resident_bytes() - before) // 2**20)
    ended.set()
"""


@pytest.mark.skipif(not STATM.exists(), reason="this system does not tell a process's memory")
def test_memory_of_ended_statements_goes_back_to_the_system() -> None:
    environment = {**os.environ, "DUCKDB_JE_MALLOC_CONF": "narenas:16,dirty_decay_ms:-1"}
    done = subprocess.run([sys.executable, "-c", _MEMORY], env=environment, capture_output=True, text=True, check=True)
    assert [int(mebibytes) < 60 for mebibytes in done.stdout.split()] == [True, True], done.stdout
