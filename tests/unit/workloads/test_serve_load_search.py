"""The search for the highest load, the prompts of a load, and the server's own figures."""

import asyncio
import itertools
import json
import math
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.clients import Client, Log, Record, Target, Window
from gpuagent_workloads.suite.serve_load.exchange import Answer, Endpoint
from gpuagent_workloads.suite.serve_load.figures import Reading, parse_figures, reading_server, report_readings
from gpuagent_workloads.suite.serve_load.find import Search, capital, find_load, keeps_limits, levels_of
from gpuagent_workloads.suite.serve_load.schedule import schedule
from tests.unit.workloads.serving_stand_in import Connection, answer_at_once, standing_in

URL = "http://127.0.0.1:9"
TARGET = Target(endpoint=Endpoint(url=URL), model="m", characters=4.0)


def config(**given: Any) -> Config:
    return Config(**{"url": URL, "input": "100", "output": "7", "warmup": 0.0, **given})


def record(ttft: float | None, tpot: float = 0.01) -> Record:
    """Return a measured request with two tokens; None: it failed."""
    answer = None
    if ttft is not None:
        answer = Answer(status=200, token_seconds=(ttft, ttft + tpot), is_complete=True, usage={}, error=None)
    error = None if answer else "timeout"
    return Record(intended=0.0, sent=0.0, ended=1.0, is_measured=True, asked_input=1, error=error, answer=answer)


def searched(keeps: Callable[[int], bool], *, most: int = 60) -> Search:
    search = Search(levels=200, at=20, step=14, most=most)
    while not search.is_over:
        search.add(is_kept=keeps(search.at))
    return search


def test_bets_on_a_fair_coin_win_nothing() -> None:
    for bets in (1, 5, 12):
        mean = sum(math.comb(bets, won) * capital(won, bets - won) for won in range(bets + 1)) / 2**bets
        assert mean == pytest.approx(1)


@pytest.mark.parametrize("place", [0, 3, 20, 57, 111, 190])
def test_a_sharp_limit_is_found_between_two_levels(place: int) -> None:
    search = searched(lambda level: level <= place)
    assert search.interval() == (place, place + 1)
    assert len(search.outcomes) < 45


@pytest.mark.parametrize(("slow", "stalled"), [(0, 0), (6, 0), (0, 3)])
@pytest.mark.parametrize("width", [0.3, 1.0, 3.0])
def test_intervals_cover_the_limit_despite_slow_starts_and_stalls(width: float, slow: int, stalled: int) -> None:
    chance = random.Random(7)
    covered = 0
    for _ in range(60):
        place, begin = chance.uniform(40, 90), chance.randrange(4, 25)
        windows = itertools.count()

        def keeps(level: int, place: float = place, begin: int = begin, windows: Any = windows) -> bool:
            window = next(windows)
            if window < slow or begin <= window < begin + stalled:
                return False
            return chance.random() < 1 / (1 + math.exp((level - place) / width))

        low, high = searched(keeps).interval()
        covered += low <= place <= high
    assert covered >= 56


def test_an_erratic_server_has_a_wide_interval_and_many_contradictions() -> None:
    chance = random.Random(3)
    sharp, erratic = searched(lambda level: level <= 50), searched(lambda level: chance.random() < 0.8 and level <= 50)
    width = [high - low for low, high in (sharp.interval(), erratic.interval())]
    assert width[1] > 3 * width[0]
    assert sum(not won for *_, won in erratic.bets) > sum(not won for *_, won in sharp.bets) == 0


def found_by(asked: Config, keeps: Callable[[Config], bool]) -> tuple[Config, dict[str, Any], list[Config]]:
    """Search a server whose windows keep or miss all limits by their load."""
    loads = []

    def measure(load: Config) -> Log:
        loads.append(load)
        return Log(records=[record(0.05 if keeps(load) else None)])

    reporter = Reporter(None)
    load, _ = find_load(asked, measure, reporter)
    return load, {result.name: result.value for result in reporter.results}, loads


def test_each_window_of_a_search_is_reported_as_it_ends(tmp_path: Path) -> None:
    asked = config(find="rate", rate=4.0, slo_ttft=100.0, find_windows=20, find_step=30.0)
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        find_load(asked, lambda load: Log(records=[record(0.05 if load.rate == 4.0 else None)]), reporter)
    events = list(map(json.loads, (tmp_path / "events.0.0.jsonl").read_text().splitlines()))
    tried = [event for event in events if event["event"] == "tried"]
    windows = next(event["value"] for event in events if event.get("name") == "search_windows")
    assert len(tried) == windows
    assert tried[0]["name"] == "window 1: rate 4 keeps limits"
    assert tried[1]["name"].endswith("misses limits")
    assert all(event["most_left_seconds"] >= 0 for event in tried)


