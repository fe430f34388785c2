"""What is pushed to a real OpenTelemetry backend, against the store and the semantic conventions."""

import http.client
import json
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from opentelemetry.semconv._incubating.metrics import hw_metrics, system_metrics

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.server import otlp
from gpuagent_collector.server.otlp import OtlpPush, OtlpTarget
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_collector.web.asker import Asker
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import key
from tests.support.programs import found
from tests.support.recent import Site
from tests.support.servers import Node, until
from tests.support.stores import open_store

# Returns the series that a selector names, each with `metric` and `values`, for the last 20 minutes.
Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[tuple[str, Query]]:
    """The address for pushes of a real VictoriaMetrics, and what asks it."""
    program = found("victoria-metrics")
    options = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    if "-opentelemetry" not in options.stdout + options.stderr:
        pytest.skip("needs a VictoriaMetrics that takes OTLP, 1.92 or newer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = "{}:{}".format(*free.getsockname())
    command = [program, f"-storageDataPath={tmp_path}/metrics", f"-httpListenAddr={place}"]
    process = subprocess.Popen(
        [*command, "-dedup.minScrapeInterval=1ms", "-search.latencyOffset=0s"], stderr=subprocess.DEVNULL
    )

    def query(selector: str) -> list[dict[str, Any]]:
        # It shows what came last only after a flush.
        with suppress(OSError):
            urllib.request.urlopen(f"http://{place}/internal/force_flush", timeout=30).close()
        with urllib.request.urlopen(f"http://{place}/api/v1/query?query={quote(f'{selector}[20m]')}") as answer:
            found_series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found_series

    def is_up() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://{place}/health", timeout=30):
            return True
        return False

    try:
        until(is_up, "VictoriaMetrics")
        yield f"http://{place}/opentelemetry", query
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a pod's node of two GPUs, five minutes of its samples, and a run."""
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        with store.connect() as connection:
            site = Site(connection=connection)
            node, gpu = site.node("alder", gpus=2), key("alder0")
            connection.execute(
                """UPDATE sessions SET orchestrator = 'kubernetes', labels = '{"namespace": "ml", "pod": "train-0"}'"""
            )
            site.run("gpt-1", node, (-290, "running"), workload="gpt")
            at = f"{node} AS session_id, {node} AS node_id, now()::TIMESTAMP - INTERVAL 1 SECOND * ago AS time"
            for table, values in (
                ("host_samples", "ago % 100 AS cpu_percent, ago * 10**9 AS memory_used_bytes"),
                ("gpu_samples", f"{gpu} AS device_id, ago % 7 AS utilization_percent, 1e6 - ago AS energy_joules"),
                ("steps", "'gpt-1' AS run_id, 0 AS rank, 300 - ago AS step, 64 AS items"),
            ):
                rows = f"SELECT {at}, {values} FROM range(300) AS rows(ago)"
                connection.execute(f"INSERT INTO {table} BY NAME {rows} WHERE ago > 120 OR '{table}' <> 'steps'")
        yield store


def asker(store: Store) -> Asker:
    return Asker(store.connect, Limits())


def points(series: list[dict[str, Any]]) -> dict[int, float]:
    """Return time in seconds → value of the one series."""
    (only,) = series
    assert len({time for time, _ in only["values"]}) == len(only["values"])
    return {int(time): float(value) for time, value in only["values"]}


@pytest.mark.slow
@pytest.mark.needs("victoria-metrics")
def test_a_backend_has_what_the_store_has_once_also_after_restarts_and_an_outage(
    backend: tuple[str, Query], store: Store
) -> None:
    url, query = backend
    now = utc_now()
    early = OtlpPush(OtlpTarget.parse(url), asker(store), now=lambda: now - timedelta(seconds=100))
    early.send()
    early.send()
    away = OtlpPush(OtlpTarget.parse("http://127.0.0.1:9/"), asker(store), now=lambda: now)
    with pytest.raises(GpuAgentError, match="refused"):
        away.send()
    for _ in range(2):  # a restart, and another: each sends its whole window
        OtlpPush(OtlpTarget.parse(url), asker(store), now=lambda: now).send()
    with store.connect() as connection:
        for name, table, column, factor in (
            ("system.cpu.utilization", "host_samples", "avg(cpu_percent)", 0.01),
            ("system.memory.usage", "host_samples", "avg(memory_used_bytes)", 1.0),
            ("hw.gpu.utilization", "gpu_samples", "avg(utilization_percent)", 0.01),
            ("hw.energy", "gpu_samples", "max(energy_joules)", 1.0),
            ("gpuagent.run.throughput", "steps", "sum(items) / 10", 1.0),
        ):
            bucket = "time_bucket(INTERVAL 10 SECONDS, time) + INTERVAL 10 SECONDS"
            rows = connection.execute(f"SELECT {bucket}, {column} FROM {table} GROUP BY 1").fetchall()
            expected = {
                int(ended.replace(tzinfo=timezone.utc).timestamp()): pytest.approx(value * factor)
                for ended, value in rows
                if ended <= now - otlp.LAG
            }
            assert len(expected) > 15
            assert points(query(f'{{__name__="{name}"}}')) == expected
    (series,) = query('{__name__="hw.gpu.utilization"}')
    gpu = {"hw.id": "GPU-alder-0", "hw.name": "NVIDIA H200", "hw.gpu.task": "general"}
    pod = {"host.name": "alder", "k8s.pod.name": "train-0", "k8s.namespace.name": "ml", "k8s.node.name": "alder"}
    assert series["metric"].items() >= (gpu | pod | {"gpuagent.platform": "satori"}).items()
    # What was not measured is absent.
    assert query('{__name__="hw.power"}') == []


@pytest.mark.slow
@pytest.mark.needs("victoria-metrics")
def test_serve_pushes_as_soon_as_it_runs(backend: tuple[str, Query], store: Store, tmp_path: Path, node: Node) -> None:
    url, query = backend
    store.close()
    node.serve(options=["--otlp", url])
    until(lambda: query('{__name__="hw.gpu.utilization"}'), "a GPU's utilisation")


@pytest.mark.parametrize("error", [GpuAgentError("no"), http.client.BadStatusLine("no"), ValueError("no")])
def test_the_thread_goes_on_after_any_failure(error: Exception) -> None:
    calls = []

    def ask(sql: str, parameters: object = ()) -> list[dict[str, Any]]:
        calls.append(sql)
        if len(calls) > 1:
            push._stopped.set()
        raise error

    push = OtlpPush(OtlpTarget("http://127.0.0.1:1", {}), ask, pause_seconds=0)
    push._run()
    assert len(calls) == 2


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "http://:4318", "http://[::1:4318"),
        *("http://localhost:99999", "http://localhost:port", "http://localhost:0", "http://localhost/a b"),
        *("http://localhost?a=b", "http://localhost/#a", "http://name:word@localhost", "http://\u00e9:4318"),
    ],
)
def test_an_address_that_is_none_of_http_is_refused(url: str) -> None:
    with pytest.raises(MisuseError, match="--otlp"):
        OtlpTarget.parse(url)


