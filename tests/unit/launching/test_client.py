"""Requests to older collectors."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import pytest

from gpuagent_collector.launching.client import RunsClient
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_common.errors import GpuAgentError


@pytest.fixture
def older() -> Iterator[RunsClient]:
    """A client of a server without our methods."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with closing(RemoteReader(f"127.0.0.1:{port}", "token")) as reader:
            yield RunsClient(reader)
    finally:
        server.stop(0).wait()


def test_a_collector_without_experiments_has_none_to_cancel(older: RunsClient) -> None:
    assert older.cancel_experiment("study") == 0
    with pytest.raises(GpuAgentError, match="is older than this command; upgrade it"):
        older.experiments(["session"], "study")
