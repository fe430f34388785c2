"""The configuration and the alerts of docs/monitoring.md in a real Prometheus."""

import asyncio
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpuagent_collector.ingest.instruments import IngestInstruments
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.watch.snapshot import take_snapshot
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.metrics import IDLE_SQL, Metrics
from gpuagent_common.keys import key
from tests.integration.server.agents import Agent
from tests.support.nvml_replay import NvmlRecording
from tests.support.programs import found
from tests.support.recent import MOMENTS, Site
from tests.support.servers import LIMIT_SECONDS, Node, until
from tests.support.stores import open_store

pytestmark = [pytest.mark.slow, pytest.mark.needs("prometheus", "promtool")]

PAGE = (Path(__file__).resolve().parents[3] / "docs/monitoring.md").read_text()
CONFIGURATION, RULES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ALERTS = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(RULES)["groups"][0]["rules"]}
MINUTES = 15


def write_rules(folder: Path) -> Path:
    rules = folder / "rules.yml"
    rules.write_text(RULES)
    return rules


def promtool(*words: str) -> str:
    done = subprocess.run([found("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reasons_of(recording: str) -> int:
    """Return what a recorded GPU gave as the reasons for its clocks."""
    outcomes = NvmlRecording.load(recording).outcomes
    (answers,) = (found for call, found in outcomes.items() if "ClocksEventReasons" in call and "Supported" not in call)
    return int(answers[-1]["answer"])


def calm(site: Site) -> None:
    """Put in a busy node, one that has left, one whose run ended well, and a GPU of each."""
    busy, left = site.node("busy", gpus=1), site.node("left", heard_age=300)
    site.add("session_ends", -299, session_id=left, node_id=left)
    site.host(busy, MOMENTS, cpu_percent=25.0)
    site.gpu(busy, "busy", 0, MOMENTS, utilization_percent=98.0, throttle_reasons=reasons_of("h200_busy"))
    site.run("mnist-done", busy, (-60, "running"), (-5, "succeeded"))
    hold(site, busy, "busy", idle_seconds=1000.0)


def silent(site: Site) -> None:
    site.node("silent", heard_age=300)


def held_back(site: Site) -> None:
    node = site.node("hot", gpus=1)
    site.host(node, MOMENTS, cpu_percent=25.0)
    site.gpu(node, "hot", 0, MOMENTS, utilization_percent=98.0, throttle_reasons=reasons_of("throttled"))


def hold(site: Site, node: int, hostname: str, *, idle_seconds: float) -> None:
    """Put in a job that holds a GPU for so long without using it."""
    owner = {"session_id": node, "node_id": node, "owner_id": node}
    known = {**owner, "kind": "slurm", "job": "4711", "user_name": "alice"}
    # Between two steps a job without a group of its own has no process.
    site.add("owners", -90, **known, ended_at=site.now - timedelta(seconds=90))
    site.add("owners", -60, **known)
    site.add("owner_samples", -1, **owner, device_id=key(f"{hostname}0"), idle_now_seconds=idle_seconds)


def held_idle(site: Site) -> None:
    node = site.node("asleep", gpus=1)
    site.host(node, MOMENTS, cpu_percent=1.0)
    hold(site, node, "asleep", idle_seconds=2000.0)


def no_fault(site: Site) -> None:
    """Put in nothing more."""


Fault = Callable[[Site], None]


def exported(store: Store, *, queued_bytes: int) -> Iterator[tuple[str, float]]:
    """Yield each series, as PromQL writes it, with its value, of a collector with so much of 100 bytes waiting."""
    ingest = IngestInstruments(queued_bytes=lambda: queued_bytes, queue_limit_bytes=100)
    ask = Asker(store.connect, Limits())
    metrics = Metrics(lambda: take_snapshot(ask), ingest.collectors(), find_idle=lambda: ask(IDLE_SQL))
    for family in text_string_to_metric_families(bytes(metrics.answer({}).body).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}", sample.value


# Of each: the fault, how much waits, whether a message is rejected, and the alert that comes, of which node.
FAULTS: dict[str, tuple[Fault, int, bool, set[tuple[str, str | None]]]] = {
    "a run and a node that ended well": (no_fault, 50, False, set()),
    "a node that goes silent": (silent, 0, False, {("NodeSilent", "silent")}),
    "a GPU that is held back in a recording": (held_back, 0, False, {("GpuHeldBack", "hot")}),
    "a job that holds a GPU asleep": (held_idle, 0, False, {("GpuHeldIdle", "asleep")}),
    "a queue that fills": (no_fault, 51, False, {("CollectorBehind", None)}),
    "a rejected message": (no_fault, 0, True, {("MessagesRejected", None)}),
}


def test_each_alert_is_raised_by_its_fault_and_by_nothing_else(tmp_path: Path) -> None:
    tests = [alert_test(name, *fault) for name, fault in FAULTS.items()]
    document = {"rule_files": [str(write_rules(tmp_path))], "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(tmp_path / "test.yml"))


def alert_test(
    title: str, fault: Fault, queued_bytes: int, rejected: bool, raised: set[tuple[str, str | None]]
) -> dict[str, Any]:
    """Return the test of promtool that a fault raises these alerts alone."""
    with TemporaryDirectory() as folder, open_store(f"{folder}/runs.duckdb") as store:
        with store.connect() as connection:
            site = Site(connection=connection)
            calm(site)
            fault(site)
        series = {
            name: f"{value}x{MINUTES}"
            for name, value in exported(store, queued_bytes=queued_bytes)
            if any(name.partition("{")[0] in expression for expression in ALERTS.values())
        }
    assert {name.partition("{")[0] for name in series} >= set(re.findall(r"gpuagent_\w+", " ".join(ALERTS.values())))
    if rejected:
        series['gpuagent_ingest_messages_total{outcome="rejected"}'] = f"0x5 1x{MINUTES - 6}"
    labels = {name: dict(re.findall(r'(\w+)="(.*?)"', name)) for name in series}
    metric = {alert: expression.split()[0] for alert, expression in ALERTS.items()}
    tests = []
    for alert in ALERTS:
        expected = []
        for name, node in raised:
            if name == alert and node:
                (which,) = (
                    labels[each] for each in labels if each.startswith(metric[alert]) and labels[each]["node"] == node
                )
                expected.append({"exp_labels": which})
            elif name == alert:
                expected.append({"exp_labels": {"outcome": "rejected"} if rejected else {}})
        tests.append({"eval_time": f"{MINUTES - 1}m", "alertname": alert, "exp_alerts": expected})
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"name": title, "interval": "1m", "input_series": given, "alert_rule_test": tests}


def write_configuration(folder: Path, target: str, token: str, ca: Path) -> Path:
    """Write the page's configuration with https, for a collector at `target`, and once more with a wrong token."""
    (folder / "prometheus-token").write_text(token)
    (folder / "wrong-token").write_text("wrong")
    text = CONFIGURATION.replace("# scheme", "scheme").replace("# tls_config", "tls_config")
    for name, value in {
        "/etc/prometheus/gpuagent-token": str(folder / "prometheus-token"),
        "/etc/prometheus/gpuagent-ca.crt": str(ca),
        "127.0.0.1:9464": target,
    }.items():
        assert name in text
        text = text.replace(name, value)
    wrong = text.replace("prometheus-token", "wrong-token").replace("job_name: gpuagent", "job_name: wrong")
    fast = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    jobs = [yaml.safe_load(each)["scrape_configs"][0] for each in (text, wrong)]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump({"global": fast, "rule_files": [str(write_rules(folder))], "scrape_configs": jobs}))
    promtool("check", "config", str(path))
    return path


@contextmanager
def prometheus(configuration: Path) -> Iterator[Callable[[str], Any]]:
    """Start Prometheus; yield a function that returns the data of its API for a path."""
    folder = configuration.parent
    log = folder / "prometheus.log"
    command = [found("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={folder}/tsdb"]
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stdout=output, stderr=output)
    try:
        address = re.compile(r'"Listening on" address=(\S+)')
        place = until(lambda: address.search(log.read_text()), "Prometheus' address")[1]

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"http://{place}/api/v1/{path}", timeout=LIMIT_SECONDS) as answer:
                return json.load(answer)["data"]

        until(lambda: "Server is ready" in log.read_text(), "Prometheus")
        yield ask
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def test_prometheus_scrapes_with_token_and_tls_and_raises_an_alert_for_a_rejected_message_alone(node: Node) -> None:
    tls = node.folder / "tls"
    node.collector("certs", "init", "--dir", str(tls), "--host", "127.0.0.1")
    ca = tls / "ca.crt"
    options = [f"--tls-cert={tls}/tls.crt", f"--tls-key={tls}/tls.key", "--http", "127.0.0.1:0"]
    node.serve(options=options)
    node.environment["GPUAGENT_CA_FILE"] = str(ca)
    said = (node.folder / "collector.log").read_text()
    page = re.search(r"metrics and pages: https://(127.0.0.1:\d+)", said)
    assert page, said
    made = node.collector("tokens", "create", "viewer", "--name=prometheus")
    viewer = made.stdout.split()[0]
    with prometheus(write_configuration(node.folder, page[1], viewer, ca)) as ask:

        def query(expression: str) -> list[float]:
            return [float(found["value"][1]) for found in ask(f"query?query={expression}")["result"]]

        until(lambda: sorted(query("up")) == [0.0, 1.0], "a scrape with the right token alone")
        assert query("up{job=%22gpuagent%22}") == [1.0]
        assert any("401" in target["lastError"] for target in ask("targets")["activeTargets"])
        until(lambda: query("gpuagent_snapshot_success") == [1.0], "the collector's own figures")
        node.run("gpuagent", "run", "--", "true")
        until(lambda: query("gpuagent_node_left") == [1.0], "the node's end in good order")
        assert ask("alerts")["alerts"] == []
        (group,) = ask("rules")["groups"]
        assert {rule["name"]: rule["health"] for rule in group["rules"]} == dict.fromkeys(ALERTS, "ok")
        asyncio.run(_send_what_is_no_records(node, ca))
        raised = until(lambda: ask("alerts")["alerts"], "an alert")
        assert [(alert["labels"]["alertname"], alert["state"]) for alert in raised] == [("MessagesRejected", "firing")]


async def _send_what_is_no_records(node: Node, ca: Path) -> None:
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    token = (node.folder / "token").read_text().strip()
    async with grpc.aio.secure_channel(node.environment["GPUAGENT_COLLECTOR"], credentials) as channel:
        agent = Agent(channel=channel, token=token)
        await agent.connect()
        await agent.send(1, b"no records")
        await agent.acknowledged(1)
