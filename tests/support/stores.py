"""A small store with two nodes and a few runs, one of them with hostile text."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

from gpuagent_collector.store import Store
from gpuagent_common.keys import key

# A hostname that would colour, clear and reorder a terminal.
HOSTILE = "evil\x1b[31m\x9b2J\u202e[red]name[/]"


def on_both_kinds(fixture: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is run on a DuckDB file and on a lake; `fixture` takes the kind, else a file's.

    A lake takes a second to make: only tests of what DuckLake may do in another way have this mark.
    """
    return pytest.mark.parametrize(fixture, ["", "ducklake:"], ids=["file", "lake"], indirect=True)


def put_empty(path: Path) -> Path:
    """Put the file of an empty store at `path`, unless there is one, and return that; to copy one takes no time."""
    if not path.exists():
        path.write_bytes(_empty())
    return path


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        Store.open(str(path)).close()
        return path.read_bytes()


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
    path = put_empty(folder / "runs.duckdb")
    with Store.open(str(path)) as store:
        fill(store)
    return path
