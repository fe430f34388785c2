"""A small store with two nodes and a few runs, one of them with hostile text."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.store import Store
from gpuagent_common.keys import key

# A hostname that would colour, clear and reorder a terminal.
HOSTILE = "evil\x1b[31m\x9b2J\u202e[red]name[/]"


# A lake takes sixteen times as long as a file: a test on a file covers what does not depend on the kind.
KINDS = ["", pytest.param("ducklake:", marks=pytest.mark.slow)]


def on_both_kinds(fixture: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is run on a DuckDB file and on a lake; `fixture` takes the kind, else a file's.

    Only tests of what DuckLake may do in another way have this mark.
    """
    return pytest.mark.parametrize(fixture, KINDS, ids=["file", "lake"], indirect=True)


def put_store(store: str, filled: Callable[[Store], None] | None = None) -> str:
    """Put a store at a name, unless there is one, and return the name: to copy one takes no time.

    It is empty, or as the function fills it, which is called once for all tests.
    """
    prefix, colon, place = store.rpartition(":")
    path = Path(place)
    if not path.exists():
        made = _make(prefix + colon, filled)  # of two threads at a time, one has a folder that nobody else keeps
        original = f"{made.name}/store"
        shutil.copy(original, path)
        if prefix:
            shutil.copytree(f"{original}.files", f"{path}.files")
            with duckdb.connect(path) as catalog:
                files = f"{path.absolute()}.files/"
                catalog.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [files])
    return store


def open_store(store: str, *, exact: bool = False) -> Store:
    """Open a store at the newest schema: a copy of an empty one where there is none."""
    return Store.open(put_store(store), exact=exact)


@cache
def _make(kind: str, filled: Callable[[Store], None] | None) -> "tempfile.TemporaryDirectory[str]":
    """Make a store of a kind in a folder, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory()
    name = f"{kind}{folder.name}/store"
    if filled:
        put_store(name)  # the migrations of a lake take longer than what fills it
    with Store.open(name, exact=filled is not None) as store:
        if filled:
            filled(store)
    return folder


_SESSION = """
INSERT INTO sessions BY NAME SELECT
    $session AS session_id, $node AS node_id, $hostname AS hostname, $platform AS platform, 64 AS cpu_threads,
    $limit AS cpu_limit_cores, 540000000000 AS memory_total_bytes, 550000000000 AS memory_limit_bytes,
    'kvm' AS virtualization, $container AS container,
    'none' AS orchestrator, '{"rack": "7"}' AS labels, TIMESTAMP '2026-01-01 08:00:00' AS started_at,
    'Xeon' AS cpu_model, '580.159.04' AS driver_version, '5.14.0' AS kernel, '0.1.0' AS agent_version
"""
_RUN = """
INSERT INTO run_requests BY NAME SELECT
    $session AS session_id, $node AS node_id, $time::TIMESTAMP AS time, $run AS run_id, 'mnist' AS workload,
    'bare' AS environment, $interference AS interference, $repeat AS repeat, '{"epochs": 1}' AS parameters
"""
_STATE = """
INSERT INTO run_states BY NAME SELECT
    $session AS session_id, $node AS node_id, $time::TIMESTAMP AS time, $run AS run_id, $status AS status,
    $exit_code AS exit_code, $reason AS reason
"""


def fill(store: Store) -> None:
    """Put in a node with two GPUs and a hostile one without, and four runs."""
    with store.connect() as connection:
        for number, (hostname, platform) in enumerate((("gpu-1", "satori"), (HOSTILE, "openshift"))):
            ids = {"session": key(f"session {number}"), "node": key(f"node {number}")}
            limit, container = (None, "none") if number == 0 else (4.0, "podman")
            session = ids | {"hostname": hostname, "platform": platform, "limit": limit, "container": container}
            connection.execute(_SESSION, session)
            connection.execute("INSERT INTO marks VALUES (?, 9, '2026-01-01 09:30:00')", [ids["session"]])
            for repeat in (1, 2):
                run = ids | {"run": f"mnist-{number}{repeat}", "time": f"2026-01-01 0{8 + number}:0{repeat}:00"}
                beside = "none" if repeat == 1 else "cpu-burn"
                connection.execute(_RUN, run | {"interference": beside, "repeat": repeat})
                connection.execute(_STATE, run | {"status": "running", "exit_code": None, "reason": None})
        _end_runs(store)
        for index in (0, 1):
            connection.execute(
                "INSERT INTO session_devices BY NAME SELECT ? AS session_id, ? AS node_id, now()::TIMESTAMP AS time, "
                "? AS device_id, ? AS device_index, 'NVIDIA H200' AS name, 150754820096 AS memory_total_bytes",
                [key("session 0"), key("node 0"), key(f"gpu {index}"), index],
            )


def _end_runs(store: Store) -> None:
    ends = (("mnist-01", "succeeded", 0, None), ("mnist-11", "failed", 1, "ended with 1: \x1b]0;owned\x07"))
    with store.connect() as connection:
        for run, status, exit_code, reason in ends:
            end = {"run": run, "status": status, "exit_code": exit_code, "reason": reason}
            number = int(run[6])
            ids = {"session": key(f"session {number}"), "node": key(f"node {number}")}
            connection.execute(_STATE, end | ids | {"time": f"2026-01-01 0{8 + number}:02:23.5"})


def make_store(folder: Path) -> Path:
    path = folder / "runs.duckdb"
    put_store(str(path), fill)
    return path
