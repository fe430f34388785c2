"""Runs that are lost, and runs of several nodes, each of which tells its part."""

from datetime import datetime, timedelta

import duckdb
import pytest

from gpuagent_collector.ingest.presence import Presence, declare_lost
from gpuagent_common.statuses import FINAL_STATUSES
from tests.unit.collector_store.conftest import ON_BOTH_KINDS

START = datetime.fromisoformat("2026-01-01")
LIMIT = timedelta(seconds=120)
SESSION, NODE = 11, 22


class Site:
    """A store with a running run, at a time in seconds since the start."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.now = START
        self.presence = Presence(lambda: self.now)
        self.report("running")
        connection.execute(
            "INSERT INTO run_requests (session_id, node_id, time, run_id) VALUES (?, ?, ?, 'r')", [SESSION, NODE, START]
        )

    def report(self, status: str, session_id: int = SESSION, second: float = 0) -> None:
        self.connection.execute(
            "INSERT INTO run_states (session_id, node_id, time, run_id, status) VALUES (?, ?, ?, 'r', ?)",
            [session_id, NODE, START + timedelta(seconds=second), status],
        )

    def start_sessions(self, *session_ids: int) -> None:
        for number, session_id in enumerate(session_ids):
            self.connection.execute(
                "INSERT INTO sessions (session_id, node_id, started_at) VALUES (?, ?, ?)",
                [session_id, NODE, START + timedelta(minutes=number)],
            )
        self.presence.arrived(session_ids)

    def lost(self, second: float) -> list[str]:
        self.now = START + timedelta(seconds=second)
        return list(declare_lost(self.connection, self.presence, now=self.now, after=LIMIT))


@pytest.fixture
def site(connection: duckdb.DuckDBPyConnection) -> Site:
    return Site(connection)


@ON_BOTH_KINDS
def test_a_run_whose_agent_never_came_back_is_lost_after_the_limit(site: Site) -> None:
    assert site.lost(120) == []
    assert site.lost(121) == ["r"]
    state = site.connection.execute("SELECT status, reason, exit_code FROM runs").fetchall()
    assert state == [("lost", "its agent has been silent since 2026-01-01 00:00:00 UTC", None)]
    assert site.lost(999) == []


def test_a_run_that_was_only_requested_can_be_lost_too(site: Site) -> None:
    site.connection.execute("DELETE FROM run_states")
    assert site.lost(121) == ["r"]


def test_the_runs_of_a_connected_agent_are_not_lost_however_quiet_it_is(site: Site) -> None:
    site.presence.arrived([SESSION])
    assert site.lost(100_000) == []


@pytest.mark.parametrize("heard", ["a stream that ends", "a commit"])
def test_the_limit_counts_from_the_last_sign_of_the_agent(site: Site, heard: str) -> None:
    site.now = START + timedelta(seconds=1000)
    if heard == "a commit":
        site.connection.execute("INSERT INTO marks VALUES (?, 5, ?)", [SESSION, site.now])
    else:
        site.presence.arrived([SESSION])
        site.presence.left([SESSION])
    assert site.lost(1120) == []
    assert site.lost(1121) == ["r"]


def test_a_run_is_lost_when_a_later_agent_on_its_node_only_delivers_its_spool(site: Site) -> None:
    site.start_sessions(SESSION, 12)
    assert site.lost(120) == []
    assert site.lost(121) == ["r"]


def test_a_run_that_a_later_agent_took_over_is_not_lost(site: Site) -> None:
    site.start_sessions(SESSION, 12)
    site.report("running", session_id=12, second=61)
    assert site.lost(1000) == []


@pytest.mark.parametrize("status", FINAL_STATUSES)
def test_a_run_that_ended_is_never_lost(site: Site, status: str) -> None:
    site.report(status, second=3)
    assert site.lost(1000) == []


def test_a_later_report_of_the_agent_outranks_lost(site: Site) -> None:
    site.lost(1000)
    site.connection.execute(
        "INSERT INTO run_states VALUES (?, ?, ?, 'r', 'succeeded', 0, NULL)", [SESSION, NODE, START]
    )
    assert site.connection.execute("SELECT status, exit_code FROM runs").fetchall() == [("succeeded", 0)]


class Run:
    """A run of two nodes; a node's number is also that of its session."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: str = "r") -> None:
        self.connection = connection
        self.run_id = run_id

    def ask(self, node: int, second: float = 0) -> None:
        values = [node, node, START + timedelta(seconds=second), self.run_id, f"on {node}"]
        self.connection.execute(
            "INSERT INTO run_requests (session_id, node_id, time, run_id, experiment, nodes) VALUES (?, ?, ?, ?, ?, 2)",
            values,
        )
        self.say(node, "queued", second)

    def say(self, node: int, status: str, second: float, code: int | None = None) -> None:
        self.connection.execute(
            "INSERT INTO run_states (session_id, node_id, time, run_id, status, exit_code) VALUES (?, ?, ?, ?, ?, ?)",
            [node, node, START + timedelta(seconds=second), self.run_id, status, code],
        )

    def goes(self, node: int, *statuses: str) -> None:
        """Ask a node, and have it say these after so many seconds as there were before."""
        self.ask(node)
        for second, status in enumerate(statuses, start=1):
            self.say(node, status, second)

    def stands(self) -> tuple[object, ...]:
        (row,) = self.connection.execute("SELECT status, ended_at IS NOT NULL FROM runs").fetchall()
        return tuple(row)

    def lost(self, second: float) -> list[str]:
        now = START + timedelta(seconds=second)
        return list(declare_lost(self.connection, Presence(lambda: START), now=now, after=LIMIT))