def test_headers_are_those_of_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(otlp.HEADERS_VARIABLE, "authorization=Basic%20abc,x-scope=1")
    headers = OtlpTarget.parse("http://localhost:4318").headers
    assert headers.items() >= {"authorization": "Basic abc", "x-scope": "1"}.items()
    monkeypatch.setenv(otlp.HEADERS_VARIABLE, "abc")
    with pytest.raises(MisuseError, match=otlp.HEADERS_VARIABLE):
        OtlpTarget.parse("http://localhost:4318")


def test_names_units_and_instruments_are_those_of_the_conventions() -> None:
    for (_, column), meaning in otlp._CONVENTIONS.items():
        made: dict[str, Any] = {}

        def instrument(kind: str) -> Callable[..., None]:
            return lambda **given: made.update(given, kind=kind)  # noqa: B023 - called at once

        kinds = ("counter", "up_down_counter", "observable_gauge", "gauge")
        meter = SimpleNamespace(**{f"create_{kind}": instrument(kind) for kind in kinds})
        creators = vars(hw_metrics) | vars(system_metrics)
        creator = creators[f"create_{meaning.name.replace('.', '_')}"]
        creator(meter, *([None] if "callbacks" in creator.__annotations__ else []))
        ending = next(ending for ending in otlp._UNITS if column.endswith(ending))
        assert (made["name"], made["unit"]) == (meaning.name, otlp._UNITS[ending][0])
        is_counter = column.endswith("_joules")
        expected = "counter" if is_counter else "up_down_counter" if meaning.is_sum else "observable_gauge"
        assert made["kind"] == expected, meaning.name
