"""The metrics that an agent reports about itself over HTTP: a real agent and a real collector."""

import http.client
import signal
from contextlib import closing
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gpuagent.metrics_http.own_server import MAX_CONNECTIONS, STANDSTILL_SECONDS, Liveness, serving
from tests.support.nvml_replay import NvmlRecording
from tests.support.servers import Node, until
from tests.support.sites import Site

PATIENCE_SECONDS = 60.0


def fetch(place: str, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(place, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def figures(place: str) -> dict[str, float]:
    _, text = fetch(place, "/metrics")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_agent_reports_its_sampling_spool_and_delivery_to_many(site: Site) -> None:
    with site.agent(NvmlRecording.load("h200_one_of_two_busy")) as agent, serving("127.0.0.1:0", agent) as place:
        site.await_rows("gpu_samples")
        found = until(
            lambda: found if (found := figures(place))["gpuagent_agent_messages_acknowledged_total"] else None, "an ack"
        )
        assert fetch(place, "/healthz") == fetch(place, "/readyz") == (200, "ok\n")
        assert fetch(place, "/other")[0] == 404
        # Idle connections do not block others.
        held = [http.client.HTTPConnection(place, timeout=PATIENCE_SECONDS) for _ in range(MAX_CONNECTIONS + 5)]
        for connection in held:
            connection.connect()
        assert fetch(place, "/healthz")[0] == 200
        for connection in held:
            connection.close()
    prefix = "gpuagent_agent_"
    assert found[f"{prefix}connected"] == found[f"{prefix}connections_total"] == 1
    assert found[f"{prefix}messages_rejected_total"] == found[f"{prefix}connection_failures_total"] == 0
    assert found[f"{prefix}messages_sent_total"] >= found[f"{prefix}messages_acknowledged_total"] >= 1
    assert found[f"{prefix}flushes_total"] >= 1
    assert found[f"{prefix}spool_limit_bytes"] == 512 * 1024 * 1024
    assert f"{prefix}source_reads_total nvml" in found
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert any(name.startswith(f"{prefix}info") and " here " in name for name in found)


def test_without_a_collector_it_is_alive_and_not_ready_and_reports_its_backlog(node: Node) -> None:
    node.without_collector()
    process = node.start("gpuagent", "start", "--metrics", "127.0.0.1:0", log="agent.log")
    log = node.folder / "agent.log"
    until(lambda: "its own metrics: http://" in log.read_text(), "the address")
    place = log.read_text().partition("its own metrics: http://")[2].partition("/")[0]
    found = until(lambda: found if (found := figures(place)).get("gpuagent_agent_spool_bytes") else None, "a message")
    assert found["gpuagent_agent_spool_oldest_age_seconds"] >= 0
    assert until(lambda: figures(place)["gpuagent_agent_connection_failures_total"], "a failure") >= 1
    assert fetch(place, "/healthz")[0] == 200
    assert fetch(place, "/readyz")[0] == 503
    assert node.stop(process, signal.SIGINT) == 0


def test_an_invalid_or_occupied_address_is_one_clear_error(node: Node) -> None:
    assert "HOST:PORT" in node.run("gpuagent", "start", "--metrics", "9465", code=2).stderr
    node.serve()
    taken = node.environment["GPUAGENT_COLLECTOR"]
    assert f"cannot listen on {taken}" in node.run("gpuagent", "start", "--metrics", taken, code=1).stderr


def test_an_agent_without_flushes_for_too_long_is_dead() -> None:
    state: dict[str, Any] = {"flushes": 0, "now": 0.0}
    liveness = Liveness(lambda: state["flushes"], lambda: state["now"])
    assert liveness.is_alive()
    state["now"] = STANDSTILL_SECONDS
    assert not liveness.is_alive()
    state["flushes"] = 1
    assert liveness.is_alive()
