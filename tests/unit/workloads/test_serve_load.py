"""Load on servers whose every delay is known: by theory, or because they kept when they did what."""

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError, WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.clients import Client, Log, Record, Target, Window
from gpuagent_workloads.suite.serve_load.exchange import Answer, Endpoint, parse
from gpuagent_workloads.suite.serve_load.figures import latency_of, quantile, report_figures
from gpuagent_workloads.suite.serve_load.run import run
from gpuagent_workloads.suite.serve_load.schedule import distribution, schedule
from tests.unit.workloads.serving_stand_in import Connection, StandIn, answer_at_once, standing_in

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:9"


def config(**given: Any) -> Config:
    loads = {} if {"rate", "concurrency", "trace"} & given.keys() else {"rate": 50.0}
    return Config(**{"url": URL, "input": "8", "output": "3", "duration": 1.0, "warmup": 0.0, **loads, **given})


def drive_here(server: StandIn, load: Config) -> tuple[Log, Window]:
    """Put load on a server by one client in this process."""
    begin = time.monotonic()
    measure_from = begin + load.warmup
    window = Window(load_from=begin, measure_from=measure_from, measure_to=measure_from + load.duration)
    target = Target(endpoint=Endpoint(url=server.url), model="m")
    return asyncio.run(Client(load, target, window, 0, 1).run()), window


def results(log: Log, window: Window, load: Config) -> dict[str, Any]:
    reporter = Reporter(None)
    report_figures(log, window, load, reporter)
    return {result.name: result.value for result in reporter.results}


def record(intended: float, first: float, *, last: float | None = None, late: float = 0.0, tokens: int = 1) -> Record:
    """Return a request whose answer came at these times."""
    last = first if last is None else last
    times = [first + (last - first) * place / max(1, tokens - 1) for place in range(tokens)]
    answer = Answer(status=200, token_seconds=tuple(times), is_complete=True, usage={}, error=None)
    return Record(
        intended=intended, sent=intended + late, ended=last, is_measured=True, asked_input=1, error=None, answer=answer
    )


def served_in_turn(arrivals: Sequence[float], service_seconds: float) -> list[Record]:
    """Return the requests of one server that takes the same time for each, in the order of their arrival."""
    free_at = 0.0
    records = []
    for at_seconds in arrivals:
        free_at = max(free_at, at_seconds) + service_seconds
        records.append(record(at_seconds, free_at))
    return records


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_waiting_times_of_poisson_arrivals_are_those_of_queueing_theory(load: float) -> None:
    """M/D/1: the mean wait is load × service / 2 (1 - load), by Pollaczek and Khinchine; nobody waits with 1 - load."""
    service, count = 0.01, 30_000
    arrivals = [planned.at_seconds for planned in itertools.islice(schedule(config(rate=load / service)), count)]
    window = Window(load_from=0.0, measure_from=0.0, measure_to=arrivals[-1])
    asked = config(rate=load / service, slo_ttft=1000 * service * (1 + 1e-9))
    records = served_in_turn(arrivals, service)
    found = results(Log(records=records), window, asked)
    waits = [latency.ttft - service for each in records if (latency := latency_of(each))]
    assert sum(waits) / count == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)
    # Only who does not wait keeps a limit of the service time.
    assert found["goodput_percent"] == pytest.approx(100 * (1 - load), rel=0.03)
    assert found["goodput"] == pytest.approx((1 - load) * load / service, rel=0.03)
    assert found["offered_requests_per_second"] == pytest.approx(load / service, rel=0.01)


def test_burstier_arrivals_of_the_same_rate_wait_longer() -> None:
    def mean_wait(burstiness: float) -> float:
        planned = itertools.islice(schedule(config(rate=60.0, burstiness=burstiness)), 10_000)
        records = served_in_turn([each.at_seconds for each in planned], 0.01)
        return sum(latency.ttft - 0.01 for each in records if (latency := latency_of(each))) / len(records)

    assert mean_wait(0.25) > 2 * mean_wait(1.0) > 4 * mean_wait(10.0)


