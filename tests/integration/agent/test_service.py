import http.client
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuagent.event_loop import EventLoop
from gpuagent.metrics_http.own_server import MAX_CONNECTIONS, STANDSTILL_SECONDS, Liveness, serving
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.events import Tails
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.sampling.rows import RecordBuffer
from gpuagent.service import AgentClient, AgentServicer, StatusContext, find_agent, serve
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.agent_service_pb2 import StatusRequest, StatusResponse
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.nvml_replay import NvmlRecording
from tests.support.parts import executing, make_runner
from tests.support.servers import Node, until
from tests.support.sites import Site

QUIET = RunSpec(command=[sys.executable, "-c", "pass"])
ENDLESS = RunSpec(command=[sys.executable, "-c", "import time; time.sleep(600)"])


class Served:
    def __init__(self, folder: Path, runner: Runner) -> None:
        self.path = folder / "agent.sock"
        self.runner = runner
        self._loop = EventLoop("agent")
        planner = Planner(Catalogue(sys.executable), allow_commands=False)
        servicer = AgentServicer(planner, self.runner, lambda: StatusResponse(platform="here"))
        self._server = self._loop.start(serve(servicer, self.path)).result()

    def close(self) -> None:
        self._loop.start(self._server.stop(grace=None)).result()
        self._loop.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    buffer = RecordBuffer()
    runner = make_runner(tmp_path, buffer, Tails(buffer), lambda: None)
    with executing(runner), closing(Served(tmp_path, runner)) as agent:
        yield agent


def test_a_command_gets_updates_until_its_runs_have_ended(served: Served) -> None:
    spec = RunSpec(command=QUIET.command, repeats=2)
    with closing(AgentClient(served.path)) as client:
        updates = [(update.repeat, update.status) for update in client.submit(spec)]
    for repeat in (1, 2):
        assert [status for each, status in updates if each == repeat] == ["queued", "running", "succeeded"]


def test_a_command_that_disconnects_cancels_its_runs(served: Served) -> None:
    with closing(AgentClient(served.path)) as gone, closing(gone.submit(ENDLESS)) as updates:
        while next(updates).status != "running":
            pass
    with closing(AgentClient(served.path)) as client:
        # The runner does one after the other.
        assert [update.status for update in client.submit(QUIET)][-1] == "succeeded"


def test_several_commands_follow_their_runs_at_the_same_time(served: Served) -> None:
    with closing(AgentClient(served.path)) as one, closing(AgentClient(served.path)) as other:
        first, second = one.submit(ENDLESS), other.submit(QUIET)
        assert [next(first).status, next(second).status] == ["queued", "queued"]
        first.close()
        assert [update.status for update in second][-1] == "succeeded"


def test_misuse_and_refusal_are_different_errors(served: Served) -> None:
    with closing(AgentClient(served.path)) as client:
        with pytest.raises(MisuseError, match="or a command"):
            next(client.submit(RunSpec()))
        served.runner.close()
        with pytest.raises(GpuAgentError, match="is stopping"):
            next(client.submit(QUIET))


def test_only_its_owner_may_use_the_socket(served: Served) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    client = find_agent(served.path)
    assert client
    with closing(client):
        status = client.status()
    assert status
    assert status.platform == "here"


