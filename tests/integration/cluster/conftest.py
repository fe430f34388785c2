from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster


@pytest.fixture(scope="module")
def openshift() -> Iterator[Cluster]:
    with cluster(openshift=True) as found:
        yield found


@pytest.fixture(scope="module")
def plain() -> Iterator[Cluster]:
    with cluster(openshift=False) as found:
        yield found
