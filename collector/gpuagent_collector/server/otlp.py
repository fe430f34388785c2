"""Metrics of nodes, GPUs and runs for an OpenTelemetry backend, pushed as OTLP over HTTP.

A point is the mean of ten seconds of samples, and its time is their end. Buckets are the same after a restart, so that
a backend that gets one twice keeps it once. Names are those of OpenTelemetry's semantic conventions 1.44 where these
have one, else `gpuagent.…`.
"""

import logging
import os
import re
import threading
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric, ResourceMetrics

from gpuagent_collector import __version__
from gpuagent_collector.json_cells import read_object
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.run_sessions import PRESENT_SQL
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.quantities import QUANTITIES

PERIOD = timedelta(seconds=10)
# Agents send every second, slowed ones every ten: by then a bucket is complete.
LAG = timedelta(seconds=20)
# What is sent late after a restart of the collector, or after the backend was away.
WINDOW = timedelta(minutes=10)

# What one message holds: a backend takes a few megabytes at once.
_PART = timedelta(minutes=1)

# As the exporters of OpenTelemetry read it: NAME=VALUE,…
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"

_ANSWER_SECONDS = 10.0
# The backend will never take this message: it is damaged or too large for it.
_NEVER = (400, 413)

_LOG = logging.getLogger(__name__)


class _Meaning(NamedTuple):
    """A metric of the conventions, and its attributes; a sum's value grows from a start or is a share of a whole."""

    name: str
    attributes: Mapping[str, str] = {}
    is_sum: bool = False


_GPU, _USED = {"hw.type": "gpu"}, {"system.memory.state": "used"}
_CONVENTIONS: Mapping[tuple[str, str], _Meaning] = {
    ("host_samples", "cpu_percent"): _Meaning("system.cpu.utilization"),
    ("host_samples", "memory_used_bytes"): _Meaning("system.memory.usage", _USED, is_sum=True),
    ("host_samples", "memory_total_bytes"): _Meaning("system.memory.limit", is_sum=True),
    ("gpu_samples", "utilization_percent"): _Meaning("hw.gpu.utilization", {"hw.gpu.task": "general"}),
    ("gpu_samples", "memory_used_bytes"): _Meaning("hw.gpu.memory.usage", is_sum=True),
    ("gpu_samples", "power_watts"): _Meaning("hw.power", _GPU),
    ("gpu_samples", "energy_joules"): _Meaning("hw.energy", _GPU, is_sum=True),
    ("gpu_samples", "temperature_celsius"): _Meaning("hw.temperature", _GPU),
}

# Ending of a column → OpenTelemetry's unit, and the factor to it.
_UNITS: Mapping[str, tuple[str, float]] = {
    "_percent": ("1", 0.01),
    "_bytes_per_second": ("By/s", 1.0),
    "_bytes": ("By", 1.0),
    "_watts": ("W", 1.0),
    "_joules": ("J", 1.0),
    "_celsius": ("Cel", 1.0),
    "_mhz": ("Hz", 1e6),
}

_NODES = f"WITH {PRESENT_SQL} SELECT * FROM present"  # noqa: S608 - a constant
_DEVICES = """
SELECT device_id, arg_max({'uuid': uuid, 'name': name}, time) AS device FROM session_devices GROUP BY device_id"""

_BUCKET = "time_bucket(INTERVAL 10 SECONDS, time) + INTERVAL 10 SECONDS AS ended"
_RUNS = f"""
WITH speed AS (
    SELECT node_id, run_id, {_BUCKET}, sum(items) / 10 AS throughput
    FROM steps WHERE time >= make_timestamp(?) AND time < make_timestamp(?) AND items IS NOT NULL GROUP BY ALL
), used AS (
    SELECT node_id, run_id, {_BUCKET}, avg(cpu_cores) AS cpu_usage, avg(anonymous_bytes) AS memory_usage
    FROM process_samples WHERE time >= make_timestamp(?) AND time < make_timestamp(?) GROUP BY ALL
)
SELECT * FROM speed FULL JOIN used USING (node_id, run_id, ended)
LEFT JOIN (
    SELECT node_id, run_id, workload, experiment, environment FROM run_requests
) USING (node_id, run_id) ORDER BY ended"""  # noqa: S608 - constants
_RUN_METRICS = (("throughput", "{item}/s"), ("cpu_usage", "{cpu}"), ("memory_usage", "By"))