def test_the_highest_rate_is_reported_with_its_interval_and_measured_at_its_lower_end() -> None:
    load, found, loads = found_by(config(find="rate", slo_ttft=100.0), lambda load: (load.rate or 0) <= 37.0)
    assert found["highest_rate_low"] <= 37.0 < found["highest_rate_high"] <= 1.051 * found["highest_rate_low"]
    assert found["highest_rate_low"] < found["highest_rate"] < found["highest_rate_high"]
    assert load.rate == found["highest_rate_low"]
    assert found["search_windows"] == len(loads)
    assert found["search_contradictions"] == 0
    # No window sends the prompts of another.
    assert len({each.seed for each in (load, *loads)}) == len(loads) + 1


def test_users_are_whole_numbers() -> None:
    load, found, _ = found_by(config(find="concurrency", slo_e2e=1e3), lambda load: (load.concurrency or 0) <= 5)
    assert (found["highest_concurrency_low"], found["highest_concurrency_high"]) == (5, 6)
    assert load.concurrency == 5
    levels, first = levels_of(config(find="concurrency", concurrency=9, slo_e2e=1.0))
    assert levels[first] == 9
    assert levels[:4] == [1, 2, 3, 4]


@pytest.mark.parametrize(("keeps", "known"), [(True, "are kept up to"), (False, "are missed from")])
def test_a_limit_that_no_load_reaches_is_an_error(keeps: bool, known: str) -> None:
    asked = config(find="rate", rate=2.0, slo_ttft=100.0)
    with pytest.raises(WorkloadError, match=f"^the limits {known} .* windows; begin elsewhere"):
        found_by(asked, lambda _load: keeps)


def test_a_search_with_too_few_windows_says_between_which_loads_it_ended() -> None:
    asked = config(find="rate", rate=4.0, slo_ttft=100.0, find_windows=10, find_step=0.5)
    with pytest.raises(WorkloadError) as raised:
        found_by(asked, lambda load: (load.rate or 0) <= 37.0)
    found = re.fullmatch(
        r"the highest load is between (.*) and (.*) requests/s; 10 windows .*: give --find-windows 40",
        str(raised.value),
    )
    assert found
    assert float(found[1]) <= 37.0 < float(found[2]) < 2 * float(found[1])
    windows = itertools.count()
    # One of the first windows misses the limits by chance.
    with pytest.raises(WorkloadError, match=r"is about .* to .* requests/s, where windows contradict one another; 10"):
        found_by(asked, lambda load: next(windows) != 1 and (load.rate or 0) <= 37.0)


def test_a_server_that_stops_to_answer_has_no_highest_load() -> None:
    windows = itertools.count()
    asked = config(find="rate", rate=30.0, slo_ttft=100.0)
    with pytest.raises(WorkloadError, match=r"are kept at .* requests/s and missed at"):
        found_by(asked, lambda load: next(windows) < 12 and (load.rate or 0) <= 37.0)


def test_clients_that_fail_themselves_are_named_as_the_limit() -> None:
    good, failed = record(0.05), replace(record(None), error="client_24")
    asked = config(find="rate", slo_ttft=100.0)

    def measure(load: Config) -> Log:
        return Log(records=[good if (load.rate or 0) <= 37.0 else failed])

    assert find_load(asked, measure, Reporter(None))[1]


def test_each_limit_is_kept_by_the_wanted_percentage_and_failures_keep_none() -> None:
    asked = config(find="rate", slo_ttft=100.0, slo_tpot=20.0)
    good, slow, slow_after, failed = record(0.05), record(0.2), record(0.05, tpot=0.03), record(None)
    assert keeps_limits(Log(records=[good] * 9 + [slow]), asked)
    assert keeps_limits(Log(records=[good] * 8 + [slow, slow_after]), asked)
    assert not keeps_limits(Log(records=[good] * 8 + [slow, failed]), asked)
    assert not keeps_limits(Log(records=[good] * 8 + [slow_after] * 2), asked)
    assert keeps_limits(Log(records=[good] * 8 + [slow] * 2), config(find="rate", slo_ttft=100.0, slo_percent=80.0))
    assert keeps_limits(Log(records=[good] * 999 + [slow]), config(find="rate", slo_ttft=100.0, slo_percent=99.9))
    assert not keeps_limits(Log(), asked)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"find": "rate"}, "needs a limit"),
        ({"rate": 4.0, "find_windows": 40}, "need --find, such as"),
        ({"find": "rate", "turns": 2, "slo_ttft": 1.0}, "needs --find concurrency"),
        ({"find": "rate", "rate": 2e6, "slo_ttft": 1.0}, "at most"),
        ({"find": "scale", "slo_ttft": 1.0}, "needs --trace alone"),
        ({"find": "rate", "concurrency": 2, "slo_ttft": 1.0}, "needs --rate alone"),
        ({"trace": "t.jsonl", "turns": 2}, "a --trace has its own"),
    ],
)
def test_contradictory_searches_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(MisuseError, match=reason):
        config(**given)


def prompts(load: Config, number: int) -> list[str]:
    return [TARGET.body(load, planned)["prompt"] for planned in itertools.islice(schedule(load), number)]


