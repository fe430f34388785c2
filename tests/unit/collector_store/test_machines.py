"""Sessions of one node are of one machine or of two, by one rule in SQL and on the server."""

from typing import cast

import duckdb
import pytest

from gpuagent_collector.run_sessions import on_other_machine
from gpuagent_collector.server.agents import AgentStream
from gpuagent_collector.server.throttle import Share
from gpuagent_collector.trust.tokens import Caller
from gpuagent_proto.v1 import telemetry_pb2 as wire

# Boot id, hostname and container.
Session = tuple[str | None, str | None, str]


@pytest.mark.parametrize(
    ("one", "other", "are_two"),
    [
        # Where both boots are known, they alone decide.
        (("boot-1", "alder", "none"), ("boot-1", "alder", "none"), False),
        (("boot-1", "alder", "none"), ("boot-1", "renamed", "none"), False),
        (("boot-1", "alder", "none"), ("boot-2", "alder", "none"), True),
        (("boot-1", "alder", "none"), ("boot-2", "pod", "docker"), True),
        (("boot-1", "alder", "none"), ("boot-1", "pod", "docker"), False),
        # Otherwise the hostnames do, of which a container has its own.
        ((None, "alder", "none"), ("boot-1", "alder", "none"), False),
        ((None, "alder", "none"), ("boot-1", "birch", "none"), True),
        ((None, "alder", "none"), (None, "birch", "none"), True),
        ((None, "pod", "docker"), ("boot-1", "alder", "none"), False),
        ((None, "alder", "none"), (None, "pod", "docker"), False),
        # Nothing is known.
        ((None, None, "none"), ("boot-1", "alder", "none"), False),
        ((None, None, "none"), (None, None, "none"), False),
    ],
)
def test_two_sessions_of_a_node_are_of_one_machine_or_two(one: Session, other: Session, are_two: bool) -> None:
    for first, second in ((one, other), (other, one)):
        assert _stream(first).is_of_other_machine(_stream(second)) is are_two
        sql = f"""
        WITH sessions(boot_id, hostname, container) AS (VALUES (?, ?, ?)), others(boot_id, hostname, container) AS (
            VALUES (?, ?, ?))
        SELECT {on_other_machine("one", "other")} FROM sessions AS one, others AS other"""
        assert duckdb.execute(sql, [*first, *second]).fetchall() == [(are_two,)]


def test_sessions_of_two_nodes_are_no_rivals() -> None:
    one, other = (_stream((boot, "alder", "none"), node=boot) for boot in ("boot-1", "boot-2"))
    assert not one.is_of_other_machine(other)


def _stream(session: Session, node: str = "node") -> AgentStream:
    boot_id, hostname, container = session
    hello = wire.Hello(node_uuid=node, boot_id=boot_id or "", hostname=hostname or "", in_container=container != "none")
    return AgentStream(hello, cast("Caller", None), Share())