@pytest.fixture
def run(connection: duckdb.DuckDBPyConnection) -> Run:
    return Run(connection)


PARTS: dict[str, tuple[list[list[str]], tuple[str, bool]]] = {
    "both did": ([["running", "succeeded"], ["running", "succeeded"]], ("succeeded", True)),
    "one goes on": ([["running", "succeeded"], ["running"]], ("running", False)),
    "one waits": ([["running", "succeeded"], []], ("running", False)),
    "both wait": ([[], []], ("queued", False)),
    "one is not there": ([["running", "succeeded"]], ("running", False)),
    "one failed, one goes on": ([["running", "failed"], ["running"]], ("running", False)),
    "one failed": ([["running", "succeeded"], ["running", "failed"]], ("failed", True)),
    "one was cancelled": ([["running", "failed"], ["running", "cancelled"]], ("cancelled", True)),
    "one was stopped": ([["running", "timed_out"], ["running", "failed"]], ("timed_out", True)),
    "one was lost": ([["running", "failed"], ["running", "lost"]], ("lost", True)),
    "one failed alone": ([["running", "failed"]], ("failed", True)),
}


@ON_BOTH_KINDS
def test_a_run_stands_as_its_parts_do(connection: duckdb.DuckDBPyConnection) -> None:
    for name, (parts, _) in PARTS.items():
        for node, statuses in enumerate(parts, start=1):
            Run(connection, name).goes(node, *statuses)
    rows = connection.execute("SELECT run_id, status, ended_at IS NOT NULL FROM runs").fetchall()
    assert {name: tuple(stands) for name, *stands in rows} == {name: stands for name, (_, stands) in PARTS.items()}


def test_it_is_one_run_from_the_first_start_to_the_last_end_as_the_first_node_was_asked(run: Run) -> None:
    run.ask(2, second=1)
    run.ask(1, second=0)
    for node, start, end in ((1, 3, 10), (2, 2, 11)):
        run.say(node, "running", start)
        run.say(node, "succeeded", end, code=0)
    rows = run.connection.execute(
        "SELECT experiment, node_id, session_id, nodes, exit_code, started_at, ended_at FROM runs"
    ).fetchall()
    assert rows == [("on 1", 1, 1, 2, 0, START + timedelta(seconds=2), START + timedelta(seconds=11))]


def test_a_node_that_takes_part_twice_makes_no_run_of_two_attempts(run: Run) -> None:
    run.goes(1, "running", "succeeded")
    run.goes(2, "running", "succeeded")
    run.say(2, "queued", 5)
    run.say(2, "running", 6)
    run.say(2, "succeeded", 7)
    reasons = run.connection.execute("SELECT status, reason FROM runs").fetchall()
    assert reasons == [("failed", "a node took part in it twice: each run needs its own --job")]


@ON_BOTH_KINDS
def test_when_one_agent_is_silent_its_part_is_lost_and_with_it_the_run(run: Run) -> None:
    run.goes(1, "running", "succeeded")
    run.goes(2, "running")
    assert run.lost(120) == []
    assert run.lost(121) == ["r"]
    assert run.stands() == ("lost", True)
    parts = run.connection.execute("SELECT node_id, status FROM run_parts ORDER BY node_id").fetchall()
    assert parts == [(1, "succeeded"), (2, "lost")]
    run.say(2, "succeeded", 50)
    assert run.stands() == ("succeeded", True)


def test_a_run_that_lacks_a_node_is_lost_until_that_node_tells_of_it(run: Run) -> None:
    run.goes(1, "running", "succeeded")
    assert run.lost(122) == []
    assert run.lost(123) == ["r"]
    assert run.connection.execute("SELECT status, left(reason, 20) FROM runs").fetchall() == [
        ("lost", "only 1 of its 2 node")
    ]
    assert run.lost(999) == []
    run.goes(2, "running")
    assert run.stands() == ("running", False)
    run.say(2, "succeeded", 9)
    assert run.stands() == ("succeeded", True)


def test_sessions_that_left_are_remembered_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_collector.ingest.presence._KEPT_SESSIONS", 2)
    now = [START]
    presence = Presence(lambda: now[0])
    presence.arrived(range(4))
    now[0] += LIMIT
    presence.left(range(3))
    assert [presence.connected(session_id) for session_id in range(4)] == [False, False, False, True]
    assert [presence.last_seen(session_id) for session_id in range(3)] == [START, START + LIMIT, START + LIMIT]