# Metrics by node and name.
_Points: TypeAlias = defaultdict[int, dict[str, Metric]]


class OtlpTarget(NamedTuple):
    """A backend: where metrics are posted, and with which headers."""

    url: str
    headers: Mapping[str, str]

    @classmethod
    def parse(cls, url: str) -> "OtlpTarget":
        """Return the backend at an address such as http://HOST:4318, with the headers of the environment.

        Raises MisuseError: the address is none of HTTP, or the variable with the headers cannot be read.
        """
        if not _is_address(url):
            raise MisuseError(f"--otlp takes an address such as http://127.0.0.1:4318, and not {url[:80]}")
        headers = {"Content-Type": "application/x-protobuf"}
        for pair in filter(None, os.environ.get(HEADERS_VARIABLE, "").split(",")):
            name, equals, value = pair.partition("=")
            if not equals:
                raise MisuseError(f"{HEADERS_VARIABLE} takes NAME=VALUE,…; a part of it has no =")
            headers[name.strip()] = unquote(value.strip())
        return cls(f"{url.rstrip('/').removesuffix('/v1/metrics')}/v1/metrics", headers)


def _is_address(url: str) -> bool:
    """Return whether a path can be added to the URL, and whether it names a host; headers have what authenticates."""
    try:
        place = urlsplit(url)
        is_host = bool(place.hostname) and place.port != 0 and "@" not in place.netloc
    except ValueError:  # the port is no port, or a bracket is missing
        return False
    is_plain = url.isascii() and not re.search(r"[\s?#]", url)
    return place.scheme in ("http", "https") and is_host and is_plain


