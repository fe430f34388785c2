import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric, Sample
from prometheus_client.parser import text_string_to_metric_families

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.instruments import IngestInstruments
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.server.agents import AgentRegistry
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_collector.watch.snapshot import Snapshot, take_snapshot
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.metrics import GPU_SERIES, NODE_SERIES, Metrics
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless
from tests.integration.server.agents import SETTINGS, Agent, serving
from tests.support.http import fetch
from tests.support.recent import HOSTILE, Site
from tests.support.servers import Node

_GRAFANA = Path(__file__).resolve().parents[3] / "deploy/grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in _GRAFANA.glob("*.json")}


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(text: str, name: str) -> list[Sample]:
    return families(text)[name].samples


def metrics_of(snapshot: Callable[[], Snapshot]) -> str:
    instruments = IngestInstruments(queued_bytes=lambda: 7, queue_limit_bytes=100)
    agents = AgentRegistry(Presence(utc_now))
    return bytes(Metrics(snapshot, (*instruments.collectors(), agents.connected)).answer({}).body).decode()


def test_measured_figures_are_in_base_units_with_labels_and_others_are_absent(site: Address) -> None:
    text = fetch(site, "/metrics").text
    by_gpu = {sample.labels["gpu"]: sample for sample in samples(text, "gpuagent_gpu_utilization_ratio")}
    assert by_gpu["0"].value == 0.98
    labels = {"node": "alder", "platform": "satori", "uuid": "GPU-alder-0", "name": "NVIDIA H200"}
    assert by_gpu["0"].labels.items() >= labels.items()
    assert samples(text, "gpuagent_gpu_memory_used_bytes")[0].value == 110e9
    assert samples(text, "gpuagent_gpu_sm_clock_hertz")[0].value == 1.98e9
    assert samples(text, "gpuagent_node_cpu_utilization_ratio")[-1].value == 0.25
    # What was not measured has no series.
    assert [sample.labels["gpu"] for sample in samples(text, "gpuagent_gpu_sm_active_ratio")] == ["0"]
    assert samples(text, "gpuagent_gpu_energy_joules") == []
    silent = {sample.labels["node"]: sample.value for sample in samples(text, "gpuagent_node_silent")}
    assert silent == {"alder": 0, harmless(HOSTILE): 0, "birch": 1}
    assert "birch" not in {sample.labels["node"] for sample in samples(text, "gpuagent_node_cpu_utilization_ratio")}
    (run,) = samples(text, "gpuagent_runs")
    assert (run.labels, run.value) == ({"platform": "satori", "workload": "mnist", "status": "running"}, 1)
    # A hostile name stays a name.
    assert HOSTILE.splitlines()[0] not in text
    assert not any(line.startswith("<script>") for line in text.splitlines())


def test_two_nodes_of_one_name_are_two_series(site: Address, store: Store) -> None:
    with store.connect() as connection:
        connection.execute(
            "INSERT INTO sessions BY NAME SELECT 5 AS session_id, 5 AS node_id, 'other' AS node_uuid,"
            " 'alder' AS hostname, 'satori' AS platform"
        )
        connection.execute("INSERT INTO marks VALUES (5, 1, now()::TIMESTAMP)")
        Site(connection=connection).host(5, cpu_percent=1.0)
    found = samples(fetch(site, "/metrics").text, "gpuagent_node_silent")
    assert len({tuple(sorted(sample.labels.items())) for sample in found}) == len(found) == 4


def test_when_the_store_does_not_answer_the_rest_is_still_told() -> None:
    def fail() -> Snapshot:
        raise GpuAgentError("the query ran past its 8 seconds")

    text = metrics_of(fail)
    assert samples(text, "gpuagent_snapshot_success")[0].value == 0
    assert samples(text, "gpuagent_ingest_queued_bytes")[0].value == 7
    assert "gpuagent_node_silent" not in families(text)


def test_no_two_series_have_one_name() -> None:
    names = [series.name for series in (*NODE_SERIES, *GPU_SERIES)]
    assert len(set(names)) == len(names)


@pytest.mark.needs("promtool")
def test_prometheus_finds_nothing_wrong_with_the_metrics(store: Store) -> None:
    text = metrics_of(lambda: take_snapshot(Asker(store.connect, Limits())))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def exported(store: Store) -> set[str]:
    found = families(metrics_of(lambda: take_snapshot(Asker(store.connect, Limits()))))
    names = {family.name + ("_total" if family.type == "counter" else "") for family in found.values()}
    for family in found.values():
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def asked_by(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_dashboards_use_only_metrics_that_there_are(store: Store) -> None:
    known = exported(store)
    for name, dashboard in DASHBOARDS.items():
        asked = asked_by(dashboard)
        asked += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
        names = set(re.findall(r"\b(?:gpuagent|process)_[a-z0-9_]+", " ".join(asked)))
        assert names, name
        assert names <= known, name


def test_the_fleet_counts_a_gpu_and_its_memory_once_though_it_may_be_divided() -> None:
    asked = " ".join(asked_by(DASHBOARDS["fleet"]))
    left_out = re.findall(r'gpuagent_gpu_memory_[a-z_]+{[^}]*gpu!~"(.*?)"}', asked)
    assert len(left_out) == asked.count("gpuagent_gpu_memory_") > 0
    assert all(re.fullmatch(each, "0.7") and not re.fullmatch(each, "0") for each in left_out)


def test_dashboards_and_their_panels_can_be_told_apart_and_name_no_data_source_of_their_own() -> None:
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS) == 3
    for dashboard in DASHBOARDS.values():
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
        assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
        assert all(panel["targets"] for panel in panels)


WITH_HTTP = replace(SETTINGS, http=Address(host="127.0.0.1", port=0))


async def metrics(address: Address) -> dict[str, float]:
    answer = await asyncio.to_thread(fetch, address, "/metrics")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_what_agents_deliver_is_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, WITH_HTTP) as served:
        agent = Agent(channel=served.channel)
        await agent.connect()
        await agent.send(1)
        await agent.send(1)
        await agent.send(2, b"no records")
        await agent.send(3, encode_records({"gaps": [{"reason": "spool_full"}]}))
        await agent.acknowledged(3)
        address = served.collector.http_address
        assert address is not None
        found = await metrics(address)
    assert found["gpuagent_agents_connected"] == 1
    assert found["gpuagent_ingest_rows_total core_samples"] == 1
    assert found["gpuagent_ingest_rows_total gaps"] == 1
    for outcome, messages in (("committed", 2), ("duplicate", 1), ("rejected", 1)):
        assert found[f"gpuagent_ingest_messages_total {outcome}"] == messages
    assert found["gpuagent_ingest_commit_seconds_count"] >= 1
    assert found["gpuagent_ingest_lag_seconds_sum"] >= found["gpuagent_ingest_commit_seconds_sum"] > 0
    assert found["gpuagent_ingest_queued_bytes"] == 0


def test_the_collector_says_where_it_serves_and_ends_in_good_order(node: Node) -> None:
    collector = node.serve(options=["--http", "127.0.0.1:0"])
    log = (node.folder / "collector.log").read_text()
    port = int(log.partition("metrics and pages: http://127.0.0.1:")[2].partition("/")[0])
    address = Address(host="127.0.0.1", port=port)
    token = (node.folder / "token").read_text().strip()
    assert fetch(address, "/", {"Authorization": f"Bearer {token}"}).status == 200
    assert token not in log
    assert node.stop(collector, signal.SIGTERM) == 0
    assert (node.folder / "collector.log").read_text() == log
