"""What all tests share: programs that the system may lack, and folders of one's own."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from tests.support.programs import need

pytest_plugins = ["tests.support.quick"]

# How long an example takes says nothing on a busy machine.
settings.register_profile("gpuagent", deadline=None)
settings.load_profile("gpuagent")

# Threads of torch wait for each other busily; several tests at a time, each with a thread for every core, take longer.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# DuckDB takes the number of its threads from here. With a second one, tests took a third more of a processor.
os.environ["SLURM_CPUS_ON_NODE"] = "1"


# A shell's background job ignores SIGINT, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Modules that take longest, waiting included: begun first, so that no process is left with one at the end.
LONGEST = (
    "agent/test_bench_runs",
    "deploy/test_power",
    "containers/test_image_recipes",
    "deploy/test_sacct",
    "containers/test_containers",
    "exchange/test_other_store",
    "containers/test_experiment_environments",
    "agent/test_observe",
    "workloads/test_several_ranks",
    "agent/test_end_to_end",
    "workloads/test_llama_float8",
    "compare/test_studies",
    "exchange/test_round_trip",
    "workloads/test_elastic_runs",
    "containers/",
    "exchange/",
    "integration/workloads",
    "load/",
    "launch/",
    "fault/",
    "browser/",
    "integration/",
    "unit/workloads",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest modules first; the others stay in their random order."""

    def rank(item: pytest.Item) -> int:
        path = item.nodeid.partition("::")[0]
        return next((place for place, name in enumerate(LONGEST) if name in path), len(LONGEST))

    items.sort(key=rank)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a program this machine lacks; in CI that is a failure."""
    for mark in item.iter_markers("needs"):
        need(*mark.args)


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of all homes: pytest numbers its own by reading the names of all before, thousands of times."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def _own_folders(_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep tests off the user's configuration, spool and runtime folders."""
    home = Path(tempfile.mkdtemp(dir=_homes))
    for variable, name in (("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state"), ("GPUAGENT_RUNTIME_DIR", "run")):
        (home / name).mkdir()
        monkeypatch.setenv(variable, str(home / name))
    connection = ("COLLECTOR", "TOKEN_FILE", "CA_FILE", "CLIENT_CERT", "CLIENT_KEY")
    for variable in (*(f"GPUAGENT_{name}" for name in connection), "GPUAGENT_SPOOL_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def procfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Path]]:
    """Yield a function that makes psutil read another /proc until the test ends, and returns its path."""

    def point_at(proc: Path) -> Path:
        # It holds processes of the other /proc: one with the same number would count as one whose number is used again.
        psutil.process_iter.cache_clear()
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(proc))
        return proc

    yield point_at
    psutil.process_iter.cache_clear()
