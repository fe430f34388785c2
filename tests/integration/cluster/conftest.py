"""One cluster for all tests of a kind: `on("plain")`, `on("openshift")`, `on("gpu")` of tests/support/cluster.py."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster, cluster_with_gpus


@pytest.fixture(scope="session", name="cluster")
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "gpu":
        yield cluster_with_gpus()
        return
    with cluster(openshift=request.param == "openshift") as found:
        yield found