def test_a_socket_that_nobody_listens_on_is_no_agent(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    assert find_agent(path) is None
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    assert find_agent(path) is None


def test_an_agent_that_ends_while_it_is_asked_is_no_agent(tmp_path: Path) -> None:
    class Ending(AgentServicer):
        async def Status(self, request: StatusRequest, context: StatusContext) -> StatusResponse:  # noqa: N802
            # What a server answers, rarely, to a call that arrives as it stops; most get UNAVAILABLE.
            await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")

    path = tmp_path / "agent.sock"
    servicer = Ending(Planner(Catalogue(sys.executable), allow_commands=False), None, StatusResponse)  # type: ignore[arg-type]
    with closing(EventLoop("agent")) as loop, closing(AgentClient(path)) as client:
        server = loop.start(serve(servicer, path)).result()
        assert client.status() is None
        loop.start(server.stop(grace=None)).result()


def test_a_socket_that_cannot_be_created_is_one_clear_error(tmp_path: Path) -> None:
    servicer = AgentServicer(Planner(Catalogue(sys.executable), allow_commands=False), None, StatusResponse)  # type: ignore[arg-type]
    with closing(EventLoop("agent")) as loop, pytest.raises(GpuAgentError, match="cannot listen on"):
        loop.start(serve(servicer, tmp_path / "missing" / "agent.sock")).result()


PATIENCE_SECONDS = 60.0


def fetch(place: str, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(place, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def figures(place: str) -> dict[str, float]:
    _, text = fetch(place, "/metrics")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_agent_reports_its_sampling_spool_and_delivery_to_many(site: Site) -> None:
    with site.agent(NvmlRecording.load("h200_one_of_two_busy")) as agent, serving("127.0.0.1:0", agent) as place:
        site.await_rows("gpu_samples")
        found = until(
            lambda: found if (found := figures(place))["gpuagent_agent_messages_acknowledged_total"] else None, "an ack"
        )
        assert fetch(place, "/healthz") == fetch(place, "/readyz") == (200, "ok\n")
        assert fetch(place, "/other")[0] == 404
        # Idle connections do not block others.
        held = [http.client.HTTPConnection(place, timeout=PATIENCE_SECONDS) for _ in range(MAX_CONNECTIONS + 5)]
        for connection in held:
            connection.connect()
        assert fetch(place, "/healthz")[0] == 200
        for connection in held:
            connection.close()
    prefix = "gpuagent_agent_"
    assert found[f"{prefix}connected"] == found[f"{prefix}connections_total"] == 1
    assert found[f"{prefix}messages_rejected_total"] == found[f"{prefix}connection_failures_total"] == 0
    assert found[f"{prefix}messages_sent_total"] >= found[f"{prefix}messages_acknowledged_total"] >= 1
    assert found[f"{prefix}flushes_total"] >= 1
    assert found[f"{prefix}spool_limit_bytes"] == 512 * 1024 * 1024
    assert f"{prefix}source_reads_total nvml" in found
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert any(name.startswith(f"{prefix}info") and " here " in name for name in found)


def test_without_a_collector_it_is_alive_and_not_ready_and_reports_its_backlog(node: Node) -> None:
    node.without_collector()
    process = node.start("gpuagent", "start", "--metrics", "127.0.0.1:0", log="agent.log")
    log = node.folder / "agent.log"
    until(lambda: "its own metrics: http://" in log.read_text(), "the address")
    place = log.read_text().partition("its own metrics: http://")[2].partition("/")[0]
    found = until(lambda: found if (found := figures(place)).get("gpuagent_agent_spool_bytes") else None, "a message")
    assert found["gpuagent_agent_spool_oldest_age_seconds"] >= 0
    assert until(lambda: figures(place)["gpuagent_agent_connection_failures_total"], "a failure") >= 1
    assert fetch(place, "/healthz")[0] == 200
    assert fetch(place, "/readyz")[0] == 503
    assert node.stop(process, signal.SIGINT) == 0


def test_an_invalid_or_occupied_address_is_one_clear_error(sharing: Node) -> None:
    assert "HOST:PORT" in sharing.run("gpuagent", "start", "--metrics", "9465", code=2).stderr
    taken = sharing.environment["GPUAGENT_COLLECTOR"]
    assert f"cannot listen on {taken}" in sharing.run("gpuagent", "start", "--metrics", taken, code=1).stderr


def test_an_agent_without_flushes_for_too_long_is_dead() -> None:
    state: dict[str, Any] = {"flushes": 0, "now": 0.0}
    liveness = Liveness(lambda: state["flushes"], lambda: state["now"])
    assert liveness.is_alive()
    state["now"] = STANDSTILL_SECONDS
    assert not liveness.is_alive()
    state["flushes"] = 1
    assert liveness.is_alive()
