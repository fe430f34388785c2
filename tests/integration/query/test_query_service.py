import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from gpuagent_collector.query.execute import Execution, Parameter
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_collector.server.query_service import CHUNK_BYTES, MAX_QUERIES_OF_A_TOKEN, Turns
from gpuagent_collector.store import StoreSpec
from gpuagent_collector.trust.tokens import Caller, Scope
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1 import query_service_pb2 as pb
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc
from tests.support.query_servers import Serving
from tests.support.servers import until
from tests.support.stores import make_store, on_both_kinds

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 7"

# Two rows of three million characters.
LONG_TEXTS = "SELECT string_agg(repeat('x', 10000)) FROM range(600) GROUP BY range % 2"


@pytest.fixture
def reader(serving: Serving) -> Iterator[RemoteReader]:
    reader = RemoteReader(serving.address, "token")
    yield reader
    reader.close()


@pytest.fixture
def stub(serving: Serving) -> Iterator[pb_grpc.QueryServiceStub]:
    with grpc.insecure_channel(serving.address) as channel:
        yield pb_grpc.QueryServiceStub(channel)


def connections(serving: Serving) -> int:
    """Return how many connections the store's instance has.

    A query has two, its own and its watcher's; a lake's transaction has another.
    """
    with serving.store.connect() as connection:
        row = connection.execute("SELECT count FROM duckdb_connection_count()").fetchone()
    assert row
    return int(row[0])


@on_both_kinds("serving")
def test_an_answer_comes_with_its_types_and_columns_and_parameters_arrive_as_sent(reader: RemoteReader) -> None:
    table = reader.sql("SELECT 1::BIGINT AS a, 'x' AS b, NULL::DOUBLE AS c, TIMESTAMP '2026-01-01' AS d")
    assert [field.type for field in table.schema] == [pa.int64(), pa.string(), pa.float64(), pa.timestamp("us")]
    assert table.num_rows == 1
    assert reader.sql("SELECT run_id, repeat FROM runs WHERE false").schema.names == ["run_id", "repeat"]
    values: list[Parameter] = ["'; DROP TABLE runs", 2**53 + 1, 0.1, None, ["a,b", "'c'"], [1, 2]]
    assert list(reader.sql("SELECT ?, ?, ?, ?, ?, ?", values).to_pylist()[0].values()) == values


