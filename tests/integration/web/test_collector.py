"""The web server of a whole collector, beside its gRPC."""

import asyncio
import signal
import socket
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gpuagent.sampling.rows import encode_records
from gpuagent_common.address import Address
from tests.integration.server.agents import SETTINGS, Agent, serving
from tests.support.http import fetch
from tests.support.servers import Node

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


def test_an_address_that_cannot_be_served_is_reported_in_one_line(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for http, code, words in (
            ("0.0.0.0:0", 2, "without TLS"),
            ("nonsense", 2, "write HOST:PORT"),
            (taken, 1, "choose another address with --http"),
        ):
            done = node.run("collector", "serve", "--listen", "127.0.0.1:0", "--http", http, code=code)
            assert words in done.stderr
            assert len(done.stderr.splitlines()) == 1
