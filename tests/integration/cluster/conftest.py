"""One cluster for all tests of a kind: `on("plain")` and `on("openshift")` in tests/support/cluster.py group them."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster


@pytest.fixture(scope="session", name="cluster")
def running(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(openshift=request.param == "openshift") as found:
        yield found
