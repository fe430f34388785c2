from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import containers
from tests.support.containers import Runtime
from tests.support.servers import Node
from tests.support.slurm import slurm as start_slurm


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system, made once."""
    return containers.make_root(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def docker(root: Path) -> Iterator[Runtime]:
    with containers.docker(root) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def podman(root: Path) -> Iterator[Runtime]:
    with containers.podman(root) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def charliecloud(root: Path) -> Runtime:
    return containers.charliecloud(root)


@pytest.fixture(scope="session")
def sif(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Apptainer's image, built once."""
    return tmp_path_factory.mktemp("sif")


@pytest.fixture(scope="session")
def apptainer(root: Path, sif: Path) -> Runtime:
    return containers.apptainer(root, sif)


@pytest.fixture(scope="session")
def singularity(root: Path, sif: Path) -> Runtime:
    return containers.apptainer(root, sif, "singularity")


@pytest.fixture(scope="session")
def slurm() -> Iterator[Runtime]:
    with start_slurm() as runtime:
        yield runtime


@pytest.fixture
def runtime(request: pytest.FixtureRequest, node: Node) -> Runtime:
    """The runtime that a test names, or two as `slurm+charliecloud`, ready to be used by the commands in `node`."""
    together: Runtime | None = None
    for name in request.param.split("+"):
        found: Runtime = request.getfixturevalue(name)
        together = found if together is None else together.around(found)
    assert together
    node.environment.update(together.variables)
    return together
