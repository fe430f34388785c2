"""Runs published to MLflow and Trackio: what is there afterwards, and that our own import reads it back."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import duckdb
import pytest

from gpuagent_collector.exchange.logs import LoggedStep, read_log
from gpuagent_collector.publishing.run import load_published
from gpuagent_collector.query.ask import ask_within
from gpuagent_common.errors import MisuseError
from tests.integration.compare.synthetic import COMPUTED_AT, EPOCH, SyntheticStore
from tests.integration.exchange.conftest import Run
from tests.integration.exchange.sites import execute
from tests.support.commands import made_up
from tests.support.recent import Site
from tests.support.servers import until
from tests.support.stores import open_store

# Made by `make trackers-check`: neither fits into the environment of the tests.
TRACKERS = Path(__file__).resolve().parents[3] / "build" / "trackers" / "bin"

SLOW = pytest.param("mlflow", marks=pytest.mark.slow)


class Tracker(NamedTuple):
    """A tracker that runs are published to: the words that name it, and the database of the project `pair`."""

    words: tuple[str, ...]
    database: Path


@pytest.fixture(scope="module")
def tracker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    tmp_path = tmp_path_factory.mktemp("tracker")
    if request.param == "trackio":
        yield Tracker(("--to", "trackio", "--at", str(tmp_path)), tmp_path / "pair.db")
        return
    need_trackers()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    database = tmp_path / "mlflow.db"
    options = ["--port", str(port), "--workers", "1", "--backend-store-uri", f"sqlite:///{database}"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    log = (tmp_path / "server.log").open("w")
    server = subprocess.Popen([TRACKERS / "mlflow", "server", *options], env=environment, stdout=log, stderr=log)

    def is_up() -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=30):
            return True
        assert server.poll() is None, (tmp_path / "server.log").read_text()
        return False

    try:
        until(is_up, "MLflow's server")
        yield Tracker(("--to", "mlflow", "--at", f"http://127.0.0.1:{port}"), database)
    finally:
        server.terminate()
        server.wait(60)
        log.close()


BOTH = pytest.mark.parametrize("tracker", ["trackio", SLOW], indirect=True, scope="module")


def need_trackers() -> None:
    if not (TRACKERS / "mlflow").exists():
        pytest.skip("needs MLflow and Trackio; run: make trackers-check")


def write(path: Path, name: str) -> Path:
    """Make a store with the run NAME-1 of two ranks on two nodes, which reports its loss, and NAME-2 beside it."""
    with made_up(path) as store:
        _add(store, name)
    return path


def _add(store: SyntheticStore, name: str) -> None:
    nodes = [store.node("alder", "satori", gpus=["NVIDIA L4"] * 2), store.node("birch", "satori", gpus=["NVIDIA L4"])]
    for rank, node in enumerate(nodes):
        store.run(f"{name}-1", node, start_seconds=0, rank=rank, experiment="pair", nodes=2, labels='{"rack": "7"}')
    store.run(f"{name}-2", nodes[0], start_seconds=100, experiment="pair")
    for step in range(10):
        detail = json.dumps({"step": step, "value": 2.0 / (step + 1)})
        event = {"run_id": f"{name}-1", "rank": 0, "event": "metric", "name": "train/loss", "detail": detail}
        store.rows["run_events"].append({**nodes[0].at(step + 4.0), **event})


def published(run: Run, store: Path, tracker: Tracker, *names: str) -> list[int]:
    """Publish runs, and return how many values each added."""
    code, printed = run("publish", *names, *tracker.words, "--store", str(store), "--pages", "http://gpu:9464/")
    assert code == 0, printed
    lines = [line for line in printed.splitlines() if " added to " in line]
    return [int(line.split(": ")[1].split(" value")[0].replace(",", "")) for line in lines]


@BOTH
def test_import_reads_back_what_was_published_once(tracker: Tracker, run: Run, tmp_path: Path) -> None:
    store = write(tmp_path / "runs.duckdb", "gpt")
    both = published(run, store, tracker, "gpt-1", "gpt-2")
    assert min(both) > 20
    assert published(run, store, tracker, "gpt-1", "gpt-2") == [0, 0]
    start = EPOCH.replace(tzinfo=timezone.utc).timestamp()
    assert read_log(tracker.database, "gpt-1") == {
        step: LoggedStep(
            unix_seconds=start + step + 4,
            values={"train/loss": 2.0 / (step + 1), "step_seconds": 0.064, "step_seconds/rank 1": 0.064},
        )
        for step in range(10)
    }
    with pytest.raises(MisuseError, match="name one with --log-run"):
        read_log(tracker.database)
    # The same runs, known without their steps.
    bare = tmp_path / "bare.duckdb"
    with made_up(bare) as synthetic:
        node = synthetic.node("alder", "satori")
        synthetic.run("gpt-1", node, start_seconds=0, sampled=False)
    words = ("--run", "gpt-1", "--log-run", "gpt-1", "--items-per-step", "64", "--store", str(bare))
    assert run("import", str(tracker.database), *words)[0] == 0
    steps = "SELECT step, time, items FROM steps WHERE run_id = 'gpt-1' AND rank = 0 ORDER BY step"
    losses = """SELECT time, CAST(detail->>'step' AS BIGINT), CAST(detail->>'value' AS DOUBLE) FROM run_events
        WHERE event = 'metric' AND name = 'train/loss' ORDER BY time"""
    for statement in (steps, losses):
        assert len(execute(str(store), statement)) == 10
        assert execute(str(bare), statement) == execute(str(store), statement)


@BOTH
def test_later_figures_are_added_and_nothing_else(tracker: Tracker, run: Run, tmp_path: Path) -> None:
    store = write(tmp_path / "runs.duckdb", "later")
    published(run, store, tracker, "later-2")
    later = COMPUTED_AT + timedelta(hours=1)
    execute(
        str(store),
        f"""INSERT INTO run_metrics BY NAME
            SELECT 'later-2' AS run_id, TIMESTAMP '{later}' AS computed_at, metric,
                   if(metric = 'throughput', 77.0, value) AS value, unit
            FROM metrics WHERE run_id = 'later-2' AND value IS NOT NULL""",
    )
    ((figures,),) = execute(str(store), "SELECT count(value) FROM metrics WHERE run_id = 'later-2'")
    assert published(run, store, tracker, "later-2") == [figures]
    assert published(run, store, tracker, "later-2") == [0]


@BOTH
def test_a_run_under_way_is_completed(tracker: Tracker, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    with open_store(str(path)) as opened, opened.connect() as connection:
        site = Site(connection=connection)
        node_id = site.node("alder", gpus=1)
        site.run("open-1", node_id, (-60, "running"), experiment="pair")
        site.host(node_id, range(-60, 0), cpu_percent=25.0)
    first = published(run, path, tracker, "open-1")
    assert first[0] > 0
    with open_store(str(path)) as opened, opened.connect() as connection:
        at = {"session_id": node_id, "node_id": node_id, "run_id": "open-1"}
        Site(connection=connection, now=site.now).add("run_states", 0, **at, status="succeeded")
    second = published(run, path, tracker, "open-1")
    assert second[0] > 0
    assert published(run, path, tracker, "open-1") == [0]
    anew = Tracker(("--to", "trackio", "--at", str(tmp_path / "anew")), tmp_path)
    assert published(run, path, anew, "open-1") == [first[0] + second[0]]


def test_each_node_and_gpu_has_its_own_measurements(tmp_path: Path) -> None:
    store = write(tmp_path / "runs.duckdb", "gpt")
    connection = duckdb.connect(str(store), read_only=True)
    found = load_published(ask_within(connection), "gpt-1", project=None, pages=None)
    named = {point.name for point in found.system}
    assert named >= {f"system/{node}/cpu_percent" for node in ("alder", "birch")}
    gpus = {"alder/gpu_0", "alder/gpu_1", "birch/gpu_0"}
    assert {name.removeprefix("system/").split("_power")[0] for name in named if "power_watts" in name} == gpus
    ((mean,),) = connection.execute(
        """SELECT avg(cpu_percent) FROM host_samples JOIN sessions USING (session_id)
           WHERE hostname = 'birch' AND time < ?""",
        [EPOCH + timedelta(seconds=10)],
    ).fetchall()
    first = next(point for point in found.system if point.name == "system/birch/cpu_percent")
    assert first.value == pytest.approx(mean)
    assert first.time == EPOCH + timedelta(seconds=10)
    assert found.parameters["batch_size"] == "64"
    assert found.parameters["gpus"] == "3 x NVIDIA L4"
    assert found.facts["label.rack"] == "7"
    connection.close()


# What the trackers' own clients print of the run shown-1.
_MLFLOW_CLIENT = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("pair")
(run,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'shown-1'")
history = {name: len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics}
print(json.dumps([run.info.status, run.data.params, run.data.tags, run.data.metrics, history]))
"""
_TRACKIO_CLIENT = """
import json
from trackio.sqlite_storage import SQLiteStorage as storage
storage.init_db("pair")
records = [(each["id"], each["name"]) for each in storage.get_run_records("pair")]
print(json.dumps([records, storage.get_run_config("pair", "shown-1"), storage.get_logs("pair", "shown-1"),
                  storage.get_system_logs("pair", "shown-1")]))
"""