def test_a_file_and_a_collector_answer_alike(serving: Serving, reader: RemoteReader, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    from_file = FileReader(StoreSpec.parse(str(make_store(other))))
    query = "SELECT run_id, status, exit_code, started_at, labels FROM runs ORDER BY run_id"
    assert from_file.sql(query).equals(reader.sql(query))
    from_file.close()


def test_a_long_answer_comes_in_pieces_that_fit_into_messages(stub: pb_grpc.QueryServiceStub, serving: Serving) -> None:
    responses = list(stub.Query(pb.QueryRequest(sql=LONG_TEXTS)))
    assert max(len(response.arrow_ipc) for response in responses) == CHUNK_BYTES
    assert pa.ipc.open_stream(b"".join(response.arrow_ipc for response in responses)).read_all().num_rows == 2
    assert [response.source for response in responses if response.source] == [str(serving.store.spec)]


def test_a_reader_puts_the_pieces_together(reader: RemoteReader) -> None:
    table = reader.sql("SELECT range, repeat('x', 1000) AS text FROM range(30000)")
    assert table.column("range").to_pylist() == list(range(30_000))
    assert set(table.column("text").to_pylist()) == {"x" * 1000}


def test_the_row_limit_is_told_in_the_last_message(reader: RemoteReader) -> None:
    with reader.stream("FROM range(100001)") as answer:
        assert sum(batch.num_rows for batch in answer) == 100_000
        assert answer.truncated
    with pytest.raises(GpuAgentError, match="cut at 100,000 rows"):
        reader.sql("FROM range(100001)")


@pytest.mark.parametrize(
    ("sql", "parameters", "words"),
    [
        ("DELETE FROM steps", "", "cannot change anything"),
        ("SELECT stat FROM runs", "", "there is no column stat; similar: status"),
        ("SELECT 1", "{}", "not a JSON array"),
        ("SELECT 1", "[", "not JSON"),
        ("SELECT ?", '["\\ud800"]', "not JSON"),
        ("SELECT 1", "[[[1]]]", "not a JSON array"),
        ("SELECT 1", "[" * 100_000, "not JSON"),
        ("SELECT ?", f"[{'9' * 5000}]", "not JSON"),
        ("SELECT ?", f"[{'1,' * 5000}1]", "5,001 parameters"),
        ("SELECT lead(range, ?) OVER () FROM range(3)", f"[{-(2**63)}]", "offsets up to 10,000"),
        (ENDLESS, "", "exceeded its 0.2 s"),
    ],
)
def test_failures_have_the_codes_of_the_protocol(
    stub: pb_grpc.QueryServiceStub, sql: str, parameters: str, words: str
) -> None:
    seconds = 0.2 if sql == ENDLESS else 0.0
    with pytest.raises(grpc.RpcError) as failure:
        list(stub.Query(pb.QueryRequest(sql=sql, parameters_json=parameters, timeout_seconds=seconds)))
    expected = grpc.StatusCode.DEADLINE_EXCEEDED if sql == ENDLESS else grpc.StatusCode.INVALID_ARGUMENT
    assert failure.value.code() is expected
    assert words in (failure.value.details() or "")


# In rare cases DuckDB tells no reason, here and in the next test.
def test_a_message_of_duckdb_that_is_cut_within_a_character_reaches_the_reader(reader: RemoteReader) -> None:
    with pytest.raises(MisuseError, match=r"malformed JSON.*é|failed in mid-answer"):
        reader.sql("SELECT json(repeat('é', 401))")


def test_a_mistake_in_mid_answer_reaches_the_reader(reader: RemoteReader) -> None:
    with pytest.raises(MisuseError, match=r"could not convert string 'x' to INT32|failed in mid-answer"):
        reader.sql("SELECT CASE WHEN range < 90000 THEN '1' ELSE 'x' END::INT FROM range(100000)")


@on_both_kinds("serving")
def test_a_query_whose_client_goes_is_stopped(serving: Serving, stub: pb_grpc.QueryServiceStub) -> None:
    before = connections(serving)
    calls = [stub.Query(pb.QueryRequest(sql=ENDLESS)) for _ in range(6)]
    until(lambda: connections(serving) > before, "the query's connection")
    for call in calls:
        call.cancel()
    until(lambda: connections(serving) == before, "the end of the query")


def test_a_client_that_goes_in_mid_answer_leaves_nothing_behind(serving: Serving, reader: RemoteReader) -> None:
    before = connections(serving)
    with reader.stream("SELECT repeat('x', 1000) FROM range(100000)") as answer:
        next(iter(answer))
        assert connections(serving) > before
    until(lambda: connections(serving) == before, "the end of the query")


def test_long_queries_hold_up_neither_the_event_loop_nor_short_ones(
    serving: Serving, stub: pb_grpc.QueryServiceStub, reader: RemoteReader
) -> None:
    before = connections(serving)
    calls = [stub.Query(pb.QueryRequest(sql=ENDLESS)) for _ in range(3)]
    until(lambda: connections(serving) >= before + 6, "the long queries")
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), serving.loop).result()
    assert reader.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    for call in calls:
        call.cancel()


def has_connections(serving: Serving, number: int) -> bool:
    return connections(serving) >= number


def ask_as(serving: Serving, name: str, scope: Scope = Scope.VIEWER) -> None:
    """Let the next calls come from the holder of another token."""
    caller = Caller(name=name, scope=scope)
    serving.service.caller = lambda: caller


