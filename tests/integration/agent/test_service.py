"""Commands of the node's user and its agent, over a real socket."""

import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuagent.event_loop import EventLoop
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.runs.tails import Tails
from gpuagent.sampling.rows import RecordBuffer
from gpuagent.service import AgentClient, AgentServicer, find_agent, serve
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.agent_service_pb2 import StatusResponse
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.support.parts import executing, make_runner

QUIET = RunSpec(command=[sys.executable, "-c", "pass"])
ENDLESS = RunSpec(command=[sys.executable, "-c", "import time; time.sleep(600)"])


class Served:
    """The service of an agent on the socket `path`."""

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
        with pytest.raises(MisuseError, match="either a workload or a command"):
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


def test_a_socket_that_cannot_be_created_is_one_clear_error(tmp_path: Path) -> None:
    servicer = AgentServicer(Planner(Catalogue(sys.executable), allow_commands=False), None, StatusResponse)  # type: ignore[arg-type]
    with closing(EventLoop("agent")) as loop, pytest.raises(GpuAgentError, match="cannot listen on"):
        loop.start(serve(servicer, tmp_path / "missing" / "agent.sock")).result()
