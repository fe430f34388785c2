from datetime import datetime, timedelta

import duckdb
import pytest

from gpuagent_collector.ingest.presence import Presence, declare_lost
from gpuagent_common.statuses import FINAL_STATUSES

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
        """Start and connect a session each minute."""
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


def test_the_limit_counts_from_the_end_of_the_stream(site: Site) -> None:
    site.presence.arrived([SESSION])
    site.now = START + timedelta(seconds=1000)
    site.presence.left([SESSION])
    assert site.lost(1120) == []
    assert site.lost(1121) == ["r"]


def test_the_limit_counts_from_the_last_commit(site: Site) -> None:
    site.connection.execute("INSERT INTO marks VALUES (?, 5, ?)", [SESSION, START + timedelta(seconds=500)])
    assert site.lost(620) == []
    assert site.lost(621) == ["r"]


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