class OtlpPush:
    """A thread that sends what is stored to one backend."""

    def __init__(
        self,
        target: OtlpTarget,
        ask: Ask,
        *,
        now: Callable[[], datetime] = utc_now,
        pause_seconds: float = PERIOD.total_seconds(),
    ) -> None:
        """Take the backend, and what reads the store; `now` returns UTC without a zone."""
        self._target = target
        self._ask = ask
        self._now = now
        self._pause_seconds = pause_seconds
        self._sent_until = _floor(now()) - WINDOW
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Send every ten seconds until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is not sent yet is sent after the next start."""
        self._stopped.set()
        if self._thread.is_alive():  # it has not begun where the collector could not start
            self._thread.join()

    def _run(self) -> None:
        is_failing = False
        while not self._stopped.is_set():
            try:
                self.send()
                is_failing = False
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a backend or the store does
                if not is_failing:
                    reason = str(error) if isinstance(error, GpuAgentError) else repr(error)
                    _LOG.warning("metrics do not reach %s: %s; trying again", self._target.url, reason)
                is_failing = True
            self._stopped.wait(self._pause_seconds)

    def send(self) -> None:
        """Send the buckets that are complete and were not sent.

        Raises GpuAgentError: the store cannot be read, or the backend does not take them now.
        """
        now = self._now()
        until = _floor(now - LAG)
        since = max(self._sent_until, _floor(now) - WINDOW)
        while since < until:
            end = min(since + _PART, until)
            request = self._request(since, end)
            if request.resource_metrics:
                self._post(request.SerializeToString())
            since = self._sent_until = end

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._target.url, body, dict(self._target.headers))  # noqa: S310 - HTTP, as checked
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):  # noqa: S310 - as above
                return
        except urllib.error.HTTPError as error:
            if error.code not in _NEVER:
                raise GpuAgentError(f"it answers {error.code} {error.reason}") from error
            text = error.read(200).decode(errors="replace").strip()
            _LOG.warning("%s refuses metrics, which are not sent again: %s %s", self._target.url, error.code, text)
        except OSError as error:
            raise GpuAgentError(str(getattr(error, "reason", error))) from error

    def _request(self, since: datetime, until: datetime) -> ExportMetricsServiceRequest:
        """Return the points of [since, until), by node."""
        points: _Points = defaultdict(dict)
        for table, key in (("host_samples", "node_id"), ("gpu_samples", "device_id")):
            self._add_samples(points, table, key, since, until)
        for row in self._ask(_RUNS, 2 * [_microseconds(since), _microseconds(until)]):
            about = {"gpuagent.run.id": row["run_id"]}
            for name in ("workload", "experiment", "environment"):
                about[f"gpuagent.{name}"] = row[name]
            for column, unit in _RUN_METRICS:
                metric = _metric(points, row["node_id"], f"gpuagent.run.{column.replace('_', '.')}", unit)
                _add(metric.gauge.data_points, row[column], row["ended"], about)
        if not points:
            return ExportMetricsServiceRequest()
        nodes = {row["node_id"]: row for row in self._ask(_NODES)}
        request = ExportMetricsServiceRequest()
        for node_id, metrics in points.items():
            if node_id in nodes:
                request.resource_metrics.append(_of_node(nodes[node_id], metrics))
        return request

    def _add_samples(self, points: _Points, table: str, key: str, since: datetime, until: datetime) -> None:
        shown = [quantity for quantity in QUANTITIES[table] if quantity.series]
        # A counter's value at the end is its last one.
        columns = ", ".join(
            f"{'max' if quantity.unit == 'joules' else 'avg'}({quantity.column}) AS {quantity.column}"
            for quantity in shown
        )
        sql = f"SELECT node_id, {key}, {_BUCKET}, {columns} FROM {table}"  # noqa: S608 - names of the schema
        sql = f"{sql} WHERE time >= make_timestamp(?) AND time < make_timestamp(?) GROUP BY ALL ORDER BY ended"
        rows = self._ask(sql, [_microseconds(since), _microseconds(until)])
        devices = {}
        if key == "device_id" and rows:
            devices = {row["device_id"]: row["device"] for row in self._ask(_DEVICES)}
        for row in rows:
            about = {}
            if key == "device_id":
                device = devices.get(row["device_id"]) or {"uuid": str(row["device_id"]), "name": None}
                about = {"hw.id": device["uuid"], "hw.name": device["name"], "hw.vendor": "NVIDIA"}
            for quantity in shown:
                ending = next((ending for ending in _UNITS if quantity.column.endswith(ending)), "")
                unit, factor = _UNITS.get(ending, ("1", 1.0))
                own = f"gpuagent.{table.removesuffix('_samples')}.{quantity.column.removesuffix(ending)}"
                meaning = _CONVENTIONS.get((table, quantity.column), _Meaning(own))
                metric = _metric(points, row["node_id"], meaning.name, unit)
                value = row[quantity.column]
                if value is not None:
                    value *= factor
                if meaning.is_sum:
                    metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
                    metric.sum.is_monotonic = quantity.unit == "joules"
                data = metric.sum.data_points if meaning.is_sum else metric.gauge.data_points
                _add(data, value, row["ended"], {**about, **meaning.attributes})


def _metric(points: _Points, node_id: int, name: str, unit: str) -> Metric:
    return points[node_id].setdefault(name, Metric(name=name, unit=unit))


def _of_node(node: Mapping[str, Any], metrics: Mapping[str, Metric]) -> ResourceMetrics:
    labels = read_object(node["labels"], "labels")
    about = {
        "service.name": "gpuagent",
        "service.instance.id": node["node_uuid"],
        "host.id": node["node_uuid"],
        "host.name": node["hostname"],
        "gpuagent.platform": node["platform"],
        "k8s.namespace.name": labels.get("namespace"),
        "k8s.pod.name": labels.get("pod"),
        "k8s.pod.uid": labels.get("pod_uid"),
    }
    if node["orchestrator"] in ("kubernetes", "openshift"):
        about["k8s.node.name"] = node["hostname"]
    resource = ResourceMetrics()
    resource.resource.attributes.extend(_attributes(about))
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "gpuagent", __version__
    scope.metrics.extend(metric for metric in metrics.values() if metric.gauge.data_points or metric.sum.data_points)
    return resource


def _add(data: Any, value: float | None, ended: datetime, about: Mapping[str, str | None]) -> None:
    """Add a point; what was not measured has none."""
    if value is not None:
        data.add(as_double=value, time_unix_nano=_microseconds(ended) * 1000, attributes=_attributes(about))


def _attributes(values: Mapping[str, str | None]) -> Iterator[KeyValue]:
    for name, value in values.items():
        if value is not None:
            pair = KeyValue(key=name)
            pair.value.string_value = value
            yield pair


def _microseconds(time: datetime) -> int:
    """Return the time since the epoch of a UTC time without a zone, of whole seconds."""
    return int(time.replace(tzinfo=timezone.utc).timestamp()) * 10**6


def _floor(time: datetime) -> datetime:
    return time - timedelta(seconds=time.second % PERIOD.seconds, microseconds=time.microsecond)