def test_a_token_takes_a_quarter_of_the_places_and_others_are_answered(
    serving: Serving, stub: pb_grpc.QueryServiceStub, reader: RemoteReader
) -> None:
    before, calls = connections(serving), []
    for name in ("first", "second", "third"):
        ask_as(serving, name)
        calls += [stub.Query(pb.QueryRequest(sql=ENDLESS)) for _ in range(MAX_QUERIES_OF_A_TOKEN)]
        until(partial(has_connections, serving, before + 2 * len(calls)), "the long queries")
        with pytest.raises(GpuAgentError, match=f"{MAX_QUERIES_OF_A_TOKEN} of this token"):
            reader.sql("SELECT 1")
    ask_as(serving, "fourth")
    assert reader.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    for call in calls:
        call.cancel()
    until(lambda: connections(serving) == before, "the end of the queries")
    ask_as(serving, "first")
    assert reader.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_abandoned_queries_of_a_token_hold_up_its_next_one_but_do_not_make_it_fail(
    serving: Serving, stub: pb_grpc.QueryServiceStub, reader: RemoteReader
) -> None:
    service, may_close = serving.service, threading.Event()
    close = service._close

    def close_later(execution: Execution) -> None:
        may_close.wait()
        close(execution)

    service._close = close_later  # type: ignore[method-assign]
    calls = [stub.Query(pb.QueryRequest(sql=ENDLESS)) for _ in range(MAX_QUERIES_OF_A_TOKEN)]
    until(lambda: len(service._executions) == len(calls), "the long queries")
    for call in calls:
        call.cancel()
    until(lambda: len(service._closing) == len(calls) and not service._asking, "their cancellation")
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(reader.sql, "SELECT 1 AS one")
        until(lambda: answer.done() or bool(service._asking), "the next query")
        may_close.set()
        assert answer.result().to_pylist() == [{"one": 1}]


@pytest.mark.parametrize(("scope", "is_answered"), [(Scope.VIEWER, False), (Scope.OPERATOR, True)])
def test_only_a_viewer_is_refused_what_may_grow(
    serving: Serving, reader: RemoteReader, scope: Scope, is_answered: bool
) -> None:
    ask_as(serving, "someone", scope)
    with nullcontext() if is_answered else pytest.raises(MisuseError, match="scope operator"):
        assert reader.sql("SELECT list_reverse(map_keys(histogram(1))) AS a").to_pylist() == [{"a": [1]}]


def test_a_viewer_s_statement_is_charged_for_the_longest_stored_texts(serving: Serving, reader: RemoteReader) -> None:
    serving.service.turns = Turns(memory_bytes=64 * 2**20)
    ask_as(serving, "someone")
    assert reader.sql("SELECT platform FROM runs").num_rows
    serving.store.longest_texts.note("platform", 60_000)
    with pytest.raises(MisuseError, match="MiB"):
        reader.sql("SELECT platform FROM runs")
    assert reader.sql("SELECT status FROM runs").num_rows


def test_short_memory_is_freed_by_the_token_with_most_queries(serving: Serving, stub: pb_grpc.QueryServiceStub) -> None:
    before = connections(serving)
    ask_as(serving, "modest")
    modest = stub.Query(pb.QueryRequest(sql=ENDLESS))
    until(lambda: connections(serving) >= before + 2, "the first query")
    ask_as(serving, "greedy")
    greedy = [stub.Query(pb.QueryRequest(sql=ENDLESS)) for _ in range(2)]
    until(lambda: connections(serving) >= before + 6, "the other queries")
    serving.loop.call_soon_threadsafe(serving.service.free_memory)
    for call in greedy:
        with pytest.raises(grpc.RpcError) as stopped:
            list(call)
        assert stopped.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert modest.is_active()
    modest.cancel()


def test_a_large_statement_that_grows_is_stopped_while_the_memory_of_others_gets_free(
    serving: Serving, stub: pb_grpc.QueryServiceStub
) -> None:
    serving.service.turns = Turns(memory_bytes=64 * 2**20)
    before = connections(serving)
    for sql in (ENDLESS, "SELECT median(a.range) FROM range(1000000) a, range(1000000) b"):
        until(lambda: connections(serving) == before, "the end of the query before")
        ask_as(serving, sql)
        call = stub.Query(pb.QueryRequest(sql=sql))
        until(lambda: connections(serving) >= before + 2, "the query")
        serving.loop.call_soon_threadsafe(serving.service.free_memory)
        with pytest.raises(grpc.RpcError) as stopped:
            list(call)
        assert stopped.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@on_both_kinds("serving")
def test_queries_make_room_when_the_store_needs_their_memory(serving: Serving, reader: RemoteReader) -> None:
    before = connections(serving)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(reader.sql, ENDLESS)
        until(lambda: connections(serving) > before, "the query's connection")
        serving.loop.call_soon_threadsafe(serving.service.evict)
        with pytest.raises(GpuAgentError, match="to free memory"):
            answer.result()


def test_a_collector_that_is_not_there_is_told_as_such() -> None:
    reader = RemoteReader("127.0.0.1:1", "token")
    with pytest.raises(GpuAgentError, match=r"the collector at 127\.0\.0\.1:1 cannot be reached"):
        reader.sql("SELECT 1")
    reader.close()
