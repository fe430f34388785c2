from datetime import datetime, timedelta

import duckdb
import pytest

from gpuagent_collector.ingest.presence import Presence, declare_lost

START = datetime.fromisoformat("2026-01-01")
LIMIT = timedelta(seconds=120)
SESSION, NODE = 11, 22


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def after(self, seconds: float) -> datetime:
        self.now = START + timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def presence(clock: Clock) -> Presence:
    return Presence(clock)


@pytest.fixture(autouse=True)
def _a_running_run(connection: duckdb.DuckDBPyConnection) -> None:
    say(connection, "running")
    connection.execute(
        "INSERT INTO run_requests (session_id, node_id, time, run_id) VALUES (?, ?, ?, 'r')", [SESSION, NODE, START]
    )


def say(connection: duckdb.DuckDBPyConnection, status: str, session_id: int = SESSION, second: float = 0) -> None:
    connection.execute(
        "INSERT INTO run_states (session_id, node_id, time, run_id, status) VALUES (?, ?, ?, 'r', ?)",
        [session_id, NODE, START + timedelta(seconds=second), status],
    )


def start_session(connection: duckdb.DuckDBPyConnection, session_id: int, second: float) -> None:
    connection.execute(
        "INSERT INTO sessions (session_id, node_id, started_at) VALUES (?, ?, ?)",
        [session_id, NODE, START + timedelta(seconds=second)],
    )


def lost(connection: duckdb.DuckDBPyConnection, presence: Presence, now: datetime) -> list[str]:
    return list(declare_lost(connection, presence, now=now, after=LIMIT))


def status(connection: duckdb.DuckDBPyConnection) -> object:
    return connection.execute("SELECT status, reason, exit_code FROM runs").fetchall()[0]


def test_a_run_whose_agent_never_came_back_is_lost_after_the_limit(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    assert lost(connection, presence, clock.after(120)) == []
    assert lost(connection, presence, clock.after(121)) == ["r"]
    assert status(connection) == ("lost", "its agent has been silent since 2026-01-01 00:00:00 UTC", None)
    assert lost(connection, presence, clock.after(999)) == []


def test_a_run_that_only_was_asked_for_can_be_lost_too(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    connection.execute("DELETE FROM run_states")
    assert lost(connection, presence, clock.after(121)) == ["r"]


def test_the_runs_of_a_connected_agent_are_not_lost_however_quiet_it_is(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    presence.arrived([SESSION])
    assert lost(connection, presence, clock.after(100_000)) == []


def test_the_limit_counts_from_the_end_of_the_stream(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    presence.arrived([SESSION])
    clock.after(1000)
    presence.left([SESSION])
    assert lost(connection, presence, clock.after(1120)) == []
    assert lost(connection, presence, clock.after(1121)) == ["r"]


def test_the_limit_counts_from_the_last_commit(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    connection.execute("INSERT INTO marks VALUES (?, 5, ?)", [SESSION, START + timedelta(seconds=500)])
    assert lost(connection, presence, clock.after(620)) == []
    assert lost(connection, presence, clock.after(621)) == ["r"]


def test_a_run_is_lost_when_a_later_agent_on_its_node_only_carries_its_spool(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    start_session(connection, SESSION, 0)
    start_session(connection, 12, 60)
    presence.arrived([SESSION, 12])
    assert lost(connection, presence, clock.after(120)) == []
    assert lost(connection, presence, clock.after(121)) == ["r"]


def test_a_run_that_a_later_agent_took_over_is_not_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    start_session(connection, SESSION, 0)
    start_session(connection, 12, 60)
    say(connection, "running", session_id=12, second=61)
    presence.arrived([SESSION, 12])
    assert lost(connection, presence, clock.after(1000)) == []


def test_a_run_that_ended_is_never_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    say(connection, "succeeded", second=3)
    assert lost(connection, presence, clock.after(1000)) == []


def test_what_the_agent_says_afterwards_outranks_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, clock: Clock
) -> None:
    lost(connection, presence, clock.after(1000))
    connection.execute("INSERT INTO run_states VALUES (?, ?, ?, 'r', 'succeeded', 0, NULL)", [SESSION, NODE, START])
    assert connection.execute("SELECT status, exit_code FROM runs").fetchall() == [("succeeded", 0)]
