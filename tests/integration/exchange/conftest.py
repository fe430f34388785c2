"""Sites of both kinds of store."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.exchange.sites import write_site
from tests.support.commands import run_collector
from tests.support.stores import on_both_kinds

# Makes the name of a store that is not there yet.
NameStore = Callable[[str], str]

Run = Callable[..., tuple[int, str]]

# Runs a test with DuckDB files, and with lakes; without it there are files.
BOTH_KINDS = on_both_kinds("name_store")


@pytest.fixture
def name_store(request: pytest.FixtureRequest, tmp_path: Path) -> NameStore:
    kind = getattr(request, "param", "")
    return lambda name: f"{kind}{tmp_path / name}.store"


def two_nodes(store: SyntheticStore) -> None:
    """Add a node with two runs of an experiment, one after the other, and one of another experiment elsewhere."""
    satori = store.node("satori-1", "satori", gpus=["V100", "V100"])
    openshift = store.node("openshift-1", "openshift", gpus=["V100"])
    store.run("satori-first", satori, start_seconds=0, experiment="gan")
    store.run("satori-second", satori, start_seconds=1000, experiment="gan", labels='{"who":  "a \\"b\\" ü"}')
    store.run("openshift-first", openshift, start_seconds=0, experiment="other")


@pytest.fixture
def site(name_store: NameStore) -> str:
    return write_site(name_store("site"), two_nodes)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `collector`; returns its exit code and all that it printed."""

    def collector(*arguments: str) -> tuple[int, str]:
        code, out, err = run_collector(capsys, *arguments)
        return code, out + err

    return collector


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)