def test_client_s_times_fit_the_stamps_of_the_server() -> None:
    """Every second answer is held for longer than the limit of goodput, whatever the machine does besides."""
    slow_seconds, limit = 0.3, 250.0
    asked = itertools.count()

    async def behave(connection: Connection, body: dict[str, Any]) -> None:
        await connection.head()
        if next(asked) % 2:
            await asyncio.sleep(slow_seconds)
        for _ in range(body["max_tokens"]):
            await connection.token()
        await connection.end({"prompt_tokens": 8, "completion_tokens": body["max_tokens"]})

    with standing_in(behave) as server:
        load = config(rate=40.0, slo_ttft=limit)
        log, window = drive_here(server, load)
        stamps = server.stamps[: len(log.records)]
    measured = [each for each in log.records if each.is_measured]
    assert measured
    assert not [each.error for each in measured if each.error]
    # Connections arrive in another order than they were begun only if the system says so: pair by time.
    for each, kept in zip(sorted(log.records, key=lambda each: each.sent), stamps, strict=False):
        if not each.is_measured:
            continue
        assert each.answer
        assert each.intended <= each.sent <= kept.received
        assert len(each.answer.token_seconds) == 3
        for sent, arrived in zip(sorted(kept.tokens), each.answer.token_seconds, strict=True):
            assert sent <= arrived <= each.ended
    found = results(log, window, load)
    quick_by_stamps = sum(1000 * (kept.tokens[0] - kept.received) <= limit for kept in stamps[: len(measured)])
    assert found["goodput"] * load.duration <= quick_by_stamps <= (len(measured) + 1) // 2
    assert found["ttft_p99_seconds"] >= slow_seconds


def test_an_open_loop_sends_at_its_times_though_nothing_is_answered() -> None:
    """No answer comes before the last request: who waits for answers never gets there."""
    load = config(rate=30.0, duration=0.5)
    expected = sum(1 for each in itertools.islice(schedule(load), 1000) if each.at_seconds < load.duration)
    all_here = asyncio.Event()
    arrived = itertools.count(1)

    async def behave(connection: Connection, body: dict[str, Any]) -> None:
        if next(arrived) >= expected:
            all_here.set()
        await all_here.wait()
        await answer_at_once(connection, body)

    with standing_in(behave) as server:
        log, window = drive_here(server, load)
        last_received = server.stamps[expected - 1].received
    measured = [each for each in log.records if each.is_measured]
    assert len(measured) == expected
    # The wait counts from the time at which each was to be sent: none is left out by the stall.
    for each in measured:
        latency = latency_of(each)
        assert latency
        assert latency.ttft >= last_received - each.intended
    assert results(log, window, load)["requests"] == expected


def test_a_closed_loop_never_has_more_requests_than_users() -> None:
    with standing_in(answer_at_once) as server:
        load = config(concurrency=3, duration=0.5)
        log, window = drive_here(server, load)
        assert 1 <= server.most_at_once <= 3
    found = results(log, window, load)
    assert found["requests"] >= 3
    assert found["request_errors"] == 0


def test_a_client_that_is_busy_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Target.body

    def slow_body(target: Target, load: Config, planned: Any) -> dict[str, Any]:
        time.sleep(0.03)  # three times as long as the pause between two requests
        return body(target, load, planned)

    monkeypatch.setattr(Target, "body", slow_body)
    with standing_in(answer_at_once) as server:
        load = config(rate=100.0, duration=0.5)
        found = results(*drive_here(server, load), load)
    assert found["client_limited"] == 1
    assert found["client_lag_p99_seconds"] >= 0.03


@pytest.mark.parametrize(("late", "is_limited"), [(0.004, 0), (0.009, 0), (0.011, 1)])
def test_lateness_counts_beside_the_time_to_the_first_token(late: float, is_limited: int) -> None:
    records = [record(at, at + 0.1, late=late) for at in range(10)]
    window = Window(load_from=0.0, measure_from=0.0, measure_to=10.0)
    assert results(Log(records=records), window, config())["client_limited"] == is_limited


async def _refuse(connection: Connection, _body: dict[str, Any]) -> None:
    await connection.head(503)
    await connection.end()


async def _reset(connection: Connection, _body: dict[str, Any]) -> None:
    connection.abort()


async def _break_off(connection: Connection, _body: dict[str, Any]) -> None:
    await connection.head()
    await connection.token()


