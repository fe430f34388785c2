"""`python -m benchmarks.fleet.one_node`: the messages of an agent whose eight GPUs answer like a recorded H200.

It finds no collector, so that everything is in its spool afterwards. The recording's power buffer ends after some
seconds; power_samples are therefore left out here, and come with 50 rows a second and GPU.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.gpu_series import GPUS
from benchmarks.machine import show
from gpuagent.agent import Agent
from gpuagent.agent_config import AgentConfig
from gpuagent.delivery.spool import Spool
from gpuagent.delivery.uplink import Delivery
from gpuagent_proto.v1.records_pb2 import Records
from tests.support.nvml_replay import ANY, FOLDER, NOT_SUPPORTED, NvmlRecording

SECONDS = 20
# Messages at the start, which describe the node.
_WARM_UP = 4

_POWER = "power_samples"
_STAMPS = ("time", "device_id")


def main() -> None:
    """Print rows, values and bytes a second of each table."""
    with tempfile.TemporaryDirectory(prefix="gpuagent-node-") as name:
        messages = _messages(Path(name))[_WARM_UP:]
    rows, values, size_bytes = Counter[str](), Counter[str](), Counter[str]()
    for message in messages:
        for table in message.tables:
            rows[table.name] += table.rows
            values[table.name] += sum(
                _present(column.validity, table.rows) for column in table.columns if column.name not in _STAMPS
            )
            size_bytes[table.name] += table.ByteSize()
    shown = Table("table", "rows a second", "values a second", "bytes a second")
    for name in sorted(set(rows) - {_POWER}, key=lambda each: -rows[each]):
        counts = (counter[name] / len(messages) for counter in (rows, values, size_bytes))
        shown.add_row(name, *(f"{count:,.1f}" for count in counts))
    show(shown)


def _messages(folder: Path) -> Sequence[Records]:
    (folder / "token").touch(mode=0o600)
    config = AgentConfig(
        collector="127.0.0.1:1",
        token_file=folder / "token",
        platform="bench",
        python=sys.executable,
        spool=folder / "spool",
        delivery=Delivery(seconds=0),
    )
    with Agent(config, open_nvml=_eight_gpus().open):
        time.sleep(SECONDS)
    spool = Spool(folder / "spool" / "spool.sqlite", node_uuid="reader", limit_bytes=1 << 30)
    try:
        return [Records.FromString(message.records) for message in spool.messages_after(0, limit=1000)]
    finally:
        spool.close()


def _eight_gpus() -> NvmlRecording:
    text = (FOLDER / "h200_busy.json").read_text()
    (recorded,) = json.loads(text)["devices()"][0]["answer"]
    devices = [f"{recorded[:-1]}{number}" for number in range(GPUS)]
    outcomes = {ANY: [NOT_SUPPORTED]}
    for device in devices:
        outcomes |= json.loads(text.replace(recorded, device))
    return NvmlRecording(outcomes | {"devices()": [{"answer": devices}]})


def _present(validity: bytes, rows: int) -> int:
    return int.from_bytes(validity, "little").bit_count() if validity else rows


if __name__ == "__main__":
    main()
