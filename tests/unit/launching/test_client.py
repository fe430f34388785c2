"""What is asked of collectors of before."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import grpc
import pytest

from gpuagent_collector.launching.client import RunsClient
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_common.errors import GpuAgentError


@pytest.fixture
def of_before() -> Iterator[RunsClient]:
    """Ask a server that has none of our methods."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with closing(RemoteReader(f"127.0.0.1:{port}", "token")) as reader:
            yield RunsClient(reader)
    finally:
        server.stop(0).wait()


def test_a_collector_that_takes_no_experiments_has_none_to_cancel_beside_the_runs(of_before: RunsClient) -> None:
    assert of_before.cancel_experiment("study") == 0
    with pytest.raises(GpuAgentError, match="is older than this command; upgrade it"):
        of_before.experiments(["session"], "study")