async def _fail_within(connection: Connection, _body: dict[str, Any]) -> None:
    await connection.head()
    await connection.token()
    await connection.event({"error": {"message": "out of memory"}})
    await connection.end()


async def _never(_connection: Connection, _body: dict[str, Any]) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        (_refuse, "http_503"),
        (_reset, "connection"),
        (_break_off, "incomplete"),
        (_fail_within, "server_error"),
        (_never, "timeout"),
    ],
)
def test_failed_requests_are_counted_by_kind_and_missed_by_goodput(behave: Any, kind: str) -> None:
    turns = itertools.count()

    async def every_second(connection: Connection, body: dict[str, Any]) -> None:
        await (behave if next(turns) % 2 else answer_at_once)(connection, body)

    with standing_in(every_second) as server:
        load = config(rate=20.0, timeout=1.5 if kind == "timeout" else 60.0, slo_e2e=1e6)
        log, window = drive_here(server, load)
    found = results(log, window, load)
    assert found[f"errors_{kind}"] == found["request_errors"] > 0
    good = found["requests"] - found["request_errors"]
    assert found["goodput_percent"] == pytest.approx(100 * good / found["requests"])


@pytest.mark.parametrize(
    ("behave", "said"),
    [(_refuse, "× http_503"), (_fail_within, "× server_error; the server said: .*out of memory")],
)
def test_a_load_of_which_nothing_succeeds_fails_with_the_server_s_reason(behave: Any, said: str) -> None:
    with standing_in(behave) as server:
        load = config(rate=20.0, duration=0.3)
        log, window = drive_here(server, load)
    with pytest.raises(WorkloadError, match=said):
        results(log, window, load)


@pytest.mark.parametrize(("counted", "why"), [(2, "its 2 tokens have none"), (0, "try the other --api")])
def test_a_server_whose_answers_have_no_text_is_refused(counted: int, why: str) -> None:
    async def without_text(connection: Connection, _body: dict[str, Any]) -> None:
        await connection.head()
        await connection.event({"choices": [{"text": ""}]})
        await connection.end({"prompt_tokens": 8, "completion_tokens": counted})

    with standing_in(without_text) as server, pytest.raises(WorkloadError, match=f"without any text.*{why}"):
        run(config(url=server.url, model="m"), Reporter(None))


def test_an_answer_is_the_same_however_its_bytes_arrive() -> None:
    events = [{"choices": [{"delta": {"content": "é"}}]}, {"choices": [], "usage": {"completion_tokens": 7}}]
    chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DO", b"NE]\n\n"]
    framed = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + b"0\r\n\r\n"
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed
    # The first token is whole with this byte.
    whole_at = raw.index(b"}\n\n") + 3
    for cut in range(1, len(raw)):
        answer = parse([(1.0, raw[:cut]), (2.0, raw[cut:])])
        assert answer
        assert (answer.status, answer.is_complete, answer.usage) == (200, True, {"completion_tokens": 7})
        assert answer.token_seconds == (1.0 if cut >= whole_at else 2.0,)
    plain = b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(chunks)
    whole = parse([(1.0, plain[:30]), (3.0, plain[30:])])
    assert whole
    assert (whole.token_seconds, whole.is_complete) == ((3.0,), True)
    assert parse([(1.0, b"not HTTP")]) is None


def test_percentiles_lie_between_the_nearest_values() -> None:
    assert quantile([], 50) is None
    assert quantile([3.0], 99) == 3.0
    assert quantile([4.0, 1.0, 2.0, 3.0], 50) == 2.5
    assert quantile(range(101), 90) == 90


def test_recorded_traces_give_times_and_lengths_again_and_again(tmp_path: Path) -> None:
    mooncake = tmp_path / "trace.jsonl"
    mooncake.write_text(
        '{"timestamp": 3000, "input_length": 9, "output_length": 2}\n'
        '{"timestamp": 1000, "input_length": 5, "output_length": 1}\n'
    )
    azure = tmp_path / "trace.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,5,1\n2023-11-16 18:15:48.6805900,9,2\n"
    )
    for path in (mooncake, azure):
        found = list(itertools.islice(schedule(config(trace=str(path))), 4))
        assert [each.at_seconds for each in found] == pytest.approx([0, 2, 4, 6])
        assert [(each.input_tokens, each.output_tokens) for each in found] == [(5, 1), (9, 2)] * 2
    drawn = itertools.islice(schedule(config(lengths=str(azure))), 50)
    assert {(each.input_tokens, each.output_tokens) for each in drawn} == {(5, 1), (9, 2)}
    mooncake.write_text('{"timestamp": 0}\n')
    with pytest.raises(DataError, match="is no trace"):
        next(schedule(config(trace=str(mooncake))))