def told(client: str, *words: str, **variables: str) -> list[Any]:
    done = subprocess.run(
        [TRACKERS / "python", "-c", client, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["mlflow"], indirect=True)
def test_the_client_of_mlflow_shows_the_run(tracker: Tracker, run: Run, tmp_path: Path) -> None:
    store = write(tmp_path / "runs.duckdb", "shown")
    published(run, store, tracker, "shown-1", "shown-2")
    status, parameters, tags, metrics, history = told(_MLFLOW_CLIENT, tracker.words[-1])
    assert status == "FINISHED"
    assert parameters.items() >= {"batch_size": "64", "platform": "satori", "gpus": "3 x NVIDIA L4"}.items()
    assert tags["gpuagent.page"] == "http://gpu:9464/runs/shown-1"
    assert tags["gpuagent.node"] == "alder, birch"
    ((throughput,),) = execute(
        str(store), "SELECT value FROM metrics WHERE run_id = 'shown-1' AND metric = 'throughput'"
    )
    assert metrics["figure/throughput"] == throughput
    assert metrics["train/loss"] == pytest.approx(0.2)
    assert history["train/loss"] == history["step_seconds"] == 10
    assert {"system/alder/gpu_1_power_watts", "system/birch/gpu_0_power_watts"} <= metrics.keys()


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["trackio"], indirect=True)
def test_trackio_shows_the_run(tracker: Tracker, run: Run, tmp_path: Path) -> None:
    need_trackers()
    store = write(tmp_path / "runs.duckdb", "shown")
    added = published(run, store, tracker, "shown-1")
    records, config, logs, system = told(_TRACKIO_CLIENT, TRACKIO_DIR=str(tracker.database.parent))
    assert ["shown-1", "shown-1"] in records
    assert config.items() >= {"batch_size": "64", "node": "alder, birch"}.items()
    losses = {row["step"]: row["train/loss"] for row in logs if "train/loss" in row}
    assert losses == {step: 2.0 / (step + 1) for step in range(10)}
    named = {name for row in system for name in row}
    assert {"alder/gpu_1_power_watts", "birch/gpu_0_power_watts"} <= named
    assert len(logs) + len(system) == added[0]
    # Trackio has changed the file since.
    assert published(run, store, tracker, "shown-1") == [0]
