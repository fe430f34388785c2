"""Messages of simulated agents: columns of a host and its GPUs, cut from values drawn in advance."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.load.plan import MAX_GPUS, SimulatedNode
from gpuagent.sampling.rows import Row, encode_records
from gpuagent_common.keys import key
from gpuagent_proto.v1.records_pb2 import Records

# Little-endian float64 or int64, as on the wire.
Column = NDArray[Any]

_DRAWN_ROWS = 20_000

_HOST_COLUMNS: Mapping[str, tuple[float, float, int]] = {
    "cpu_percent": (0, 100, 2),
    "cpu_user_percent": (0, 80, 2),
    "cpu_system_percent": (0, 20, 2),
    "cpu_iowait_percent": (0, 5, 2),
    "cpu_steal_percent": (0, 1, 2),
    "load_1m": (0, 64, 2),
    "memory_used_bytes": (1e11, 2e11, -12),
    "memory_available_bytes": (3e11, 4e11, -12),
    "memory_anonymous_bytes": (1e11, 2e11, -12),
    "memory_cached_bytes": (1e10, 2e10, -12),
    "memory_total_bytes": (512e9, 512e9, -12),
    "network_receive_bytes_per_second": (0, 1e9, 1),
    "network_send_bytes_per_second": (0, 1e9, 1),
    "disk_read_bytes_per_second": (0, 1e8, 1),
    "disk_write_bytes_per_second": (0, 1e8, 1),
}
# Column → lowest and highest value, and number of decimals; below 0, an integer that is a
# multiple of a power of two: memory is counted in pages on a host, in MiB on a GPU.
_GPU_COLUMNS: Mapping[str, tuple[float, float, int]] = {
    "utilization_percent": (0, 100, 0),
    "memory_utilization_percent": (0, 100, 0),
    "memory_used_bytes": (1e11, 1.2e11, -20),
    "memory_reserved_bytes": (6e8, 6e8, -20),
    "memory_total_bytes": (1.5e11, 1.5e11, -20),
    "power_watts": (80, 700, 3),
    "temperature_celsius": (30, 80, 0),
    "sm_clock_mhz": (1200, 1980, 0),
    "memory_clock_mhz": (2619, 2619, 0),
    "sm_active_percent": (0, 100, 3),
    "tensor_active_percent": (0, 100, 3),
    "dram_active_percent": (0, 100, 3),
}


class DrawnValues:
    """Values of every column, the same for all agents of a process; each message begins elsewhere in them."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._host = {name: _draw(random, *limits) for name, limits in _HOST_COLUMNS.items()}
        self._gpus = {name: _draw(random, *limits) for name, limits in _GPU_COLUMNS.items()}

    def records(self, node: SimulatedNode, number: int, ticks: range) -> bytes:
        """Return a serialised Records of one row a tick of the host, and one a tick and GPU; `number` picks values."""
        times_nano = 1000 * (node.start_unix_micros + node.period_micros * np.arange(ticks.start, ticks.stop))
        devices = [key(node.gpu_uuid(gpu)) for gpu in range(node.gpus)]
        records = Records()
        place = number * 977 + node.index
        _add_table(records, "host_samples", {"time": times_nano}, self._host, place)
        stamps = {"time": np.repeat(times_nano, node.gpus), "device_id": np.tile(np.array(devices), len(ticks))}
        _add_table(records, "gpu_samples", stamps, self._gpus, place)
        return records.SerializeToString()

    def series(
        self, node: SimulatedNode, number: int, millis: NDArray[Any]
    ) -> Iterator[tuple[int, str, NDArray[Any], NDArray[Any]]]:
        """Yield GPU (-1: the host), column, times and values of a message with these times, for another database."""
        start = (number * 977 + node.index) % (_DRAWN_ROWS - len(millis) * MAX_GPUS)
        for gpu in range(-1, node.gpus):
            for name, values in (self._host if gpu < 0 else self._gpus).items():
                at = start + max(gpu, 0) * len(millis)
                yield gpu, name, millis, values[at : at + len(millis)].astype(np.float64)


def _draw(random: np.random.Generator, lowest: float, highest: float, digits: int) -> Column:
    values = random.uniform(lowest, highest, _DRAWN_ROWS)
    return (values.astype("<i8") >> -digits) << -digits if digits < 0 else values.round(digits).astype("<f8")


def _add_table(records: Records, name: str, stamps: dict[str, Column], drawn: Mapping[str, Column], at: int) -> None:
    rows = len(stamps["time"])
    table = records.tables.add(name=name, rows=rows)
    start = at % (_DRAWN_ROWS - rows)
    for column, values in (stamps | {name: values[start : start + rows] for name, values in drawn.items()}).items():
        if values.dtype.kind == "i":
            table.columns.add(name=column, integers=values.tobytes())
        else:
            table.columns.add(name=column, doubles=values.tobytes())


def description(node: SimulatedNode) -> bytes:
    """Return the first message of a session: what the node and its GPUs are."""
    start_nano = 1000 * node.start_unix_micros
    session: Row = {
        "session_uuid": node.session_uuid,
        "node_uuid": node.node_uuid,
        "hostname": node.hostname,
        "platform": "load",
        "started_at": start_nano,
        "gpu_count": node.gpus,
        "rate_hz": 1e6 / node.period_micros,
    }
    devices: list[Row] = [
        {"time": start_nano, "device_id": key(node.gpu_uuid(gpu)), "uuid": node.gpu_uuid(gpu), "device_index": gpu}
        for gpu in range(node.gpus)
    ]
    return encode_records({"sessions": [session], "session_devices": devices})