def test_lengths_follow_their_distribution() -> None:
    import random

    source = random.Random(1)
    assert {distribution("5", "--input")(source) for _ in range(9)} == {5}
    uniform = [distribution("uniform:2:4", "--input")(source) for _ in range(200)]
    assert set(uniform) == {2, 3, 4}
    logs = sorted(distribution("lognormal:100:0.5", "--input")(source) for _ in range(2001))
    assert logs[1000] == pytest.approx(100, rel=0.05)
    assert logs[1682] == pytest.approx(100 * 2.718281828**0.5, rel=0.1)  # one deviation above: 84.1 %
    for wrong in ("", "0", "a", "uniform:4:2", "uniform:1", "lognormal:0:1", "lognormal:1:-1", "normal:1:1"):
        with pytest.raises(MisuseError, match="--input takes"):
            distribution(wrong, "--input")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"rate": 1.0}, "give --url of a running server"),
        ({"url": URL}, "give a load"),
        ({"url": URL, "serve": "{port}", "rate": 1.0}, "not both"),
        ({"url": URL, "rate": 1.0, "concurrency": 2}, "not rate and concurrency"),
        ({"serve": "serve", "rate": 1.0}, "needs {port}"),
        ({"url": "localhost:8000", "rate": 1.0}, "begins with http"),
        ({"url": "http://host:abc", "rate": 1.0}, "is a number"),
    ],
)
def test_contradictory_parameters_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(MisuseError, match=reason):
        run(Config(**given), Reporter(None))


def test_a_whole_run_measures_the_built_in_server(tmp_path: Path) -> None:
    """Two client processes, and the server as a part of the run: its imports take most of the time, several seconds."""
    command = "{python} -m gpuagent_workloads serve --port {port} --threads 1 --device cpu"
    reporter = Reporter(tmp_path / "events.0.0.jsonl")
    asked = config(url=None, serve=command, clients=2, input="uniform:16:32", output="4", warmup=0.2, rate=20.0)
    with reporter:
        run(asked, reporter)
    found: dict[str, Any] = {result.name: result.value for result in reporter.results}
    assert found["model"] == "tiny"
    assert found["request_errors"] == 0
    assert found["output_tokens_mean"] == 4
    # Calibrated by the server's own counts, to the token.
    assert 16 <= found["input_tokens_mean"] <= 32
    assert found["throughput"] > 0
    records = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert len(records) == found["requests"]
    assert found["ttft_p50_seconds"] == quantile([each["ttft"] for each in records], 50)
    phases = [json.loads(line) for line in (tmp_path / "events.0.0.jsonl").read_text().splitlines()]
    assert [each["name"] for each in phases if each["event"] == "phase"] == ["warmup", "measure", "teardown", "end"]


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_digests_of_answers_are_those_of_what_a_server_says_to_fixed_prompts(api: str) -> None:
    async def repeat(connection: Connection, body: dict[str, Any]) -> None:
        """Say the prompt's end, in two events, and the last words."""
        said = (body["prompt"] if api == "completions" else body["messages"][0]["content"])[-20:]
        await connection.head()
        for piece in (said[:5], said[5:] + last_words[-1]):
            parts = {"text": piece} if api == "completions" else {"delta": {"content": piece}}
            await connection.event({"choices": [parts]})
        await connection.end({"prompt_tokens": 64, "completion_tokens": 2})

    last_words, found = [""], []
    for seed, last in ((1, ""), (2, ""), (1, "!")):
        last_words.append(last)
        with standing_in(repeat) as server:
            reporter = Reporter(None)
            run(config(url=server.url, model="m", answers=4, api=api, seed=seed, duration=0.1, clients=1), reporter)
        found.append({result.name: result.value for result in reporter.results}["answers"])
    first, again, other = (str(each).split() for each in found)
    assert first == again
    assert len(set(first)) == 4
    assert not {*first} & {*other}
