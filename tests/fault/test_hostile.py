"""What hostile statements must not do: end the collector, or keep others from it."""

from pathlib import Path

import grpc
import pytest

from gpuagent_common.connection import bearer
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import query_service_pb2 as pb
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc
from tests.fault.hostile import ATTACKS, attack, limited_group
from tests.support.servers import Node, until

pytestmark = pytest.mark.slow

# Some of each kind; `python -m tests.fault.hostile` tries all.
_TRIED = (
    "reduce",
    "columns",
    "rows",
    "gathered",
    "states",
    "texts",
    "views",
    "like",
    "sort",
    "wide",
    "answers",
    "medians",
    "greatest",
    "windows",
    "joined",
    "stored",
    "drawn",
)

# Tries hours of combinations without a look at interrupts.
_ENDLESS = "SELECT repeat('a', 1000) LIKE '%_a%_a%_a%_a%_a%b'"


def test_whatever_a_viewer_asks_others_are_served_by_the_same_process(tmp_path: Path) -> None:
    with limited_group() as group:
        if group is None:
            pytest.skip("no control group can be made here")
        waits = attack(tmp_path, group, seconds=6.0, attacks=[ATTACKS[name] for name in _TRIED])
    assert waits.failures == []
    assert waits.asked and waits.acknowledged
    assert waits.outcomes["unavailable"] == 0


def test_a_statement_that_obeys_no_interrupt_is_ended_by_a_restart_without_loss(tmp_path: Path, meeting: str) -> None:
    with Node(tmp_path) as node:
        process = node.serve(meeting)
        token = (tmp_path / "token").read_text().strip()
        before = node.ask("SELECT version FROM schema_migrations ORDER BY 1")
        with grpc.insecure_channel(meeting) as channel, pytest.raises(grpc.RpcError) as ended:
            request = pb.QueryRequest(sql=_ENDLESS, timeout_seconds=0.5)
            list(pb_grpc.QueryServiceStub(channel).Query(request, metadata=bearer(token)))
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert until(lambda: _answers(node), "the collector after its restart") == before
        assert process.poll() is None
        assert "restarts" in (tmp_path / "collector.log").read_text()


def _answers(node: Node) -> list[dict[str, object]] | None:
    try:
        return node.ask("SELECT version FROM schema_migrations ORDER BY 1")
    except GpuAgentError:
        return None