def common(texts: Sequence[str]) -> int:
    """Return the length of the beginning that texts have in common."""
    return sum(1 for _ in itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False)))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_prompts_begin_alike_for_the_share_that_was_asked(share: float) -> None:
    load = config(rate=1.0, shared_prefix=share)
    texts = prompts(load, 20)
    assert {len(text) for text in texts} == {400}
    assert share * 400 <= common(texts) <= share * 400 + 8
    assert len(set(texts)) == 20
    assert texts == prompts(load, 20)
    assert texts != prompts(config(rate=1.0, shared_prefix=share, seed=2), 20)
    # Of prompts of other lengths as well.
    drawn = [TARGET.body(load, each)["prompt"] for each in itertools.islice(schedule(load), 3)]
    longer = prompts(config(rate=1.0, shared_prefix=share, input="200"), 1)
    assert common([drawn[0], longer[0]]) >= share * 400


def test_each_turn_has_all_before_it_in_its_prompt() -> None:
    load = config(rate=6.0, turns=3, think=0.5)
    first, second = itertools.islice(schedule(load), 2)
    turns = [first, *first.turns]
    assert [each.input_tokens for each in turns] == [100, 207, 314]
    texts = [TARGET.body(load, each)["prompt"] for each in turns]
    assert texts[1].startswith(texts[0])
    assert texts[2].startswith(texts[1])
    assert common([texts[0], TARGET.body(load, second)["prompt"]]) < 50
    messages = TARGET.body(config(rate=6.0, turns=3, api="chat"), turns[2])["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "user", "assistant", "user"]
    # The rate is that of all requests, of which three belong to a conversation.
    begins = [each.at_seconds for each in itertools.islice(schedule(load), 2000)]
    assert begins[-1] == pytest.approx(1000, rel=0.1)


def test_a_conversation_goes_on_after_each_answer() -> None:
    asked: list[int] = []

    async def behave(connection: Connection, body: dict[str, Any]) -> None:
        asked.append(len(body["prompt"]))
        await answer_at_once(connection, body)

    with standing_in(behave) as server:
        load = config(concurrency=1, turns=3, think=0.0, duration=0.2)
        begin = time.monotonic()
        window = Window(load_from=begin, measure_from=begin, measure_to=begin + load.duration)
        log = asyncio.run(Client(load, Target(endpoint=Endpoint(url=server.url), model="m"), window, 0, 1).run())
    assert asked[:6] == [100, 207, 314] * 2
    assert not [each.error for each in log.records if each.is_measured and each.error]


def test_blocks_of_a_trace_are_shared_and_its_times_are_scaled(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [0, 7]},
        {"timestamp": 6000, "input_length": 600, "output_length": 5, "hash_ids": [0]},
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    load = config(trace=str(trace), scale=2.0)
    planned = list(itertools.islice(schedule(load), 4))
    assert [each.at_seconds for each in planned] == pytest.approx([0, 1.5, 3.0, 4.5])
    texts = [TARGET.body(load, each)["prompt"] for each in planned]
    assert [len(text) for text in texts] == [4400, 2800, 2400, 4400]
    assert 4 * 512 <= common(texts[:2]) < 4 * 512 + 20
    # Again from the beginning: the same blocks.
    assert texts[3] == texts[0]
    # What no block covers is a request's own.
    assert common([texts[2], texts[1]]) < 4 * 512 + 20


_VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} %d
vllm:prefix_cache_hits_total{engine="0",model_name="m"} %d
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
"""


def test_a_server_s_figures_have_one_name_and_its_counters_their_growth() -> None:
    assert parse_figures("vllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\n") == {}
    first = parse_figures(_VLLM % (1000, 100))
    assert first["server_requests_running"] == 5
    assert first["server_kv_cache_percent"] == 37.5
    assert "server_requests_waiting" not in first
    sglang = 'sglang:token_usage{model_name="m"} 0.28\nsglang:num_queue_reqs{model_name="m"} 9\n'
    assert parse_figures(sglang) == {"server_kv_cache_percent": pytest.approx(28), "server_requests_waiting": 9}
    readings: list[Reading] = [(9.0, {"server_requests_running": 99.0}), (10.2, first)]
    readings.append((11.2, parse_figures(_VLLM % (3000, 1100))))
    reporter = Reporter(None)
    report_readings(readings, Window(load_from=0.0, measure_from=10.0, measure_to=12.0), reporter)
    found = {result.name: result.value for result in reporter.results}
    assert found == {
        "server_requests_running": 5,
        "server_kv_cache_percent": 37.5,
        "server_prefix_hit_percent": 50,
        "server_preemptions": 0,
    }


def test_a_running_server_is_read_until_the_load_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_workloads.suite.serve_load.figures._PERIOD_SECONDS", 0.001)
    was_read = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = (_VLLM % (1, 1)).encode() if self.headers["Authorization"] == "Bearer k" else b""
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_words: object) -> None:
            was_read.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with reading_server(Endpoint(url=f"http://127.0.0.1:{server.server_port}", key="k")) as readings:
            while not readings:
                assert was_read.wait(60)
        server.shutdown()
    assert readings[0][1]["server_requests_running"] == 5
