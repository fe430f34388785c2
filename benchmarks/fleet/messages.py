"""The messages of a node of eight H200 for the largest tables: GPUs, their power every 20 ms, host."""

from collections.abc import Iterator

import numpy as np

from benchmarks.gpu_series import GPUS, RATE_HZ, Floats, Integers, Rows, node_rows, records
from gpuagent_proto.v1.records_pb2 import Records

# At which an H200's driver writes its power buffer.
POWER_HZ = 50

_HOST = {
    "cpu_percent": 40.0,
    "cpu_user_percent": 30.0,
    "cpu_system_percent": 9.0,
    "cpu_iowait_percent": 0.5,
    "cpu_steal_percent": 0.1,
    "load_1m": 20.0,
}
_HOST_MEMORY_BYTES = 2e11


def node_messages(node: int, seconds: int, start_unix_nano: int) -> Iterator[bytes]:
    """Yield a message for each second."""
    random = np.random.default_rng(node)
    for rows in node_rows(node, seconds, start_unix_nano).messages(1):
        message = Records.FromString(records(rows))
        _add_power(message, rows, random)
        _add_host(message, rows, random)
        yield message.SerializeToString()


def _add_power(message: Records, rows: Rows, random: np.random.Generator) -> None:
    first = rows.device_ids()[:GPUS]
    count = GPUS * POWER_HZ
    between_nano = np.arange(POWER_HZ) * (10**9 // POWER_HZ)
    polled = rows.columns["power_watts"]
    watts = np.resize(polled[~np.isnan(polled)], count) + random.normal(0, 5, count)
    table = message.tables.add(name="power_samples", rows=count)
    table.columns.add(name="time", integers=_bytes(np.tile(rows.time_unix_nano[0] + between_nano, GPUS)))
    table.columns.add(name="device_id", integers=_bytes(np.repeat(first, POWER_HZ)))
    table.columns.add(name="power_watts", doubles=_bytes(np.round(watts, 3)))


def _add_host(message: Records, rows: Rows, random: np.random.Generator) -> None:
    table = message.tables.add(name="host_samples", rows=RATE_HZ)
    step_nano = np.arange(RATE_HZ) * (10**9 // RATE_HZ)
    table.columns.add(name="time", integers=_bytes(rows.time_unix_nano[0] + step_nano))
    for name, mean in _HOST.items():
        table.columns.add(name=name, doubles=_bytes(mean * random.normal(1, 0.1, RATE_HZ)))
    memory_bytes = (_HOST_MEMORY_BYTES + 4096 * random.integers(0, 1 << 16, RATE_HZ)).astype(np.int64)
    table.columns.add(name="memory_used_bytes", integers=_bytes(memory_bytes))


def _bytes(values: Floats | Integers) -> bytes:
    return values.tobytes()
